//! The API without a packet filter, or with one that fails.

use axum::{
    body::{Body, to_bytes},
    http::{Method, Request},
};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::{
    firewall::Firewall,
    policy::{Action, Effective, Policy, Rule, overlay::Overlay},
    policy_file::PolicyFile,
};

struct Sidecar {
    router: Router,
    enforcer: Arc<Enforcer>,
    decisions: Arc<Decisions>,
}

impl Sidecar {
    fn new(policy: &str, file: PolicyFile) -> Self {
        Self::with(policy, file, None)
    }

    fn with(policy: &str, file: PolicyFile, firewall: Option<Firewall>) -> Self {
        let user = Policy::parse(policy.as_bytes()).unwrap();
        let overlay = Overlay::default();
        let effective = Arc::new(Effective::new(&user, &overlay));
        Self::over(Enforcer::new(user, overlay, effective, file, firewall))
    }

    /// One that waits for sandbox `a`.
    fn unclaimed(file: PolicyFile, firewall: Option<Firewall>) -> Self {
        let (user, overlay) = (Policy::default(), Overlay::default());
        let effective = Arc::new(Effective::new(&user, &overlay));
        let enforcer = Enforcer::new(user, overlay, effective, file, firewall);
        Self::over(enforcer.unclaimed())
    }

    fn over(enforcer: Enforcer) -> Self {
        let enforcer = Arc::new(enforcer);
        let decisions = Arc::<Decisions>::default();
        let api = Api {
            enforcer: Arc::clone(&enforcer),
            decisions: Arc::clone(&decisions),
            instruments: Instruments::default(),
            token: Some(Arc::new("secret".to_owned().into())),
            sandbox_id: "a".into(),
            max_rules: Some(3),
            tasks: Supervisor::new(),
        };
        Self {
            router: router(api),
            enforcer,
            decisions,
        }
    }

    async fn send(&self, request: Request<Body>) -> (u16, String, String) {
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let kind = answer.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn call(&self, method: Method, path: &str, body: &str) -> (u16, String) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("OPENSANDBOX-EGRESS-AUTH", "secret")
            .body(Body::from(body.to_owned()))
            .unwrap();
        let (status, kind, text) = self.send(request).await;
        let is_json = kind == "application/json";
        assert_eq!(is_json, status == 200, "{kind} {text}");
        assert!(text.ends_with('\n'));
        (status, text)
    }

