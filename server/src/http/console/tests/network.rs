//! The network tab, over a sidecar that the test plays. The way to it leads through execd.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, Request, StatusCode},
    routing::{any, get},
};
use osb_protocol::audit::AuditOutcome;
use osb_runtime::sim::SimRuntime;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{Console, running};

const TAB: &str = "/console/sandboxes/a/network";

/// Method and body of each change that the sidecar got.
type Changes = Arc<Mutex<Vec<(String, Value)>>>;

fn rules(pairs: &[(&str, &str)]) -> Value {
    let rules = pairs
        .iter()
        .map(|(action, target)| json!({ "action": action, "target": target }));
    rules.collect()
}

async fn policy(
    State(changes): State<Changes>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Json<Value> {
    assert_eq!(headers["opensandbox-egress-auth"], "sesame");
    let mut status = json!({ "status": "ok", "mode": "enforcing", "enforcementMode": "dns+nft" });
    let egress = rules(&[("allow", "*.example.org"), ("deny", "203.0.113.7")]);
    let present = json!({ "defaultAction": "deny", "egress": egress });
    if method == Method::GET {
        status["policy"] = present;
    } else {
        let mut body: Value = serde_json::from_slice(&body).unwrap();
        if method == Method::PUT {
            // The sidecar replaces only what the server has read.
            assert_eq!(
                body.as_object_mut().unwrap().remove("expected"),
                Some(present)
            );
        }
        changes.lock().unwrap().push((method.to_string(), body));
    }
    Json(status)
}

async fn decisions() -> Json<Value> {
    let time = "2026-11-26T01:33:15.503823946Z";
    let name = |action: &str, name: &str, number: u64| {
        json!({ "action": action, "name": name, "rule": "default", "count": 3, "first": time,
                "last": time, "number": number })
    };
    Json(json!({
        "names": [name("allow", "api.example.org", 1), name("deny", "wanted.example", 2)],
        "next": 2,
        "destinations": [{ "action": "allow", "address": "198.51.100.1", "protocol": "tcp",
                           "port": 443, "count": 1, "names": ["api.example.org"] }],
    }))
}

/// A console with a sandbox that has a sidecar.
async fn with_sidecar() -> (Console, Changes) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let changes = Changes::default();
    let sidecar = Router::new()
        .route("/policy", any(policy))
        .route("/decisions", get(decisions))
        .with_state(Arc::clone(&changes));
    let mut sandbox = running("a", port);
    sandbox.origin.egress_token = Some("sesame".into());
    let console = Console::open_over(SimRuntime::with([sandbox])).await;
    console.serve(listener, Router::new().nest("/proxy/18080", sidecar));
    (console, changes)
}

#[tokio::test]
async fn the_page_has_the_policy_the_decisions_and_a_proposal() {
    let (console, changes) = with_sidecar().await;
    let page = console.get(TAB).await.body;
    for part in [
        "Everything is refused, unless a rule allows it.",
        "*.example.org",
        "Move the rule for 203.0.113.7 up",
        "Allow wanted.example",
        "tcp/443",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("Proposed policy"), "{page}");
    assert!(!page.contains("sesame"), "{page}");
    let page = console.get(&format!("{TAB}?propose=denied")).await.body;
    assert!(page.contains("Proposed policy"), "{page}");
    assert!(page.contains("allow wanted.example"), "{page}");
    let page = console.get(&format!("{TAB}?show=allowed")).await.body;
    assert!(!page.contains("Allow wanted.example"), "{page}");
    assert_eq!(*changes.lock().unwrap(), []);
}

#[tokio::test]
async fn forms_change_the_policy_and_lead_back_with_a_notice() {
    let (console, changes) = with_sidecar().await;
    let policy = |action: &str, pairs: &[(&str, &str)]| json!({ "defaultAction": action, "egress": rules(pairs) });
    let known = [("allow", "*.example.org"), ("deny", "203.0.113.7")];
    let [first, second] = known;
    for (form, body, method, sent, notice) in [
        (
            "add",
            "action=allow&target=+wanted.example",
            "PATCH",
            rules(&[("allow", "wanted.example")]),
            "new rule for wanted.example",
        ),
        (
            "remove",
            "target=203.0.113.7",
            "DELETE",
            json!(["203.0.113.7"]),
            "rule for 203.0.113.7 is removed",
        ),
        (
            "move",
            "target=203.0.113.7&up=true",
            "PUT",
            policy("deny", &[second, first]),
            "rule for 203.0.113.7 is moved",
        ),
        (
            "default",
            "action=allow",
            "PUT",
            policy("allow", &known),
            "default action is changed",
        ),
        (
            "put",
            "policy=%7B%22egress%22%3A%5B%5D%2C%22defaultAction%22%3A%22deny%22%7D",
            "PUT",
            policy("deny", &[]),
            "policy is replaced",
        ),
    ] {
        let answer = console.post(&format!("{TAB}/{form}"), body).await;
        assert_eq!(answer.location(), TAB, "{form}");
        let page = console.get(TAB).await.body;
        assert!(page.contains(notice), "{notice} in {page}");
        let seen = changes.lock().unwrap().pop();
        assert_eq!(seen, Some((method.to_owned(), sent)), "{form}");
    }
}

