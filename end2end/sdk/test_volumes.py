"""Volumes: directories of the host, and named volumes."""

import os
import uuid
from pathlib import Path

import pytest
from opensandbox.exceptions import SandboxException
from opensandbox.models.sandboxes import PVC, Host, Volume


def output(box, command):
    execution = box.commands.run(command)
    return "".join(message.text for message in execution.logs.stdout).strip()


def claim(name, mount_path="/data", **settings):
    """A named volume that goes with its last sandbox."""
    pvc = PVC(claim_name=name, delete_on_sandbox_termination=True)
    return Volume(name="data", pvc=pvc, mount_path=mount_path, **settings)


@pytest.fixture
def host():
    """A new directory of the host that sandboxes may get."""
    allowed = os.environ.get("OPENSANDBOX_TEST_HOST_VOLUMES")
    if not allowed:
        pytest.skip("OPENSANDBOX_TEST_HOST_VOLUMES names no directory that sandboxes may get")
    folder = Path(allowed, uuid.uuid4().hex)
    folder.mkdir(parents=True)
    return folder


def test_a_directory_of_the_host_is_read_and_written(sdk, host):
    (host / "note").write_text("from the host")
    box = sdk.create(volumes=[Volume(name="work", host=Host(path=str(host)), mount_path="/work")])
    assert output(box, "cat /work/note; echo from the sandbox > /work/answer") == "from the host"
    assert (host / "answer").read_text() == "from the sandbox\n"
    box.kill()
    assert (host / "answer").exists()


def test_a_read_only_directory_is_not_written(sdk, host):
    (host / "sub").mkdir()
    (host / "sub" / "note").write_text("inside")
    volume = Volume(name="work", host=Host(path=str(host)), mount_path="/work", sub_path="sub", read_only=True)
    box = sdk.create(volumes=[volume])
    assert output(box, "ls /work; touch /work/x 2>/dev/null || echo refused") == "noterefused"
    box.kill()


def test_a_directory_that_is_not_allowed_is_refused(sdk):
    with pytest.raises(SandboxException, match=r"volumes\.0\.host\.path"):
        sdk.create(volumes=[Volume(name="work", host=Host(path="/etc"), mount_path="/work")])


def test_a_named_volume_is_shared_and_outlives_its_first_sandbox(sdk):
    name = f"osbtest-{uuid.uuid4().hex}"
    first = sdk.create(volumes=[claim(name)])
    output(first, "mkdir /data/sub; echo kept > /data/sub/note")
    second = sdk.create(volumes=[claim(name, read_only=True), Volume(
        name="sub", pvc=PVC(claim_name=name), mount_path="/sub", sub_path="sub",
    )])
    first.kill()
    assert output(second, "cat /data/sub/note /sub/note") == "keptkept"
    assert output(second, "touch /data/x 2>/dev/null || echo refused") == "refused"
    second.kill()


def test_a_missing_volume_is_named(sdk):
    pvc = PVC(claim_name=f"osbtest-{uuid.uuid4().hex}", create_if_not_exists=False)
    with pytest.raises(SandboxException, match=r"volumes\.0\.pvc\.claimName"):
        sdk.create(volumes=[Volume(name="data", pvc=pvc, mount_path="/data")])
