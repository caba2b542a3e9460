"""Requests that create refuses, and its errors."""

import pytest

VOLUME = {"name": "data", "mountPath": "/data", "pvc": {"claimName": "claim"}}


def volume(**changes):
    changed = {**VOLUME, **changes}
    return {"volumes": [{name: value for name, value in changed.items() if value is not ...}]}


#: Changes to a valid request, and the location that the error must name.
BAD_FIELDS = [
    ({"timeout": 59}, ["timeout"]),
    ({"timeout": 0}, ["timeout"]),
    ({"timeout": -1}, ["timeout"]),
    ({"timeout": 60.5}, ["timeout"]),
    ({"timeout": "soon"}, ["timeout"]),
    ({"timeout": [600]}, ["timeout"]),
    ({"image": "debian"}, ["image"]),
    ({"image": {}}, ["image", "uri"]),
    ({"image": {"uri": 5}}, ["image", "uri"]),
    ({"image": {"uri": "a", "auth": {"username": "u"}}}, ["image", "auth", "password"]),
    ({"image": {"uri": "a", "auth": {"password": "p"}}}, ["image", "auth", "username"]),
    ({"entrypoint": []}, ["entrypoint"]),
    ({"entrypoint": "sleep"}, ["entrypoint"]),
    ({"entrypoint": ["sleep", 5]}, ["entrypoint", 1]),
    ({"resourceLimits": "500m"}, ["resourceLimits"]),
    ({"resourceLimits": {"cpu": 1}}, ["resourceLimits", "cpu"]),
    ({"env": {"A": 1}}, ["env", "A"]),
    ({"env": ["A=1"]}, ["env"]),
    ({"metadata": {"a": 1}}, ["metadata", "a"]),
    ({"metadata": {"a": None}}, ["metadata", "a"]),
    ({"extensions": {"a": {}}}, ["extensions", "a"]),
    ({"secureAccess": "perhaps"}, ["secureAccess"]),
    ({"platform": {"os": "linux"}}, ["platform", "arch"]),
    ({"networkPolicy": {"egress": [{"action": "allow", "target": ""}]}}, ["networkPolicy", "egress", 0, "target"]),
    ({"networkPolicy": {"egress": [{"target": "a.example"}]}}, ["networkPolicy", "egress", 0, "action"]),
    (volume(name="Not_A_Name"), ["volumes", 0, "name"]),
    (volume(name="n" * 64), ["volumes", 0, "name"]),
    (volume(name=...), ["volumes", 0, "name"]),
    (volume(mountPath="data"), ["volumes", 0, "mountPath"]),
    (volume(pvc={"claimName": "Bad.Claim"}), ["volumes", 0, "pvc", "claimName"]),
    (volume(pvc=..., host={"path": "relative"}), ["volumes", 0, "host", "path"]),
]

#: Changes that break a rule between fields, and the field that the error names.
BAD_TOGETHER = [
    ({"image": ...}, "image"),
    ({"image": {"uri": "  "}}, "image"),
    ({"snapshotId": "s"}, "image"),
    ({"entrypoint": ...}, "entrypoint"),
    ({"resourceLimits": ...}, "resourceLimits"),
    ({"templateId": "t", "image": ...}, "entrypoint"),
    ({"credentialProxy": {"enabled": True}}, "credentialProxy"),
]

