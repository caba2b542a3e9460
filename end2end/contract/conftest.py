"""Fixtures: a client without an SDK, and a sandbox."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from second_engine import Engine, second_engine
from target import Target
from waiting import PATIENCE, wait_until

KEY = "OPEN-SANDBOX-API-KEY"


@dataclass
class Api:
    """The lifecycle API."""

    http: httpx.Client
    target: Target
    run_id: str

    def body(self, **changes: Any) -> dict[str, Any]:
        """Build a valid create request with changes; a change to ``...`` removes the member."""
        body: dict[str, Any] = {
            "image": {"uri": self.target.image},
            "entrypoint": ["sleep", "infinity"],
            "timeout": 600,
            "resourceLimits": {"cpu": "500m", "memory": "256Mi"},
            "metadata": {"suite": self.run_id},
        }
        body.update(changes)
        return {name: value for name, value in body.items() if value is not ...}

    @contextlib.contextmanager
    def sandbox(self, **changes: Any) -> Iterator["Box"]:
        """Create a sandbox and delete it afterwards."""
        reply = self.http.post("/v1/sandboxes", json=self.body(**changes))
        assert reply.status_code == 202, reply.text
        box = Box(self, reply.json()["id"])
        try:
            wait_until("execd answers", lambda: box.execd("GET", "/ping").status_code == 200)
            yield box
        finally:
            self.delete(box.id)

    def delete(self, sandbox_id: str) -> None:
        assert self.http.delete(f"/v1/sandboxes/{sandbox_id}").status_code in (204, 404)
        path = f"/v1/sandboxes/{sandbox_id}"
        wait_until("the sandbox is gone", lambda: self.http.get(path).status_code == 404)


@dataclass
class Box:
    """One sandbox."""

    api: Api
    id: str

    @property
    def proxy(self) -> str:
        """Path of the server's proxy to this sandbox."""
        return f"/v1/sandboxes/{self.id}/proxy"

    def endpoint(self, port: int, **query: Any) -> dict[str, Any]:
        reply = self.api.http.get(f"/v1/sandboxes/{self.id}/endpoints/{port}", params=query)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def execd(self, method: str, path: str, **settings: Any) -> httpx.Response:
        """Send a request to execd as an SDK does: to its endpoint, with its headers, without the key."""
        endpoint = self.endpoint(44772)
        headers = endpoint.get("headers", {}) | settings.pop("headers", {})
        return httpx.request(method, f"http://{endpoint['endpoint']}{path}", headers=headers, timeout=PATIENCE, **settings)

    def run(self, command: str, **settings: Any) -> tuple[str, int]:
        """Run a command and return its output and exit code."""
        reply = self.execd("POST", "/command", json={"command": command} | settings)
        assert reply.status_code == 200, reply.text
        events = [json.loads(frame) for frame in reply.text.split("\n\n") if frame]
        output = "".join(event["text"] + "\n" for event in events if event["type"] in ("stdout", "stderr"))
        last = events[-1]
        return output, int(last["error"]["evalue"]) if last["type"] == "error" else 0

    def start(self, command: str) -> str:
        """Start a command in the background and return its id."""
        reply = self.execd("POST", "/command", json={"command": command, "background": True})
        assert reply.status_code == 200, reply.text
        return json.loads(reply.text.split("\n\n")[0])["text"]

    def write(self, path: str, content: str) -> None:
        parts = [
            ("metadata", ("metadata", json.dumps({"path": path, "mode": 755}), "application/json")),
            ("file", ("file", content.encode(), "application/octet-stream")),
        ]
        reply = self.execd("POST", "/files/upload", files=parts)
        assert reply.status_code == 200, reply.text


@pytest.fixture(scope="session")
def api(target: Target, run_id: str) -> Iterator[Api]:
    with httpx.Client(base_url=target.url, headers={KEY: target.api_key}, timeout=PATIENCE) as http:
        yield Api(http, target, run_id)


@pytest.fixture(scope="session")
def box(api: Api) -> Iterator[Box]:
    """A shared sandbox for tests that do not change it."""
    with api.sandbox() as box:
        yield box


@pytest.fixture(scope="session")
def stranger(target: Target) -> Iterator[httpx.Client]:
    """A client without a key."""
    with httpx.Client(base_url=target.url, timeout=PATIENCE) as http:
        yield http


@pytest.fixture(scope="session")
def engine(target: Target) -> Iterator[Engine]:
    """A Docker engine that tests may kill, with an internet of its own."""
    yield from second_engine(target.image)
