"""Network policies: what a sandbox with one reaches, and how the policy is read and changed."""

import httpx
import pytest

from listener import GATEWAY, connect, listening
from waiting import PATIENCE

UNKNOWN = "00000000-0000-4000-8000-000000000000"
TOKEN = "OPENSANDBOX-EGRESS-AUTH"
TRANSPARENT = "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT"

#: Asks a name server that does not exist for a name, and prints the code of the answer.
QUERY = """
import socket, struct, sys
labels = b"".join(bytes([len(label)]) + label.encode() for label in sys.argv[1].split("."))
query = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + bytes(1) + struct.pack(">HH", 1, 1)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
    asked.settimeout(20)
    asked.sendto(query, ("192.0.2.1", 53))
    print(asked.recv(4096)[3] & 15)
"""
NXDOMAIN = 3


def rule(action, target):
    return {"action": action, "target": target}


def path(sandbox_id, prefix="/v1"):
    return f"{prefix}/sandboxes/{sandbox_id}/networkpolicy"


@pytest.fixture(scope="module", autouse=True)
def policies(api):
    """Skip these tests for a server without network policies."""
    if api.http.get(path(UNKNOWN)).status_code == 501:
        pytest.skip("the server has no network policies: it needs [egress] image")


@pytest.fixture(scope="module")
def host(box):
    """Address and port of a server on this machine, which sandboxes without a policy reach."""
    with listening() as port:
        address = box.run(GATEWAY)[0].strip()
        if box.run(connect(address, port))[0].strip() != "200":
            pytest.skip("sandboxes do not reach this machine, so there is nothing to refuse")
        yield address, port


@pytest.fixture(scope="module")
def limited(api):
    """A sandbox with a policy, which each test sets anew."""
    with api.sandbox(networkPolicy={}) as box:
        yield box


def set_policy(box, **policy):
    reply = box.api.http.put(path(box.id), json=policy)
    assert reply.status_code == 200, reply.text
    assert reply.json()["status"] == "ok"
    return reply.json()


def get_policy(box):
    reply = box.api.http.get(path(box.id))
    assert reply.status_code == 200, reply.text
    return reply.json()


def reaches(box, host):
    return box.run(connect(*host))[0].strip() == "200"


def needs_addresses(box):
    """Skip a test if the server's sidecars refuse names only."""
    if get_policy(box)["enforcementMode"] != "dns+nft":
        pytest.skip("the server enforces policies for names only: [egress] mode")


def test_a_policy_decides_where_a_sandbox_connects(api, host):
    with api.sandbox(networkPolicy={"egress": [rule("allow", host[0])]}) as allowed:
        needs_addresses(allowed)
        assert reaches(allowed, host)
        # What is within the sandbox is no matter of its policy.
        assert allowed.run("curl -s -m 10 -o /dev/null http://127.0.0.1:44772/ping")[1] == 0
    for policy in ({}, {"defaultAction": "allow", "egress": [rule("deny", f"{host[0]}/32")]}):
        with api.sandbox(networkPolicy=policy) as refused:
            assert not reaches(refused, host), policy


def test_a_sandbox_without_a_policy_is_as_before(api, box, host):
    assert reaches(box, host)
    reply = api.http.get(path(box.id))
    assert (reply.status_code, reply.json()["code"]) == (502, "BACKEND_CONNECTION_FAILED")
    assert reply.json()["message"].startswith("Could not connect to the backend sandbox")
    for query in ({}, {"use_server_proxy": "true"}):
        assert TOKEN not in box.endpoint(18080, **query).get("headers", {})


