"""Fixtures: the SDK in each flavour and route, and a sandbox to use without changing it.

A test has four combinations: of a flavour, blocking or asyncio, and a route, direct or through the
server. `--matrix 0` and `--matrix 1` choose a pair of them with both flavours and both routes, and
the two generations of the SDK have different pairs. So each run has every flavour and every route in
both generations, and two runs have every combination.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import opensandbox
import pytest
from opensandbox.exceptions import SandboxApiException, SandboxException

from flavour import Asyncio, Blocking
from target import Target
from waiting import patient, wait_until

#: Limits that the tests request, and that metrics must therefore report.
RESOURCES = {"cpu": "500m", "memory": "256Mi"}

#: Pairs of combinations, each with both flavours and both routes.
PAIRS = [[(Blocking, False), (Asyncio, True)], [(Blocking, True), (Asyncio, False)]]

#: Start of an entry point that waits for `go_on`.
HELD = "while [ ! -e /tmp/go-on ]; do sleep 0.05; done; "


def route_id(route: tuple[type, bool]) -> str:
    flavour, through_server = route
    return f"{flavour.name}-{'proxy' if through_server else 'direct'}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--matrix",
        choices=["full", "0", "1"],
        default="full",
        help="combinations of flavour and route: all, or a pair of them, which is another for each generation",
    )


def combinations(matrix: str) -> list[tuple[type, bool]]:
    """Return the combinations that this generation of the SDK has in this run."""
    if matrix == "full":
        return [combination for pair in PAIRS for combination in pair]
    return PAIRS[int(matrix) ^ opensandbox.__version__.startswith("0.")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "sdk" in metafunc.fixturenames:
        chosen = combinations(metafunc.config.getoption("--matrix"))
        metafunc.parametrize("sdk", chosen, ids=route_id, indirect=True, scope="session")


def go_on(box: Any) -> None:
    """Let a held entry point go on. Its sandbox may end before the call is answered."""
    with contextlib.suppress(SandboxException):
        box.files.write_file("/tmp/go-on", "")


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
            "request_timeout": timedelta(seconds=patient(30)),
        }
        return self.flavour.config(**(defaults | settings))

    def defaults(self) -> dict[str, Any]:
        """Settings of every create."""
        return {
            "timeout": timedelta(minutes=10),
            "ready_timeout": timedelta(seconds=patient(30)),
            "connection_config": self.config(),
        }

    def create(self, image: str | None = None, **settings: Any) -> Any:
        metadata = {"suite": self.run_id} | settings.pop("metadata", {})
        defaults = {"resource": RESOURCES, **self.defaults()}
        # A snapshot takes the place of the image.
        source = None if "snapshot_id" in settings else image or self.target.image
        box = self.flavour.create(source, metadata=metadata, **(defaults | settings))
        self.created.append(box)
        return box

    def create_from_template(self, template_id: str, **settings: Any) -> Any:
        metadata = {"suite": self.run_id} | settings.pop("metadata", {})
        defaults = self.defaults()
        box = self.flavour.create_from_template(template_id, metadata=metadata, **(defaults | settings))
        self.created.append(box)
        return box

    def connect(self, sandbox_id: str, **settings: Any) -> Any:
        defaults = {"connect_timeout": timedelta(seconds=patient(30)), "connection_config": self.config()}
        return self.flavour.connect(sandbox_id, **(defaults | settings))

    def resume(self, sandbox_id: str, **settings: Any) -> Any:
        defaults = {"resume_timeout": timedelta(seconds=patient(30)), "connection_config": self.config()}
        return self.flavour.resume(sandbox_id, **(defaults | settings))

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


@pytest.fixture(scope="session")
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
