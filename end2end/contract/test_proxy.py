"""The server's reverse proxy into a sandbox."""

import hashlib
import json
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from conftest import KEY
from waiting import PATIENCE, wait_until

PORT = 3100


@pytest.fixture(scope="module")
def web(box):
    """Path of the proxy to a web server that runs in the sandbox."""
    box.write("/tmp/web.py", (Path(__file__).parent / "inside/web.py").read_text())
    command = box.start(f"exec python3 /tmp/web.py {PORT}")
    base = f"{box.proxy}/{PORT}"
    wait_until("the web server answers", lambda: box.api.http.get(f"{base}/up").status_code == 200)
    yield base
    box.execd("DELETE", "/command", params={"id": command})


def seen(reply):
    """Return the request that the web server in the sandbox received."""
    assert reply.status_code == 200, reply.text
    asked = reply.json()
    asked["headers"] = {name: value for name, value in asked["headers"]}
    return asked


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_methods_bodies_and_targets_pass_unchanged(api, web, method):
    target = "/a%20b/c%2Fd;e?x=1&x=2&y=%C3%BC+z&empty="
    content = b"" if method == "GET" else bytes(range(256)) * 100
    asked = seen(api.http.request(method, web + target, content=content or None))
    assert asked["method"] == method
    assert asked["target"] == target
    assert asked["digest"] == hashlib.sha256(content).hexdigest()


def test_the_root_of_a_port_is_reached_with_and_without_a_slash(api, web):
    assert seen(api.http.get(web))["target"] == "/"
    assert seen(api.http.get(f"{web}/"))["target"] == "/"


def test_a_streamed_body_arrives_whole(api, web):
    pieces = [bytes([number]) * 65536 for number in range(64)]
    asked = seen(api.http.post(f"{web}/upload", content=iter(pieces)))
    assert asked["length"] == 64 * 65536
    assert asked["digest"] == hashlib.sha256(b"".join(pieces)).hexdigest()


def test_secrets_of_the_caller_stay_outside(api, web):
    sent = {"Authorization": "Bearer x", "Cookie": "session=1", "OpenSandbox-Secure-Access": "y", "X-Own": "kept"}
    headers = seen(api.http.get(f"{web}/x", headers=sent))["headers"]
    for name in (KEY.lower(), "authorization", "cookie", "opensandbox-secure-access", "x-execd-access-token"):
        assert name not in headers
    assert headers["x-own"] == "kept"


def test_forwarded_headers_are_ours(api, target, web):
    lies = {"X-Forwarded-For": "6.6.6.6", "X-Forwarded-Host": "evil", "X-Forwarded-Proto": "gopher", "X-Real-IP": "6.6.6.6", "Forwarded": "for=6.6.6.6"}
    headers = seen(api.http.get(f"{web}/x", headers=lies))["headers"]
    assert headers["x-forwarded-host"] == target.address
    assert headers["x-forwarded-proto"] == "http"
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert "x-real-ip" not in headers and "forwarded" not in headers


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_redirects_stay_in_the_sandbox(api, box, web, prefix):
    base = f"{prefix}/sandboxes/{box.id}/proxy/{PORT}"
    reply = api.http.get(f"{base}/redirect")
    assert (reply.status_code, reply.headers["location"]) == (302, f"{base}/next?a=b")
    assert api.http.get(f"{base}/redirect-away").headers["location"] == "https://other.example/x"


def test_repeated_headers_stay_apart(api, web):
    reply = api.http.get(f"{web}/cookies")
    assert reply.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert "inside" not in reply.headers.get("server", "")


def test_pages_of_a_sandbox_cannot_act_as_the_console(api, web):
    policy = api.http.get(f"{web}/page").headers["content-security-policy"]
    sandbox = next(part.split() for part in policy.split(";") if part.split()[0] == "sandbox")
    assert "allow-scripts" in sandbox
    assert "allow-same-origin" not in sandbox


@pytest.mark.parametrize("status", [204, 401, 403, 404, 418, 500])
def test_any_status_passes(api, web, status):
    assert api.http.get(f"{web}/status/{status}").status_code == status


def test_a_reply_streams_through(api, web, box):
    """The second chunk is only sent after the first was received."""
    with api.http.stream("GET", f"{web}/slow") as reply:
        pieces = reply.iter_raw()
        assert next(pieces) == b"first"
        box.run(f"exec 3<>/dev/tcp/127.0.0.1/{PORT + 1}")
        assert b"".join(pieces) == b"second"