def test_the_policy_can_be_read_and_changed(api, limited, host):
    needs_addresses(limited)
    address = host[0]
    policy = {"defaultAction": "deny", "egress": [rule("allow", "*.example.org"), rule("deny", "198.51.100.0/24")]}
    answer = set_policy(limited, **policy)
    assert answer["mode"] == "enforcing"
    seen = get_policy(limited)
    assert (seen["status"], seen["mode"], seen["policy"]) == ("ok", "enforcing", policy)
    assert api.http.get(path(limited.id, "")).json() == seen
    assert not reaches(limited, host)

    patch = [rule("allow", address), rule("deny", "*.Example.org")]
    reply = api.http.patch(path(limited.id), json=patch)
    assert reply.status_code == 200, reply.text
    assert get_policy(limited)["policy"]["egress"] == [*patch, rule("deny", "198.51.100.0/24")]
    assert reaches(limited, host)

    targets = [f"::ffff:{address}", "198.51.100.7/24", "unknown.example"]
    reply = api.http.request("DELETE", path(limited.id), json=targets)
    assert reply.status_code == 200, reply.text
    assert (reply.json()["removed"], reply.json()["unmatched"]) == (2, ["unknown.example"])
    assert get_policy(limited)["policy"] == {"defaultAction": "deny", "egress": [rule("deny", "*.Example.org")]}
    assert not reaches(limited, host)
    reply = api.http.request("DELETE", path(limited.id), json=["unknown.example"])
    assert reply.status_code == 200, reply.text
    assert "no matching targets" in reply.json()["reason"]
    assert (reply.json()["removed"], reply.json()["unmatched"]) == (0, ["unknown.example"])

    assert set_policy(limited, defaultAction="allow")["mode"] == "allow_all"
    assert reaches(limited, host)
    assert set_policy(limited)["mode"] == "deny_all"
    assert get_policy(limited)["policy"] == {"egress": [], "defaultAction": "deny"}
    assert not reaches(limited, host)


def test_a_refused_name_does_not_exist_for_any_name_server(limited):
    limited.write("/tmp/query.py", QUERY)
    set_policy(limited, defaultAction="allow", egress=[rule("deny", "*.refused.example")])
    output, code = limited.run("python3 /tmp/query.py a.refused.example")
    assert (output.strip(), code) == (str(NXDOMAIN), 0)
    set_policy(limited)
    output, code = limited.run("python3 /tmp/query.py any.example")
    assert (output.strip(), code) == (str(NXDOMAIN), 0)


def test_what_was_decided_is_listed_and_becomes_a_proposal(api, limited, host):
    limited.write("/tmp/query.py", QUERY)
    set_policy(limited)
    before = api.http.get(f"{path(limited.id)}/decisions").json()["next"]
    assert limited.run("python3 /tmp/query.py wanted.example")[0].strip() == str(NXDOMAIN)
    reply = api.http.get(f"{path(limited.id)}/decisions", params={"since": before})
    assert reply.status_code == 200, reply.text
    [decision] = [it for it in reply.json()["names"] if it["name"] == "wanted.example"]
    assert (decision["action"], decision["rule"]) == ("deny", "default")
    assert decision["count"] >= 1 and decision["first"] <= decision["last"]
    assert reply.json()["next"] >= decision["number"] > before

    def proposal(**query):
        reply = api.http.get(f"{path(limited.id)}/proposal", params=query)
        assert reply.status_code == 200, reply.text
        policy = reply.json()["policy"]
        assert policy["defaultAction"] == "deny"
        return policy

    allow = rule("allow", "wanted.example")
    assert allow not in proposal()["egress"]
    wanted = proposal(denied="true")
    assert allow in wanted["egress"]
    # A proposal is a policy as it is.
    reply = api.http.put(path(limited.id), json=wanted)
    assert reply.status_code == 200, reply.text
    assert get_policy(limited)["policy"] == wanted
    needs_addresses(limited)
    set_policy(limited)
    assert not reaches(limited, host)
    assert rule("allow", host[0]) in proposal(denied="true")["egress"]


