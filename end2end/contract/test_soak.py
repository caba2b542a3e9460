"""Sandboxes that come and go leave nothing behind: no memory, tasks, descriptors, containers, volumes."""

import json
import os
import random
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import httpx

from conftest import Api, Box
from second_server import server  # noqa: F401
from waiting import PATIENCE, wait_until

FULL = "OPENSANDBOX_TEST_FULL" in os.environ
#: Sandboxes that live at a time.
CROWD = 20
#: How long the soak lasts, and after how much of it the server is measured without sandboxes, in seconds.
DURATION, PERIOD = (1800, 120) if FULL else (0, 0)
#: The first rounds fill caches, pools and the allocator.
WARM_UP = 3
#: Idle connections to the engine and to clients, which come and go, with their tasks.
SLACK = 8
#: What the resident memory may differ by between two rounds without a leak, in bytes.
MEMORY = 6 * 1024 * 1024


@dataclass
class Reading:
    """The server without sandboxes."""

    sandboxes: int
    resident: float
    tasks: float
    descriptors: float


def read(api: Api, sandboxes: int) -> Reading:
    page = api.http.get("/metrics").text
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    names = ("process_resident_memory_bytes", "opensandbox_tasks", "process_open_fds")
    return Reading(sandboxes, *(float(values[name]) for name in names))


def engine(*arguments: str) -> set[str]:
    return set(subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True, timeout=PATIENCE).stdout.split())


def commands(box: Box, dice: random.Random) -> None:
    number = dice.randrange(1000)
    assert box.run(f"echo {number}") == (f"{number}\n", 0)
    box.write("/tmp/file", "x" * number)


def pause(box: Box, _: random.Random) -> None:
    path = f"/v1/sandboxes/{box.id}"
    for verb, state in (("pause", "Paused"), ("resume", "Running")):
        reply = box.api.http.post(f"{path}/{verb}")
        assert reply.status_code == 202, reply.text
        wait_until(state, lambda state=state: box.api.http.get(path).json()["status"]["state"] == state)


def change(box: Box, dice: random.Random) -> None:
    path = f"/v1/sandboxes/{box.id}"
    until = (datetime.now(timezone.utc) + timedelta(hours=1)).isoformat()
    assert box.api.http.post(f"{path}/renew-expiration", json={"expiresAt": until}).status_code == 200
    assert box.api.http.patch(f"{path}/metadata", json={"round": str(dice.randrange(1000))}).status_code == 200


def proxied(box: Box, _: random.Random) -> None:
    assert box.api.http.get(f"{box.proxy}/44772/ping").status_code == 200
    assert box.api.http.get(f"{box.proxy}/9/nothing-listens-here").status_code >= 500


def abandoned(box: Box, _: random.Random) -> None:
    # A client that goes while a stream is open.
    endpoint = box.endpoint(44772)
    url = f"http://{endpoint['endpoint']}/command"
    with httpx.stream("POST", url, json={"command": "sleep 30"}, headers=endpoint.get("headers", {}), timeout=PATIENCE) as reply:
        assert reply.status_code == 200
        next(reply.iter_lines())


def refused(box: Box, _: random.Random) -> None:
    assert box.api.http.post("/v1/sandboxes", json=box.api.body(timeout=-1)).status_code == 422
    assert box.api.http.get("/v1/sandboxes/none").status_code == 404


WORK: list[Callable[[Box, random.Random], None]] = [commands, pause, change, proxied, abandoned, refused]


def one_life(api: Api, dice: random.Random) -> set[str]:
    """Use a sandbox, and return the volumes that it had."""
    with api.sandbox(metadata={"soak": api.run_id}) as box:
        mine = engine("ps", "--all", "--quiet", "--filter", f"label=opensandbox.io/id={box.id}")
        volumes = engine("inspect", "--format", "{{range .Mounts}}{{.Name}} {{end}}", *mine)
        for work in dice.sample(WORK, 3):
            work(box, dice)
    return volumes


def one_round(api: Api, dice: random.Random, end: float) -> list[set[str]]:
    """Let each of the crowd's places have one sandbox after the other until ``end``, at least one.
    Return the volumes of each."""

    def place(seed: float) -> list[set[str]]:
        dice, lives = random.Random(seed), []
        while not lives or time.monotonic() < end:
            lives.append(one_life(api, dice))
        return lives

    with ThreadPoolExecutor(CROWD) as places:
        return sum(places.map(place, [dice.random() for _ in range(CROWD)]), [])


def test_sandboxes_that_come_and_go_leave_nothing(server):
    api, dice = server.api, random.Random(11)
    mine = ("--filter", f"label=soak={api.run_id}")
    lives = [one_life(api, dice)]
    before = read(api, 1)
    readings = []
    end = time.monotonic() + DURATION
    while len(readings) <= WARM_UP or time.monotonic() < end:
        lives += one_round(api, dice, time.monotonic() + PERIOD)
        assert api.http.get("/v1/sandboxes").json()["items"] == []
        wait_until("the containers are gone", lambda: not engine("ps", "--all", "--quiet", *mine))
        last = read(api, len(lives))

        def settled() -> bool:
            nonlocal last
            last = read(api, len(lives))
            return last.tasks <= before.tasks + SLACK and last.descriptors <= before.descriptors + SLACK

        wait_until(f"tasks and descriptors are as few as {before}", settled)
        readings.append(last)
        print(json.dumps(vars(last)), flush=True)
    # Other servers use the engine at the same time. One volume holds the runtime's programs for all
    # sandboxes of this one.
    left = engine("volume", "ls", "--quiet") & set.union(*lives)
    assert len(left) <= 1, left
    if FULL:
        early = max(reading.resident for reading in readings[:WARM_UP])
        late = min(reading.resident for reading in readings[-WARM_UP:])
        assert late - early <= MEMORY, readings
