use osb_runtime::{Expiry, Source};
use serde_json::json;

use super::{rules::ARGUMENT_MAX, *};

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

/// Places and kinds of everything that an error reports.
fn places(error: &Error) -> Vec<String> {
    error.fields().iter().map(FieldError::field).collect()
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
            "timeout",
        ]
    );
}

#[test]
fn broken_rules_come_in_the_contracts_order() {
    let mut body = good();
    body["extensions"] = json!({"poolRef": "p"});
    body["entrypoint"] = json!([" "]);
    body["metadata"] = json!({"a b": "1", "c d": "1"});
    body["timeout"] = json!(3601);
    body["secureAccess"] = json!(true);
    body["env"] = json!({"A=B": "1", "dotted.name": "a\u{0}"});
    body["volumes"] = json!([{"name": "a", "mountPath": "/a", "host": {"path": "/a//b"}}]);
    let error = request(&body, &RULES).unwrap_err();
    assert!(matches!(error, Error::Broken(_)), "{error:?}");
    assert_eq!(
        places(&error),
        [
            "extensions.poolRef",
            "entrypoint",
            "metadata.a b",
            "metadata.c d",
            "timeout",
            "secureAccess",
            "env.A=B",
            "env.dotted.name",
            "volumes",
            "volumes.0.host.path",
        ]
    );
    let dotted = &error.fields()[7];
    let name = Loc::from("dotted.name");
    assert_eq!(dotted.loc.last(), Some(&name), "one step, not two");
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
fn reports_of_broken_rules_are_bounded() {
    let labels: serde_json::Map<_, _> =
        (0..10_000).map(|n| (format!("{n} "), json!("1"))).collect();
    let error = request(&with("/metadata", json!(labels)), &RULES).unwrap_err();
    assert_eq!(error.fields().len(), REPORTED);
    let mut body = with("/metadata", json!(labels));
    body["timeout"] = json!(1);
    assert_eq!(request(&body, &RULES).unwrap_err().fields().len(), REPORTED);
}

#[test]
fn hooks_reach_execd_in_its_own_spelling() {
    let able = Rules {
        features: FeatureSet::EMPTY.with(Feature::LifecycleHooks),
        ..RULES
    };
    let given = json!({
        "pre_start": {"command": ["sh", "-c", "true"], "timeout_seconds": "30"},
        "periodic": [
            {"name": " a ", "schedule": " @daily ", "command": ["b"], "timeoutSeconds": null},
        ],
    });
    let spec = request(&with("/lifecycle", given), &able).unwrap();
    let hooks: Value = serde_json::from_str(&spec.lifecycle.unwrap()).unwrap();
    let want = json!({
        "preStart": {"command": ["sh", "-c", "true"], "timeoutSeconds": 30},
        "periodic": [{"name": "a", "schedule": "@daily", "command": ["b"]}],
    });
    assert_eq!(hooks, want);
    assert!(spec.origin.hooks);
    let empty = request(&with("/lifecycle", json!({})), &able).unwrap();
    assert_eq!(empty.lifecycle.as_deref(), Some("{}"));
    let none = request(&good(), &able).unwrap();
    assert!(none.lifecycle.is_none() && !none.origin.hooks);
    let huge = json!({"preStart": {"command": ["a".repeat(ARGUMENT_MAX)]}});
    let error = request(&with("/lifecycle", huge), &able).unwrap_err();
    assert_eq!(places(&error), ["lifecycle"]);
}

#[test]
fn hooks_that_execd_would_refuse_are_reported_at_their_member() {
    let hook = json!({"name": "a", "schedule": "@daily", "command": ["b"]});
    for (value, field) in [
        (
            json!({"preStart": {"command": []}}),
            "lifecycle.preStart.command",
        ),
        (
            json!({"preStart": {"command": ["a", "b\u{0}"]}}),
            "lifecycle.preStart.command",
        ),
        (
            json!({"preStart": {"command": ["a"], "timeoutSeconds": 0}}),
            "lifecycle.preStart.timeoutSeconds",
        ),
        (
            json!({"preStart": {"command": ["a"], "shell": true}}),
            "lifecycle.preStart.shell",
        ),
        (
            json!({"periodic": [hook, hook]}),
            "lifecycle.periodic.1.name",
        ),
        (
            json!({"periodic": [{"name": " ", "schedule": "@daily", "command": ["b"]}]}),
            "lifecycle.periodic.0.name",
        ),
        (
            json!({"periodic": [{"name": "a", "schedule": "@daily", "command": ["\u{0}"]}]}),
            "lifecycle.periodic.0.command",
        ),
        (
            json!({"periodic": [{"name": "a", "schedule": "@daily", "command": ["b"], "timeoutSeconds": 301}]}),
            "lifecycle.periodic.0.timeoutSeconds",
        ),
    ] {
        let found = fields(&with("/lifecycle", value.clone()));
        assert_eq!(
            found.first().map(|found| found.0.as_str()),
            Some(field),
            "{value}"
        );
    }
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

#[test]
fn words_and_variables_fit_into_a_program_start() {
    let longest = "x".repeat(ARGUMENT_MAX);
    let variable = |length: usize| json!({"NAME": "x".repeat(length)});
    let room = ARGUMENT_MAX - "NAME=".len();
    assert!(request(&with("/entrypoint", json!(["a", longest])), &RULES).is_ok());
    assert!(request(&with("/env", variable(room)), &RULES).is_ok());
    let word = json!(["a", "b", format!("{longest}x")]);
    let error = request(&with("/entrypoint", word), &RULES).unwrap_err();
    assert_eq!(places(&error), ["entrypoint.2"]);
    let error = request(&with("/env", variable(room + 1)), &RULES).unwrap_err();
    assert_eq!(places(&error), ["env.NAME"]);
    assert!(error.to_string().len() < 200, "the value is not repeated");
}

#[test]
fn only_a_line_of_several_words_is_read_like_a_shells() {
    for good in ["/bin/o'clock", "sh -c 'x y'", "\"quoted\""] {
        assert!(
            request(&with("/entrypoint", json!([good])), &RULES).is_ok(),
            "{good}"
        );
    }
    for bad in ["sh -c 'x", "'' x", "# comment"] {
        let error = request(&with("/entrypoint", json!([bad])), &RULES).unwrap_err();
        assert_eq!(places(&error), ["entrypoint"], "{bad}");
    }
}

#[test]
fn a_template_is_refused_by_its_name() {
    let template = json!({"templateId": "tpl-1", "timeout": 600});
    let error = request(&template, &RULES).unwrap_err();
    assert_eq!(places(&error), ["templateId"]);
    assert_eq!(
        error.to_string(),
        "templateId: templates are not available on the docker runtime"
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
fn a_timeout_may_be_as_long_as_configured() {
    let unlimited = Rules {
        max_timeout_seconds: None,
        ..RULES
    };
    for (rules, seconds, is_good) in [
        (&RULES, 60, true),
        (&RULES, 3600, true),
        (&RULES, 3601, false),
        (&unlimited, 3601, true),
        (&unlimited, 10 * 86_400, true),
    ] {
        let checked = request(&with("/timeout", json!(seconds)), rules);
        assert_eq!(checked.is_ok(), is_good, "{seconds}: {checked:?}");
        if let Ok(spec) = checked {
            let at = spec.origin.created_at.plus_seconds(seconds);
            assert_eq!(Some(spec.origin.expiry), at.map(Expiry::At));
        }
    }
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