@pytest.mark.parametrize("query", [{}, {"use_server_proxy": "true"}], ids=["direct", "proxy"])
def test_the_sidecar_answers_at_its_endpoint(limited, query):
    set_policy(limited, egress=[rule("allow", "a.example")])
    endpoint = limited.endpoint(18080, **query)
    headers = endpoint["headers"]
    url = f"http://{endpoint['endpoint']}/policy"
    assert httpx.get(url, headers=headers, timeout=PATIENCE).json()["policy"]["egress"] == [rule("allow", "a.example")]
    reply = httpx.patch(url, headers=headers, json=[rule("allow", "b.example")], timeout=PATIENCE)
    assert reply.status_code == 200, reply.text
    reply = httpx.request("DELETE", url, headers=headers, json=["a.example"], timeout=PATIENCE)
    assert reply.status_code == 200, reply.text
    assert get_policy(limited)["policy"]["egress"] == [rule("allow", "b.example")]
    for token in (None, "wrong"):
        changed = {name: value for name, value in headers.items() if name != TOKEN}
        if token is not None:
            changed[TOKEN] = token
        reply = httpx.get(url, headers=changed, timeout=PATIENCE)
        assert (reply.status_code, reply.text.strip()) == (401, "unauthorized")


def test_only_the_endpoint_of_the_sidecar_has_its_token(api, limited):
    token = limited.endpoint(18080)["headers"][TOKEN]
    assert len(token) >= 32
    for port in (44772, 8080, 8000):
        assert TOKEN not in limited.endpoint(port).get("headers", {})
    for shown in (f"/v1/sandboxes/{limited.id}", "/v1/sandboxes", f"/v1/sandboxes/{limited.id}/diagnostics/inspect"):
        assert token not in api.http.get(shown).text, shown
    assert token not in limited.run("env; cat /proc/[0-9]*/cmdline | tr '\\0' ' '")[0]


def test_a_sandbox_cannot_change_its_own_policy(limited):
    set_policy(limited)
    change = "curl -s -m 10 -o /dev/null -w '%{http_code}' -X PUT -d '{\"defaultAction\":\"allow\"}'"
    output, code = limited.run(f"{change} http://127.0.0.1:18080/policy")
    assert (output.strip(), code) == ("401", 0)
    assert get_policy(limited)["mode"] == "deny_all"


def test_the_policy_outlives_a_pause(api, limited, host):
    needs_addresses(limited)
    set_policy(limited, egress=[rule("allow", "a.example")])
    assert api.http.post(f"/v1/sandboxes/{limited.id}/pause").status_code == 202
    try:
        reply = api.http.get(path(limited.id))
        assert (reply.status_code, reply.json()["code"]) == (409, "DOCKER::SANDBOX_NOT_RUNNING")
    finally:
        assert api.http.post(f"/v1/sandboxes/{limited.id}/resume").status_code == 202
    assert get_policy(limited)["policy"]["egress"] == [rule("allow", "a.example")]
    assert not reaches(limited, host)


@pytest.mark.parametrize(
    ("policy", "status", "where"),
    [
        ({"defaultAction": "permit"}, 400, ["defaultAction"]),
        ({"egress": [rule("drop", "a.example")]}, 400, ["egress", 0, "action"]),
        ({"egress": [rule("allow", "a.example"), rule("allow", "http://a.example/")]}, 400, ["egress", 1, "target"]),
        ({"egress": [rule("allow", "10.0.0.0/33")]}, 400, ["egress", 0, "target"]),
        ({"egress": [rule("allow", "")]}, 422, ["egress", 0, "target"]),
        ({"egress": [{"target": "a.example"}]}, 422, ["egress", 0, "action"]),
        ({"egress": {}}, 422, ["egress"]),
    ],
    ids=str,
)
def test_a_bad_policy_is_refused_at_its_member(api, policy, status, where):
    reply = api.http.post("/v1/sandboxes", json=api.body(networkPolicy=policy))
    assert reply.status_code == status, reply.text
    assert reply.json()["code"] == "SANDBOX::INVALID_PARAMETER"
    places = [detail["loc"] for detail in reply.json()["detail"]]
    assert places == [["body", "networkPolicy", *where]]


