"""Diagnostics, as the SDK asks for them: with a scope, as a description with the content."""

import pytest
from opensandbox.exceptions import SandboxApiException

from conftest import HELD, go_on
from waiting import wait_until


@pytest.fixture
def manager(sdk):
    manager = sdk.manager()
    yield manager
    manager.close()


def test_the_output_of_the_entry_point_is_read(sdk, manager):
    box = sdk.create(entrypoint=["sh", "-c", "for i in $(seq 120); do echo line-$i; done; sleep 600"])

    def read():
        return manager.get_diagnostic_logs(box.id, "container")

    wait_until("the output is there", lambda: "line-120" in read().content)
    logs = read()
    assert (logs.sandbox_id, logs.kind, logs.scope, logs.delivery) == (box.id, "logs", "container", "inline")
    assert logs.content_type == "text/plain; charset=utf-8"
    assert len(logs.content.splitlines()) == 100
    assert logs.truncated and logs.content_length == len(logs.content.encode())
    assert logs.content_url is None and not logs.warnings
    assert len(manager.get_diagnostic_logs(box.id, "all").warnings) == 1


def test_the_events_of_a_sandbox_name_its_stages(box, manager):
    events = manager.get_diagnostic_events(box.id, "runtime")
    assert events.kind == "events" and not events.truncated
    for name in ["Accepted", "Image", "Network", "Ready", "CONTAINER_RUNNING"]:
        assert name in events.content


def test_an_entry_point_that_does_not_exist_is_explained(sdk, manager):
    # The SDK asks for endpoints first, which a sandbox that has ended does not have.
    box = sdk.create(entrypoint=["sh", "-c", f"{HELD}exec /no/such/program"])
    go_on(box)
    wait_until("it has ended", lambda: box.get_info().status.state == "Failed")
    assert "the command was not found in the image" in box.get_info().status.message
    assert "exit code 127" in manager.get_diagnostic_events(box.id, "all").content


@pytest.mark.parametrize("scope", ["lifecycle", "network"])
def test_other_scopes_are_refused(box, manager, scope):
    with pytest.raises(SandboxApiException) as refused:
        manager.get_diagnostic_logs(box.id, scope)
    assert refused.value.status_code == 400
    assert refused.value.error.code == "DIAGNOSTICS_SCOPE_UNSUPPORTED"


def test_an_unknown_sandbox_is_not_found(manager):
    with pytest.raises(SandboxApiException) as refused:
        manager.get_diagnostic_events("no-such-sandbox", "runtime")
    assert refused.value.status_code == 404