def test_head_reaches_the_program_and_has_no_body(api, web):
    reply = api.http.head(f"{web}/cookies")
    assert reply.status_code == 200
    assert reply.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert reply.content == b""


def test_options_that_are_no_preflight_reach_the_program(api, web):
    assert seen(api.http.options(f"{web}/x"))["method"] == "OPTIONS"


def test_a_port_without_a_listener_is_a_502(api, box):
    reply = api.http.get(f"{box.proxy}/3999/")
    assert (reply.status_code, reply.json()["code"]) == (502, "BACKEND_CONNECTION_FAILED")


@pytest.mark.parametrize(("port", "status"), [("0", 400), ("65536", 400), ("x", 422)])
def test_a_bad_port_is_refused(api, box, port, status):
    assert api.http.get(f"{box.proxy}/{port}/x").status_code == status


def test_a_request_without_a_key_gets_no_token(stranger, web, box):
    """A program's port is open without a key; execd, which can do anything, is not."""
    assert stranger.get(f"{web}/x").status_code == 200
    assert stranger.get(f"{box.proxy}/44772/ping").status_code == 200
    refused = stranger.post(f"{box.proxy}/44772/command", json={"command": "true"})
    assert refused.status_code == 401
    headers = {KEY: "wrong"}
    assert stranger.post(f"{box.proxy}/44772/command", json={"command": "true"}, headers=headers).status_code == 401
    token = box.endpoint(44772)["headers"]
    assert stranger.post(f"{box.proxy}/44772/command", json={"command": "true"}, headers=token).status_code == 200


def test_a_request_with_a_key_gets_the_token(api, box):
    reply = api.http.post(f"{box.proxy}/44772/command", json={"command": "echo in"})
    assert reply.status_code == 200
    assert '"in"' in reply.text


def test_websockets_pass_both_ways(target, web):
    url = target.url.replace("http", "ws") + f"{web}/socket?a=1&b=%20"
    lies = {"X-Forwarded-For": "6.6.6.6", "Cookie": "session=1"}
    with connect(url, subprotocols=["one", "two"], additional_headers=lies, open_timeout=PATIENCE) as socket:
        assert socket.subprotocol == "two"
        asked = json.loads(socket.recv(PATIENCE))
        headers = dict(asked["headers"])
        assert asked["target"] == "/socket?a=1&b=%20"
        assert headers["x-forwarded-for"] == "127.0.0.1"
        assert "cookie" not in headers
        for message in ("text ünï", b"\x00\xff" * 10, "x" * 200_000):
            socket.send(message)
            assert socket.recv(PATIENCE) == message
        socket.send("close")
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(PATIENCE)
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4321, "as you wish")


def test_a_websocket_to_a_closed_port_is_closed_with_a_reason(target, box):
    url = target.url.replace("http", "ws") + f"{box.proxy}/3999/socket"
    with pytest.raises(Exception) as refused, connect(url, open_timeout=PATIENCE) as socket:
        socket.recv(PATIENCE)
    if isinstance(refused.value, ConnectionClosed):
        assert refused.value.rcvd.code in (1008, 1011)
    else:
        assert refused.value.response.status_code == 502


@pytest.mark.parametrize("query", [{}, {"use_server_proxy": "true"}], ids=["direct", "proxy"])
def test_an_upload_arrives_with_and_without_a_length(box, query):
    endpoint = box.endpoint(44772, **query)
    metadata = json.dumps({"path": "/tmp/up/loaded", "owner": None, "group": None, "mode": 600})
    content = b"\x00\r\n--B\xff" * 50_000
    body = (
        b'--B7\r\nContent-Disposition: form-data; name="metadata"; filename="metadata"\r\n'
        b"Content-Type: application/json\r\n\r\n" + metadata.encode() + b"\r\n"
        b'--B7\r\nContent-Disposition: form-data; name="file"; filename="a \\"b\\".txt"\r\n'
        b"Content-Type: application/octet-stream\r\n\r\n" + content + b"\r\n--B7--\r\n"
    )
    headers = endpoint.get("headers", {}) | {"Content-Type": "multipart/form-data; boundary=B7"}
    url = f"http://{endpoint['endpoint']}/files"
    for sent in (body, iter([body[:100], body[100:]])):
        reply = httpx.post(f"{url}/upload", content=sent, headers=headers, timeout=PATIENCE)
        assert (reply.status_code, reply.content) == (200, b"")
        assert reply.headers["content-length"] == "0"
        back = httpx.get(f"{url}/download", params={"path": "/tmp/up/loaded"}, headers=headers, timeout=PATIENCE)
        assert back.content == content
        box.run("rm -r /tmp/up")
