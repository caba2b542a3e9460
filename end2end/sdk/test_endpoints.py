"""Endpoints: how clients reach programs in a sandbox."""

import httpx
from opensandbox.models.execd import RunCommandOpts

from waiting import PATIENCE, wait_until


def test_the_daemon_s_endpoint_ends_with_its_port(sdk, box):
    endpoint = box.get_endpoint(44772)
    assert "://" not in endpoint.endpoint
    assert endpoint.endpoint.endswith("44772")
    assert not endpoint.endpoint.endswith("/")
    if sdk.through_server:
        assert endpoint.endpoint == f"{sdk.target.address}/v1/sandboxes/{box.id}/proxy/44772"
    response = httpx.get(f"http://{endpoint.endpoint}/ping", headers=endpoint.headers, timeout=PATIENCE)
    assert response.status_code == 200


def test_the_egress_port_resolves_without_a_sidecar(box):
    assert box.get_endpoint(18080).endpoint.endswith("18080")


def test_endpoints_do_not_change_while_the_sandbox_lives(sdk, box):
    again = sdk.connect(box.id, skip_health_check=True)
    try:
        assert again.get_endpoint(44772) == box.get_endpoint(44772)
    finally:
        again.close()


def test_a_web_server_in_the_sandbox_is_reached(box):
    box.files.write_file("/tmp/www/index.html", "hello from inside")
    serve = "exec python3 -m http.server 3000 --directory /tmp/www"
    execution = box.commands.run(serve, opts=RunCommandOpts(background=True))
    try:
        endpoint = box.get_endpoint(3000)
        assert endpoint.endpoint.endswith("3000")

        def body():
            try:
                response = httpx.get(f"http://{endpoint.endpoint}/index.html", headers=endpoint.headers, timeout=PATIENCE)
            except httpx.TransportError:
                return None
            return response.text if response.status_code == 200 else None

        assert wait_until("the web server answers", body) == "hello from inside"
    finally:
        box.commands.interrupt(execution.id)


def test_a_sandbox_with_secure_access_needs_the_headers_of_its_endpoints(sdk):
    box = sdk.create(secure_access=True)
    execution = box.commands.run("echo inside")
    assert [message.text for message in execution.logs.stdout] == ["inside"]
    endpoint = box.get_endpoint(44772)
    assert endpoint.endpoint == f"{sdk.target.address}/v1/sandboxes/{box.id}/proxy/44772"
    token = endpoint.headers["OpenSandbox-Secure-Access"]
    url = f"http://{endpoint.endpoint}/ping"
    assert httpx.get(url, headers=endpoint.headers, timeout=PATIENCE).status_code == 200
    for headers in ({}, {"OpenSandbox-Secure-Access": f"{token}x"}, {"OPEN-SANDBOX-API-KEY": sdk.target.api_key}):
        assert httpx.get(url, headers=headers, timeout=PATIENCE).status_code == 401, headers
