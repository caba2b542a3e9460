"""When a change of a network policy takes effect: before it is answered.

How soon that is, is measured and printed, because a busy machine delays everything.
"""

import json
import statistics
import time
from collections.abc import Iterator

import pytest

from conftest import Box
from guarded import GuardedServer
from second_engine import FORBIDDEN, RESOLVER
from waiting import wait_until

NAME = "forbidden.example"
#: Changes of each kind.
ROUNDS = 10
#: Tries after a change that must agree with it.
TRIES = 10

#: Tries one thing all the time, and writes a line for each try: when it began and ended, and whether it
#: succeeded. More tries would use up the ports of the sandbox: those of connections that a change of the
#: policy has cut off stay taken on the other side.
WATCH = """
import socket, struct, sys, time

kind, target, resolver, path = sys.argv[1:]

def connect():
    with socket.socket() as stream:
        stream.settimeout(5)
        stream.connect((target, 80))
    return True

def ask():
    labels = b"".join(bytes([len(label)]) + label.encode() for label in target.split("."))
    query = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + bytes(1) + struct.pack(">HH", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.settimeout(5)
        asked.sendto(query, (resolver, 53))
        answer = asked.recv(4096)
    return answer[3] & 15 == 0 and answer[6:8] != bytes(2)

with open(path, "w", buffering=1) as results:
    while True:
        begun = time.time()
        try:
            succeeded = {"connect": connect, "ask": ask}[kind]()
        except OSError:
            succeeded = False
        print(begun, time.time(), int(succeeded), file=results)
        time.sleep(0.004)
"""


@pytest.fixture(scope="module", autouse=True)
def on_the_engines_host(engine) -> Iterator[None]:
    with engine.namespace.entered():
        yield


@pytest.fixture(scope="module")
def server(engine, target, run_id, tmp_path_factory) -> Iterator[GuardedServer]:
    server = GuardedServer(engine, tmp_path_factory.mktemp("server"), target.image, run_id)
    server.start()
    try:
        yield server
        server.clear()
    finally:
        server.stop()


@pytest.fixture
def box(server) -> Iterator[Box]:
    with server.api.sandbox(networkPolicy={}) as box:
        yield box


class Watch:
    """A program in a sandbox that tries one thing all the time."""

    def __init__(self, engine, box: Box, kind: str, target: str):
        self.engine, self.main = engine, engine.container(box.id)
        self.path = f"/tmp/{kind}.results"
        box.write("/tmp/watch.py", WATCH)
        box.start(f"python3 /tmp/watch.py {kind} {target} {RESOLVER} {self.path}")

    def since(self, moment: float) -> list[tuple[float, float, bool]]:
        """Tries that began at a moment or later: when, until when, and whether they succeeded."""
        text = self.engine.docker("exec", self.main, "sh", "-c", f"touch {self.path}; tail -n 2000 {self.path}")
        # The program may be writing the last line.
        lines = [line.split() for line in text.splitlines()]
        tries = [(float(line[0]), float(line[1]), line[2] == "1") for line in lines if len(line) == 3]
        return [line for line in tries if line[0] >= moment]

    def after(self, moment: float) -> list[tuple[float, float, bool]]:
        return wait_until("tries after a change", lambda: len(tries := self.since(moment)) >= TRIES and tries)


def rule(action, target):
    return {"action": action, "target": target}


def changes(target: str) -> list[tuple[str, object, bool]]:
    """Requests that allow and refuse a target in turn, each with what is then the case."""
    return [
        ("PUT", {"egress": [rule("allow", target)]}, True),
        ("DELETE", [target], False),
        ("PATCH", [rule("allow", target)], True),
        ("PUT", {"egress": []}, False),
        ("PUT", {"defaultAction": "allow"}, True),
        ("PATCH", [rule("deny", target)], False),
    ]


@pytest.mark.parametrize(("kind", "goal"), [("connect", FORBIDDEN), ("ask", NAME)])
def test_a_change_is_in_force_when_it_is_answered(engine, box, capsys, kind, goal):
    watch = Watch(engine, box, kind, goal)
    assert not any(succeeded for *_, succeeded in watch.after(0))
    effects: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for method, body, expected in changes(goal):
            before = time.time()
            reply = box.api.http.request(method, f"/v1/sandboxes/{box.id}/networkpolicy", json=body)
            answered = time.time()
            assert reply.status_code == 200, reply.text
            tries = watch.after(answered)
            wrong = [line for line in tries if line[2] != expected]
            assert not wrong, f"{method} {json.dumps(body)}: answered at {answered}, and then {wrong}"
            first = next(line for line in watch.since(before) if line[2] == expected)
            effects.setdefault(method, []).append((first[1] - before) * 1000)
    with capsys.disabled():
        for method, times in effects.items():
            print(
                f"\n    {method} of a policy, seen by {kind}: in force after {statistics.median(times):.1f} ms "
                f"(median), {max(times):.1f} ms (longest of {len(times)})",
                end="",
            )
