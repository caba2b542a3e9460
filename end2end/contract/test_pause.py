"""Pause and resume on the wire."""

import pytest
from test_surface import PREFIXES, UNKNOWN, is_error


def state(api, box):
    return api.http.get(f"/v1/sandboxes/{box.id}").json()["status"]["state"]


def test_both_are_complete_when_they_are_answered(api):
    with api.sandbox() as box:
        for prefix in PREFIXES:
            path = f"{prefix}/sandboxes/{box.id}"
            for verb, expected, code in [
                ("pause", "Paused", "DOCKER::SANDBOX_NOT_RUNNING"),
                ("resume", "Running", "DOCKER::SANDBOX_NOT_PAUSED"),
            ]:
                # No body is read, so it may be anything.
                reply = api.http.post(f"{path}/{verb}", content=b"{not json")
                assert (reply.status_code, reply.content) == (202, b"")
                assert state(api, box) == expected
                assert is_error(api.http.post(f"{path}/{verb}"), 409, code)
        assert box.execd("GET", "/ping").status_code == 200


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_an_unknown_sandbox_is_not_found(api, verb):
    assert is_error(api.http.post(f"/v1/sandboxes/{UNKNOWN}/{verb}"), 404, "DOCKER::SANDBOX_NOT_FOUND")


def test_a_paused_sandbox_is_listed_reachable_and_removed(api):
    with api.sandbox() as box:
        endpoint = box.endpoint(44772)
        assert api.http.post(f"/v1/sandboxes/{box.id}/pause").status_code == 202
        listed = api.http.get("/v1/sandboxes", params={"state": "Paused", "pageSize": 200}).json()["items"]
        assert box.id in [item["id"] for item in listed]
        assert box.endpoint(44772) == endpoint
        reply = api.http.get(f"{box.proxy}/44772/ping")
        assert is_error(reply, 409, "DOCKER::SANDBOX_NOT_RUNNING")
        assert "paused" in reply.json()["message"]
        patched = api.http.patch(f"/v1/sandboxes/{box.id}/metadata", json={"stage": "paused"})
        assert patched.json()["metadata"]["stage"] == "paused"
        assert patched.json()["status"]["state"] == "Paused"
