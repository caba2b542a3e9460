use osb_runtime::{Expiry, Source};
use serde_json::json;

use super::*;

const RULES: Rules = Rules {
    runtime: "docker",
    features: FeatureSet::EMPTY,
    max_timeout_seconds: Some(3600),
    execd_auth: true,
    execd_isolation: true,
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

#[test]
fn types_and_ranges_are_reported_at_their_field() {
    for (pointer, value, field, kind) in [
        ("/timeout", json!(59), "timeout", "greater_than_equal"),
        ("/timeout", json!(-1e30), "timeout", "greater_than_equal"),
        ("/timeout", json!("soon"), "timeout", "int_type"),
        ("/timeout", json!(60.5), "timeout", "int_type"),
        ("/timeout", json!(true), "timeout", "int_type"),
        ("/image", json!("debian"), "image", "dict_type"),
        ("/image", json!({}), "image.uri", "missing"),
        ("/image/uri", json!(1), "image.uri", "string_type"),
        (
            "/image/auth",
            json!({"username": "a"}),
            "image.auth.password",
            "missing",
        ),
        ("/entrypoint", json!([]), "entrypoint", "too_short"),
        ("/entrypoint", json!("sleep 1"), "entrypoint", "list_type"),
        (
            "/entrypoint",
            json!(["a", 1]),
            "entrypoint.1",
            "string_type",
        ),
        ("/env", json!({"A": 1}), "env.A", "string_type"),
        ("/env", json!([]), "env", "dict_type"),
        (
            "/env",
            json!({"OPENSANDBOX_LIFECYCLE": null}),
            "env.OPENSANDBOX_LIFECYCLE",
            "value_error",
        ),
        ("/metadata", json!({"a": 1}), "metadata.a", "string_type"),
        ("/metadata", json!({"a": null}), "metadata.a", "string_type"),
        (
            "/resourceLimits",
            json!({"cpu": 1}),
            "resourceLimits.cpu",
            "string_type",
        ),
        (
            "/extensions",
            json!({"a": true}),
            "extensions.a",
            "string_type",
        ),
        (
            "/platform",
            json!({"os": "linux"}),
            "platform.arch",
            "missing",
        ),
        ("/secureAccess", json!("yes"), "secureAccess", "bool_type"),
        (
            "/networkPolicy",
            json!({"egress": [{"action": "allow"}]}),
            "networkPolicy.egress.0.target",
            "missing",
        ),
        (
            "/networkPolicy",
            json!({"egress": [{"action": "allow", "target": ""}]}),
            "networkPolicy.egress.0.target",
            "string_too_short",
        ),
        (
            "/credentialProxy",
            json!({"enabled": true}),
            "credentialProxy",
            "value_error",
        ),
        (
            "/volumes",
            json!([{"name": "a", "mountPath": "/a"}]),
            "volumes.0",
            "value_error",
        ),
        (
            "/volumes",
            json!([{"name": "A", "mountPath": "/a", "host": {"path": "/x"}}]),
            "volumes.0.name",
            "string_pattern_mismatch",
        ),
        (
            "/volumes",
            json!([{"name": "a", "mountPath": "a", "host": {"path": "/x"}}]),
            "volumes.0.mountPath",
            "string_pattern_mismatch",
        ),
        (
            "/lifecycle",
            json!({"x": 1}),
            "lifecycle.x",
            "extra_forbidden",
        ),
        (
            "/lifecycle",
            json!({"preStart": {"command": [" "]}}),
            "lifecycle.preStart.command",
            "value_error",
        ),
        (
            "/lifecycle",
            json!({"preStart": {"command": ["a"], "timeoutSeconds": 10801}}),
            "lifecycle.preStart.timeoutSeconds",
            "less_than_equal",
        ),
        ("/snapshotId", json!("s"), "image", "value_error"),
        ("/templateId", json!(""), "templateId", "string_too_short"),
    ] {
        let found = fields(&with(pointer, value.clone()));
        assert_eq!(
            found,
            [(field.to_owned(), kind.to_owned())],
            "{pointer} = {value}"
        );
    }
    for (name, kind) in [
        ("image", "missing"),
        ("entrypoint", "missing"),
        ("resourceLimits", "missing"),
    ] {
        assert_eq!(fields(&without(name)), [(name.to_owned(), kind.to_owned())]);
    }
}

#[test]
fn all_wrong_fields_are_reported_at_once_and_never_their_values() {
    let mut body = with("/timeout", json!(1));
    body["image"] = json!({"uri": "a", "auth": {"username": "u", "password": ["hunter2"]}});
    body["metadata"] = json!({"k": 5});
    let error = request(&body, &RULES).unwrap_err();
    assert_eq!(error.fields().len(), 3, "{error}");
    let shown = serde_json::to_string(&error.fields()).unwrap() + &error.to_string();
    assert!(!shown.contains("hunter2"), "{shown}");
    assert_eq!(
        fields(&json!([])),
        [(String::new(), "dict_type".to_owned())]
    );
}

#[test]
fn a_million_mistakes_are_not_a_million_errors() {
    let volumes: Vec<Value> = (0..10_000).map(|_| json!({})).collect();
    let error = request(&with("/volumes", json!(volumes)), &RULES).unwrap_err();
    assert_eq!(error.fields().len(), REPORTED);
}

#[test]
fn rules_about_sandboxes_come_with_their_field() {
    for (pointer, value, text) in [
        (
            "/timeout",
            json!(3601),
            "timeout: must be at most 3600 seconds",
        ),
        ("/metadata", json!({"opensandbox.io/x": "1"}), "is reserved"),
        ("/metadata", json!({"a b": "1"}), "not a valid label key"),
        ("/metadata", json!({"a": "b c"}), "not a valid label value"),
        (
            "/platform",
            json!({"os": "mac", "arch": "amd64"}),
            "platform.os",
        ),
        (
            "/platform",
            json!({"os": "linux", "arch": "mips"}),
            "platform.arch",
        ),
        (
            "/resourceLimits",
            json!({"memory": "1.5Gi", "cpu": "0"}),
            "resourceLimits.cpu",
        ),
        (
            "/resourceLimits",
            json!({"cpu": "9.9m"}),
            "resourceLimits.cpu: must be at least 10m",
        ),
        (
            "/resourceLimits",
            json!({"cpu": "0.0001"}),
            "resourceLimits.cpu: must be at least 10m",
        ),
        ("/secureAccess", json!(true), "secureAccess"),
        ("/networkPolicy", json!({}), "networkPolicy"),
        (
            "/extensions",
            json!({"access.renew.extend.seconds": "299"}),
            "between 300 and 86400",
        ),
        (
            "/extensions",
            json!({"bootstrap.execd.isolation": "Enable"}),
            "extensions.bootstrap.execd.isolation: must be enable",
        ),
        (
            "/extensions",
            json!({"bootstrap.execd.isolation": ""}),
            "extensions.bootstrap.execd.isolation: must be enable",
        ),
        ("/extensions", json!({"poolRef": "p"}), "poolRef"),
        ("/lifecycle", json!({}), "lifecycle"),
        ("/entrypoint", json!([" "]), "entrypoint"),
        ("/entrypoint", json!(["sh -c 'x"]), "unbalanced quote"),
        ("/entrypoint", json!(["a\u{0}"]), "NUL"),
        ("/env", json!({"A=B": "1"}), "env"),
        (
            "/env",
            json!({"OPENSANDBOX_EGRESS_X": "1"}),
            "env.OPENSANDBOX_EGRESS_X",
        ),
        ("/image/uri", json!("a b"), "image.uri"),
        ("/image/uri", json!("../events?x="), "image.uri"),
        (
            "/resourceLimits",
            json!({"memory": "1Ki"}),
            "resourceLimits.memory",
        ),
    ] {
        let error = request(&with(pointer, value), &RULES).unwrap_err();
        assert!(!matches!(error, Error::Invalid(_)), "{pointer}");
        assert!(error.to_string().contains(text), "{pointer}: {error}");
        assert!(
            !error.fields().is_empty(),
            "{pointer}: a form must find the field"
        );
    }
    let least = request(&with("/resourceLimits", json!({"cpu": "10m"})), &RULES);
    assert_eq!(least.unwrap().limits.nano_cpus, Some(10_000_000));
}

#[test]
fn the_longest_timeouts_break_the_same_rule_whatever_their_spelling() {
    let unlimited = Rules {
        max_timeout_seconds: None,
        ..RULES
    };
    for far in [
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1e30),
        json!("1111111111222222222233333333334"),
    ] {
        let error = request(&with("/timeout", far), &unlimited).unwrap_err();
        assert_eq!(error.to_string(), "timeout: must end before the year 10000");
    }
}

#[test]
fn patches_may_delete_odd_keys_but_not_reserved_ones() {
    let patch = |key: &str, value: Option<&str>| {
        metadata_patch(&BTreeMap::from([(
            key.to_owned(),
            value.map(str::to_owned),
        )]))
    };
    assert!(patch("a b", None).is_ok());
    assert!(matches!(patch("a b", Some("1")), Err(Error::Label(_))));
    assert!(matches!(
        patch("opensandbox.io/id", None),
        Err(Error::ReservedLabel(_))
    ));
    assert!(patch("team", Some("core")).is_ok());
}
