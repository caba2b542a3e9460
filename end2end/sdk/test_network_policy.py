"""Network policies: on a create, and changed later."""

import pytest
from opensandbox.exceptions import SandboxException
from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule

from listener import GATEWAY, connect, listening


def rule(action, target):
    return NetworkRule(action=action, target=target)


def rules(policy):
    return [(rule.action, rule.target) for rule in policy.egress or []]


def output(box, command):
    execution = box.commands.run(command)
    return "".join(message.text for message in execution.logs.stdout).strip()


@pytest.fixture(scope="module")
def host(box):
    """Address and port of a server on this machine, which sandboxes without a policy reach."""
    with listening() as port:
        address = output(box, GATEWAY)
        if output(box, connect(address, port)) != "200":
            pytest.skip("sandboxes do not reach this machine, so there is nothing to refuse")
        yield address, port


@pytest.fixture
def limited(sdk):
    """A sandbox that reaches one name only."""
    policy = NetworkPolicy(default_action="deny", egress=[rule("allow", "a.example")])
    try:
        box = sdk.create(network_policy=policy)
    except SandboxException as error:
        if "network policies are not available" in str(error):
            pytest.skip("the server has no network policies: it needs [egress] image")
        raise
    yield box
    box.kill()


def test_a_policy_is_given_read_and_changed(limited, host):
    address = host[0]
    policy = limited.get_egress_policy()
    assert (policy.default_action, rules(policy)) == ("deny", [("allow", "a.example")])
    assert output(limited, connect(*host)) == "000"

    limited.patch_egress_rules([rule("allow", address), rule("deny", "a.example")])
    assert rules(limited.get_egress_policy()) == [("allow", address), ("deny", "a.example")]
    assert output(limited, connect(*host)) == "200"

    limited.delete_egress_rules([address, "unknown.example"])
    policy = limited.get_egress_policy()
    assert (policy.default_action, rules(policy)) == ("deny", [("deny", "a.example")])
    assert output(limited, connect(*host)) == "000"


def test_another_client_changes_the_policy_too(sdk, limited):
    again = sdk.connect(limited.id)
    try:
        again.patch_egress_rules([rule("allow", "b.example")])
    finally:
        again.close()
    assert ("allow", "b.example") in rules(limited.get_egress_policy())


def test_a_sandbox_without_a_policy_has_none_to_read(box):
    with pytest.raises(SandboxException):
        box.get_egress_policy()
