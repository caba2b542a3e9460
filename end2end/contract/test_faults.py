"""Faults inside a sandbox stay inside, and are reported."""

import json
import subprocess

import httpx

from waiting import PATIENCE, wait_until


def test_a_fork_bomb_hits_the_limit_and_the_sandbox_recovers(api):
    # Enough memory for the largest allowed number of processes.
    with api.sandbox(resourceLimits={"cpu": "2", "memory": "4Gi"}) as box:
        bomb = box.start("while :; do sleep 1000 & done 2>/dev/null")

        def refused():
            reply = box.execd("POST", "/command", json={"command": "true"})
            assert reply.status_code == 200
            last = json.loads(reply.text.rstrip("\n").split("\n\n")[-1])
            return last if last["type"] == "error" else None

        event = wait_until("no process is left", refused, seconds=120)
        assert event["error"]["evalue"]
        assert box.execd("GET", "/ping").status_code == 200
        assert box.execd("GET", "/files/info", params={"path": "/etc/passwd"}).status_code == 200

        def ended():
            box.execd("DELETE", "/command", params={"id": bomb})
            return box.run("true")[1] == 0

        wait_until("the bomb is gone", ended, seconds=120)
        assert box.execd("GET", f"/command/status/{bomb}").json()["running"] is False


def test_a_killed_daemon_is_reported_and_no_client_hangs(api):
    """execd is the init process of its sandbox: the sandbox ends with it, and the state reports that."""
    with api.sandbox() as box:
        endpoint = box.endpoint(44772)
        with httpx.stream(
            "POST",
            f"http://{endpoint['endpoint']}/command",
            json={"command": "echo started; sleep 1000"},
            headers=endpoint["headers"],
            timeout=PATIENCE,
        ) as reply:
            lines = reply.iter_lines()
            events = (json.loads(line) for line in lines if line)
            assert any((event["type"], event.get("text")) == ("stdout", "started") for event in events)
            # No process in the sandbox can kill its init; the kernel can when memory runs out, and so
            # can this helper.
            _kill(box.id)
            try:
                for _ in lines:
                    pass
            except httpx.TransportError:
                pass
        path = f"/v1/sandboxes/{box.id}"

        def state():
            return api.http.get(path).json()["status"]

        ended = wait_until("the end is reported", lambda: state()["state"] not in ("Running", "Pending") and state())
        assert ended["state"] in ("Terminated", "Failed"), ended
        assert ended["reason"] and ended["message"]
        reply = api.http.post(f"{box.proxy}/44772/command", json={"command": "true"})
        assert reply.status_code >= 400
        assert reply.json()["message"]


def _kill(sandbox_id: str) -> None:
    found = subprocess.run(
        ["docker", "ps", "-q", "--filter", f"label=opensandbox.io/id={sandbox_id}"], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    subprocess.run(["docker", "kill", "-s", "KILL", found.stdout.strip()], capture_output=True, timeout=PATIENCE, check=True)
