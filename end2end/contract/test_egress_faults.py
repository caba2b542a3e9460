"""No moment in which a sandbox reaches what its network policy forbids, whatever is killed.

A program in the sandbox tries all the time, and the other side records what arrives.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from guarded import GuardedServer, Prober, limited
from second_engine import ALLOWED, FORBIDDEN, Engine
from waiting import PATIENCE, patient, wait_until


#: Until then the server waits for a sidecar that cannot start, in seconds.
READINESS = patient(10)


@pytest.fixture(scope="module", autouse=True)
def on_the_engines_host(engine) -> Iterator[None]:
    with engine.namespace.entered():
        yield


@pytest.fixture(scope="module", params=[0, 2], ids=["cold", "warm"])
def warm(request) -> int:
    """How many sidecars the server keeps ready."""
    return request.param


@pytest.fixture(scope="module")
def server(engine, target, run_id, tmp_path_factory, warm) -> Iterator[GuardedServer]:
    more = f"readiness_timeout_seconds = {READINESS}.0\nwarm_sidecars = {warm}"
    server = GuardedServer(engine, tmp_path_factory.mktemp("server"), target.image, run_id, more=more)
    server.start()
    try:
        yield server
        server.clear()
    finally:
        server.stop()


@pytest.fixture
def box(engine, server, warm) -> Iterator:
    engine.internet.reached.clear()
    engine.internet.asked.clear()
    wait_until("warm sidecars", lambda: ready_sidecars(server) == warm)
    with limited(server.api) as box:
        yield box


@pytest.fixture
def prober(engine, box) -> Prober:
    prober = Prober(engine, box)
    prober.goes_on()
    return prober


def ready_sidecars(server: GuardedServer) -> int:
    lines = server.api.http.get("/metrics").text.splitlines()
    name = "opensandbox_egress_warm_sidecars "
    return sum(int(line.removeprefix(name)) for line in lines if line.startswith(name))


def process_of(engine: Engine, container: str) -> int:
    return int(engine.docker("inspect", "--format", "{{.State.Pid}}", container))


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def interfaces(engine: Engine, container: str) -> list[str]:
    """Network interfaces of a container, without the loopback interface."""
    listed = Path(f"/proc/{process_of(engine, container)}/net/dev").read_text().splitlines()[2:]
    return [line.split(":")[0].strip() for line in listed if line.split(":")[0].strip() != "lo"]


def policy_targets(server: GuardedServer, sandbox_id: str) -> list[str]:
    reply = server.api.http.get(f"/v1/sandboxes/{sandbox_id}/networkpolicy")
    assert reply.status_code == 200, reply.text
    return [rule["target"] for rule in reply.json()["policy"]["egress"]]


def test_the_prober_notices_what_is_open(engine, server):
    # Otherwise the tests below would pass whatever happens.
    with server.api.sandbox() as open_box:
        prober = Prober(engine, open_box)
        prober.goes_on()
        seen = prober.report()
        assert {kind for kind, _ in seen["open"]} <= {"connect", "ask"} and seen["open"], seen
        assert engine.internet.reached[FORBIDDEN] and engine.internet.asked["forbidden.example"]


def test_a_killed_worker_is_replaced_and_opens_nothing(engine, server, box, prober):
    supervisor = process_of(engine, engine.container(box.id, "egress"))
    for _ in range(3):
        [worker] = children(supervisor)
        os.kill(worker, signal.SIGKILL)
        wait_until("another worker", lambda worker=worker: children(supervisor) not in ([], [worker]))
        prober.goes_on()
    prober.saw_nothing_open()
    assert server.state(box.id)[0] == "Running"
    assert sorted(policy_targets(server, box.id)) == sorted([ALLOWED, "allowed.example"])


def test_a_worker_goes_on_with_the_latest_policy(engine, server, box, prober):
    path = f"/v1/sandboxes/{box.id}/networkpolicy"
    assert server.api.http.patch(path, json=[{"action": "deny", "target": ALLOWED}]).status_code == 200
    before = prober.report()["tries"]["allowed"]
    supervisor = process_of(engine, engine.container(box.id, "egress"))
    [worker] = children(supervisor)
    os.kill(worker, signal.SIGKILL)
    wait_until("another worker", lambda: children(supervisor) not in ([], [worker]))
    prober.goes_on("connect", "datagram", "ask", "resolved")
    # What a change refused stays refused, also for connections that the first policy allowed.
    assert prober.report()["tries"]["allowed"] == before
    assert server.api.http.get(path).json()["policy"]["egress"][0] == {"action": "deny", "target": ALLOWED}
    prober.saw_nothing_open()


def test_a_sandbox_whose_supervisor_is_killed_fails_and_has_no_network(engine, server, box, prober):
    main = engine.container(box.id)
    assert len(interfaces(engine, main)) == 1
    os.kill(process_of(engine, engine.container(box.id, "egress")), signal.SIGKILL)
    wait_until("the loss", lambda: server.state(box.id) == ("Failed", "EGRESS_LOST"))
    prober.is_cut_off()
    assert interfaces(engine, main) == []
    prober.saw_nothing_open()
    # Its address may be another sandbox's by now.
    reply = server.api.http.get(f"/v1/sandboxes/{box.id}/networkpolicy")
    assert reply.status_code == 500 and "egress container ended" in reply.text, reply.text


def test_a_sidecar_that_an_operator_restarts_does_not_come_back(engine, server, box, prober):
    main = engine.container(box.id)
    sidecar = engine.container(box.id, "egress")
    engine.docker("restart", "--time", "1", sidecar)
    wait_until("the loss", lambda: server.state(box.id) == ("Failed", "EGRESS_LOST"))
    # The sidecar runs again, in another network namespace than the sandbox.
    assert engine.docker("inspect", "--format", "{{.State.Running}}", sidecar) == "true"
    prober.is_cut_off()
    assert interfaces(engine, main) == []
    assert server.state(box.id) == ("Failed", "EGRESS_LOST")
    # A server that starts finds the same.
    server.kill()
    server.start()
    assert server.state(box.id) == ("Failed", "EGRESS_LOST")
    prober.is_cut_off()
    prober.saw_nothing_open()


def test_a_killed_server_changes_nothing(engine, server, box, prober):
    server.kill()
    prober.goes_on()
    server.start()
    assert server.state(box.id)[0] == "Running"
    prober.goes_on()
    assert sorted(policy_targets(server, box.id)) == sorted([ALLOWED, "allowed.example"])
    # The policy that was set before another kill is in force after it.
    path = f"/v1/sandboxes/{box.id}/networkpolicy"
    assert server.api.http.patch(path, json=[{"action": "deny", "target": ALLOWED}]).status_code == 200
    server.kill()
    prober.goes_on("connect", "datagram", "ask", "resolved")
    server.start()
    before = prober.report()["tries"]["allowed"]
    prober.goes_on("connect", "datagram", "ask", "resolved")
    assert prober.report()["tries"]["allowed"] == before
    prober.saw_nothing_open()


def test_a_server_that_is_killed_during_a_create_leaves_nothing_unguarded(engine, server, warm):
    internet = engine.internet
    internet.reached.clear()
    # The sandbox's first command connects as soon as it can.
    connect = f"while :; do curl -s -m 1 -o /dev/null http://{FORBIDDEN}/; done"
    body = server.api.body(networkPolicy={}, entrypoint=["sh", "-c", connect])
    for steps in (0, 1, 2):
        with httpx.Client(base_url=server.api.http.base_url, headers=server.api.http.headers, timeout=PATIENCE) as client:

            def create(client=client) -> None:
                with contextlib.suppress(httpx.HTTPError):
                    client.post("/v1/sandboxes", json=body)

            wait_until("warm sidecars", lambda: ready_sidecars(server) == warm)
            known = set(engine.docker("ps", "--all", "--quiet").split())
            thread = threading.Thread(target=create)
            thread.start()
            # Killed when it has sent its request, has made one container, or both; with a warm sidecar,
            # the second one is that which is started in its place.
            wait_until("the create goes on", lambda: len(set(engine.docker("ps", "--all", "--quiet").split()) - known) >= steps)
            server.kill()
            thread.join()
        server.start()
        server.clear()
        assert internet.reached[FORBIDDEN] == 0


def test_a_create_whose_sidecar_cannot_start_leaves_nothing(engine, server, warm):
    wait_until("warm sidecars", lambda: ready_sidecars(server) == warm)
    # A create that the engine still worked on when its server was killed is swept a while later.
    wait_until("a clean engine", lambda: len(engine.docker("ps", "--all", "--quiet").split()) == warm)
    engine.internet.reached.clear()
    connect = ["curl", "-s", "-m", "1", f"http://{FORBIDDEN}/"]
    env = {"OPENSANDBOX_EGRESS_DENY_WEBHOOK": "no address"}
    reply = server.api.http.post("/v1/sandboxes", json=server.api.body(networkPolicy={}, entrypoint=connect, env=env))
    assert reply.status_code == 500, reply.text
    message = reply.json()["message"]
    # The last lines of the sidecar's log are in it, in whichever format the last one had.
    assert f"did not enforce the network policy within {READINESS} s: " in message
    assert "OPENSANDBOX_EGRESS_DENY_WEBHOOK: must be an http or https URL" in message
    assert len(engine.docker("ps", "--all", "--quiet").split()) == warm
    assert server.api.http.get("/v1/sandboxes").json()["items"] == []
    assert engine.internet.reached[FORBIDDEN] == 0


@pytest.mark.parametrize("live_restore", [True, False], ids=["live-restore", "plain"])
def test_a_killed_engine_opens_nothing(engine, server, live_restore):
    # The setting counts from the engine's next start.
    engine.kill()
    engine.start(live_restore)
    wait_until("the server is ready", server.ready)
    engine.internet.reached.clear()
    engine.internet.asked.clear()
    with limited(server.api) as box:
        prober = Prober(engine, box)
        prober.goes_on()
        allowed = engine.internet.reached[ALLOWED]
        engine.kill()
        # Sandboxes do not need the engine.
        wait_until("connections without the engine", lambda: engine.internet.reached[ALLOWED] >= allowed + 20)
        engine.start(live_restore)
        wait_until("the server is ready", server.ready)
        if live_restore:
            prober.goes_on()
            assert server.state(box.id)[0] == "Running"
            assert sorted(policy_targets(server, box.id)) == sorted([ALLOWED, "allowed.example"])
        else:
            # The engine ends the containers of its predecessor.
            wait_until("the end", lambda: server.state(box.id)[0] == "Failed")
            assert engine.docker("ps", "--quiet", "--filter", f"label=opensandbox.io/id={box.id}") == ""
        prober.saw_nothing_open()


def test_a_pause_opens_nothing(engine, server, box, prober):
    for _ in range(3):
        assert server.api.http.post(f"/v1/sandboxes/{box.id}/pause").status_code == 202
        assert server.state(box.id)[0] == "Paused"
        frozen = prober.report()["tries"]
        assert prober.report()["tries"] == frozen
        assert server.api.http.post(f"/v1/sandboxes/{box.id}/resume").status_code == 202
        prober.goes_on()
    prober.saw_nothing_open()


def test_rules_of_a_restarted_sandbox_are_in_force(engine, server, box, prober):
    # The main container joins the network of its sidecar again.
    engine.docker("restart", "--time", "1", engine.container(box.id))
    wait_until("execd answers", lambda: is_up(box))
    again = Prober(engine, box)
    again.goes_on()
    assert server.state(box.id)[0] == "Running"
    again.saw_nothing_open()


def is_up(box) -> bool:
    try:
        return box.execd("GET", "/ping").status_code == 200
    except (AssertionError, httpx.TransportError):
        # It has no endpoints while its container does not run.
        return False
