"""Prefixes, headers, keys and error bodies of the whole API."""

import re

import pytest

from conftest import KEY

UNKNOWN = "00000000-0000-4000-8000-000000000000"
PREFIXES = ["", "/v1"]


def is_error(reply, status, code=None):
    assert reply.status_code == status, reply.text
    body = reply.json()
    assert isinstance(body["code"], str) and isinstance(body["message"], str)
    assert reply.headers["x-request-id"]
    if code is not None:
        assert body["code"] == code
    return True


@pytest.mark.parametrize("prefix", PREFIXES)
def test_both_prefixes_serve_the_same(api, box, prefix):
    reply = api.http.get(f"{prefix}/sandboxes/{box.id}")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("application/json")
    sandbox = reply.json()
    assert sandbox["id"] == box.id
    assert sandbox["status"]["state"] == "Running"
    assert sandbox["status"]["reason"] == "CONTAINER_RUNNING"
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z"
    for moment in (sandbox["createdAt"], sandbox["expiresAt"], sandbox["status"]["lastTransitionAt"]):
        assert re.fullmatch(time, moment), moment


def test_no_null_is_ever_sent(api, box):
    for path in (f"/v1/sandboxes/{box.id}", "/v1/sandboxes", f"/v1/sandboxes/{box.id}/endpoints/44772"):
        assert "null" not in api.http.get(path).text


def test_secrets_of_the_sandbox_are_not_in_its_description(api, box):
    token = box.endpoint(44772)["headers"]["X-EXECD-ACCESS-TOKEN"]
    assert token not in api.http.get(f"/v1/sandboxes/{box.id}").text
    assert token not in api.http.get("/v1/sandboxes").text


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/sandboxes"),
        ("POST", "/sandboxes"),
        ("GET", f"/sandboxes/{UNKNOWN}"),
        ("DELETE", f"/sandboxes/{UNKNOWN}"),
        ("PATCH", f"/sandboxes/{UNKNOWN}/metadata"),
        ("POST", f"/sandboxes/{UNKNOWN}/renew-expiration"),
        ("GET", f"/sandboxes/{UNKNOWN}/endpoints/44772"),
        ("POST", f"/sandboxes/{UNKNOWN}/pause"),
        ("POST", f"/sandboxes/{UNKNOWN}/resume"),
    ],
)
def test_every_route_asks_for_the_key(stranger, prefix, method, path):
    assert is_error(stranger.request(method, prefix + path), 401, "MISSING_API_KEY")
    for key in ("wrong", "x" * 5000):
        assert is_error(stranger.request(method, prefix + path, headers={KEY: key}), 401, "INVALID_API_KEY")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("DELETE", "", None),
        ("PATCH", "/metadata", {}),
        ("POST", "/renew-expiration", {"expiresAt": "2100-01-01T00:00:00Z"}),
        ("GET", "/endpoints/44772", None),
        ("GET", "/proxy/44772/ping", None),
    ],
)
@pytest.mark.parametrize("sandbox_id", [UNKNOWN, "not-even-an-id"])
def test_an_unknown_sandbox_is_a_404(api, method, path, body, sandbox_id):
    reply = api.http.request(method, f"/v1/sandboxes/{sandbox_id}{path}", json=body)
    assert is_error(reply, 404, "DOCKER::SANDBOX_NOT_FOUND")


@pytest.mark.parametrize("path", ["/v1/nothing", "/nothing", "/v1/sandboxes/a/b/c", "/v1/health", "/v1"])
def test_an_unknown_route_is_a_404_with_a_body(api, path):
    assert is_error(api.http.get(path), 404)


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/v1/sandboxes"), ("POST", f"/v1/sandboxes/{UNKNOWN}"), ("DELETE", "/health"), ("PUT", f"/v1/sandboxes/{UNKNOWN}/metadata")],
)
def test_a_wrong_method_is_a_405_with_a_body(api, method, path):
    assert is_error(api.http.request(method, path), 405)


@pytest.mark.parametrize("path", ["/health", "/v1/sandboxes", "/v1/nothing", f"/v1/sandboxes/{UNKNOWN}"])
def test_request_ids_are_echoed_or_generated(api, path):
    assert api.http.get(path, headers={"X-Request-ID": "mine-1"}).headers["x-request-id"] == "mine-1"
    first, second = (api.http.get(path).headers["x-request-id"] for _ in range(2))
    assert re.fullmatch("[0-9a-f]{32}", first)
    assert first != second


