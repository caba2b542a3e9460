//! What the console leaves in the audit trail.

use std::sync::Arc;

use axum::http::{Method, Request};
use osb_protocol::{
    audit::{AuditActorKind, AuditEntry, AuditOutcome},
    identity::{NewUser, Role},
};
use osb_store::AuditQuery;
use serde_json::json;

use axum::{
    Router,
    extract::{WebSocketUpgrade, ws::WebSocket},
    http::StatusCode,
    routing::{get, post},
};
use futures::StreamExt;
use osb_runtime::sim::SimRuntime;
use tokio::{net::TcpListener, time::timeout};

use super::{Console, FORM, PATIENCE, accounts::cells, closed, running};
use crate::http::access::{Effect, effect, least_role};

const PASSWORD: &str = "a long password";

impl Console {
    /// The entries so far, oldest first.
    async fn trail(&self) -> Vec<AuditEntry> {
        let trail = self.service.audit_trail();
        trail.finish().await;
        let page = trail.page(AuditQuery::default(), 1_000).await.unwrap();
        page.items.into_iter().rev().collect()
    }

    /// The entries that a request leaves.
    pub(in super::super) async fn left_by(&self, work: impl Future) -> Vec<AuditEntry> {
        let before = self.trail().await.len();
        work.await;
        self.trail().await.split_off(before)
    }

    async fn with_user(role: Role) -> Self {
        let mut console = Self::start().await;
        let new = NewUser {
            name: "zoe".into(),
            password: PASSWORD.into(),
            role,
            tenant: None,
        };
        console.state.keys.accounts().add_user(new).await.unwrap();
        let form = format!("user=zoe&key={}", PASSWORD.replace(' ', "+"));
        let answer = console.post("/console/login", &form).await;
        console.cookie = answer.cookie().split(';').next().unwrap().to_owned();
        console
    }
}

