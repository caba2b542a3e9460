use super::{super::ARGUMENT_MAX, *};

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
fn maps_and_words_have_a_total_length() {
    // 1,024 entries of 64 bytes.
    let full = |more: usize| -> serde_json::Map<String, Value> {
        (0..1024 + more)
            .map(|index| (format!("{index:08}"), json!("x".repeat(56))))
            .collect()
    };
    for field in ["metadata", "extensions"] {
        let place = format!("/{field}");
        assert!(
            request(&with(&place, json!(full(0))), &RULES).is_ok(),
            "{field}"
        );
        let error = request(&with(&place, json!(full(1))), &RULES).unwrap_err();
        assert_eq!(places(&error), [field]);
    }
    let words = |last: usize| {
        json!([
            "x".repeat(98_304),
            "x".repeat(98_304 - last),
            "x".repeat(last)
        ])
    };
    assert!(request(&with("/entrypoint", words(1)), &RULES).is_ok());
    let mut longer = words(1);
    longer[2] = json!("xx");
    let error = request(&with("/entrypoint", longer), &RULES).unwrap_err();
    assert_eq!(places(&error), ["entrypoint"]);
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
    let able = Rules {
        features: FeatureSet::EMPTY.with(Feature::Templates),
        ..RULES
    };
    let spec = request(&template, &able).unwrap();
    assert_eq!(spec.origin.source, Source::Template("tpl-1".to_owned()));
    assert_eq!(spec.origin.entrypoint, [""; 0], "it is the template's");
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
fn an_amount_that_cannot_be_read_does_not_hide_a_small_one() {
    let body = with("/resourceLimits", json!({"cpu": "fast", "memory": "1Ki"}));
    let fields = request(&body, &RULES).unwrap_err().fields();
    let fields: Vec<_> = fields.iter().map(FieldError::field).collect();
    assert_eq!(fields, ["resourceLimits.cpu", "resourceLimits.memory"]);
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

#[test]
fn sessions_are_isolated_by_a_kernel_that_can() {
    let body = with(
        "/extensions",
        json!({"bootstrap.execd.isolation": "enable"}),
    );
    let under = |secure| Rules { secure, ..RULES };
    assert!(request(&body, &under(None)).unwrap().isolation);
    let kata = request(&body, &under(Some(SecureKind::Kata)));
    assert!(kata.unwrap().isolation);
    let error = request(&body, &under(Some(SecureKind::Gvisor))).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("bootstrap.execd.isolation") && text.contains("gVisor (secure_runtime.type)"),
        "{text}"
    );
    assert!(request(&good(), &under(Some(SecureKind::Gvisor))).is_ok());
}
