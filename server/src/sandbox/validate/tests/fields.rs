use super::*;

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
        ("/templateId", json!(""), "templateId", "string_too_short"),
    ] {
        let found = fields(&with(pointer, value.clone()));
        assert_eq!(
            found,
            [(field.to_owned(), kind.to_owned())],
            "{pointer} = {value}"
        );
    }
    // The runtime of these rules has no snapshots either.
    let both = fields(&with("/snapshotId", json!("s")));
    let place = |field: &str| (field.to_owned(), "value_error".to_owned());
    assert_eq!(both, [place("image"), place("snapshotId")]);
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
fn all_layers_are_reported_at_once() {
    let mut body = good();
    body["timeout"] = json!(1);
    body["image"] = json!({"uri": "a b", "auth": {"username": "u"}});
    body["metadata"] = json!({"a.b/c d": "1", "n": 5, "opensandbox.io/x": "1"});
    body["platform"] = json!({"os": "mac", "arch": "mips"});
    body["resourceLimits"] = json!({"cpu": "0", "memory": "1Ki", "gpu": []});
    body["env"] = json!({"A=B": "1", "C": 1, "OPENSANDBOX_LIFECYCLE": "{}"});
    body["extensions"] = json!({"access.renew.extend.seconds": "1"});
    let error = request(&body, &RULES).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    let mut seen = places(&error);
    seen.sort_unstable();
    assert_eq!(
        seen,
        [
            "env.A=B",
            "env.C",
            "env.OPENSANDBOX_LIFECYCLE",
            "extensions.access.renew.extend.seconds",
            "image.auth.password",
            "image.uri",
            "metadata.a.b/c d",
            "metadata.n",
            "metadata.opensandbox.io/x",
            "platform.arch",
            "platform.os",
            "resourceLimits.cpu",
            "resourceLimits.gpu",
            "resourceLimits.memory",
            "timeout",
        ]
    );
}

#[test]
fn a_member_that_cannot_be_read_breaks_one_rule() {
    for (body, places) in [
        (with("/image", json!({})), vec!["image.uri"]),
        (with("/image", json!("debian:12")), vec!["image"]),
        (with("/entrypoint", json!("sleep 1")), vec!["entrypoint"]),
        (
            with("/platform", json!({"os": "mac"})),
            vec!["platform.arch"],
        ),
        (json!({}), vec!["image", "resourceLimits", "entrypoint"]),
    ] {
        let error = request(&body, &RULES).unwrap_err();
        assert_eq!(self::places(&error), places, "{body}");
    }
}

#[test]
fn a_million_mistakes_are_not_a_million_errors() {
    let volumes: Vec<Value> = (0..10_000).map(|_| json!({})).collect();
    let error = request(&with("/volumes", json!(volumes)), &RULES).unwrap_err();
    assert_eq!(error.fields().len(), REPORTED);
}