#[tokio::test]
async fn every_address_of_the_console_leaves_one_entry_of_each_act_and_none_of_reads() {
    for role in [Role::ReadOnly, Role::Operator] {
        let console = Console::with_user(role).await;
        for (method, pattern) in cells() {
            let path = pattern
                .replace("{id}", "none")
                .replace("{sandbox}", "none")
                .replace("{*rest}", "nowhere")
                .replace("{tab}", "terminal");
            let request = Request::builder()
                .method(method.clone())
                .uri(&path)
                .header("accept", "text/html")
                .header("sec-fetch-site", "same-origin")
                .header("content-type", "application/x-www-form-urlencoded");
            let left = console.left_by(console.send(request, "")).await;
            let Some(Effect::Acts(action)) = effect(&method, &pattern) else {
                let denied = left.iter().all(|it| it.action == "access.denied");
                assert!(denied && left.len() <= 1, "{method} {path}: {left:?}");
                assert!(
                    least_role(&method, &pattern) > Some(role) || left.is_empty(),
                    "{path}: {left:?}"
                );
                continue;
            };
            let [entry] = &left[..] else {
                panic!("{role}: {method} {path}: {left:?}");
            };
            assert_eq!(entry.action, action.name(), "{method} {path}");
            let needs_nothing = ["/console/test", "/console/fn/overview/test"];
            let expected = match role {
                role if least_role(&method, &pattern) > Some(role) => AuditOutcome::Denied,
                _ if needs_nothing.contains(&&*path) => AuditOutcome::Succeeded,
                _ => AuditOutcome::Failed,
            };
            assert_eq!(entry.outcome, expected, "{method} {path}: {entry:?}");
            let actor = (entry.actor.kind, entry.actor.name.as_str());
            assert_eq!(actor, (AuditActorKind::User, "zoe"), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn forms_and_functions_leave_what_they_did() {
    let console = Console::with_user(Role::Operator).await;
    let left = console.left_by(console.post("/console/create", FORM)).await;
    let [created] = &left[..] else {
        panic!("{left:?}");
    };
    assert_eq!(created.outcome, AuditOutcome::Succeeded, "{created:?}");
    assert_eq!(created.changes["image"], json!("debian:12"));
    let id = &created.object.id;
    let form = format!("/console/sandboxes/{id}/renew");
    let renewed = console.left_by(console.post(&form, "seconds=3000")).await;
    let change = &renewed[0].changes["expiresAt"];
    assert!(
        change["before"].is_string() && change["after"].is_string(),
        "{change}"
    );
    let call = format!("id={id}");
    let deleted = console.post("/console/fn/sandboxes/delete", &call);
    let deleted = console.left_by(deleted).await;
    assert_eq!(
        (&deleted[0].object.id, deleted[0].action.as_str()),
        (id, "sandbox.delete")
    );
    assert_eq!(deleted[0].outcome, AuditOutcome::Succeeded);
    // The form's answer is a redirect in any case.
    let missing = console.post("/console/sandboxes/none/delete", "");
    let missing = console.left_by(missing).await;
    assert_eq!(
        (missing[0].outcome, missing[0].status),
        (AuditOutcome::Failed, Some(404))
    );
    assert!(
        missing[0]
            .code
            .as_deref()
            .unwrap()
            .ends_with("SANDBOX_NOT_FOUND")
    );
}

#[tokio::test]
async fn a_create_form_with_problems_leaves_a_failure_with_and_without_script() {
    let console = Console::with_user(Role::Operator).await;
    // A rule of the API is broken, and a field that cannot be read.
    for (ttl, env) in [("5s", ""), ("10m", "A")] {
        let form = format!(
            "image=debian%3A12&entrypoint=sleep+9&ttl={ttl}&cpu=1&memory=256Mi&env={env}&metadata="
        );
        let call: Vec<_> = form
            .split('&')
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap();
                format!("form[{name}]={value}")
            })
            .collect();
        let call = call.join("&");
        let left = console.left_by(async {
            let answer = console.post("/console/create", &form).await;
            assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
            let answer = console.json_of("sandboxes/create", &call).await;
            assert!(answer.get("invalid").is_some(), "{answer}");
        });
        let left = left.await;
        assert_eq!(left.len(), 2, "{left:?}");
        for entry in left {
            assert_eq!(entry.action, "sandbox.create");
            let seen = (entry.outcome, entry.status, entry.object.id.as_str());
            assert_eq!(seen, (AuditOutcome::Failed, Some(422), ""), "{entry:?}");
        }
    }
}

#[tokio::test]
async fn a_refused_call_names_its_object() {
    let names_a = |left: &[AuditEntry], outcome: AuditOutcome, status: u16| {
        let [entry] = left else {
            panic!("{left:?}");
        };
        let seen = (entry.outcome, entry.status, entry.object.id.as_str());
        assert_eq!(seen, (outcome, Some(status), "a"), "{entry:?}");
    };
    let calls = [
        ("sandboxes/delete", "id=a"),
        ("sandboxes/pause", "id=a"),
        ("sandboxes/renew", "id=a&seconds=600"),
        ("snapshots/take", "id=a"),
    ];
    let reader = Console::with_user(Role::ReadOnly).await;
    for (function, form) in calls {
        let left = reader.left_by(reader.call_function(function, form)).await;
        names_a(&left, AuditOutcome::Denied, 403);
    }
    let runtime = Arc::new(SimRuntime::new());
    let console = Console::open_over(Arc::clone(&runtime)).await;
    runtime.go_down("the socket is gone").await;
    let mut health = console.service.registry().watch_health();
    let down = health.wait_for(|health| *health != crate::sandbox::RuntimeHealth::Up);
    drop(timeout(PATIENCE, down).await.unwrap());
    for (function, form) in &calls[..3] {
        let left = console.left_by(console.call_function(function, form)).await;
        let outcome = AuditOutcome::Failed;
        let status = left.first().and_then(|entry| entry.status).unwrap();
        assert!(status >= 400, "{left:?}");
        names_a(&left, outcome, status);
    }
}

#[tokio::test]
async fn sessions_leave_their_beginning_their_end_and_failed_attempts_without_secrets() {
    let mut console = Console::with_user(Role::Operator).await;
    let begun = console.trail().await;
    assert_eq!(begun.len(), 1, "{begun:?}");
    assert_eq!(
        (begun[0].action.as_str(), begun[0].actor.name.as_str()),
        ("session.sign_in", "zoe")
    );
    for form in [
        "user=zoe&key=hunter2",
        "user=hunter2&key=hunter2",
        "key=hunter2",
    ] {
        let left = console.left_by(console.post("/console/login", form)).await;
        let [failed] = &left[..] else {
            panic!("{form}: {left:?}");
        };
        assert_eq!(failed.action, "session.sign_in_failed");
        assert_eq!(
            (failed.outcome, failed.status),
            (AuditOutcome::Denied, Some(401))
        );
        let name = if form.starts_with("user=zoe") {
            "zoe"
        } else {
            ""
        };
        assert_eq!(
            (failed.actor.kind, failed.actor.name.as_str()),
            (AuditActorKind::Unknown, name)
        );
    }
    let text = format!("{:?}", console.trail().await);
    assert!(!text.contains("hunter"), "{text}");
    let over = console.left_by(console.post("/console/logout", "")).await;
    assert_eq!(
        (over[0].action.as_str(), over[0].actor.name.as_str()),
        ("session.sign_out", "zoe")
    );
    assert!(!over[0].object.id.is_empty());
    assert_eq!(over[0].object.id, begun[0].object.id);
    assert!(
        !console.cookie.contains(&over[0].object.id),
        "the id opens nothing"
    );
    console.cookie = String::new();
    let again = console.left_by(console.post("/console/logout", "")).await;
    assert!(again.is_empty(), "without a session: {again:?}");
    let request = Request::builder()
        .method(Method::GET)
        .uri("/console/sandboxes");
    let page = console.left_by(console.send(request, "")).await;
    assert!(page.is_empty(), "{page:?}");
}

#[tokio::test]
async fn a_terminal_is_opened_only_once_execd_has_attached_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut sandbox = running("a", listener.local_addr().unwrap().port());
    sandbox.origin.tenant = Some("team".into());
    let console = Console::open_over(SimRuntime::with([sandbox])).await;
    let shell = async |mut shell: WebSocket| {
        shell.send("hello".into()).await.unwrap();
        while let Some(Ok(_)) = shell.recv().await {}
    };
    let attach = async move |upgrade: WebSocketUpgrade| upgrade.on_upgrade(shell);
    let created = async || (StatusCode::CREATED, r#"{"session_id":"p"}"#);
    let execd = Router::new()
        .route("/pty", post(created))
        .route("/pty/p/ws", get(attach));
    console.serve(listener, execd);
    for (path, outcome, status, code, tenant) in [
        ("none", AuditOutcome::Failed, 404, true, None),
        ("a?pty=gone", AuditOutcome::Failed, 404, true, Some("team")),
        ("a", AuditOutcome::Succeeded, 101, false, Some("team")),
    ] {
        let left = console.left_by(async {
            let mut page = console.socket(&format!("/console/terminal/{path}")).await;
            match outcome {
                AuditOutcome::Succeeded => drop(page.next().await.unwrap().unwrap()),
                _ => assert!(closed(page).await.is_some()),
            }
        });
        let left = left.await;
        let [opened] = &left[..] else {
            panic!("{path}: {left:?}");
        };
        assert_eq!(opened.action, "terminal.open");
        let seen = (opened.outcome, opened.status, opened.code.is_some());
        assert_eq!(seen, (outcome, Some(status), code), "{path}: {opened:?}");
        assert_eq!(opened.tenant.as_deref(), tenant, "{path}");
        assert!(path.starts_with(&opened.object.id), "{opened:?}");
    }
}
