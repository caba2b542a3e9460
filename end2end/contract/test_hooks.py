"""Lifecycle hooks of a create."""

import pytest
from waiting import wait_until


def status(api, sandbox_id):
    return api.http.get(f"/v1/sandboxes/{sandbox_id}").json()["status"]


def test_a_hook_runs_before_the_entry_point(api):
    hook = {"command": ["sh", "-c", "sleep 1; echo $WHO > /tmp/hook"], "timeoutSeconds": 60}
    entry = ["sh", "-c", "cp /tmp/hook /tmp/seen; exec sleep infinity"]
    with api.sandbox(lifecycle={"preStart": hook}, entrypoint=entry, env={"WHO": "hook"}) as box:
        wait_until("the entry point", lambda: box.run("cat /tmp/seen") == ("hook\n", 0))
        assert box.run("echo ${OPENSANDBOX_LIFECYCLE-unset}") == ("unset\n", 0)
        assert "lifecycle" not in api.http.get(f"/v1/sandboxes/{box.id}").json()


@pytest.mark.parametrize(
    ("lifecycle", "words"),
    [
        ({"preStart": {"command": ["sh", "-c", "exit 7"]}}, "exit status 7"),
        ({"pre_start": {"command": ["sleep", "60"], "timeout_seconds": "1"}}, "did not end within 1s"),
        ({"preStart": {"command": ["/no/such/hook"]}}, "cannot start the preStart hook"),
        ({"periodic": [{"name": "p", "schedule": "whenever", "command": ["true"]}]}, "schedule"),
    ],
    ids=str,
)
def test_a_hook_that_fails_is_the_reason_of_the_end(api, lifecycle, words):
    reply = api.http.post("/v1/sandboxes", json=api.body(lifecycle=lifecycle))
    assert reply.status_code == 202, reply.text
    sandbox_id = reply.json()["id"]
    try:
        wait_until("the end", lambda: status(api, sandbox_id)["reason"] == "LIFECYCLE_HOOK_FAILED")
        assert status(api, sandbox_id)["state"] == "Failed"
        assert words in status(api, sandbox_id)["message"]
    finally:
        api.delete(sandbox_id)


def test_unknown_members_of_hooks_are_refused(api):
    reply = api.http.post("/v1/sandboxes", json=api.body(lifecycle={"preStop": {"command": ["true"]}}))
    assert reply.status_code == 422
    assert reply.json()["detail"][0]["loc"] == ["body", "lifecycle", "preStop"]
