"""Errors are reported, and failed requests leave nothing behind."""

from datetime import timedelta

import pytest
from opensandbox.exceptions import SandboxApiException, SandboxException
from opensandbox.models.sandboxes import SandboxFilter

UNKNOWN = "00000000-0000-4000-8000-000000000000"


def test_an_unknown_image_is_named_and_nothing_is_left(sdk):
    mark = {"unknown-image": sdk.run_id + sdk.flavour.name}
    with pytest.raises(SandboxApiException) as refused:
        sdk.create("opensandbox.invalid/no/such-image:1", metadata=mark)
    assert refused.value.status_code == 500
    assert refused.value.error.code == "DOCKER::SANDBOX_IMAGE_PULL_FAILED"
    assert "no/such-image" in refused.value.error.message
    manager = sdk.manager()
    try:
        running = manager.list_sandbox_infos(SandboxFilter(states=["Running", "Pending"], metadata=mark))
        assert running.sandbox_infos == []
    finally:
        manager.close()


@pytest.mark.parametrize(("key", "code"), [("wrong", "INVALID_API_KEY"), ("", "MISSING_API_KEY")])
def test_a_wrong_key_is_refused(sdk, monkeypatch, key, code):
    monkeypatch.delenv("OPEN_SANDBOX_API_KEY", raising=False)
    with pytest.raises(SandboxApiException) as refused:
        sdk.create(connection_config=sdk.config(api_key=key))
    assert refused.value.status_code == 401
    assert refused.value.error.code == code


def test_a_bad_field_is_reported_with_its_rule(sdk):
    with pytest.raises(SandboxException) as refused:
        sdk.create(timeout=timedelta(seconds=10))
    assert refused.value.status_code == 422
    assert "timeout" in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"metadata": {"opensandbox.io/id": "x"}}, "SANDBOX::INVALID_METADATA_LABEL"),
        ({"metadata": {"k": "not a label!"}}, "SANDBOX::INVALID_METADATA_LABEL"),
        ({"resource": {"cpu": "many"}}, "SANDBOX::INVALID_PARAMETER"),
        ({"resource": {"memory": "-1Mi"}}, "SANDBOX::INVALID_PARAMETER"),
        ({"extensions": {"access.renew.extend.seconds": "1"}}, "SANDBOX::INVALID_PARAMETER"),
    ],
)
def test_violations_are_reported_with_their_code(sdk, settings, code):
    with pytest.raises(SandboxApiException) as refused:
        sdk.create(**settings)
    assert (refused.value.status_code, refused.value.error.code) == (400, code)


def test_a_missing_pool_is_a_404(sdk):
    with pytest.raises(SandboxApiException) as refused:
        sdk.create(extensions={"poolRef": "p"})
    assert refused.value.status_code == 404
    # The SDK expects no 404 from a create, and keeps its body as text.
    assert "KUBERNETES::POOL_NOT_FOUND" in str(refused.value)


def test_a_missing_sandbox_is_a_404_with_the_request_id(sdk):
    manager = sdk.manager(headers={"X-Request-ID": "my-request-7"})
    try:
        for act in (manager.get_sandbox_info, manager.kill_sandbox):
            with pytest.raises(SandboxApiException) as missing:
                act(UNKNOWN)
            assert missing.value.status_code == 404
            assert missing.value.error.code == "DOCKER::SANDBOX_NOT_FOUND"
            assert missing.value.request_id == "my-request-7"
        with pytest.raises(SandboxApiException) as missing:
            manager.renew_sandbox(UNKNOWN, timedelta(minutes=5))
        assert missing.value.status_code == 404
    finally:
        manager.close()


def test_connecting_to_a_missing_sandbox_fails(sdk):
    with pytest.raises(SandboxApiException) as missing:
        sdk.connect(UNKNOWN)
    assert missing.value.status_code == 404
