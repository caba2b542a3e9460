"""Messages to receivers pass the official verifier of Standard Webhooks, unmodified."""

import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from conftest import KEY
from target import free_port
from waiting import PATIENCE, patient, wait_until

API_KEY = "key-of-the-webhook-tests"
CONFIG = """
[server]
host = "127.0.0.1"
port = {port}
api_key = "{key}"

[log]
level = "DEBUG"

[runtime]
type = "sim"

[store]
path = "{folder}/store.db"

[webhooks_delivery]
allow_private = true
"""


class Receiver(HTTPServer):
    """Keeps every message."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.messages: list[tuple[bytes, dict[str, str]]] = []


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.messages.append((body, dict(self.headers)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever)
        thread.start()
        yield receiver
        receiver.shutdown()
        thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[httpx.Client, Path]]:
    """A client of a server over a simulated runtime, and the server's log."""
    program = os.environ.get("OPENSANDBOX_TEST_SERVER_BINARY")
    if program is None:
        pytest.skip("needs a server program: OPENSANDBOX_TEST_SERVER_BINARY")
    port = free_port()
    config = tmp_path / "config.toml"
    config.touch(0o600)
    config.write_text(CONFIG.format(port=port, key=API_KEY, folder=tmp_path))
    log = tmp_path / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen([program, "--config", config], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={KEY: API_KEY}, timeout=PATIENCE)

    def ready() -> bool:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            return client.get("/ready").status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until("the server is ready", ready)
        yield client, log
    finally:
        client.close()
        process.terminate()
        process.wait(patient(60))


def test_the_official_library_verifies_messages(receiver: Receiver, server: tuple[httpx.Client, Path]) -> None:
    api, log = server
    url = f"http://127.0.0.1:{receiver.server_address[1]}/path-{API_KEY[::-1]}"
    reply = api.post("/v1/webhooks", json={"name": "python", "url": url})
    assert reply.status_code == 201, reply.text
    secret = reply.json()["secret"]
    body = {"image": {"uri": "debian"}, "entrypoint": ["sleep", "infinity"], "resourceLimits": {}}
    body["metadata"] = {"team": "blue"}
    made = api.post("/v1/sandboxes", json=body)
    assert made.status_code == 202, made.text
    sandbox_id = made.json()["id"]
    assert api.delete(f"/v1/sandboxes/{sandbox_id}").status_code == 204
    wait_until("three messages", lambda: len(receiver.messages) >= 3)
    events = [Webhook(secret).verify(body, headers) for body, headers in receiver.messages]
    assert [event["type"] for event in events] == ["sandbox.created", "sandbox.ready", "sandbox.deleted"]
    assert {event["data"]["sandboxId"] for event in events} == {sandbox_id}
    for body, headers in receiver.messages:
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body.replace(b"blue", b"red"), headers)
        with pytest.raises(WebhookVerificationError):
            Webhook("whsec_" + "A" * 32).verify(body, headers)
    # Neither the secret nor the path of the URL, which may be one, is in the log.
    text = log.read_text()
    assert secret not in text
    assert secret.removeprefix("whsec_") not in text
    assert API_KEY[::-1] not in text
