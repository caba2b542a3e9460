"""The served OpenAPI document describes what the server does, and no request that follows or breaks
the document makes it fail. A simulated runtime stands in for Docker, so that thousands of requests
take seconds."""

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from conftest import KEY
from target import free_port
from waiting import PATIENCE, patient, wait_until

API_KEY = "key-of-the-schema-tests"
#: Requests of each operation. They are the same in every run.
EXAMPLES = 80
#: Answers of each operation that are asked for again with a wrong key and without one. The server
#: answers 429 once an address has sent a hundred wrong keys.
WITHOUT_KEY = 2
#: What the simulated runtime lacks: optional features, and ports of the host.
LACKING = {
    "SANDBOX::API_NOT_SUPPORTED",
    "KUBERNETES::POOL_NOT_SUPPORTED",
    "FSB::API_NOT_SUPPORTED",
    "SNAPSHOT::NOT_IMPLEMENTED",
    "DIAGNOSTICS_NOT_IMPLEMENTED",
    "DOCKER::NETWORK_MODE_ENDPOINT_UNAVAILABLE",
}
CONFIG = """
[server]
host = "127.0.0.1"
port = {port}
api_key = "{key}"

[log]
level = "WARN"

[runtime]
type = "sim"

[store]
path = "{folder}/store.db"
"""


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over a simulated runtime."""
    program = os.environ.get("OPENSANDBOX_TEST_SERVER_BINARY")
    if program is None:
        pytest.skip("needs a server program: OPENSANDBOX_TEST_SERVER_BINARY")
    folder: Path = tmp_path_factory.mktemp("schema")
    port = free_port()
    config = folder / "config.toml"
    config.touch(0o600)
    config.write_text(CONFIG.format(port=port, key=API_KEY, folder=folder))
    url = f"http://127.0.0.1:{port}"
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen([program, "--config", config], stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def ready() -> bool:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            return httpx.get(f"{url}/ready", timeout=PATIENCE).status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until("the server is ready", ready)
        yield url
        assert process.poll() is None, log.read_text()[-3000:]
        assert "panicked" not in log.read_text()
    finally:
        process.terminate()
        process.wait(patient(60))


@pytest.fixture(scope="session")
def existing(simulated: str) -> str:
    """A sandbox, so that requests about sandboxes reach more than the answer that there is none."""
    body = {"image": {"uri": "debian"}, "entrypoint": ["sleep", "infinity"], "resourceLimits": {}}
    reply = httpx.post(f"{simulated}/v1/sandboxes", json=body, headers={KEY: API_KEY}, timeout=PATIENCE)
    assert reply.status_code == 202, reply.text
    return reply.json()["id"]


#: A test of the server keeps the file equal to what is served at /openapi.json.
schema = schemathesis.openapi.from_path(Path(__file__).parents[2] / "specs" / "lifecycle.json")


#: How often each operation was asked for again.
asked_again: Counter[str] = Counter()


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_requests_are_answered_as_documented(case, simulated, existing):
    if "id" in case.path_parameters and case.method != "DELETE":
        # Half of the requests are about the sandbox that exists; generated ids stay as they are.
        if len(str(case.path_parameters["id"])) % 2 == 0:
            case.path_parameters["id"] = existing
    response = case.call(base_url=simulated, headers={KEY: API_KEY}, timeout=PATIENCE)
    if response.status_code >= 400:
        body = response.json()
        assert body["code"] and body["message"], response.text
        if body["code"] in LACKING:
            return
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
        unsupported_method,
    ]
    if response.status_code < 300 and asked_again[case.operation.label] < WITHOUT_KEY:
        asked_again[case.operation.label] += 1
        checks.append(ignored_auth)
    case.validate_response(
        response,
        checks=checks,
        headers={KEY: API_KEY},
    )
