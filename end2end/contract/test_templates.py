"""Templates over HTTP: their shape, their phases, builds, and what is refused."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import Api
from waiting import wait_until

#: A build that fails says so within the time of a pull.
SETTLED = ("Succeeded", "Failed")


@contextlib.contextmanager
def template(api: Api, **members: Any) -> Iterator[dict[str, Any]]:
    """Make a template, wait for its end, and delete it afterwards."""
    body = {"publish": "local", "metadata": {"suite": api.run_id}} | members
    reply = api.http.post("/v1/templates", json=body)
    assert reply.status_code == 201, reply.text
    accepted = reply.json()
    assert accepted["status"] == {"phase": "Pending"}
    path = f"/v1/templates/{accepted['templateId']}"
    try:
        wait_until("the template is made", lambda: api.http.get(path).json()["status"]["phase"] in SETTLED)
        yield api.http.get(path).json()
    finally:
        assert api.http.delete(path).status_code in (204, 404)


@pytest.fixture(scope="module", autouse=True)
def _templates(api: Api) -> None:
    if api.http.get("/v1/templates").status_code == 501:
        pytest.skip("the runtime of this server has no templates")


def test_a_sandbox_gets_what_its_template_has(api: Api) -> None:
    settings = {"env": {"COLOUR": "blue"}, "resourceLimits": {"cpu": "500m", "memory": "256Mi"}}
    with template(api, image=api.target.image, **settings) as made:
        assert made["status"]["phase"] == "Succeeded", made
        assert made["image"] == api.target.image
        assert made["env"] == {"COLOUR": "blue"}
        nothing = {"image": ..., "entrypoint": ..., "resourceLimits": ...}
        with api.sandbox(templateId=made["templateId"], **nothing) as box:
            sandbox = api.http.get(f"/v1/sandboxes/{box.id}").json()
            assert sandbox["image"] == {"uri": made["templateId"]}
            assert sandbox["entrypoint"] == ["tail", "-f", "/dev/null"]
            assert box.run("echo $COLOUR") == ("blue\n", 0)
        listed = api.http.get("/v1/templates", params={"metadata": f"suite={api.run_id}"}).json()
        assert made["templateId"] in [item["templateId"] for item in listed["items"]]
        log = api.http.get(f"/v1/templates/{made['templateId']}/log")
        assert (log.status_code, log.text) == (200, "")


def test_a_build_has_a_log(api: Api) -> None:
    build = {"dockerfile": f"FROM {api.target.image}\nRUN echo of-the-build && echo kept > /var/tmp/built"}
    with template(api, build=build) as made:
        assert made["status"]["phase"] == "Succeeded", made
        assert made["build"] == build
        # The generated clients of the contract require one.
        assert made["image"] == made["templateId"]
        log = api.http.get(f"/v1/templates/{made['templateId']}/log")
        assert log.headers["content-type"].startswith("text/plain")
        assert "of-the-build" in log.text
        nothing = {"image": ..., "entrypoint": ..., "resourceLimits": ...}
        with api.sandbox(templateId=made["templateId"], **nothing) as box:
            assert box.run("cat /var/tmp/built") == ("kept\n", 0)
            path = f"/v1/templates/{made['templateId']}"
            assert api.http.delete(path).status_code == 204
            assert api.http.get(path).status_code == 404
            assert box.run("cat /var/tmp/built") == ("kept\n", 0), "the sandbox goes on"


def test_a_build_that_fails_says_why(api: Api) -> None:
    build = {"dockerfile": f"FROM {api.target.image}\nRUN echo before; exit 7"}
    with template(api, build=build) as made:
        assert made["status"]["phase"] == "Failed", made
        assert "7" in made["status"]["message"]
        assert "before" in api.http.get(f"/v1/templates/{made['templateId']}/log").text
        body = {"templateId": made["templateId"], "timeout": 600}
        refused = api.http.post("/v1/sandboxes", json=body)
        assert refused.status_code == 404
        assert refused.json()["code"] == "FSB::TEMPLATE_NOT_FOUND"


def test_a_build_is_ended_by_a_delete(api: Api) -> None:
    build = {"dockerfile": f"FROM {api.target.image}\nRUN echo it-has-begun && sleep 3600"}
    reply = api.http.post("/v1/templates", json={"publish": "local", "build": build})
    assert reply.status_code == 201, reply.text
    path = f"/v1/templates/{reply.json()['templateId']}"
    wait_until("the build has begun", lambda: "it-has-begun" in api.http.get(f"{path}/log").text)
    assert api.http.get(path).json()["status"] == {"phase": "Building"}
    assert api.http.delete(path).status_code == 204
    assert api.http.get(path).status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        ({"image": "a"}, 422, "publish"),
        ({"publish": "p"}, 422, "image"),
        ({"image": "a", "publish": "p", "build": {"dockerfile": "FROM a"}}, 422, "build"),
        ({"image": "a", "publish": "p", "more": 1}, 422, "more"),
        ({"image": "a", "publish": "p", "my_member": 1, "other": 2}, 422, "my_member"),
        ({"image": "a", "publish": "p", "my_member": 1, "other": 2}, 422, "other"),
        ({"image": "a b", "publish": "p"}, 400, "image"),
        ({"image": "opensandbox-snapshots:none", "publish": "p"}, 400, "image"),
        ({"image": "a", "publish": "p", "entrypoint": [" "]}, 400, "entrypoint"),
        ({"image": "a", "publish": "p", "env": {"1A": ""}}, 400, "env"),
        ({"image": "a", "publish": "p", "resourceLimits": {"gpu": "1"}}, 400, "gpu"),
    ],
)
def test_what_is_wrong_is_named(api: Api, body: dict[str, Any], status: int, part: str) -> None:
    refused = api.http.post("/v1/templates", json=body)
    assert refused.status_code == status, refused.text
    assert part in refused.text
    assert refused.json()["code"] == "SANDBOX::INVALID_PARAMETER"


def test_an_unknown_template_is_a_404(api: Api) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/log")):
        reply = api.http.request(method, f"/v1/templates/tpl-00000000-0000-4000-8000-000000000000{path}")
        assert reply.status_code == 404, reply.text
        assert reply.json()["code"] == "FSB::TEMPLATE_NOT_FOUND"