def test_a_preflight_is_answered_before_the_key(stranger):
    asked = {
        "Origin": "https://app.example",
        "Access-Control-Request-Method": "DELETE",
        "Access-Control-Request-Headers": "open-sandbox-api-key,x-custom",
    }
    reply = stranger.options("/v1/sandboxes", headers=asked)
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] in ("*", "https://app.example")
    allowed = {method.strip() for method in reply.headers["access-control-allow-methods"].split(",")}
    assert {"GET", "POST", "PATCH", "DELETE"} <= allowed
    assert "x-custom" in reply.headers["access-control-allow-headers"].lower()
    assert reply.headers["access-control-max-age"] == "600"


def test_scripts_of_other_origins_may_read_replies(api):
    reply = api.http.get("/v1/sandboxes", headers={"Origin": "https://app.example"})
    assert reply.headers["access-control-allow-origin"] in ("*", "https://app.example")
    assert "open-sandbox-origin" in reply.headers["access-control-expose-headers"].lower()


def test_the_console_is_closed_to_other_origins(stranger):
    """Routes of the console have no CORS headers, and an API key does not open them."""
    reply = stranger.get("/console", headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in reply.headers
    assert "access-control-allow-credentials" not in reply.headers


def test_open_routes_need_no_key(stranger):
    assert stranger.get("/health").json() == {"status": "healthy"}
    assert stranger.get("/ready").status_code == 200
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", stranger.get("/version").json()["version"])
    document = stranger.get("/openapi.json").json()
    assert document["info"]["title"] == "OpenSandbox Lifecycle API"
    page = stranger.get("/docs", follow_redirects=True)
    assert page.status_code == 200
    assert "swagger" in page.text.lower()


def test_every_route_of_the_document_exists(api):
    """No documented operation answers like an unknown route."""
    document = api.http.get("/openapi.json").json()
    assert len(document["paths"]) > 5
    for path, operations in document["paths"].items():
        concrete = re.sub(r"\{[^}]*port[^}]*\}", "44772", path)
        concrete = re.sub(r"\{[^}]+\}", UNKNOWN, concrete)
        for method in set(operations) & {"get", "put", "patch"}:
            reply = api.http.request(method, concrete)
            assert reply.status_code != 405, (method, path)
            if reply.status_code == 404:
                body = reply.json()
                codes = {
                    "DOCKER::SANDBOX_NOT_FOUND",
                    "FSB::TEMPLATE_NOT_FOUND",
                    "KUBERNETES::POOL_NOT_FOUND",
                    "SNAPSHOT::NOT_FOUND",
                }
                is_known = body["code"] in codes or body["message"] == "no such webhook"
                assert is_known, (method, path, reply.text)


def test_client_metrics_are_accepted(api, stranger):
    event = {"eventType": "sandbox.create", "createDurationMs": 1842, "success": True}
    for body in (event, event | {"sandboxId": UNKNOWN, "image": "debian:12"}):
        reply = api.http.post("/v1/metrics/events", json=body)
        assert (reply.status_code, reply.content) == (204, b"")
    assert is_error(stranger.post("/v1/metrics/events", json=event), 401)


def test_a_repeated_delete_is_harmless(api):
    created = api.http.post("/v1/sandboxes", json=api.body()).json()
    path = f"/v1/sandboxes/{created['id']}"
    reply = api.http.delete(path)
    assert (reply.status_code, reply.content) == (204, b"")
    assert api.http.delete(path).status_code in (204, 404)
    seen = api.http.get(path)
    assert seen.status_code == 404 or seen.json()["status"]["state"] == "Stopping"
    api.delete(created["id"])


def test_a_delete_that_waits_answers_when_it_is_done(api):
    created = api.http.post("/v1/sandboxes", json=api.body()).json()
    path = f"/v1/sandboxes/{created['id']}"
    assert api.http.delete(path, headers={"Prefer": "wait"}).status_code == 204
    assert is_error(api.http.get(path), 404, "DOCKER::SANDBOX_NOT_FOUND")


def test_the_reply_to_create_has_what_clients_need(api):
    reply = api.http.post("/v1/sandboxes", json=api.body())
    try:
        assert reply.status_code == 202
        created = reply.json()
        assert created["status"]["state"] in ("Pending", "Running")
        assert created["entrypoint"] == ["sleep", "infinity"]
        assert created["metadata"] == {"suite": api.run_id}
        assert {"createdAt", "expiresAt"} <= set(created)
        assert "image" not in created
        # A write is answered only after reads show it.
        listed = api.http.get("/v1/sandboxes", params={"metadata": f"suite={api.run_id}"}).json()
        assert created["id"] in [item["id"] for item in listed["items"]]
    finally:
        api.delete(reply.json()["id"])
