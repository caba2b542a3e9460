"""The network policy of sandboxes whose request has none, and what cannot have a policy."""

from collections.abc import Iterator

import pytest

from guarded import GuardedServer, refused_start
from listener import GATEWAY, connect, listening
from second_engine import ALLOWED, HOST, METADATA, PRIVATE, WEB

#: What the operator allows beside the public Internet.
OWN = "10.1.2.3"
DEFAULT = 'default_policy = "public"\ndefault_allow = ["10.1.2.0/24"]'
REFUSED = tuple(address for address in PRIVATE if address != OWN)
#: Shell command of a program that answers at port 8000.
NEIGHBOUR = "cd /tmp && exec python3 -m http.server 8000"


@pytest.fixture(scope="module", autouse=True)
def on_the_engines_host(engine) -> Iterator[None]:
    with engine.namespace.entered():
        yield


def server_with(engine, target, run_id, folder, **settings) -> Iterator[GuardedServer]:
    server = GuardedServer(engine, folder, target.image, run_id, **settings)
    server.start()
    try:
        yield server
        server.clear()
    finally:
        server.stop()


@pytest.fixture(scope="module")
def server(engine, target, run_id, tmp_path_factory) -> Iterator[GuardedServer]:
    yield from server_with(engine, target, run_id, tmp_path_factory.mktemp("server"), more=DEFAULT)


@pytest.fixture(scope="module")
def box(server) -> Iterator:
    """A sandbox whose request has no policy."""
    with server.api.sandbox() as box:
        yield box


@pytest.fixture(scope="module")
def free(server) -> Iterator:
    """A sandbox that may connect to everything."""
    with server.api.sandbox(networkPolicy={"defaultAction": "allow"}) as free:
        yield free


def reaches(box, address: str, port: int = WEB) -> bool:
    return box.run(connect(address, port))[0].strip() == "200"


@pytest.mark.parametrize("address", [*REFUSED, METADATA])
def test_private_networks_and_the_metadata_service_are_refused(engine, box, free, address):
    assert reaches(free, address)
    before = engine.internet.reached[address]
    assert before > 0
    assert not reaches(box, address)
    assert engine.internet.reached[address] == before


def test_the_public_internet_is_reached(box):
    assert reaches(box, ALLOWED)
    assert reaches(box, "allowed.example")


def test_what_the_operator_allows_is_reached(box):
    assert reaches(box, OWN)


def test_a_name_does_not_lead_to_a_private_address(box, free):
    assert reaches(free, "private.example")
    assert not reaches(box, "private.example")


def test_the_host_is_refused_at_each_of_its_addresses(box, free):
    with listening() as port:
        for address in (box.run(GATEWAY)[0].strip(), HOST):
            assert reaches(free, address, port), address
            assert not reaches(box, address, port), address


def test_another_sandbox_is_refused(engine, server, box):
    with server.api.sandbox() as neighbour:
        neighbour.start(NEIGHBOUR)
        sidecar = engine.container(neighbour.id, "egress")
        address = engine.docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", sidecar)
        assert neighbour.run(f"curl -s --retry 30 --retry-connrefused -o /dev/null http://{address}:8000/")[1] == 0
        assert not reaches(box, address, 8000)


def test_it_is_a_default_and_not_a_limit(server, box):
    path = f"/v1/sandboxes/{box.id}/networkpolicy"
    policy = server.api.http.get(path).json()["policy"]
    assert policy["defaultAction"] == "allow"
    assert policy["egress"][0] == {"action": "allow", "target": "10.1.2.0/24"}
    with server.api.sandbox(networkPolicy={"egress": [{"action": "allow", "target": REFUSED[0]}]}) as own:
        assert reaches(own, REFUSED[0])
        assert not reaches(own, ALLOWED)


def test_a_default_that_cannot_be_enforced_stops_the_start(engine, tmp_path):
    for network, more, reason in (
        ("host", DEFAULT, 'egress.default_policy: needs a docker.network_mode other than "host"'),
        ("bridge", f'{DEFAULT}\n[secure_runtime]\ntype = "gvisor"\ndocker_runtime = "runsc"', "egress.default_policy: cannot be enforced under gVisor"),
        ("bridge", 'default_allow = ["10.1.2.0/24"]', 'egress.default_allow: needs default_policy = "public"'),
        ("bridge", f"{DEFAULT[:-1]}, \"example.org\"]", "egress.default_allow: must be a list of addresses and networks"),
    ):
        assert reason in refused_start(engine, tmp_path, more, network)


@pytest.mark.parametrize("settings", [{"network": "host"}, {"has_image": False}], ids=["host-network", "no-image"])
def test_a_policy_that_cannot_be_enforced_is_refused(engine, target, run_id, tmp_path, settings):
    for server in server_with(engine, target, run_id, tmp_path, **settings):
        api = server.api
        reply = api.http.post("/v1/sandboxes", json=api.body(networkPolicy={}))
        assert reply.status_code == 400, reply.text
        assert [detail["loc"] for detail in reply.json()["detail"]] == [["body", "networkPolicy"]]
        assert "network policies are not available" in reply.json()["message"], reply.text
        assert api.http.get("/v1/sandboxes").json()["items"] == []
        reply = api.http.get("/v1/sandboxes/00000000-0000-4000-8000-000000000000/networkpolicy")
        assert (reply.status_code, reply.json()["code"]) == (501, "SANDBOX::API_NOT_SUPPORTED")
