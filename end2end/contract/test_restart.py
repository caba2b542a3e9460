"""A server that is killed at any moment loses nothing."""

import contextlib
import os
import random
import re
import resource
import socket
import subprocess
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

import httpx
import pytest

from conftest import KEY, Api
from second_server import server  # noqa: F401
from waiting import PATIENCE, patient, wait_until

def create(api: Api, **changes) -> dict:
    reply = api.http.post("/v1/sandboxes", json=api.body(**changes))
    assert reply.status_code == 202, reply.text
    return reply.json()


def test_sandboxes_and_their_expiry_survive_a_kill(server):
    api = server.api
    plain = create(api, metadata={"suite": api.run_id, "kind": "plain"})
    renewed = create(api, timeout=60)
    until = (datetime.now(timezone.utc) + timedelta(hours=2)).isoformat()
    until = api.http.post(f"/v1/sandboxes/{renewed['id']}/renew-expiration", json={"expiresAt": until}).json()["expiresAt"]
    api.http.patch(f"/v1/sandboxes/{plain['id']}/metadata", json={"kind": None, "patched": "yes"})
    forever = create(api, timeout=None)
    deleted = create(api)
    assert api.http.delete(f"/v1/sandboxes/{deleted['id']}").status_code == 204
    endpoint = api.http.get(f"/v1/sandboxes/{plain['id']}/endpoints/44772").json()

    server.kill()
    # Clients keep working without the server: endpoints lead to the sandbox itself.
    base = f"http://{endpoint['endpoint']}"
    assert httpx.get(f"{base}/ping", timeout=PATIENCE).status_code == 200
    server.start()

    listed = {item["id"]: item for item in api.http.get("/v1/sandboxes").json()["items"]}
    for created in (plain, renewed, forever):
        assert listed[created["id"]]["status"]["state"] == "Running"
    assert listed[renewed["id"]]["expiresAt"] == until
    assert listed[plain["id"]]["expiresAt"] == plain["expiresAt"]
    assert listed[plain["id"]]["metadata"] == {"suite": api.run_id, "patched": "yes"}
    assert "expiresAt" not in listed[forever["id"]]
    wait_until("the delete was finished", lambda: api.http.get(f"/v1/sandboxes/{deleted['id']}").status_code == 404)

    assert api.http.get(f"/v1/sandboxes/{plain['id']}/endpoints/44772").json() == endpoint
    reply = httpx.post(f"{base}/command", json={"command": "echo alive"}, headers=endpoint["headers"], timeout=PATIENCE)
    assert '"alive"' in reply.text


def test_an_expiry_during_the_outage_is_carried_out(server):
    api = server.api
    created = create(api, timeout=600)
    path = f"/v1/sandboxes/{created['id']}"
    moment = datetime.now(timezone.utc) + timedelta(seconds=patient(3))
    assert api.http.post(f"{path}/renew-expiration", json={"expiresAt": moment.isoformat()}).status_code == 200
    server.kill()
    wait_until("the moment passed", lambda: datetime.now(timezone.utc) > moment)
    server.start()
    wait_until("the expired sandbox is gone", lambda: api.http.get(path).status_code == 404)


def test_an_expiry_after_the_restart_is_carried_out(server):
    api = server.api
    created = create(api, timeout=600)
    path = f"/v1/sandboxes/{created['id']}"
    moment = datetime.now(timezone.utc) + timedelta(seconds=patient(8))
    assert api.http.post(f"{path}/renew-expiration", json={"expiresAt": moment.isoformat()}).status_code == 200
    server.kill()
    server.start()
    wait_until("the sandbox expired", lambda: api.http.get(path).status_code == 404)
    assert datetime.now(timezone.utc) >= moment