#: Changes that break a rule of the server.
BAD_RULES = [
    ({"metadata": {"opensandbox.io/x": "1"}}, "SANDBOX::INVALID_METADATA_LABEL"),
    ({"metadata": {"-a": "1"}}, "SANDBOX::INVALID_METADATA_LABEL"),
    ({"metadata": {"a": "x" * 64}}, "SANDBOX::INVALID_METADATA_LABEL"),
    ({"platform": {"os": "plan9", "arch": "amd64"}}, "SANDBOX::INVALID_PARAMETER"),
    ({"platform": {"os": "linux", "arch": "vax"}}, "SANDBOX::INVALID_PARAMETER"),
    ({"resourceLimits": {"cpu": "0"}}, "SANDBOX::INVALID_PARAMETER"),
    ({"resourceLimits": {"memory": "1.5Gi"}}, "SANDBOX::INVALID_PARAMETER"),
    ({"resourceLimits": {"gpu": "-1"}}, "SANDBOX::INVALID_PARAMETER"),
    ({"networkPolicy": {"defaultAction": "permit"}}, "SANDBOX::INVALID_PARAMETER"),
    ({"extensions": {"access.renew.extend.seconds": "299"}}, "SANDBOX::INVALID_PARAMETER"),
    ({"extensions": {"access.renew.extend.seconds": "x"}}, "SANDBOX::INVALID_PARAMETER"),
    ({"extensions": {"bootstrap.execd.isolation": "on"}}, "SANDBOX::INVALID_PARAMETER"),
    ({"extensions": {"poolRef": "p"}, "secureAccess": True}, "SANDBOX::INVALID_PARAMETER"),
    ({"extensions": {"poolRef": "p"}, "networkPolicy": {}}, "SANDBOX::INVALID_PARAMETER"),
    ({"extensions": {"poolRef": "p"}, "volumes": [VOLUME]}, "SANDBOX::INVALID_PARAMETER"),
    ({"env": {"OPENSANDBOX_EGRESS_RULES": "{}"}}, "SANDBOX::INVALID_PARAMETER"),
    ({"env": {"A": "x" * 131072}}, "SANDBOX::INVALID_PARAMETER"),
    ({"platform": {"os": "windows", "arch": "amd64"}}, "SANDBOX::INVALID_PARAMETER"),
    ({"timeout": 2**53}, "SANDBOX::INVALID_PARAMETER"),
    (volume(pvc=..., host={"path": "/etc"}), "VOLUME::HOST_PATH_NOT_ALLOWED"),
    (volume(pvc=..., host={"path": "/srv/../etc"}), "VOLUME::INVALID_HOST_PATH"),
    (volume(subPath="../x"), "VOLUME::INVALID_SUB_PATH"),
    (volume(mountPath="/opt/opensandbox"), "VOLUME::INVALID_MOUNT_PATH"),
    ({"volumes": [VOLUME, {**VOLUME, "mountPath": "/other"}]}, "VOLUME::DUPLICATE_NAME"),
    (
        volume(
            pvc=...,
            ossfs={"bucket": "data", "endpoint": "e", "accessKeyId": "i", "accessKeySecret": "s", "options": ["-o"]},
        ),
        "VOLUME::INVALID_OSSFS_OPTION",
    ),
]


def refused(api, status, **request):
    reply = api.http.post("/v1/sandboxes", **request)
    assert reply.status_code == status, reply.text
    body = reply.json()
    assert isinstance(body["code"], str) and body["code"]
    assert isinstance(body["message"], str) and body["message"]
    assert reply.headers["x-request-id"]
    return body


@pytest.mark.parametrize(("changes", "where"), BAD_FIELDS, ids=str)
def test_a_bad_field_is_a_422_at_that_field(api, changes, where):
    body = refused(api, 422, json=api.body(**changes))
    assert body["code"] == "SANDBOX::INVALID_PARAMETER"
    places = [detail["loc"] for detail in body["detail"]]
    assert ["body", *where] in places, places
    for detail in body["detail"]:
        assert detail["type"] and detail["msg"]


@pytest.mark.parametrize(("changes", "field"), BAD_TOGETHER, ids=str)
def test_conflicting_fields_are_a_422(api, changes, field):
    body = refused(api, 422, json=api.body(**changes))
    places = [detail["loc"] for detail in body["detail"]]
    assert ["body"] in places or ["body", field] in places, places


@pytest.mark.parametrize(("changes", "code"), BAD_RULES, ids=str)
def test_a_broken_rule_is_a_400_with_its_code(api, changes, code):
    assert refused(api, 400, json=api.body(**changes))["code"] == code


def test_a_create_from_a_pool_that_does_not_exist_is_a_404(api):
    body = refused(api, 404, json=api.body(extensions={"poolRef": "no-such-pool"}))
    assert body["code"] == "KUBERNETES::POOL_NOT_FOUND"


def test_all_bad_fields_are_reported_together(api):
    body = refused(api, 422, json=api.body(timeout=1, entrypoint=[], env={"A": 1}))
    places = [detail["loc"] for detail in body["detail"]]
    for where in (["body", "timeout"], ["body", "entrypoint"], ["body", "env", "A"]):
        assert where in places


def test_broken_rules_are_reported_with_bad_fields(api):
    body = refused(api, 422, json=api.body(timeout=1, metadata={"a.b ": "1"}, platform={"os": "plan9", "arch": "vax"}))
    places = [detail["loc"] for detail in body["detail"]]
    for where in (["timeout"], ["metadata", "a.b "], ["platform", "os"], ["platform", "arch"]):
        assert ["body", *where] in places, places


def test_all_broken_rules_are_reported_together(api):
    body = refused(api, 400, json=api.body(metadata={"-a": "1", "b-": "1"}, resourceLimits={"cpu": "0"}))
    assert body["code"] == "SANDBOX::INVALID_METADATA_LABEL"
    places = [detail["loc"] for detail in body["detail"]]
    assert places == [["body", "metadata", "-a"], ["body", "metadata", "b-"], ["body", "resourceLimits", "cpu"]]


@pytest.mark.parametrize("content", ["", "{", "nonsense", '{"timeout": 600'])
def test_a_body_that_is_not_json_is_a_422(api, content):
    refused(api, 422, content=content, headers={"content-type": "application/json"})


@pytest.mark.parametrize("content", ["[]", "5", '"text"', "null"])
def test_a_body_that_is_not_an_object_is_a_422(api, content):
    refused(api, 422, content=content, headers={"content-type": "application/json"})


