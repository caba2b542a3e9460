"""execd in minimal images: with a small shell, without a shell, and with a read-only root."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from conftest import Box
from waiting import PATIENCE, patient, wait_until

#: Token of the read-only execd, which runs without a server.
TOKEN = "images"


def docker(*arguments: str) -> str:
    """Run the engine's command-line client."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=patient(600))
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr[-2000:]}"
    return done.stdout.strip()


@pytest.fixture(scope="session")
def image(target, run_id):
    """Build one of the images; all are removed afterwards."""
    if shutil.which("docker") is None:
        pytest.skip("needs the engine's client to build images")
    made = []

    def build(stage: str) -> str:
        name = f"opensandbox-test-{stage}:{run_id}"
        if name not in made:
            folder = Path(__file__).with_name("images")
            docker("build", "-q", "--build-arg", f"BASE={target.image}", "--target", stage, "-t", name, str(folder))
            made.append(name)
        return name

    yield build
    for name in made:
        docker("rmi", "-f", name)


@pytest.fixture(scope="session")
def busybox(api, image) -> Iterator[Box]:
    with api.sandbox(image={"uri": image("busybox")}, entrypoint=["sleep", "1000000"]) as box:
        yield box


@pytest.fixture(scope="session")
def shellless(api, image) -> Iterator[Box]:
    with api.sandbox(image={"uri": image("shellless")}, entrypoint=["/app/busybox", "sleep", "1000000"]) as box:
        yield box


def events(reply: httpx.Response) -> list[dict]:
    assert reply.status_code == 200, reply.text
    return [json.loads(frame) for frame in reply.text.split("\n\n") if frame]


def texts(reply: httpx.Response, kind: str = "stdout") -> list[str]:
    return [event["text"] for event in events(reply) if event["type"] == kind]


def test_commands_run_in_the_available_shell(busybox):
    assert busybox.run("echo $0 | grep -c sh; id -un; exit 5") == ("1\nroot\n", 5)
    reply = busybox.execd("POST", "/command", json={"argv": ["echo", "a b"]})
    assert texts(reply) == ["a b"]


def test_a_session_keeps_its_state_without_bash(busybox):
    session = busybox.execd("POST", "/session", json={}).json()["session_id"]
    run = f"/session/{session}/run"
    busybox.execd("POST", run, json={"command": "cd /etc; export A='x y'"})
    assert texts(busybox.execd("POST", run, json={"command": 'echo "$PWD $A"'})) == ["/etc x y"]
    assert busybox.execd("DELETE", f"/session/{session}").status_code == 200


def test_files_work_without_any_tools(shellless):
    shellless.write("/data/deep/file.txt", "one\ntwo\n")
    info = shellless.execd("GET", "/files/info", params={"path": "/data/deep/file.txt"}).json()
    assert info["/data/deep/file.txt"]["size"] == 8
    found = shellless.execd("GET", "/files/search", params={"path": "/data", "pattern": "**/*.txt"}).json()
    assert [file["path"] for file in found] == ["/data/deep/file.txt"]
    reply = shellless.execd("GET", "/files/download", params={"path": "/data/deep/file.txt"}, headers={"Range": "bytes=4-6"})
    assert (reply.status_code, reply.text) == (206, "two")
    assert shellless.execd("GET", "/metrics").json()["mem_total_mib"] > 0


def test_without_a_shell_programs_run_and_shell_commands_fail_with_a_reason(shellless):
    reply = shellless.execd("POST", "/command", json={"argv": ["/app/busybox", "echo", "hello"]})
    assert texts(reply) == ["hello"]
    last = events(shellless.execd("POST", "/command", json={"command": "echo hello"}))[-1]
    assert last["type"] == "error"
    assert "sh" in last["error"]["evalue"]


def test_without_a_shell_a_terminal_fails_with_a_reason(shellless):
    """Creating a session starts no shell; the first client does, and gets the error."""
    made = shellless.execd("POST", "/pty", json={})
    assert made.status_code == 201
    session = made.json()["session_id"]
    endpoint = shellless.endpoint(44772)
    url = f"ws://{endpoint['endpoint']}/pty/{session}/ws"
    with connect(url, additional_headers=endpoint["headers"], open_timeout=PATIENCE) as socket:
        message = json.loads(socket.recv(PATIENCE))
        assert (message["type"], message["code"]) == ("error", "START_FAILED")
        assert "neither bash nor sh" in message["error"]
        with pytest.raises(ConnectionClosed) as ended:
            socket.recv(PATIENCE)
    assert (ended.value.rcvd.code, ended.value.rcvd.reason) == (1011, "START_FAILED")
    assert shellless.execd("GET", f"/pty/{session}").json()["running"] is False
    assert shellless.execd("DELETE", f"/pty/{session}").status_code == 200


@contextlib.contextmanager
def read_only_execd(image: str) -> Iterator[httpx.Client]:
    """execd as the init process of a container with a read-only root."""
    program = Path(os.environ["OPENSANDBOX_TEST_SERVER_BINARY"]).with_name("execd")
    container = docker(
        "run", "-d", "--read-only", "-p", "127.0.0.1::44772", "-v", f"{program}:/execd:ro",
        "-e", f"EXECD_ACCESS_TOKEN={TOKEN}", image, "/execd", "init", "--", "sleep", "1000000",
    )  # fmt: skip
    try:
        address = docker("port", container, "44772/tcp").splitlines()[0]
        headers = {"X-EXECD-ACCESS-TOKEN": TOKEN}
        with httpx.Client(base_url=f"http://{address}", headers=headers, timeout=PATIENCE) as http:

            def answers() -> bool:
                try:
                    return http.get("/ping").status_code == 200
                except httpx.TransportError:
                    return False

            wait_until("execd answers", answers)
            yield http
    finally:
        docker("rm", "-f", container)


def test_a_read_only_root(target):
    if "OPENSANDBOX_TEST_SERVER_BINARY" not in os.environ or shutil.which("docker") is None:
        pytest.skip("needs the engine's client and a build of execd")
    with read_only_execd(target.image) as http:
        reply = http.post("/command", json={"command": "touch /x; seq 1 300000 | tail -n 1"})
        assert texts(reply) == ["300000"]
        assert "Read-only" in texts(reply, "stderr")[0]
        # More output than execd keeps in memory: it goes to the only writable place.
        started = events(http.post("/command", json={"command": "seq 1 100000", "background": True}))
        run = started[0]["text"]
        status = f"/command/status/{run}"
        wait_until("the command ended", lambda: not http.get(status).json()["running"])
        assert http.get(f"/command/{run}/logs").text.endswith("\n100000\n")
        parts = [
            ("metadata", ("metadata", json.dumps({"path": "/x"}), "application/json")),
            ("file", ("file", b"x", "application/octet-stream")),
        ]
        refused = http.post("/files/upload", files=parts)
        assert refused.status_code == 500
        assert "Read-only" in refused.json()["message"]
        parts[0] = ("metadata", ("metadata", json.dumps({"path": "/dev/shm/x"}), "application/json"))
        assert http.post("/files/upload", files=parts).status_code == 200
        session = http.post("/session", json={}).json()["session_id"]
        run = f"/session/{session}/run"
        http.post(run, json={"command": "cd /etc"})
        assert texts(http.post(run, json={"command": "pwd"})) == ["/etc"]