    async fn ok(&self, method: Method, path: &str, body: &str) -> Value {
        let (status, text) = self.call(method, path, body).await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn shown(&self) -> Value {
        self.ok(Method::GET, "/policy", "").await["policy"].take()
    }
}

const ALLOW: &str = r#"{"egress":[{"action":"allow","target":"a.example"}]}"#;

#[tokio::test]
async fn the_policy_is_shown_as_the_sdks_read_it() {
    let sidecar = Sidecar::new("{}", PolicyFile::default());
    assert_eq!(
        sidecar.ok(Method::GET, "/policy", "").await,
        json!({
            "status": "ok", "mode": "deny_all", "enforcementMode": "dns",
            "policy": {"egress": [], "defaultAction": "deny"},
        })
    );
}

#[tokio::test]
async fn a_policy_is_replaced_and_reset() {
    let sidecar = Sidecar::new("{}", PolicyFile::default());
    for method in [Method::POST, Method::PUT] {
        assert_eq!(
            sidecar.ok(method.clone(), "/policy", ALLOW).await,
            json!({"status": "ok", "mode": "enforcing", "enforcementMode": "dns"})
        );
        assert_eq!(sidecar.shown().await["egress"].as_array().unwrap().len(), 1);
        assert_eq!(
            sidecar.ok(method.clone(), "/policy", " \n").await,
            json!({"status": "ok", "mode": "deny_all", "reason": "policy reset to default deny-all"})
        );
        for empty in ["{}", "null"] {
            assert_eq!(
                sidecar.ok(method.clone(), "/policy", empty).await,
                json!({"status": "ok", "mode": "deny_all", "enforcementMode": "dns"})
            );
        }
        let open = r#"{"defaultAction":"allow"}"#;
        assert_eq!(
            sidecar.ok(method, "/policy", open).await["mode"],
            "allow_all"
        );
    }
}

#[tokio::test]
async fn rules_are_merged_and_removed() {
    let sidecar = Sidecar::new(ALLOW, PolicyFile::default());
    let patch = r#"[{"action":"deny","target":"A.example"},{"target":"10.0.0.0/8"}]"#;
    let answer = sidecar.ok(Method::PATCH, "/policy", patch).await;
    assert_eq!(answer["mode"], "enforcing");
    assert_eq!(
        sidecar.shown().await["egress"],
        json!([
            {"action": "deny", "target": "A.example"},
            {"action": "deny", "target": "10.0.0.0/8"},
        ])
    );
    let answer = sidecar
        .ok(Method::DELETE, "/policy", r#"["b.example"]"#)
        .await;
    assert_eq!(
        answer,
        json!({
            "status": "ok", "mode": "enforcing", "enforcementMode": "dns",
            "reason": "no matching targets found", "removed": 0, "unmatched": ["b.example"],
        })
    );
    let answer = sidecar
        .ok(
            Method::DELETE,
            "/policy",
            r#"["a.EXAMPLE"," b.example ",""]"#,
        )
        .await;
    assert_eq!(
        answer,
        json!({
            "status": "ok", "mode": "enforcing", "enforcementMode": "dns",
            "removed": 1, "unmatched": ["b.example"],
        })
    );
    assert_eq!(sidecar.shown().await["egress"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_revoked_target_is_refused_in_whatever_spelling_it_is_named() {
    for (stored, named, name, address) in [
        ("host.test.", "host.test", "host.test", None),
        ("host.test", "HOST.test.", "host.test", None),
        ("*.Host.test", "*.host.test.", "a.host.test", None),
        (
            "bücher.test",
            "xn--BCHER-kva.test",
            "xn--bcher-kva.test",
            None,
        ),
        (
            "xn--bcher-kva.test.",
            "BÜCHER。test",
            "xn--bcher-kva.test",
            None,
        ),
        ("10.1.2.3/8", "10.0.0.0/8", "", Some("10.9.9.9")),
        ("1.2.3.4", "1.2.3.4/32", "", Some("1.2.3.4")),
        ("::ffff:1.2.3.4", "1.2.3.4", "", Some("1.2.3.4")),
        ("::1", "::1/128", "", Some("::1")),
        ("2001:DB8:0:0::0007", "2001:db8::7", "", Some("2001:db8::7")),
    ] {
        let given = json!([{"action": "allow", "target": stored}]);
        let policy = json!({"egress": given}).to_string();
        let sidecar = Sidecar::new(&policy, PolicyFile::default());
        let is_open = || {
            let effective = sidecar.enforcer.effective();
            let address = address.map(|text| text.parse().unwrap());
            match address {
                Some(address) => effective.decide_address(address) == Some(Action::Allow),
                None => effective.decide(name).action == Action::Allow,
            }
        };
        assert!(is_open(), "{stored}");
        assert_eq!(sidecar.shown().await["egress"], given, "as it was given");
        let patch = json!([{"action": "deny", "target": named}]);
        sidecar
            .ok(Method::PATCH, "/policy", &patch.to_string())
            .await;
        assert!(!is_open(), "{stored} by {named}");
        assert_eq!(
            sidecar.shown().await["egress"],
            patch,
            "{stored} by {named}"
        );
        sidecar.ok(Method::PUT, "/policy", &policy).await;
        let body = json!([named]).to_string();
        let answer = sidecar.ok(Method::DELETE, "/policy", &body).await;
        assert_eq!(
            answer,
            json!({"status": "ok", "mode": "deny_all", "enforcementMode": "dns", "removed": 1}),
            "{stored} by {named}"
        );
        assert!(!is_open(), "{stored} by {named}");
    }
}

#[tokio::test]
async fn what_is_refused_changes_nothing() {
    let sidecar = Sidecar::new(ALLOW, PolicyFile::default());
    let before = sidecar.shown().await;
    let too_many = r#"[{"target":"a1.example"},{"target":"a2.example"},{"target":"a3.example"}]"#;
    for (method, body, status, text) in [
        (Method::PUT, "{", 400, "not JSON"),
        (
            Method::PUT,
            r#"{"defaultAction":"maybe"}"#,
            400,
            "defaultAction must be",
        ),
        (
            Method::POST,
            r#"{"egress":[{"target":""}]}"#,
            400,
            "egress[0].target must not be empty",
        ),
        (Method::PATCH, "", 400, "array of rules"),
        (Method::PATCH, "[]", 400, "array of rules"),
        (Method::PATCH, "{}", 400, "array of rules"),
        (
            Method::PATCH,
            too_many,
            413,
            "would have 4 rules, at most 3",
        ),
        (Method::DELETE, "", 400, "array of targets"),
        (Method::DELETE, "[]", 400, "array of targets"),
        (Method::DELETE, "[1]", 400, "[0] must be a string"),
    ] {
        let (found, answer) = sidecar.call(method.clone(), "/policy", body).await;
        assert_eq!(found, status, "{method} {body}: {answer}");
        assert!(answer.contains(text), "{method} {body}: {answer}");
    }
    assert_eq!(sidecar.shown().await, before);
    let long = format!(r#"["{}"]"#, "a".repeat(limits::BODY));
    assert_eq!(sidecar.call(Method::DELETE, "/policy", &long).await.0, 413);
}

#[tokio::test]
async fn a_policy_that_cannot_be_kept_is_not_in_force() {
    let file = PolicyFile::new(Some("/nowhere/policy.json".into()));
    let sidecar = Sidecar::new(ALLOW, file);
    let (status, text) = sidecar.call(Method::PUT, "/policy", "{}").await;
    assert_eq!(status, 500);
    assert!(text.contains("cannot keep the policy"), "{text}");
    assert_eq!(sidecar.enforcer.user().rules.len(), 1);
}

#[tokio::test]
async fn a_policy_that_the_packet_filter_refuses_is_not_in_force() {
    let place = tempfile::tempdir().unwrap();
    let file = PolicyFile::new(Some(place.path().join("policy.json")));
    let sidecar = Sidecar::with(ALLOW, file, Some(Firewall::ended()));
    let before = sidecar.shown().await;
    for (method, body) in [
        (Method::PUT, "{}"),
        (Method::PATCH, r#"[{"target":"b.example"}]"#),
        (Method::DELETE, r#"["a.example"]"#),
    ] {
        let (status, text) = sidecar.call(method.clone(), "/policy", body).await;
        assert_eq!(status, 500, "{method}: {text}");
        assert!(text.contains("cannot enforce the policy"), "{text}");
    }
    // These requests do not reach the packet filter.
    let rules: Vec<Value> = (0..4)
        .map(|n| json!({"target": format!("n{n}.example")}))
        .collect();
    let long = json!({"egress": rules}).to_string();
    assert_eq!(sidecar.call(Method::POST, "/policy", &long).await.0, 413);
    let answer = sidecar
        .ok(Method::DELETE, "/policy", r#"["b.example"]"#)
        .await;
    assert_eq!(answer["reason"], "no matching targets found");
    assert_eq!(answer["enforcementMode"], "dns+nft");
    assert_eq!(sidecar.shown().await, before);
    let files = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(files, 0, "nothing is kept");
}

#[tokio::test]
async fn the_operators_rules_are_enforced_but_neither_shown_nor_counted() {
    let sidecar = Sidecar::new(ALLOW, PolicyFile::default());
    let before = sidecar.shown().await;
    let overlay = Overlay {
        deny: vec![Rule::new(Action::Deny, "192.0.2.0/24").unwrap()],
        allow: Vec::new(),
    };
    sidecar.enforcer.set_overlay(overlay).await.unwrap();
    assert_eq!(sidecar.shown().await, before);
    let patch = r#"[{"target":"b.example"},{"target":"c.example"}]"#;
    sidecar.ok(Method::PATCH, "/policy", patch).await;
    let effective = sidecar.enforcer.effective();
    assert_eq!(
        effective.len(),
        4,
        "three are allowed, and one is the operator's"
    );
    let address = "192.0.2.1".parse().unwrap();
    assert_eq!(effective.decide_address(address), Some(Action::Deny));
}

#[tokio::test]
async fn a_longer_policy_from_the_environment_can_be_shortened() {
    let rules: Vec<Value> = (0..6)
        .map(|n| json!({"target": format!("n{n}.example")}))
        .collect();
    let sidecar = Sidecar::new(&json!({"egress": rules}).to_string(), PolicyFile::default());
    let answer = sidecar
        .ok(Method::DELETE, "/policy", r#"["n0.example"]"#)
        .await;
    assert_eq!(answer["reason"], Value::Null);
    assert_eq!(sidecar.enforcer.user().rules.len(), 5);
    // Every other change is refused while it is too long, even one that adds no rule.
    let same = r#"[{"target":"n1.example"}]"#;
    let shorter: Vec<Value> = (0..4)
        .map(|n| json!({"target": format!("m{n}.example")}))
        .collect();
    let shorter = json!({"egress": shorter}).to_string();
    for (method, body) in [(Method::PATCH, same), (Method::PUT, &*shorter)] {
        let (status, text) = sidecar.call(method, "/policy", body).await;
        assert_eq!(status, 413, "{text}");
    }
    assert_eq!(sidecar.enforcer.user().rules.len(), 5);
}

#[tokio::test]
async fn a_policy_is_only_replaced_if_it_is_the_expected_one() {
    let sidecar = Sidecar::new(ALLOW, PolicyFile::default());
    let seen = sidecar.shown().await;
    let replacing = |expected: &Value| {
        let rule = json!({"action": "allow", "target": "b.example"});
        json!({"egress": [rule], "expected": expected}).to_string()
    };
    sidecar
        .ok(Method::PATCH, "/policy", r#"[{"target":"c.example"}]"#)
        .await;
    let changed = sidecar.shown().await;
    let late = replacing(&seen);
    let (status, text) = sidecar.call(Method::PUT, "/policy", &late).await;
    assert_eq!(
        (status, &*text),
        (412, "the policy was changed meanwhile\n")
    );
    assert_eq!(sidecar.shown().await, changed);
    let wrong = replacing(&json!({"egress": [{"action": "drop"}]}));
    assert_eq!(sidecar.call(Method::PUT, "/policy", &wrong).await.0, 400);
    let mut respelled = changed.clone();
    respelled["egress"][0]["target"] = json!("C.example.");
    for expected in [&respelled, &Value::Null] {
        sidecar
            .ok(Method::PUT, "/policy", &replacing(expected))
            .await;
        assert_eq!(sidecar.shown().await["egress"][0]["target"], "b.example");
    }
}

#[tokio::test]
async fn the_token_opens_all_routes_but_health() {
    let sidecar = Sidecar::new("{}", PolicyFile::default());
    for path in ["/policy", "/decisions", "/claim/a"] {
        for token in [
            None,
            Some(""),
            Some("secre"),
            Some("secret "),
            Some("SECRET"),
        ] {
            let mut request = Request::builder().uri(path);
            if let Some(token) = token {
                request = request.header("opensandbox-egress-auth", token);
            }
            let (status, _, text) = sidecar.send(request.body(Body::empty()).unwrap()).await;
            assert_eq!((status, &*text), (401, "unauthorized\n"), "{token:?}");
        }
    }
    for method in [Method::GET, Method::POST] {
        let request = Request::builder().method(method).uri("/healthz");
        let (status, _, text) = sidecar.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!((status, &*text), (200, "ok"));
    }
    assert_eq!(sidecar.call(Method::GET, "/nothing", "").await.0, 404);
    let request = Request::builder()
        .method(Method::TRACE)
        .uri("/policy")
        .header("opensandbox-egress-auth", "secret");
    let answer = sidecar
        .router
        .clone()
        .oneshot(request.body(Body::empty()).unwrap())
        .await
        .unwrap();
    assert_eq!(answer.status(), 405);
    let allowed = answer.headers()["allow"].to_str().unwrap();
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
        assert!(allowed.contains(method), "{allowed}");
    }
}

#[tokio::test]
async fn decisions_are_listed() {
    let sidecar = Sidecar::new("{}", PolicyFile::default());
    sidecar
        .decisions
        .note_reason("a.example", Action::Deny, "default");
    let all = sidecar.ok(Method::GET, "/decisions", "").await;
    assert_eq!(all["names"][0]["name"], "a.example");
    assert_eq!(all["next"], 1);
    assert_eq!(all["destinations"], json!([]));
    let none = sidecar.ok(Method::GET, "/decisions?since=1", "").await;
    assert_eq!(none["names"], json!([]));
    assert_eq!(
        sidecar.call(Method::GET, "/decisions?since=x", "").await.0,
        400
    );
}

#[tokio::test]
async fn a_sidecar_is_claimed_once_and_by_its_sandbox_only() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("policy.json");
    let file = || PolicyFile::new(Some(path.clone()));
    let sidecar = Sidecar::unclaimed(file(), None);
    let before = sidecar.ok(Method::GET, "/policy", "").await;
    assert_eq!(before["mode"], "deny_all");
    for (method, body) in [
        (Method::PUT, ALLOW),
        (
            Method::PATCH,
            r#"[{"action":"allow","target":"b.example"}]"#,
        ),
        (Method::DELETE, r#"["a.example"]"#),
    ] {
        let (status, text) = sidecar.call(method, "/policy", body).await;
        assert_eq!(status, 409, "{text}");
        assert!(text.contains("waits for its sandbox"), "{text}");
    }
    for (of, body, status, part) in [
        ("b", ALLOW, 409, "another sandbox"),
        ("a", "{", 400, "not JSON"),
    ] {
        let (found, text) = sidecar
            .call(Method::POST, &format!("/claim/{of}"), body)
            .await;
        assert_eq!(found, status, "{text}");
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(sidecar.ok(Method::GET, "/policy", "").await, before);
    assert!(!path.exists(), "it would count as claimed");
    let shown = async || sidecar.ok(Method::GET, "/claim/a", "").await;
    assert_eq!(shown().await, json!({"claimed": false}));
    assert_eq!(sidecar.call(Method::GET, "/claim/b", "").await.0, 409);

    let answer = sidecar.ok(Method::POST, "/claim/a", ALLOW).await;
    assert_eq!(
        answer,
        json!({"status": "ok", "mode": "enforcing", "enforcementMode": "dns"})
    );
    assert_eq!(shown().await, json!({"claimed": true}));
    assert!(file().first(None).unwrap().is_kept);
    for of in ["a", "b"] {
        let (status, text) = sidecar
            .call(Method::POST, &format!("/claim/{of}"), "{}")
            .await;
        assert_eq!(status, 409, "{text}");
    }
    assert_eq!(sidecar.shown().await["egress"].as_array().unwrap().len(), 1);
    sidecar.ok(Method::PUT, "/policy", "{}").await;
    assert_eq!(sidecar.shown().await["egress"], json!([]));
}

#[tokio::test]
async fn a_sidecar_with_a_policy_of_its_own_cannot_be_claimed() {
    let sidecar = Sidecar::new(ALLOW, PolicyFile::default());
    let (status, text) = sidecar.call(Method::POST, "/claim/a", "{}").await;
    assert_eq!((status, &*text), (409, "the sidecar is claimed already\n"));
    assert_eq!(sidecar.enforcer.user().rules.len(), 1);
}

#[tokio::test]
async fn a_claim_that_fails_leaves_it_unclaimed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("policy.json");
    let broken = Some(Firewall::ended());
    for (file, firewall) in [
        (PolicyFile::new(Some(path.clone())), broken),
        (PolicyFile::new(Some("/nowhere/policy.json".into())), None),
    ] {
        let sidecar = Sidecar::unclaimed(file, firewall);
        let (status, text) = sidecar.call(Method::POST, "/claim/a", ALLOW).await;
        assert_eq!(status, 500, "{text}");
        assert!(sidecar.enforcer.is_unclaimed());
        assert_eq!(*sidecar.enforcer.user(), Policy::default());
    }
    let files = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(files, 0, "nothing is kept");
}

#[tokio::test]
async fn of_claims_at_the_same_time_one_succeeds() {
    let place = tempfile::tempdir().unwrap();
    let file = PolicyFile::new(Some(place.path().join("policy.json")));
    let sidecar = Sidecar::unclaimed(file, None);
    let claims = (0..8).map(|_| sidecar.call(Method::POST, "/claim/a", ALLOW));
    let mut answers = futures::future::join_all(claims).await;
    answers.sort();
    let statuses: Vec<u16> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 409, 409, 409, 409, 409, 409, 409]);
}
