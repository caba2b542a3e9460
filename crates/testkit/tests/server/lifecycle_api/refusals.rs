//! Creates that break rules: every field at fault is named at once.

use osb_testkit::TestServer;
use serde_json::{Value, json};

use super::calls::create;

/// The places of an answer's `detail`, without `body`.
fn places(answer: &Value) -> Vec<Vec<Value>> {
    let all = answer["detail"].as_array().unwrap();
    let place = |detail: &Value| {
        assert!(
            detail["type"].is_string() && detail["msg"].is_string(),
            "{detail}"
        );
        detail["loc"].as_array().unwrap()[1..].to_vec()
    };
    all.iter().map(place).collect()
}

#[tokio::test]
async fn a_422_also_names_the_broken_rules_of_readable_members() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let (status, answer) = create(&server, |body| {
        body["timeout"] = json!(1);
        body["metadata"] = json!({"a.b ": "1"});
        body["image"]["auth"] = json!({"username": "u", "password": {"hunter2": 1}});
        body["image"]["uri"] = json!("not an image");
    })
    .await;
    assert_eq!(
        (status.as_u16(), &answer["code"]),
        (422, &json!("SANDBOX::INVALID_PARAMETER"))
    );
    let places = places(&answer);
    for place in [
        vec![json!("timeout")],
        vec![json!("image"), json!("auth"), json!("password")],
        vec![json!("metadata"), json!("a.b ")],
        vec![json!("image"), json!("uri")],
    ] {
        assert!(places.contains(&place), "{place:?} in {answer}");
    }
    assert_eq!(places.len(), 4, "{answer}");
    assert!(!answer.to_string().contains("hunter2"), "{answer}");
    assert!(sim.sandboxes().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_400_has_the_first_rules_code_and_all_fields() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let (status, answer) = create(&server, |body| {
        body["resourceLimits"] = json!({"cpu": "fast"});
        body["metadata"] = json!({"opensandbox.io/x": "1", "ok": "1"});
        body["env"] = json!({"A=B": "1"});
    })
    .await;
    let first = json!("SANDBOX::INVALID_METADATA_LABEL");
    assert_eq!((status.as_u16(), &answer["code"]), (400, &first));
    assert_eq!(
        places(&answer),
        [
            vec![json!("metadata"), json!("opensandbox.io/x")],
            vec![json!("resourceLimits"), json!("cpu")],
            vec![json!("env"), json!("A=B")],
        ]
    );
    let message = answer["message"].as_str().unwrap();
    assert!(
        message.contains("reserved") && message.contains("env.A=B"),
        "{message}"
    );
    assert!(sim.sandboxes().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn every_rule_has_its_status_and_code() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let volume = json!([{"name": "a", "mountPath": "/a", "host": {"path": "/x"}}]);
    for (field, value, status, code) in [
        (
            "extensions",
            json!({"access.renew.extend.seconds": "299"}),
            400,
            "SANDBOX::INVALID_PARAMETER",
        ),
        (
            "extensions",
            json!({"poolRef": "p"}),
            400,
            "SANDBOX::UNSUPPORTED_POOL_REF",
        ),
        ("entrypoint", json!([""]), 400, "DOCKER::INVALID_ENTRYPOINT"),
        (
            "metadata",
            json!({"-": "1"}),
            400,
            "SANDBOX::INVALID_METADATA_LABEL",
        ),
        (
            "platform",
            json!({"os": "plan9", "arch": "amd64"}),
            400,
            "SANDBOX::INVALID_PARAMETER",
        ),
        (
            "platform",
            json!({"os": " Windows ", "arch": "amd64"}),
            400,
            "SANDBOX::INVALID_PARAMETER",
        ),
        ("timeout", json!(86_401), 400, "SANDBOX::INVALID_PARAMETER"),
        (
            "networkPolicy",
            json!({}),
            400,
            "SANDBOX::INVALID_PARAMETER",
        ),
        (
            "resourceLimits",
            json!({"gpu": "some"}),
            400,
            "SANDBOX::INVALID_PARAMETER",
        ),
        (
            "env",
            json!({"OPENSANDBOX_EGRESS_RULES": "{}"}),
            400,
            "SANDBOX::INVALID_PARAMETER",
        ),
        (
            "env",
            json!({"OPENSANDBOX_LIFECYCLE": null}),
            422,
            "SANDBOX::INVALID_PARAMETER",
        ),
        ("lifecycle", json!({}), 400, "SANDBOX::INVALID_PARAMETER"),
        (
            "lifecycle",
            json!({"preStart": {"command": ["a"], "retries": 1}}),
            422,
            "SANDBOX::INVALID_PARAMETER",
        ),
        ("volumes", volume, 400, "SANDBOX::INVALID_PARAMETER"),
        (
            "credentialProxy",
            json!({"enabled": true}),
            422,
            "SANDBOX::INVALID_PARAMETER",
        ),
        (
            "templateId",
            json!("tpl-1"),
            422,
            "SANDBOX::INVALID_PARAMETER",
        ),
    ] {
        let (seen, answer) = create(&server, |body| body[field] = value.clone()).await;
        let seen = (seen.as_u16(), answer["code"].as_str().unwrap());
        assert_eq!(seen, (status, code), "{field} = {value}: {answer}");
        // Rules between fields are reported at the field to change.
        let at_field = places(&answer).iter().any(|place| place[0] == field);
        assert!(at_field || field == "templateId", "{answer}");
    }
    let (status, answer) = create(&server, |body| {
        *body = json!({"templateId": "tpl-1", "timeout": 600});
    })
    .await;
    let code = json!("DOCKER::INVALID_ENTRYPOINT");
    assert_eq!((status.as_u16(), &answer["code"]), (400, &code), "{answer}");
    assert!(sim.sandboxes().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn what_has_no_effect_is_accepted() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let (status, answer) = create(&server, |body| {
        body["env"] = json!({"OPENSANDBOX_EGRESS_LOG_LEVEL": "debug", "A": "", "B": null});
        body["resourceRequests"] = json!({"cpu": "nonsense"});
        body["entrypoint"] = json!(["/bin/o'clock"]);
        body["image"]["auth"] = json!(null);
    })
    .await;
    assert_eq!(status, 202, "{answer}");
    let id = osb_protocol::SandboxId::from(answer["id"].as_str().unwrap());
    let env: Vec<_> = sim.spec(&id).unwrap().env.into_iter().collect();
    assert_eq!(
        env,
        [
            ("A".to_owned(), Some(String::new())),
            ("B".to_owned(), None)
        ]
    );
    server.stop().await;
}

#[tokio::test]
async fn the_extension_of_a_renewal_is_a_whole_number_within_bounds() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let key = "access.renew.extend.seconds";
    for (text, seconds) in [
        ("300", Some(300)),
        (" 86400 ", Some(86_400)),
        ("299", None),
        ("86401", None),
        ("-300", None),
        ("300.0", None),
        ("5m", None),
        ("", None),
        (" ", None),
        ("99999999999999999999", None),
    ] {
        let (status, answer) =
            create(&server, |body| body["extensions"] = json!({ key: text })).await;
        let Some(seconds) = seconds else {
            assert_eq!(status, 400, "{text:?}: {answer}");
            assert_eq!(answer["code"], "SANDBOX::INVALID_PARAMETER", "{text:?}");
            assert_eq!(places(&answer), [[json!("extensions"), json!(key)]]);
            continue;
        };
        assert_eq!(status, 202, "{text:?}: {answer}");
        let id = osb_protocol::SandboxId::from(answer["id"].as_str().unwrap());
        let kept = sim.spec(&id).unwrap().origin.renew_extend_seconds;
        assert_eq!(kept, Some(seconds), "{text:?}");
    }
    server.stop().await;
}