@dataclass
class Ledger:
    """What one client knows about its sandboxes. A request without a response may have taken effect."""

    #: Acceptable values of expiresAt by sandbox; more than one after a renewal without a response.
    alive: dict[str, set[str]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    #: A delete without a response.
    uncertain: set[str] = field(default_factory=set)
    #: Key of a create without a response.
    pending_key: str | None = None

    def create(self, api: Api) -> None:
        self.pending_key = self.pending_key or str(uuid.uuid4())
        reply = api.http.post("/v1/sandboxes", json=api.body(), headers={"Idempotency-Key": self.pending_key})
        assert reply.status_code == 202, reply.text
        self.pending_key = None
        self.alive[reply.json()["id"]] = {reply.json()["expiresAt"]}

    def renew(self, api: Api, sandbox: str) -> None:
        until = (datetime.now(timezone.utc) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.alive[sandbox].add(until)
        reply = api.http.post(f"/v1/sandboxes/{sandbox}/renew-expiration", json={"expiresAt": until})
        assert reply.status_code == 200, reply.text
        self.alive[sandbox] = {reply.json()["expiresAt"]}

    def delete(self, api: Api, sandbox: str) -> None:
        del self.alive[sandbox]
        self.uncertain.add(sandbox)
        assert api.http.delete(f"/v1/sandboxes/{sandbox}").status_code == 204
        self.uncertain.remove(sandbox)
        self.deleted.add(sandbox)

    def work(self, api: Api, dice: random.Random) -> None:
        """Send requests until the server is killed."""
        try:
            while True:
                known = sorted(self.alive)
                if len(known) < 2 or self.pending_key:
                    self.create(api)
                else:
                    dice.choice([self.renew, self.renew, self.delete])(api, dice.choice(known))
        except httpx.TransportError:
            pass

    def check(self, api: Api) -> None:
        """Compare with the server after its restart."""
        for sandbox in self.uncertain | self.deleted:
            reply = api.http.get(f"/v1/sandboxes/{sandbox}")
            if reply.status_code == 200 and sandbox in self.uncertain and reply.json()["status"]["state"] == "Running":
                api.delete(sandbox)
            wait_until("a deleted sandbox is gone", lambda path=reply.url.path: api.http.get(path).status_code == 404)
        self.deleted |= self.uncertain
        self.uncertain.clear()
        for sandbox, acceptable in self.alive.items():
            shown = api.http.get(f"/v1/sandboxes/{sandbox}")
            assert shown.status_code == 200, f"{sandbox} is lost: {shown.text}"
            assert shown.json()["status"]["state"] == "Running", shown.text
            assert shown.json()["expiresAt"] in acceptable, f"{sandbox}: not one of {acceptable}"
            acceptable.intersection_update({shown.json()["expiresAt"]})
        if self.pending_key:
            self.create(api)


def listed(api: Api) -> set[str]:
    return {item["id"] for item in api.http.get("/v1/sandboxes", params={"pageSize": 200}).json()["items"]}


def test_a_storm_of_kills_loses_nothing_that_was_acknowledged(server):
    api = server.api
    dice = random.Random(7)
    ledgers = [Ledger() for _ in range(3)]
    for _ in range(60 if "OPENSANDBOX_TEST_FULL" in os.environ else 6):
        with ThreadPoolExecutor() as clients:
            work = [clients.submit(ledger.work, api, random.Random(dice.random())) for ledger in ledgers]
            # The moment of the kill is the subject of the test.
            threading.Event().wait(dice.uniform(0.05, 1.5))
            server.kill()
            for client in work:
                client.result(PATIENCE)
        server.start()
        for ledger in ledgers:
            ledger.check(api)
        known = {sandbox for ledger in ledgers for sandbox in ledger.alive}
        wait_until("only known sandboxes exist", lambda: listed(api) == known)


def test_a_terminal_survives_the_server(server):
    from test_pty import Terminal

    with server.api.sandbox() as box:
        session = box.execd("POST", "/pty", json={}).json()["session_id"]
        with Terminal(box, session) as terminal:
            terminal.type("echo before-$((1 + 1))\n")
            terminal.see("before-2")
        server.kill()
        server.start()
        with Terminal(box, session) as terminal:
            terminal.see("before-2")
            terminal.type("echo after-$((1 + 2))\n")
            terminal.see("after-3")


def test_the_soft_limit_of_open_files_is_raised(server):
    server.kill()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard > 1024
    server.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard)))
    assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)


def test_idle_connections_give_way_when_open_files_are_few(server):
    server.kill()
    few = 512
    server.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (few, few)))
    address = ("127.0.0.1", server.port)
    with contextlib.ExitStack() as idle:
        # This process holds the other ends, for which the usual soft limit of 1024 is too low.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        idle.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(2 * few):
            idle.enter_context(socket.create_connection(address, PATIENCE))
        for path in ("/health", "/v1/sandboxes"):
            # Each on a new connection.
            assert httpx.get(f"http://127.0.0.1:{server.port}{path}", headers={KEY: server.key}, timeout=PATIENCE).status_code == 200


def test_a_configuration_that_every_user_can_read_is_reported(server):
    warning = "every user of this machine can read the file with server.api_key"
    server.kill()
    for mode, count in [(0o600, 0), (0o644, 1)]:
        server.config.chmod(mode)
        server.log.write_text("")
        server.start()
        server.kill()
        assert server.log.read_text().count(warning) == count, oct(mode)


@pytest.mark.parametrize("shared", ["port", "store"])
def test_a_second_server_on_the_port_or_the_store_is_refused(server, tmp_path, shared):
    text = server.config.read_text()
    if shared == "port":
        text, named = text.replace("store.db", "other.db"), str(server.port)
        text = text.replace('type = "postgresql"', 'type = "sqlite"')
    else:
        text = text.replace(f"port = {server.port}", "port = 1")
        named = "another server uses it" if server.has_database else "store.db: another server uses it"
    config = tmp_path / "second.toml"
    config.write_text(text)
    program = os.environ["OPENSANDBOX_TEST_SERVER_BINARY"]
    second = subprocess.run([program, "--config", config], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    assert second.returncode == 1
    assert named in second.stdout + second.stderr
    assert server.ready()


@pytest.mark.parametrize(
    ("line", "key"),
    [("port = 0", "server.port"), ('port = "hunter2"', "server.port"), ("limit_concurrency = -1", "server.limit_concurrency")],
)
def test_a_bad_configuration_is_named_by_file_and_key(server, tmp_path, line, key):
    name = line.split(" = ")[0]
    text = server.config.read_text()
    text = re.sub(rf"(?m)^{name} = .*$", line, text) if re.search(rf"(?m)^{name} = ", text) else text.replace("[server]", f"[server]\n{line}")
    broken = tmp_path / "broken.toml"
    broken.write_text(text)
    program = os.environ["OPENSANDBOX_TEST_SERVER_BINARY"]
    ended = subprocess.run([program, "--config", broken], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    output = ended.stdout + ended.stderr
    assert ended.returncode == 1
    assert "broken.toml" in output and key in output
    assert "hunter2" not in output
