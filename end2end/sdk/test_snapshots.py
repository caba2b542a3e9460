"""Snapshots: taken, listed, restored and deleted."""

import pytest
from opensandbox.exceptions import SandboxApiException
from opensandbox.models import sandboxes

from waiting import wait_until

MARKER = "/var/tmp/a marker"


@pytest.fixture(scope="module")
def manager(sdk):
    manager = sdk.manager()
    yield manager
    manager.close()


def ready(manager, snapshot_id):
    wait_until("the snapshot is taken", lambda: manager.get_snapshot(snapshot_id).status.state != "Creating")
    snapshot = manager.get_snapshot(snapshot_id)
    assert snapshot.status.state == "Ready", snapshot
    return snapshot


def test_a_snapshot_is_taken_restored_and_deleted(sdk, manager):
    source = sdk.create(env={"SECRET": "of the source"})
    source.commands.run(f"printf kept > '{MARKER}'")
    accepted = source.create_snapshot(name="before-upgrade")
    assert accepted.sandbox_id == source.id
    assert accepted.name == "before-upgrade"
    assert (accepted.status.state, accepted.status.reason) == ("Creating", "snapshot_accepted")
    assert accepted.status.message
    snapshot = ready(manager, accepted.id)
    assert (snapshot.id, snapshot.name, snapshot.sandbox_id) == (accepted.id, "before-upgrade", source.id)
    assert snapshot.created_at == accepted.created_at
    assert snapshot.status.reason and snapshot.status.message
    assert snapshot.status.last_transition_at >= accepted.status.last_transition_at
    source.commands.run(f"printf changed > '{MARKER}'")
    source.kill()

    restored = sdk.create(snapshot_id=snapshot.id)
    info = restored.get_info()
    assert (info.snapshot_id, info.image) == (snapshot.id, None)
    assert info.entrypoint == ["tail", "-f", "/dev/null"]
    assert restored.commands.run(f"cat '{MARKER}'; echo; echo [$SECRET] $OPENSANDBOX_ID").text == f"kept\n[] {restored.id}"

    with pytest.raises(SandboxApiException) as refused:
        manager.delete_snapshot(snapshot.id)
    assert refused.value.status_code == 409
    assert refused.value.error.code == "SNAPSHOT::DELETE_CONFLICT"
    assert manager.get_snapshot(snapshot.id).status.state == "Deleting"
    restored.kill()
    wait_until("the sandbox is gone", lambda: sdk.is_gone(restored))
    # The server may have removed it by now.
    try:
        manager.delete_snapshot(snapshot.id)
    except SandboxApiException as gone:
        assert gone.status_code == 404
    with pytest.raises(SandboxApiException) as gone:
        manager.get_snapshot(snapshot.id)
    assert gone.value.status_code == 404
    assert gone.value.error.code == "SNAPSHOT::NOT_FOUND"


def test_snapshots_are_listed(sdk, manager):
    source = sdk.create()
    ids = []
    for _ in range(2):
        ids.insert(0, ready(manager, manager.create_snapshot(source.id).id).id)
    try:
        found = manager.list_snapshots(sandboxes.SnapshotFilter(sandbox_id=source.id, states=["Ready"]))
        assert [snapshot.id for snapshot in found.snapshot_infos] == ids
        assert found.pagination.total_items == 2
        page = manager.list_snapshots(sandboxes.SnapshotFilter(sandbox_id=source.id, page=2, page_size=1))
        assert [snapshot.id for snapshot in page.snapshot_infos] == ids[1:]
        nothing = manager.list_snapshots(sandboxes.SnapshotFilter(sandbox_id=source.id, states=["Failed"]))
        assert (nothing.snapshot_infos, nothing.pagination.total_pages) == ([], 0)
        if "name" in sandboxes.SnapshotFilter.model_fields:
            nothing = manager.list_snapshots(sandboxes.SnapshotFilter(sandbox_id=source.id, name="none"))
            assert nothing.snapshot_infos == []
    finally:
        for snapshot_id in ids:
            manager.delete_snapshot(snapshot_id)


def test_only_a_running_sandbox_is_captured(sdk, manager):
    source = sdk.create()
    source.pause()
    with pytest.raises(SandboxApiException) as refused:
        source.create_snapshot()
    assert refused.value.status_code == 409
    assert refused.value.error.code == "SNAPSHOT::INVALID_SOURCE_STATE"
    with pytest.raises(SandboxApiException) as refused:
        sdk.create(snapshot_id="00000000-0000-4000-8000-000000000000")
    assert refused.value.status_code == 404
    # The SDK expects no 404 from a create, and keeps its body as text.
    assert "SNAPSHOT::NOT_FOUND" in str(refused.value)
