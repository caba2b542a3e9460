"""Create, read, change, renew and delete sandboxes."""

from datetime import datetime, timedelta, timezone

import pytest
from opensandbox.exceptions import SandboxApiException
from opensandbox.models import sandboxes

from conftest import HELD, go_on
from waiting import wait_until


def test_a_new_sandbox_is_ready_and_described(sdk, target):
    box = sdk.create(metadata={"team": "core"}, timeout=timedelta(minutes=5))
    assert box.is_healthy()
    info = box.get_info()
    assert info.id == box.id
    assert info.status.state == "Running"
    assert info.image.image == target.image
    assert info.entrypoint == ["tail", "-f", "/dev/null"]
    assert info.metadata == {"team": "core", "suite": sdk.run_id}
    lifetime = info.expires_at - info.created_at
    assert timedelta(minutes=4) < lifetime < timedelta(minutes=6)


def test_a_sandbox_without_timeout_never_expires(sdk):
    box = sdk.create(timeout=None)
    assert box.get_info().expires_at is None
    with pytest.raises(SandboxApiException) as refused:
        box.renew(timedelta(minutes=5))
    assert refused.value.status_code == 409
    assert refused.value.error.code == "DOCKER::INVALID_EXPIRATION"


def test_renewing_moves_the_expiry_both_ways(sdk, box):
    for minutes in (20, 10):
        reply = box.renew(timedelta(minutes=minutes))
        remaining = reply.expires_at - datetime.now(timezone.utc)
        assert timedelta(minutes=minutes - 1) < remaining < timedelta(minutes=minutes + 1)
        assert box.get_info().expires_at == reply.expires_at


def test_a_second_client_connects_by_id(sdk, box):
    again = sdk.connect(box.id)
    try:
        assert again.commands.run("echo again").logs.stdout[0].text == "again"
    finally:
        again.close()


def test_metadata_is_patched_and_read_back_at_once(sdk):
    box = sdk.create(metadata={"team": "core", "stage": "dev"})
    patched = box.patch_metadata({"stage": "prod", "team": None, "example.com/owner": "ana"})
    expected = {"suite": sdk.run_id, "stage": "prod", "example.com/owner": "ana"}
    assert patched.metadata == expected
    assert box.get_info().metadata == expected
    assert box.patch_metadata({}).metadata == expected


def test_environment_and_entrypoint_reach_the_sandbox(sdk, box):
    assert box.commands.run("echo $GREETING; echo $OPENSANDBOX_ID").text == f"hello from the sandbox\n{box.id}"
    own = sdk.create(entrypoint=["sh", "-c", "echo started > /tmp/mark; exec sleep infinity"])
    assert own.get_info().entrypoint[-1] == "echo started > /tmp/mark; exec sleep infinity"
    wait_until("the entrypoint ran", lambda: own.commands.run("cat /tmp/mark").text == "started")


def test_hooks_run_before_the_entry_point(sdk):
    if not hasattr(sandboxes, "SandboxLifecycle"):
        pytest.skip("the 0.1 SDK has no lifecycle hooks")
    hook = sandboxes.LifecycleHook(command=["sh", "-c", "echo hook > /tmp/hook"], timeout_seconds=60)
    own = sdk.create(
        entrypoint=["sh", "-c", "cp /tmp/hook /tmp/seen; exec sleep infinity"],
        lifecycle=sandboxes.SandboxLifecycle(pre_start=hook),
    )
    wait_until("the entrypoint ran", lambda: own.commands.run("cat /tmp/seen").text == "hook")


def test_a_killed_sandbox_is_gone(sdk):
    box = sdk.create()
    box.kill()

    def state() -> str | None:
        try:
            return box.get_info().status.state
        except SandboxApiException as error:
            assert error.status_code == 404
            assert error.error.code == "DOCKER::SANDBOX_NOT_FOUND"
            return None

    assert state() in (None, "Stopping")
    wait_until("the sandbox is gone", lambda: state() is None)


def test_the_status_of_an_ended_entrypoint_is_reported(sdk):
    box = sdk.create(entrypoint=["sh", "-c", f"{HELD}exit 3"])
    go_on(box)
    status = wait_until(
        "the end is seen",
        lambda: (status := box.get_info().status).state != "Running" and status,
    )
    assert status.state == "Failed"
    assert status.reason == "CONTAINER_EXITED_ERROR"
    assert "3" in status.message
