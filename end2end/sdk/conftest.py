"""Fixtures: the SDK in each flavour and route, and a sandbox to use without changing it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from opensandbox.exceptions import SandboxApiException

from flavour import Asyncio, Blocking
from target import Target
from waiting import wait_until

#: Limits that the tests request, and that metrics must therefore report.
RESOURCES = {"cpu": "500m", "memory": "256Mi"}

ROUTES = [(Blocking, False), (Blocking, True), (Asyncio, False), (Asyncio, True)]


def route_id(route: tuple[type, bool]) -> str:
    flavour, through_server = route
    return f"{flavour.name}-{'proxy' if through_server else 'direct'}"


@dataclass
class Sdk:
    """The SDK, configured for the server under test."""

    target: Target
    flavour: Any
    through_server: bool
    run_id: str
    created: list[Any] = field(default_factory=list)

    def config(self, **settings: Any) -> Any:
        defaults = {
            "domain": self.target.address,
            "api_key": self.target.api_key,
            "use_server_proxy": self.through_server,
        }
        return self.flavour.config(**(defaults | settings))

    def create(self, image: str | None = None, **settings: Any) -> Any:
        metadata = {"suite": self.run_id} | settings.pop("metadata", {})
        defaults = {"resource": RESOURCES, "timeout": timedelta(minutes=10), "connection_config": self.config()}
        # A snapshot takes the place of the image.
        source = None if "snapshot_id" in settings else image or self.target.image
        box = self.flavour.create(source, metadata=metadata, **(defaults | settings))
        self.created.append(box)
        return box

    def create_from_template(self, template_id: str, **settings: Any) -> Any:
        metadata = {"suite": self.run_id} | settings.pop("metadata", {})
        defaults = {"timeout": timedelta(minutes=10), "connection_config": self.config()}
        box = self.flavour.create_from_template(template_id, metadata=metadata, **(defaults | settings))
        self.created.append(box)
        return box

    def connect(self, sandbox_id: str, **settings: Any) -> Any:
        return self.flavour.connect(sandbox_id, connection_config=self.config(), **settings)

    def resume(self, sandbox_id: str, **settings: Any) -> Any:
        return self.flavour.resume(sandbox_id, connection_config=self.config(), **settings)

    def manager(self, **settings: Any) -> Any:
        return self.flavour.manager(self.config(**settings))

    def handlers(self, **callbacks: Any) -> Any:
        return self.flavour.handlers(**callbacks)

    def clean(self) -> None:
        """Delete the sandboxes that tests left, and wait: the server may be stopped next."""
        for box in self.created:
            with contextlib.suppress(SandboxApiException):
                box.kill()
        for box in self.created:
            wait_until(f"sandbox {box.id} is gone", lambda box=box: self.is_gone(box))
            box.close()

    def is_gone(self, box: Any) -> bool:
        try:
            box.get_info()
        except SandboxApiException as error:
            return error.status_code == 404
        return False


@pytest.fixture(scope="session", params=ROUTES, ids=route_id)
def sdk(request: pytest.FixtureRequest, target: Target, run_id: str) -> Iterator[Sdk]:
    flavour, through_server = request.param
    sdk = Sdk(target, flavour(), through_server, run_id)
    yield sdk
    sdk.clean()
    sdk.flavour.stop()


@pytest.fixture(scope="session")
def box(sdk: Sdk) -> Any:
    """One sandbox for the tests that leave it as it was."""
    return sdk.create(env={"GREETING": "hello from the sandbox"})
