"""Fixtures: the official command `osb`, and a sandbox that it made."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from target import Target
from waiting import patient, wait_until

#: The program beside the interpreter of this environment.
PROGRAM = Path(sys.executable).with_name("osb")
RESOURCES = ("--resource", "cpu=500m", "--resource", "memory=256Mi")


@dataclass
class Osb:
    """The command, configured for the server under test."""

    target: Target
    through_server: bool
    #: Without the settings of the user.
    home: Path
    run_id: str

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        own = {name: value for name, value in os.environ.items() if not name.startswith("OPEN_SANDBOX_")}
        env = own | {"HOME": str(self.home), "OPEN_SANDBOX_API_KEY": self.target.api_key}
        route = "--use-server-proxy" if self.through_server else "--no-use-server-proxy"
        command = [PROGRAM, "--domain", self.target.address, "--no-color", route, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=patient(300), env=env)

    def json(self, *arguments: str) -> Any:
        """Run a command that must succeed, and return what it prints."""
        done = self.run(*arguments, "-o", "json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def create(self, policy: dict[str, Any] | None = None) -> str:
        """Create a sandbox and return its id."""
        arguments = ["--image", self.target.image, "--timeout", "10m", "--metadata", f"suite={self.run_id}", *RESOURCES]
        if policy is not None:
            file = self.home / "policy.json"
            file.write_text(json.dumps(policy))
            arguments += ["--network-policy-file", str(file)]
        made = self.run("sandbox", "create", *arguments, "-o", "json")
        if "network policies are not available" in made.stderr:
            pytest.skip("the server has no network policies: it needs [egress] image")
        assert made.returncode == 0, made.stdout + made.stderr
        return json.loads(made.stdout)["id"]

    def delete(self, sandbox_id: str) -> None:
        self.json("sandbox", "kill", sandbox_id)
        wait_until("the sandbox is gone", lambda: self.run("sandbox", "get", sandbox_id).returncode == 1)

    def output(self, sandbox_id: str, command: str) -> str:
        """Run a command in a sandbox and return what it writes."""
        return self.run("command", "run", sandbox_id, "--", "sh", "-c", command).stdout.strip()


@pytest.fixture(scope="session", params=[False, True], ids=["direct", "proxy"])
def osb(request: pytest.FixtureRequest, target: Target, run_id: str, tmp_path_factory: pytest.TempPathFactory) -> Osb:
    return Osb(target, request.param, tmp_path_factory.mktemp("home"), run_id)


@pytest.fixture(scope="session")
def box(osb: Osb) -> Iterator[str]:
    """A sandbox without a policy."""
    box = osb.create()
    yield box
    osb.delete(box)
