use secrecy::ExposeSecret;

use super::*;

const TRANSPARENT: &str = "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT";

fn able() -> Rules {
    Rules {
        features: FeatureSet::EMPTY.with(Feature::NetworkPolicy),
        ..RULES
    }
}

#[test]
fn a_policy_reaches_the_sidecar_with_its_variables() {
    let mut body = with(
        "/networkPolicy",
        json!({"default_action": null, "egress": [{"action": "allow", "target": "a.example"}]}),
    );
    body["env"] = json!({
        "OPENSANDBOX_EGRESS_LOG_LEVEL": "debug", "OPENSANDBOX_EGRESS_POLICY_FILE": null,
        TRANSPARENT: "false", "A": "1",
    });
    let checked = super::super::request(body, &able()).unwrap();
    assert_eq!(checked.unread, [""; 0]);
    let spec = checked.spec;
    let policy = spec.network_policy.unwrap();
    assert_eq!(
        policy.rules,
        r#"{"egress":[{"action":"allow","target":"a.example"}]}"#
    );
    let variables: Vec<_> = policy.variables.into_iter().collect();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        variables,
        [
            pair("OPENSANDBOX_EGRESS_LOG_LEVEL", "debug"),
            pair(TRANSPARENT, "false"),
        ]
    );
    let env: Vec<_> = spec.env.into_keys().collect();
    assert_eq!(env, ["A", TRANSPARENT]);
    let token = spec.origin.egress_token.unwrap();
    assert!(token.expose_secret().len() >= 32);
    let own = spec.origin.token.unwrap();
    assert_ne!(own.expose_secret(), token.expose_secret());
}

#[test]
fn only_a_sandbox_with_a_policy_has_a_sidecar() {
    let spec = request(&good(), &able()).unwrap();
    assert!(spec.network_policy.is_none() && spec.origin.egress_token.is_none());
    let empty = request(&with("/networkPolicy", json!({})), &able()).unwrap();
    assert_eq!(empty.network_policy.unwrap().rules, r#"{"egress":[]}"#);
    assert!(empty.origin.egress_token.is_some());
}

#[test]
fn wrong_policies_are_refused_with_their_field() {
    for (policy, field) in [
        (
            json!({"defaultAction": "permit"}),
            "networkPolicy.defaultAction",
        ),
        (
            json!({"egress": [{"action": "drop", "target": "a.example"}]}),
            "networkPolicy.egress.0.action",
        ),
        (
            json!({"egress": [{"action": "allow", "target": "a.example"}, {"action": "deny", "target": " "}]}),
            "networkPolicy.egress.1.target",
        ),
        (
            json!({"egress": [{"action": "allow", "target": "10.0.0.0/33"}]}),
            "networkPolicy.egress.0.target",
        ),
    ] {
        let error = request(&with("/networkPolicy", policy.clone()), &able()).unwrap_err();
        assert!(matches!(error, Error::Broken(_)), "{policy}: {error:?}");
        assert_eq!(places(&error), [field], "{policy}");
    }
}

#[test]
fn interception_is_refused_with_its_field() {
    let mut body = with("/networkPolicy", json!({}));
    body["credentialProxy"] = json!({"enabled": true});
    body["env"] = json!({TRANSPARENT: " Yes "});
    let error = request(&body, &able()).unwrap_err();
    let transparent = format!("env.{TRANSPARENT}");
    let fields = ["credentialProxy.enabled", transparent.as_str()];
    assert_eq!(places(&error), fields);
    assert!(
        error
            .to_string()
            .contains("interception is not in this release")
    );
    for off in ["", "0", "false", "no"] {
        body["env"] = json!({TRANSPARENT: off});
        body["credentialProxy"] = json!({"enabled": false});
        assert!(request(&body, &able()).is_ok(), "{off:?}");
    }
    // Without a sidecar, the variable means nothing.
    let env = json!({TRANSPARENT: "true"});
    assert!(request(&with("/env", env), &able()).is_ok());
}

#[test]
fn the_servers_policy_is_that_of_requests_without_one() {
    let default = r#"{"defaultAction":"allow","egress":[]}"#;
    let rules = Rules {
        default_policy: Some(default.into()),
        ..able()
    };
    let spec = request(&good(), &rules).unwrap();
    assert_eq!(spec.network_policy.unwrap().rules, default);
    assert!(spec.origin.egress_token.is_some());
    let own = request(&with("/networkPolicy", json!({})), &rules).unwrap();
    assert_eq!(own.network_policy.unwrap().rules, r#"{"egress":[]}"#);
    // Nothing starts without the policy.
    let unable = Rules {
        features: FeatureSet::EMPTY,
        ..rules
    };
    let error = request(&good(), &unable).unwrap_err();
    assert_eq!(places(&error), ["networkPolicy"]);
    let text = error.to_string();
    assert!(
        text.contains("egress.default_policy") && text.contains("docker"),
        "{text}"
    );
}

#[test]
fn a_secure_runtime_is_named_as_the_reason() {
    for secure in SecureKind::ALL {
        let rules = Rules {
            secure: Some(secure),
            ..RULES
        };
        let body = with("/networkPolicy", json!({}));
        let error = request(&body, &rules).unwrap_err();
        assert_eq!(places(&error), ["networkPolicy"]);
        let text = error.to_string();
        let reason = format!("cannot be enforced under {secure} (secure_runtime.type)");
        assert!(text.contains(&reason), "{text}");
        let defaulted = Rules {
            default_policy: Some(r#"{"egress":[]}"#.into()),
            ..rules.clone()
        };
        let error = request(&good(), &defaulted).unwrap_err();
        assert_eq!(places(&error), ["networkPolicy"]);
        let text = error.to_string();
        assert!(
            text.contains("egress.default_policy") && text.contains(&reason),
            "{text}"
        );
        assert!(request(&good(), &rules).is_ok(), "without a policy");
    }
}