#[tokio::test]
async fn a_change_that_makes_no_sense_does_not_reach_the_sidecar() {
    let (console, changes) = with_sidecar().await;
    for (form, body, why) in [
        ("add", "action=allow&target=a.example%3A443", "has a port"),
        ("add", "action=&target=a.example", "allow or deny"),
        ("move", "target=b.example&up=true", "no rule for b.example"),
        ("put", "policy=%7B", "policy: "),
    ] {
        let form = format!("{TAB}/{form}");
        let left = console.left_by(console.post(&form, body)).await;
        assert_eq!(left[0].outcome, AuditOutcome::Failed, "{left:?}");
        assert_eq!(left[0].status, Some(422), "{left:?}");
        let page = console.get(TAB).await.body;
        assert!(page.contains(why), "{why} in {page}");
    }
    assert_eq!(*changes.lock().unwrap(), []);
}

#[tokio::test]
async fn scripts_read_and_change_through_functions() {
    let (console, changes) = with_sidecar().await;
    let call = async |name: &str, body: &str| {
        let request = Request::post(format!("/console/fn/network/{name}"))
            .header("sec-fetch-site", "same-origin")
            .header("content-type", "application/x-www-form-urlencoded");
        let answer = console.send(request, body).await;
        assert_eq!(answer.status(), StatusCode::OK, "{name}: {}", answer.body);
        answer.body
    };
    let seen = call("read", "id=a&since=0").await;
    assert!(
        seen.contains("wanted.example") && seen.contains("dns+nft"),
        "{seen}"
    );
    let seen = call("propose", "id=a&with_denied=false").await;
    assert!(
        seen.contains("api.example.org") && !seen.contains("wanted.example"),
        "{seen}"
    );
    call("add", "id=a&action=deny&target=*.ads.example").await;
    let sent = changes.lock().unwrap().pop();
    let wanted = ("PATCH".to_owned(), rules(&[("deny", "*.ads.example")]));
    assert_eq!(sent, Some(wanted));
    let change = "%7B%22default%22%3A%22allow%22%7D";
    call("replace", &format!("id=a&change={change}")).await;
    let (method, policy) = changes.lock().unwrap().pop().unwrap();
    assert_eq!(
        (&*method, &policy["defaultAction"]),
        ("PUT", &json!("allow"))
    );
    // An undo leaves what others have changed.
    let known = [("allow", "*.example.org"), ("deny", "203.0.113.7")];
    for (expected, is_made) in [(&known[..], true), (&known[..1], false)] {
        let policy = |rules: Value| json!({ "defaultAction": "deny", "egress": rules });
        let (earlier, expected) = (policy(rules(&[])), policy(rules(expected)));
        let change = json!({ "restore": { "policy": earlier, "expected": expected } });
        let mut body = url::form_urlencoded::Serializer::new("id=a".to_owned());
        body.append_pair("change", &change.to_string());
        let answer = call("replace", &body.finish()).await;
        let sent = changes.lock().unwrap().pop();
        assert_eq!(sent, is_made.then_some(("PUT".to_owned(), earlier)));
        assert_eq!(answer.contains("changed meanwhile"), !is_made, "{answer}");
    }
    for change in ["%7B", "%7B%22remove%22%3A%22a%22%7D"] {
        let body = format!("id=a&change={change}");
        let answer = console.post("/console/fn/network/replace", &body);
        let left = console.left_by(answer).await;
        assert_eq!(left[0].outcome, AuditOutcome::Failed, "{left:?}");
    }
    assert_eq!(*changes.lock().unwrap(), []);
    let seen = call("remove", "id=none&target=a.example").await;
    assert!(seen.contains("does not exist"), "{seen}");
}

#[tokio::test]
async fn a_sandbox_without_a_sidecar_says_how_to_get_one() {
    let console = Console::open_over(SimRuntime::with([running("a", 1)])).await;
    let page = console.get(TAB).await.body;
    assert!(page.contains("No network policy"), "{page}");
    assert!(page.contains("/console/create?from=a"), "{page}");
    let form = format!("{TAB}/add");
    let answer = console.post(&form, "action=allow&target=a.example");
    let left = console.left_by(answer).await;
    assert_eq!(left[0].outcome, AuditOutcome::Failed, "{left:?}");
}
