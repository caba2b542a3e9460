"""Servers on an engine of their own, whose sandboxes have network policies."""

import json
import os
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from conftest import Api, Box
from second_engine import ALLOWED, FORBIDDEN, RESOLVER, Engine, egress_image
from second_server import Server
from waiting import PATIENCE, wait_until

KEY = "key-of-a-second-server-000000"
SETTINGS = """
[server]
host = "127.0.0.1"
port = 1
api_key = "{key}"

[runtime]
type = "docker"

[docker]
network_mode = "{network}"
publish_host = "127.0.0.1"

[egress]
{image}
mode = "dns+nft"
dns_upstreams = ["{resolver}"]
{more}

[store]
type = "sqlite"
path = "{folder}/store.db"
"""

#: Tries without a pause, and records each result that a policy must prevent. Takes the addresses that
#: are allowed and forbidden, and a name server.
PROBE = """
import json, os, socket, struct, sys, threading, time

allowed, forbidden, resolver = sys.argv[1:]
tries = dict.fromkeys(("connect", "datagram", "ask", "allowed", "resolved"), 0)
open_at = []

def connect(address):
    with socket.socket() as stream:
        stream.settimeout(1)
        stream.connect((address, 80))
        return True

def ask(name):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    query = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + bytes(1) + struct.pack(">HH", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.settimeout(1)
        asked.sendto(query, (resolver, 53))
        answer = asked.recv(4096)
    return answer[3] & 15 == 0 and answer[6:8] != bytes(2)

def send(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        datagram.sendto(b"leak", (address, 9))
    # Only the other side knows whether it arrived.
    return False

def forever(kind, act, argument, is_forbidden):
    while True:
        begun = time.time()
        try:
            succeeded = act(argument)
        except OSError:
            succeeded = False
        if succeeded and is_forbidden:
            open_at.append((kind, begun))
        tries[kind] += is_forbidden or succeeded
        time.sleep(0.002)

for work in (
    ("connect", connect, forbidden, True),
    ("datagram", send, forbidden, True),
    ("ask", ask, "forbidden.example", True),
    ("allowed", connect, allowed, False),
    ("resolved", ask, "allowed.example", False),
):
    threading.Thread(target=forever, args=work, daemon=True).start()
while True:
    # All reports have one length: who copies the file reads its length first and its content later,
    # when it may be another.
    with open("/tmp/probe.new", "w") as file:
        file.write(json.dumps({"tries": tries, "open": open_at[:9]}).ljust(2048))
    os.rename("/tmp/probe.new", "/tmp/probe.json")
    time.sleep(0.02)
"""
FORBIDDEN_KINDS = ("connect", "datagram", "ask")
KINDS = (*FORBIDDEN_KINDS, "allowed", "resolved")
#: Tries after which a kind counts as seen.
ENOUGH = 20


def settings(folder: Path, more: str = "", network: str = "bridge", has_image: bool = True) -> str:
    image = f'image = "{egress_image()}"' if has_image else ""
    return SETTINGS.format(key=KEY, image=image, resolver=RESOLVER, folder=folder, more=more, network=network)


class GuardedServer(Server):
    """A server on the second engine."""

    def __init__(self, engine: Engine, folder: Path, image: str, run_id: str, **further):
        self.engine = engine
        super().__init__(folder, settings(folder, **further), image, run_id)

    def start(self, **further) -> None:
        super().start(env=os.environ | {"DOCKER_HOST": self.engine.address}, **further)

    def state(self, sandbox_id: str) -> tuple[str, str]:
        status = self.api.http.get(f"/v1/sandboxes/{sandbox_id}").json()["status"]
        return status["state"], status["reason"]

    def clear(self) -> None:
        for sandbox in self.api.http.get("/v1/sandboxes", params={"pageSize": 200}).json()["items"]:
            self.api.delete(sandbox["id"])


def refused_start(engine: Engine, folder: Path, more: str, network: str) -> str:
    """Start a server that must refuse its settings, and return why it did."""
    config = folder / "refused.toml"
    config.write_text(settings(folder, more, network))
    command = [os.environ["OPENSANDBOX_TEST_SERVER_BINARY"], "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=os.environ | {"DOCKER_HOST": engine.address})
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


class Prober:
    """A program in a sandbox that tries all the time what the sandbox's policy forbids."""

    def __init__(self, engine: Engine, box: Box):
        self.engine, self.box = engine, box
        self.main = engine.container(box.id)
        # An earlier one may have left its report.
        box.run("rm -f /tmp/probe.json")
        box.write("/tmp/probe.py", PROBE)
        box.start(f"python3 /tmp/probe.py {ALLOWED} {FORBIDDEN} {RESOLVER}")
        wait_until("the prober has begun", self.read)

    def read(self) -> bytes | None:
        """Read the file of its report, also from a container that is frozen or has ended."""
        command = ["docker", "--host", self.engine.address, "cp", f"{self.main}:/tmp/probe.json", "-"]
        read = subprocess.run(command, capture_output=True, timeout=PATIENCE)
        return read.stdout if read.returncode == 0 else None

    def report(self) -> dict:
        packed = self.read()
        assert packed is not None, "there is no report"
        with tarfile.open(fileobj=BytesIO(packed)) as files:
            return json.load(files.extractfile("probe.json"))

    def goes_on(self, *kinds: str) -> None:
        """Wait until it has tried all of these again."""
        before = self.report()["tries"]

        def has_tried() -> bool:
            now = self.report()["tries"]
            return all(now[kind] >= before[kind] + ENOUGH for kind in kinds or KINDS)

        wait_until(f"further tries: {kinds or KINDS}", has_tried)

    def is_cut_off(self) -> None:
        """Check that its network is gone: while it tries on, nothing succeeds."""
        self.goes_on(*FORBIDDEN_KINDS)
        before = self.report()["tries"]
        self.goes_on(*FORBIDDEN_KINDS)
        now = self.report()["tries"]
        assert (now["allowed"], now["resolved"]) == (before["allowed"], before["resolved"])

    def saw_nothing_open(self) -> None:
        """Check that nothing forbidden ever succeeded, as both sides saw it."""
        report = self.report()
        assert report["open"] == [], report
        internet = self.engine.internet
        assert internet.reached[FORBIDDEN] == 0, internet.reached
        assert internet.asked["forbidden.example"] == 0, internet.asked


def limited(api: Api, **changes):
    """Create a sandbox that reaches one address and one name."""
    rules = [{"action": "allow", "target": target} for target in (ALLOWED, "allowed.example")]
    return api.sandbox(networkPolicy={"egress": rules}, **changes)
