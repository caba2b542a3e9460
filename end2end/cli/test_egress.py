"""`osb sandbox create --network-policy-file`, `osb egress get`, `osb egress patch`."""

import pytest

from listener import GATEWAY, connect, listening


def rule(action, target):
    return {"action": action, "target": target}


def reaches(osb, box, host):
    return osb.output(box, connect(*host)) == "200"


@pytest.fixture(scope="module")
def host(osb, box):
    """Address and port of a server on this machine, which sandboxes without a policy reach."""
    with listening() as port:
        host = osb.output(box, GATEWAY), port
        if not reaches(osb, box, host):
            pytest.skip("sandboxes do not reach this machine, so there is nothing to refuse")
        yield host


@pytest.fixture
def limited(osb):
    """A sandbox that reaches one name only."""
    box = osb.create({"defaultAction": "deny", "egress": [rule("allow", "a.example")]})
    yield box
    osb.delete(box)


def test_a_policy_is_given_read_and_changed(osb, limited, host):
    policy = osb.json("egress", "get", limited)
    assert policy == {"default_action": "deny", "egress": [rule("allow", "a.example")]}
    assert not reaches(osb, limited, host)

    address = host[0]
    patched = osb.json("egress", "patch", limited, "--rule", f"allow={address}", "--rule", "DENY=a.example")
    assert patched == {"sandbox_id": limited, "patched_rules": [rule("allow", address), rule("deny", "a.example")]}
    assert osb.json("egress", "get", limited)["egress"] == [rule("allow", address), rule("deny", "a.example")]
    assert reaches(osb, limited, host)

    osb.json("egress", "patch", limited, "--rule", f"deny={address}")
    assert osb.json("egress", "get", limited)["egress"] == [rule("deny", address), rule("deny", "a.example")]
    assert not reaches(osb, limited, host)


def test_a_bad_rule_names_its_place(osb, limited):
    for target in ("http://a.example/", "10.0.0.0/33"):
        refused = osb.run("egress", "patch", limited, "--rule", f"allow={target}")
        assert refused.returncode == 1, refused.stdout
        assert target in refused.stderr, refused.stderr
    assert osb.json("egress", "get", limited)["egress"] == [rule("allow", "a.example")]


def test_a_sandbox_without_a_policy_has_none_to_read(osb, box):
    refused = osb.run("egress", "get", box)
    assert refused.returncode == 1
    assert "Error" in refused.stderr, refused.stderr
