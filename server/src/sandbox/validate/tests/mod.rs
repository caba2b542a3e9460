//! Tests of the rules of a create.

mod fields;
mod hooks;
mod network_policy;
mod rules;

use osb_runtime::{Expiry, Source};
use serde_json::json;

use super::*;

const RULES: Rules = Rules {
    runtime: "docker",
    features: FeatureSet::EMPTY,
    secure: None,
    max_timeout_seconds: Some(3600),
    execd_auth: true,
    execd_isolation: true,
    default_policy: None,
    storage: StorageRules::NONE,
};

fn request(body: &Value, rules: &Rules) -> Result<CreateSpec, Error> {
    super::request(body.clone(), rules).map(|checked| checked.spec)
}

fn good() -> Value {
    json!({
        "image": {"uri": "debian:12"},
        "entrypoint": ["sleep", "infinity"],
        "resourceLimits": {"cpu": "500m", "memory": "256Mi"},
        "timeout": 600,
        "metadata": {"team": "core"}
    })
}

/// The good request with one member set (or, with null, taken away).
fn with(pointer: &str, value: Value) -> Value {
    let mut body = good();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = body.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    parent.insert(name.to_owned(), value);
    body
}

fn without(name: &str) -> Value {
    let mut body = good();
    body.as_object_mut().unwrap().remove(name);
    body
}

fn fields(body: &Value) -> Vec<(String, String)> {
    match request(body, &RULES) {
        Err(Error::Invalid(fields)) => fields
            .into_iter()
            .map(|error| (error.field(), error.kind))
            .collect(),
        other => panic!("expected field errors, got {other:?}"),
    }
}

#[test]
fn a_good_request_becomes_a_spec() {
    let spec = request(&good(), &RULES).unwrap();
    assert_eq!(spec.origin.source, Source::Image("debian:12".into()));
    assert_eq!(spec.limits.memory_bytes, Some(256 << 20));
    let expiry = spec.origin.created_at.plus_seconds(600).map(Expiry::At);
    assert_eq!(Some(spec.origin.expiry), expiry);
    assert!(spec.origin.token.is_some());
    assert!(uuid::Uuid::parse_str(spec.id().as_str()).is_ok());
}

#[test]
fn isolated_sessions_are_asked_for_and_not_kept() {
    let asked = json!({"bootstrap.execd.isolation": "enable", "opensandbox.extensions.a": "1"});
    let spec = request(&with("/extensions", asked), &RULES).unwrap();
    assert!(spec.isolation);
    let echoed: Vec<_> = spec.origin.extensions.into_keys().collect();
    assert_eq!(echoed, ["opensandbox.extensions.a"]);
    assert!(!request(&good(), &RULES).unwrap().isolation);
    let strict = Rules {
        execd_isolation: false,
        ..RULES
    };
    let asked = json!({"bootstrap.execd.isolation": "enable"});
    let error = request(&with("/extensions", asked), &strict).unwrap_err();
    assert!(
        error.to_string().contains("runtime.execd_isolation"),
        "{error}"
    );
    assert!(request(&good(), &strict).is_ok());
}

#[test]
fn the_worst_case_for_parsers_is_accepted() {
    let body = json!({"image":{"uri":"debian:12","auth":null},"snapshotId":null,"timeout":"600",
        "resource_limits":{"cpu":"1","memory":"2Gi"},"env":{},"metadata":{"tag":"t1"},
        "entrypoint":["tail","-f","/dev/null"],"networkPolicy":null,"credentialProxy":null,
        "platform":null,"volumes":null,"secureAccess":false,"extensions":{},"unknown":1});
    assert!(request(&body, &RULES).is_ok());
    let manual = request(&with("/timeout", Value::Null), &RULES).unwrap();
    assert_eq!(manual.origin.expiry, Expiry::Manual);
}

/// Places and kinds of everything that an error reports.
fn places(error: &Error) -> Vec<String> {
    error.fields().iter().map(FieldError::field).collect()
}

#[test]
fn variables_of_the_sidecar_do_not_reach_the_sandbox() {
    let env = json!({
        "OPENSANDBOX_EGRESS_LOG_LEVEL": "debug", "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true",
        "OPENSANDBOX_EGRESS_POLICY_FILE": null, "OPENSANDBOX_EGRES": "1", "EXECD_ACCESS_TOKEN": "mine",
    });
    let mut checked = super::request(with("/env", env), &RULES).unwrap();
    checked.unread.sort_unstable();
    let kept: Vec<_> = checked.spec.env.into_keys().collect();
    let transparent = "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT";
    assert_eq!(
        kept,
        ["EXECD_ACCESS_TOKEN", "OPENSANDBOX_EGRES", transparent]
    );
    assert_eq!(
        checked.unread,
        [
            "env.EXECD_ACCESS_TOKEN",
            "env.OPENSANDBOX_EGRESS_LOG_LEVEL",
            "env.OPENSANDBOX_EGRESS_POLICY_FILE",
        ]
    );
    for (name, value) in [("RULES", json!("x")), ("", json!(null))] {
        let env = json!({format!("OPENSANDBOX_EGRESS_{name}"): value});
        assert!(request(&with("/env", env), &RULES).is_err(), "{name}");
    }
}
