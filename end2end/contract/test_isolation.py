"""A process in one sandbox cannot use the execd of another."""

import json
import socket

import pytest

PORT = 44772


@pytest.fixture(scope="module")
def pair(api):
    with api.sandbox() as attacker, api.sandbox() as victim:
        yield attacker, victim


def ways(attacker, victim):
    """Yield every address at which the attacker might reach the victim's execd."""
    gateway = attacker.run("sed -n '2,$p' /proc/net/route | awk '$2 == \"00000000\" {print $3}' | head -1")[0].strip()
    gateway = socket.inet_ntoa(bytes.fromhex(gateway)[::-1])
    own_address = victim.run("hostname -i")[0].split()[0]
    published = victim.endpoint(PORT)["endpoint"]
    port = published.split("/")[0].rsplit(":")[-1]
    path = "/" + published.split("/", 1)[1] if "/" in published else ""
    yield f"http://{own_address}:{PORT}"
    for host in (gateway, "host.docker.internal", published.split("/")[0].rsplit(":")[0]):
        yield f"http://{host}:{port}{path}"


@pytest.mark.parametrize("token", [None, "", "wrong", "own"])
def test_another_sandbox_s_execd_cannot_be_used(pair, token):
    attacker, victim = pair
    if token == "own":
        token = attacker.endpoint(PORT)["headers"]["X-EXECD-ACCESS-TOKEN"]
    headers = "" if token is None else f"-H 'X-EXECD-ACCESS-TOKEN: {token}'"
    body = json.dumps({"command": "touch /tmp/owned"})
    tried = 0
    for url in ways(attacker, victim):
        command = f"curl -s -m 3 -o /dev/null -w '%{{http_code}}' {headers} -d '{body}' {url}/command"
        output, _ = attacker.run(command)
        # 000: no connection. 401: refused without the right token.
        assert output.strip() in ("000", "401"), (url, output)
        tried += 1
    assert tried == 4
    assert victim.run("test -e /tmp/owned")[1] == 1


def test_the_probe_itself_works(pair):
    """The same request with the right token and address succeeds, which gives the refusals meaning."""
    attacker, _ = pair
    token = attacker.endpoint(PORT)["headers"]["X-EXECD-ACCESS-TOKEN"]
    body = json.dumps({"command": "touch /tmp/self"})
    command = f"curl -s -m 20 -o /dev/null -w '%{{http_code}}' -H 'X-EXECD-ACCESS-TOKEN: {token}' -d '{body}' http://127.0.0.1:{PORT}/command"
    assert attacker.run(command)[0].strip() == "200"
    assert attacker.run("test -e /tmp/self")[1] == 0


def test_the_token_is_not_visible_in_the_sandbox(pair):
    """Neither the environment nor a command line shows the token to user processes."""
    attacker, _ = pair
    token = attacker.endpoint(PORT)["headers"]["X-EXECD-ACCESS-TOKEN"]
    assert token not in attacker.run("env")[0]
    assert token not in attacker.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")[0]


def test_sandboxes_cannot_reach_each_other(pair):
    """Traffic between containers is disabled on the sandbox network."""
    attacker, victim = pair
    address = victim.run("hostname -i")[0].split()[0]
    command = victim.start("exec python3 -m http.server 3300")
    output, code = attacker.run(f"curl -s -m 3 http://{address}:3300/")
    assert (output, code) != ("", 0)
    assert code in (7, 28)
    victim.execd("DELETE", "/command", params={"id": command})


def test_hardening_of_the_container(pair):
    attacker, _ = pair
    status = dict(line.split(":\t", 1) for line in attacker.run("cat /proc/self/status")[0].splitlines() if ":\t" in line)
    assert status["NoNewPrivs"].strip() == "1"
    capabilities = int(status["CapEff"], 16)
    for name, number in {"NET_ADMIN": 12, "NET_RAW": 13, "SYS_PTRACE": 19, "SYS_ADMIN": 21, "SYS_TIME": 25, "MKNOD": 27}.items():
        assert not capabilities & (1 << number), name
    assert attacker.run("touch /opt/opensandbox/.dist/x")[1] != 0
