"""Fixtures: the server without the SDK of the packages, which shows and removes what they made."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx
import pytest

from target import Target
from waiting import PATIENCE, wait_until


@dataclass
class Server:
    """The lifecycle API."""

    http: httpx.Client

    def ids(self, **metadata: str) -> list[str]:
        """Return the ids of the sandboxes with these metadata."""
        reply = self.http.get("/v1/sandboxes", params={"metadata": urlencode(metadata)})
        assert reply.status_code == 200, reply.text
        return [item["id"] for item in reply.json()["items"]]

    def await_end(self, sandbox_id: str) -> None:
        path = f"/v1/sandboxes/{sandbox_id}"
        wait_until("the sandbox is gone", lambda: self.http.get(path).status_code == 404)

    def remove(self, sandbox_ids: Iterable[str]) -> None:
        """Delete sandboxes, and wait: the server may be stopped next."""
        for sandbox_id in sandbox_ids:
            assert self.http.delete(f"/v1/sandboxes/{sandbox_id}").status_code in (204, 404)
            self.await_end(sandbox_id)


@pytest.fixture(scope="session")
def server(target: Target) -> Iterator[Server]:
    key = {"OPEN-SANDBOX-API-KEY": target.api_key}
    with httpx.Client(base_url=target.url, headers=key, timeout=PATIENCE) as http:
        yield Server(http)
