use super::{super::ARGUMENT_MAX, *};

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
