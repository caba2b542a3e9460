"""What goes wrong inside a sandbox stays there, and is told."""

import json
import subprocess

import httpx

from conftest import PATIENCE
from waiting import wait_until


def test_a_fork_bomb_meets_the_limit_and_the_sandbox_lives_on(api):
    # Memory for as many processes as there may be.
    with api.sandbox(resourceLimits={"cpu": "2", "memory": "4Gi"}) as box:
        bomb = box.start("while :; do sleep 1000 & done 2>/dev/null")

        def refused():
            reply = box.execd("POST", "/command", json={"command": "true"})
            assert reply.status_code == 200
            last = json.loads(reply.text.rstrip("\n").split("\n\n")[-1])
            return last if last["type"] == "error" else None

        told = wait_until("no process is left", refused, seconds=120)
        assert told["error"]["evalue"]
        assert box.execd("GET", "/ping").status_code == 200
        assert box.execd("GET", "/files/info", params={"path": "/etc/passwd"}).status_code == 200

        def ended():
            box.execd("DELETE", "/command", params={"id": bomb})
            return box.run("true")[1] == 0

        wait_until("the bomb is gone", ended, seconds=120)
        assert box.execd("GET", f"/command/status/{bomb}").json()["running"] is False


def test_a_daemon_that_was_killed_is_told_and_nobody_hangs(api):
    """execd is the init of its sandbox: with it everything ends, and the state says so."""
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
            # Its own init cannot be killed from within; memory that runs out does it, and so does this.
            _kill(box.id)
            try:
                for _ in lines:
                    pass
            except httpx.TransportError:
                pass
        path = f"/v1/sandboxes/{box.id}"

        def state():
            return api.http.get(path).json()["status"]

        ended = wait_until("the end is told", lambda: state()["state"] not in ("Running", "Pending") and state())
        assert ended["state"] in ("Terminated", "Failed"), ended
        assert ended["reason"] and ended["message"]
        reply = api.http.post(f"{box.proxy}/44772/command", json={"command": "true"})
        assert reply.status_code >= 400
        assert reply.json()["message"]


def _kill(sandbox_id: str) -> None:
    found = subprocess.run(
        ["docker", "ps", "-q", "--filter", f"label=opensandbox.io/id={sandbox_id}"], capture_output=True, text=True, timeout=60, check=True
    )
    subprocess.run(["docker", "kill", "-s", "KILL", found.stdout.strip()], capture_output=True, timeout=60, check=True)