@pytest.mark.parametrize(
    ("method", "body", "where"),
    [
        ("PUT", [], []),
        ("PUT", {"defaultAction": 1}, ["defaultAction"]),
        ("PUT", {"egress": [{"action": "allow", "target": " "}]}, ["egress", 0, "target"]),
        ("PATCH", {}, []),
        ("PATCH", [], []),
        ("PATCH", [rule("allow", "a.example"), rule("drop", "a.example")], [1, "action"]),
        ("DELETE", [], []),
        ("DELETE", ["a.example", 1], [1]),
    ],
    ids=str,
)
def test_a_bad_change_is_a_422_at_its_member(api, method, body, where):
    # The body is checked first.
    reply = api.http.request(method, path(UNKNOWN), json=body)
    assert reply.status_code == 422, reply.text
    assert [detail["loc"] for detail in reply.json()["detail"]] == [["body", *where]]


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_a_change_must_be_json(api, method):
    for content, kind in ((b"{", "application/json"), (b"", "application/json"), (b"{}", "text/plain"), (b"[]", None)):
        headers = {} if kind is None else {"content-type": kind}
        reply = api.http.request(method, path(UNKNOWN), content=content, headers=headers)
        assert reply.status_code == 422, (content, kind, reply.text)
    reply = api.http.request(method, path(UNKNOWN), json=["x" * (1 << 20)])
    assert reply.status_code == 413, reply.text


@pytest.mark.parametrize("below", ["decisions?since=x", "decisions?since=-1", "proposal?denied=maybe"])
def test_a_bad_parameter_of_the_decisions_is_a_422(api, below):
    # The parameter is checked first.
    reply = api.http.get(f"{path(UNKNOWN)}/{below}")
    assert reply.status_code == 422, reply.text
    name = below.partition("?")[2].partition("=")[0]
    assert [detail["loc"] for detail in reply.json()["detail"]] == [["query", name]]


@pytest.mark.parametrize("below", ["decisions", "proposal"])
def test_the_decisions_need_the_key_and_a_sandbox(api, stranger, box, below):
    reply = stranger.get(f"{path(UNKNOWN)}/{below}")
    assert (reply.status_code, reply.json()["code"]) == (401, "MISSING_API_KEY")
    reply = api.http.get(f"{path(UNKNOWN)}/{below}")
    assert (reply.status_code, reply.json()["code"]) == (404, "DOCKER::SANDBOX_NOT_FOUND")
    reply = api.http.get(f"{path(box.id)}/{below}")
    assert (reply.status_code, reply.json()["code"]) == (502, "BACKEND_CONNECTION_FAILED")


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
def test_the_routes_need_the_key_and_a_sandbox(api, stranger, method):
    body = {"GET": None, "PUT": {}, "PATCH": [rule("allow", "a.example")], "DELETE": ["a.example"]}[method]
    reply = stranger.request(method, path(UNKNOWN), json=body)
    assert (reply.status_code, reply.json()["code"]) == (401, "MISSING_API_KEY")
    reply = api.http.request(method, path(UNKNOWN), json=body)
    assert (reply.status_code, reply.json()["code"]) == (404, "DOCKER::SANDBOX_NOT_FOUND")


def test_interception_is_refused(api):
    for changes, where in (
        ({"credentialProxy": {"enabled": True}}, ["credentialProxy", "enabled"]),
        ({"env": {TRANSPARENT: "true"}}, ["env", TRANSPARENT]),
    ):
        reply = api.http.post("/v1/sandboxes", json=api.body(networkPolicy={}, **changes))
        assert reply.status_code == 400, reply.text
        assert [detail["loc"] for detail in reply.json()["detail"]] == [["body", *where]]


def test_settings_of_the_sidecar_stay_with_it(api):
    env = {"OPENSANDBOX_EGRESS_LOG_LEVEL": "debug", TRANSPARENT: "false", "OWN": "1"}
    with api.sandbox(networkPolicy={}, env=env) as box:
        seen = box.run("env")[0].splitlines()
        assert "OWN=1" in seen and f"{TRANSPARENT}=false" in seen
        assert not any(line.startswith("OPENSANDBOX_EGRESS_LOG_LEVEL") for line in seen)
