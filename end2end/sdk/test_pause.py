"""Pause and resume."""

from datetime import timedelta

import pytest
from opensandbox.exceptions import SandboxApiException


def test_a_paused_sandbox_goes_on_where_it_was(sdk):
    box = sdk.create()
    started = box.commands.run("echo kept > /dev/shm/kept; sleep 600 >/dev/null 2>&1 & echo $!").text
    before = box.get_info().status
    box.pause()
    paused = box.get_info().status
    assert (paused.state, paused.reason) == ("Paused", "CONTAINER_PAUSED")
    assert paused.last_transition_at > before.last_transition_at
    with pytest.raises(SandboxApiException) as refused:
        box.pause()
    assert refused.value.status_code == 409
    assert refused.value.error.code == "DOCKER::SANDBOX_NOT_RUNNING"
    assert box.renew(timedelta(minutes=20)).expires_at == box.get_info().expires_at

    # Returns once the execd of the sandbox answers.
    again = sdk.resume(box.id)
    try:
        resumed = again.get_info().status
        assert resumed.state == "Running"
        assert resumed.last_transition_at > paused.last_transition_at
        kept = again.commands.run(f"cat /dev/shm/kept; kill -0 {started} && echo runs")
        assert kept.text == "kept\nruns"
    finally:
        again.close()
    with pytest.raises(SandboxApiException) as refused:
        sdk.resume(box.id)
    assert refused.value.status_code == 409
    assert refused.value.error.code == "DOCKER::SANDBOX_NOT_PAUSED"


def test_a_paused_sandbox_can_be_killed(sdk):
    box = sdk.create()
    manager = sdk.manager()
    manager.pause_sandbox(box.id)
    assert box.get_info().status.state == "Paused"
    manager.resume_sandbox(box.id)
    assert box.commands.run("echo again").text == "again"
    manager.pause_sandbox(box.id)
    box.kill()
    manager.close()