def test_a_body_without_a_json_content_type_is_a_422(api):
    refused(api, 422, content="{}", headers={"content-type": "text/plain"})


def test_secrets_are_never_repeated(api):
    auth = {"username": "u", "password": ["hunter2-secret"]}
    reply = api.http.post("/v1/sandboxes", json=api.body(image={"uri": "a", "auth": auth}))
    assert reply.status_code == 422
    assert "hunter2-secret" not in reply.text


def test_what_every_generation_of_clients_sends_is_accepted(api):
    """Explicit nulls, snake case, numbers as text, unknown members."""
    nothing = ("snapshotId", "networkPolicy", "credentialProxy", "platform", "volumes", "lifecycle", "templateId")
    body = api.body(timeout="600", resourceLimits=..., resource_limits={"cpu": "500m"}, unknownMember={"a": 1})
    body |= dict.fromkeys(nothing) | {"secureAccess": False, "extensions": {}, "env": {"KEEP": "", "DROP": None}}
    body["image"]["auth"] = None
    reply = api.http.post("/v1/sandboxes", json=body)
    assert reply.status_code == 202, reply.text
    api.delete(reply.json()["id"])


def test_an_unknown_image_fails_with_its_name_and_leaves_nothing(api):
    metadata = {"suite": api.run_id, "image": "unknown"}
    body = refused(api, 500, json=api.body(image={"uri": "opensandbox.invalid/none:1"}, metadata=metadata))
    assert body["code"] == "DOCKER::SANDBOX_IMAGE_PULL_FAILED"
    assert "opensandbox.invalid/none:1" in body["message"]
    query = {"metadata": f"suite={api.run_id}&image=unknown", "state": ["Running", "Pending"]}
    assert api.http.get("/v1/sandboxes", params=query).json()["items"] == []


@pytest.mark.parametrize("query", ["page=0", "page=x", "pageSize=0", "pageSize=201", "pageSize=-1"])
def test_pages_out_of_range_are_a_422(api, query):
    reply = api.http.get(f"/v1/sandboxes?{query}")
    assert reply.status_code == 422
    assert reply.json()["detail"][0]["loc"] == ["query", query.split("=")[0]]


def test_a_filter_without_an_equals_sign_is_a_400(api):
    reply = api.http.get("/v1/sandboxes", params={"metadata": "team"})
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_METADATA_FORMAT")


@pytest.mark.parametrize("body", [{}, {"expiresAt": "soon"}, {"expiresAt": None}, []])
def test_a_malformed_renewal_is_a_422(api, box, body):
    assert api.http.post(f"/v1/sandboxes/{box.id}/renew-expiration", json=body).status_code == 422


def test_a_renewal_into_the_past_is_a_400(api, box):
    reply = api.http.post(f"/v1/sandboxes/{box.id}/renew-expiration", json={"expiresAt": "2020-01-01T00:00:00Z"})
    assert (reply.status_code, reply.json()["code"]) == (400, "DOCKER::INVALID_EXPIRATION")


@pytest.mark.parametrize(
    "when",
    ["2100-01-01T00:00:00Z", "2100-01-01T00:00:00.123456+00:00", "2100-01-01T02:00:00.1234567+02:00", "2100-01-01T00:00:00.123456789Z"],
)
def test_every_time_format_is_accepted(api, box, when):
    reply = api.http.post(f"/v1/sandboxes/{box.id}/renew-expiration", json={"expiresAt": when})
    assert reply.status_code == 200, reply.text
    assert reply.json()["expiresAt"].startswith("2100-01-01T00:00:00")
    assert reply.json()["expiresAt"].endswith("Z")


@pytest.mark.parametrize(("patch", "status"), [([], 422), ({"a": 1}, 422), ({"opensandbox.io/a": None}, 400), ({"a": "x y"}, 400)])
def test_a_bad_patch_is_refused(api, box, patch, status):
    assert api.http.patch(f"/v1/sandboxes/{box.id}/metadata", json=patch).status_code == status


@pytest.mark.parametrize(("port", "status"), [("0", 400), ("65536", 400), ("x", 422)])
def test_a_bad_port_is_refused(api, box, port, status):
    assert api.http.get(f"/v1/sandboxes/{box.id}/endpoints/{port}").status_code == status


def test_signed_endpoints_are_not_for_docker(api, box):
    path = f"/v1/sandboxes/{box.id}/endpoints/8080"
    reply = api.http.get(path, params={"expires": "4102444800"})
    assert (reply.status_code, reply.json()["code"]) == (400, "SANDBOX::API_NOT_SUPPORTED")
    reply = api.http.get(path, params={"expires": "4102444800", "use_server_proxy": "true"})
    assert (reply.status_code, reply.json()["code"]) == (400, "SANDBOX::INVALID_PARAMETER")
