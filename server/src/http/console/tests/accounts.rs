//! Users and stored keys in the console: signing in, what each role may do, tenants, and the end of
//! sessions.

use axum::http::{Method, Request, StatusCode};
use futures::{SinkExt, StreamExt};
use osb_app::live::{Command, Frame, Topic};
use osb_protocol::identity::{NewApiKey, NewUser, PrincipalKind, Role, User};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use super::{
    super::{
        access_forms, forms, network_forms, pages, pool_forms, session, snapshot_forms,
        template_forms,
    },
    Console, FORM, KEY, Socket, closed,
};
use crate::{
    http::access::least_role,
    identity::{Scope, accounts::UserEdit},
};

pub(super) const PASSWORD: &str = "a long password";

impl Console {
    pub(super) async fn add_user(&self, role: Role, tenant: Option<&str>) -> User {
        let new = NewUser {
            name: format!("{role}"),
            password: PASSWORD.into(),
            role,
            tenant: tenant.map(str::to_owned),
        };
        self.state.keys.accounts().add_user(new).await.unwrap()
    }

    /// Signs in as a user; where the answer leads.
    pub(super) async fn sign_in(&mut self, user: &str, password: &str) -> String {
        self.cookie = String::new();
        let form = format!("user={user}&key={}", password.replace(' ', "+"));
        let answer = self.post("/console/login", &form).await;
        let cookie = answer.cookie().split(';').next().unwrap();
        self.cookie = cookie.to_owned();
        answer.location().to_owned()
    }

    async fn edit(&self, user: &User, edit: UserEdit) {
        let accounts = self.state.keys.accounts();
        accounts.change_user(&user.id, edit).await.unwrap();
    }

    async fn is_signed_in(&self) -> bool {
        self.get("/console/sandboxes").await.status() == StatusCode::OK
    }
}

#[tokio::test]
async fn a_user_signs_in_and_the_page_asks_for_a_name_once_there_are_users() {
    let mut console = Console::start().await;
    let page = console.get("/console/login").await;
    assert!(!page.body.contains("name=\"user\""), "{}", page.body);
    let user = console.add_user(Role::Operator, None).await;
    let page = console.get("/console/login").await;
    assert!(page.body.contains("name=\"user\""), "{}", page.body);
    let wrong = console.sign_in("operator", "another password").await;
    assert!(wrong.contains("failed=password"), "{wrong}");
    assert!(console.cookie.is_empty());
    assert_eq!(
        console.sign_in("OPERATOR", PASSWORD).await,
        "/console/sandboxes"
    );
    assert!(console.is_signed_in().await);
    let edit = UserEdit {
        disabled: Some(true),
        ..UserEdit::default()
    };
    console.edit(&user, edit).await;
    assert!(!console.is_signed_in().await);
    let disabled = console.sign_in("operator", PASSWORD).await;
    assert!(disabled.contains("failed=password"), "{disabled}");
}

#[tokio::test]
async fn a_user_who_is_enabled_again_has_to_sign_in_again() {
    let mut console = Console::start().await;
    let user = console.add_user(Role::Operator, None).await;
    console.sign_in("operator", PASSWORD).await;
    assert!(console.is_signed_in().await);
    for disabled in [true, false] {
        let edit = UserEdit {
            disabled: Some(disabled),
            ..UserEdit::default()
        };
        console.edit(&user, edit).await;
        assert!(!console.is_signed_in().await, "disabled: {disabled}");
    }
    console.sign_in("operator", PASSWORD).await;
    assert!(console.is_signed_in().await);
    let edit = UserEdit {
        disabled: Some(false),
        ..UserEdit::default()
    };
    console.edit(&user, edit).await;
    assert!(console.is_signed_in().await, "nothing has changed");
}

#[tokio::test]
async fn names_that_no_account_can_have_count_against_their_address_only() {
    let mut console = Console::start().await;
    console.add_user(Role::Operator, None).await;
    let long = "x".repeat(65);
    for _ in 0..10 {
        let wrong = console.sign_in(&long, PASSWORD).await;
        assert!(wrong.contains("failed=password"), "{wrong}");
    }
    let slow = console.sign_in(&long, PASSWORD).await;
    assert!(slow.contains("failed=account"), "{slow}");
}

#[tokio::test]
async fn a_new_password_ends_sessions_and_their_sockets_at_once() {
    let mut console = Console::start().await;
    let user = console.add_user(Role::Operator, None).await;
    console.sign_in("operator", PASSWORD).await;
    let socket = console.socket("/console/live").await;
    let edit = UserEdit {
        password: Some("another password".into()),
        ..UserEdit::default()
    };
    console.edit(&user, edit).await;
    assert_eq!(closed(socket).await, Some(osb_app::live::CLOSE_SIGNED_OUT));
    assert!(!console.is_signed_in().await);
    assert_eq!(
        console.sign_in("operator", "another password").await,
        "/console/sandboxes"
    );
}

#[tokio::test]
async fn a_role_that_changes_closes_terminals_and_keeps_the_session() {
    let mut console = Console::start().await;
    let user = console.add_user(Role::Operator, None).await;
    console.sign_in("operator", PASSWORD).await;
    let socket = console.socket("/console/live").await;
    let edit = UserEdit {
        role: Some(Role::ReadOnly),
        ..UserEdit::default()
    };
    console.edit(&user, edit).await;
    assert_eq!(closed(socket).await, None, "cut off without a code");
    assert!(console.is_signed_in().await);
    let refused = console.post("/console/create", FORM).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn wrong_passwords_for_an_account_are_slowed_down() {
    let mut console = Console::start().await;
    console.add_user(Role::Operator, None).await;
    for _ in 0..10 {
        let wrong = console.sign_in("operator", "wrong").await;
        assert!(wrong.contains("failed=password"), "{wrong}");
    }
    let slow = console.sign_in("operator", PASSWORD).await;
    assert!(
        slow.contains("failed=account"),
        "even with the right one: {slow}"
    );
    let key = console.post("/console/login", &format!("key={KEY}")).await;
    assert_eq!(
        key.location(),
        "/console/sandboxes",
        "the API key still works"
    );
}

#[tokio::test]
async fn a_stored_key_opens_a_session_that_ends_with_it() {
    let mut console = Console::start().await;
    let new = NewApiKey {
        name: "laptop".into(),
        role: Role::ReadOnly,
        tenant: None,
        expires_at: None,
    };
    let accounts = console.state.keys.accounts().clone();
    let issued = accounts.add_key(new).await.unwrap();
    let form = format!("key={}", issued.secret);
    let answer = console.post("/console/login", &form).await;
    console.cookie = answer.cookie().split(';').next().unwrap().to_owned();
    assert!(console.is_signed_in().await);
    let list = async || {
        let keys = &console.state.keys;
        session::list(&*console.store, keys, None).await.unwrap()
    };
    let [open] = &list().await[..] else {
        panic!("one session");
    };
    assert_eq!(
        (open.kind, open.name.as_str()),
        (PrincipalKind::ApiKey, "laptop")
    );
    assert!(!console.cookie.contains(&open.id));
    accounts.revoke_key(&issued.key.id).await.unwrap();
    assert!(!console.is_signed_in().await);
    assert_eq!(list().await, []);
}

#[tokio::test]
async fn a_session_is_revoked_by_its_public_id() {
    let mut console = Console::open().await;
    let other = console.log_in().await;
    let socket = console.socket("/console/live").await;
    let keys = &console.state.keys;
    let listed = session::list(&*console.store, keys, None).await.unwrap();
    assert_eq!(
        listed.len(),
        1,
        "the login replaced the session: {listed:?}"
    );
    console.cookie = other;
    assert!(console.is_signed_in().await);
    let revoke = async |id: &str| {
        let keys = &console.state.keys;
        session::revoke(&*console.store, keys, id, None)
            .await
            .unwrap()
    };
    assert_eq!(revoke("none").await, None);
    assert_eq!(revoke(&listed[0].id).await, Some(listed[0].name.clone()));
    assert_eq!(revoke(&listed[0].id).await, None);
    assert!(!console.is_signed_in().await);
    assert_eq!(closed(socket).await, Some(osb_app::live::CLOSE_SIGNED_OUT));
}

/// A session of the release before users: only these members.
#[tokio::test]
async fn a_session_of_an_earlier_release_goes_on() {
    let console = Console::open().await;
    let rows = console.store.sessions().await.unwrap();
    let [row] = &rows[..] else {
        panic!("one session");
    };
    let mut data: serde_json::Value = serde_json::from_slice(&row.data).unwrap();
    let login = data["login"].as_object_mut().unwrap();
    login.retain(|member, _| ["used", "salt", "keys"].contains(&member.as_str()));
    let old = osb_store::SessionRow {
        data: serde_json::to_vec(&data).unwrap(),
        ..row.clone()
    };
    console.store.session_save(&old).await.unwrap();
    assert!(console.is_signed_in().await);
    let listed = session::list(&*console.store, &console.state.keys, None).await;
    assert_eq!(listed.unwrap().len(), 1);
}

/// Every address of the console that takes part in authentication.
pub(super) fn cells() -> Vec<(Method, String)> {
    let mut cells: Vec<(Method, String)> = Vec::new();
    for route in pages::routes() {
        let methods = route.methods();
        let path = route.path().to_owned();
        cells.extend(methods.into_iter().map(|method| {
            let method = format!("{method:?}").to_uppercase().parse().unwrap();
            (method, path.clone())
        }));
    }
    for (path, method) in leptos::server_fn::axum::server_fn_paths() {
        cells.push((method, path.to_owned()));
    }
    let forms = forms::routes().into_iter().chain(access_forms::routes());
    let forms = forms.chain(network_forms::routes());
    let forms = forms.chain(snapshot_forms::routes());
    let forms = forms.chain(pool_forms::routes());
    let forms = forms.chain(template_forms::routes());
    for (path, _) in forms {
        cells.push((Method::POST, path.to_owned()));
    }
    for path in [
        "/console/sandboxes/{id}/delete",
        "/console/snapshots/{id}/delete",
        "/console/pools/{id}/delete",
        "/console/templates/{id}/delete",
        "/console/live",
        "/console/terminal/{sandbox}",
        "/console/run/{sandbox}",
        "/console/output/{sandbox}",
        "/console/events/download",
        "/console/settings/bundle",
        "/console/{*rest}",
    ] {
        cells.push((Method::GET, path.to_owned()));
    }
    cells
}

/// What a role may do in the console, whatever the table says: reading pages, lists, endpoints, logs, metrics,
/// names of images, the overview, and
/// who one is.
fn may(role: Role, method: &Method, path: &str) -> bool {
    let name = path.strip_prefix("/console/fn/access/");
    let form = path.strip_prefix("/console/access");
    match (name, form) {
        // Everyone sees who they are and ends their own sessions.
        (Some("get" | "end-session"), _) => return true,
        _ if ["/console/events/download", "/console/settings/bundle"].contains(&path) => {
            return role == Role::ServiceAdmin;
        }
        // Which say why they show nothing.
        _ if ["/console/fn/events/get", "/console/fn/settings/get"].contains(&path) => return true,
        (_, Some("/sessions/{id}/end")) => return true,
        (Some(_), _) => return role == Role::ServiceAdmin,
        (_, Some(_)) if *method == Method::POST => return role == Role::ServiceAdmin,
        _ => {}
    }
    let of_sandboxes = [
        "list",
        "get",
        "port",
        "log",
        "metrics",
        "commands",
        "diagnosis",
        "health",
        "images",
    ];
    let is_read = match path.strip_prefix("/console/fn/") {
        Some("overview/get" | "network/read" | "network/propose") => true,
        Some("snapshots/list" | "snapshots/get" | "snapshots/offered") => true,
        Some("pools/list" | "pools/get") => true,
        Some("templates/list" | "templates/get" | "templates/offered") => true,
        Some(name) => {
            let name = name.strip_prefix("sandboxes/");
            name.is_some_and(|name| of_sandboxes.contains(&name))
        }
        None => {
            let enters = ["/console/terminal/", "/console/run/", "/console/output/"];
            let opens = enters.iter().any(|way| path.starts_with(way)) || path.ends_with("/delete");
            *method == Method::GET && !opens
        }
    };
    is_read || role >= Role::Operator
}

#[tokio::test]
async fn every_address_of_the_console_has_a_role_and_keeps_to_it() {
    let mut console = Console::start().await;
    let cells = cells();
    assert!(cells.len() > 15, "{cells:?}");
    for role in Role::ALL {
        console.add_user(role, None).await;
        console.sign_in(role.as_str(), PASSWORD).await;
        for (method, pattern) in &cells {
            assert!(
                least_role(method, pattern).is_some(),
                "{method} {pattern} has no row"
            );
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
            let answer = console.send(request, "").await;
            let is_forbidden = answer.status() == StatusCode::FORBIDDEN;
            let expected = !may(role, method, pattern);
            assert_eq!(
                is_forbidden, expected,
                "{role}: {method} {path}: {}",
                answer.body
            );
            assert_ne!(answer.status(), StatusCode::UNAUTHORIZED, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_tenant_sees_and_touches_its_own_sandboxes_only() {
    let mut console = Console::start().await;
    let create = async |tenant: Option<&str>, label: &str| {
        let service = console.service.within(&Scope::of(tenant));
        let body = json!({
            "image": { "uri": "debian:12" }, "entrypoint": ["sleep", "9"], "timeout": 600,
            "resourceLimits": { "cpu": "1" }, "metadata": { "team": label },
        });
        let (record, unanswered) = service.create_for_answer(body).await.unwrap();
        unanswered.answered();
        record.sandbox.id.to_string()
    };
    let own = create(Some("a"), "mine").await;
    let foreign = [
        create(Some("b"), "theirs").await,
        create(None, "unlabelled").await,
    ];
    console.add_user(Role::Operator, Some("a")).await;
    console.sign_in("operator", PASSWORD).await;
    let list = console.get("/console/sandboxes").await;
    assert!(list.body.contains(&own));
    let page = console.get(&format!("/console/sandboxes/{own}")).await;
    assert!(page.body.contains("mine"), "{}", page.body);
    let call = async |name: &str, form: String| {
        let path = format!("/console/fn/sandboxes/{name}");
        console.post(&path, &form).await
    };
    let listed = call("list", "query[text]=".to_owned()).await;
    for id in &foreign {
        assert!(!list.body.contains(id) && !listed.body.contains(id));
        let page = console.get(&format!("/console/sandboxes/{id}")).await;
        assert!(!page.body.contains("theirs") && !page.body.contains("unlabelled"));
        for (name, more) in [
            ("get", ""),
            ("renew", "&seconds=600"),
            ("delete", ""),
            ("pause", ""),
            ("resume", ""),
        ] {
            let answer = call(name, format!("id={id}{more}")).await;
            assert!(!answer.status().is_success(), "{name}: {}", answer.body);
        }
        let reach = call("port", format!("id={id}&port=80")).await;
        assert!(reach.body.contains("does not exist"), "{}", reach.body);
        for form in ["renew", "delete", "pause", "resume"] {
            let path = format!("/console/sandboxes/{id}/{form}");
            console.post(&path, "seconds=600").await;
        }
        let terminal = console.socket(&format!("/console/terminal/{id}")).await;
        assert!(closed(terminal).await.is_some());
    }
    let states: Vec<_> = console.service.snapshot().0;
    assert_eq!(states.len(), 3);
    for record in states {
        assert!(!record.facts.is_deleted(), "{}", record.sandbox.id);
    }
}

#[tokio::test]
async fn a_tab_learns_nothing_of_a_sandbox_of_another_tenant() {
    let mut console = Console::start().await;
    let foreign = console.sandbox("foreign").await;
    let service = console.service.within(&Scope::of(Some("a")));
    let body = json!({
        "image": { "uri": "debian:12" }, "entrypoint": ["sleep", "9"], "timeout": 600,
        "resourceLimits": { "cpu": "1" },
    });
    let (record, unanswered) = service.create_for_answer(body).await.unwrap();
    unanswered.answered();
    let own = record.sandbox.id.clone();
    console.add_user(Role::Operator, Some("a")).await;
    console.sign_in("operator", PASSWORD).await;
    let mut page = console.socket("/console/live").await;
    for id in [&foreign, &own] {
        let command = Command::Subscribe {
            topic: Topic::Sandbox(id.clone()),
            since: None,
        };
        let text = serde_json::to_string(&command).unwrap();
        page.send(Message::text(text)).await.unwrap();
    }
    let mut hear = async || {
        let message = page.next().await.unwrap().unwrap();
        serde_json::from_str::<Frame>(message.to_text().unwrap()).unwrap()
    };
    assert!(matches!(hear().await, Frame::Hello { .. }));
    for id in [&foreign, &own] {
        let Frame::Snapshot { topic, data, .. } = hear().await else {
            panic!("no snapshot");
        };
        assert_eq!(topic, Topic::Sandbox(id.clone()));
        assert_eq!(data.is_null(), *id == foreign, "{data}");
    }
    // The changes of both arrive in this order.
    console.service.delete(&foreign, true).await.unwrap();
    console.service.delete(&own, true).await.unwrap();
    let Frame::Snapshot { topic, .. } = hear().await else {
        panic!("no snapshot");
    };
    assert_eq!(topic, Topic::Sandbox(own));
}

#[tokio::test]
async fn only_an_administrator_learns_of_new_entries_of_the_trail() {
    async fn follow(console: &Console) -> Socket {
        let mut page = console.socket("/console/live").await;
        let command = Command::Subscribe {
            topic: Topic::Events,
            since: None,
        };
        let text = serde_json::to_string(&command).unwrap();
        page.send(Message::text(text)).await.unwrap();
        let Frame::Hello { .. } = hear(&mut page).await else {
            panic!("no greeting");
        };
        page
    }
    async fn hear(page: &mut Socket) -> Frame {
        let message = page.next().await.unwrap().unwrap();
        serde_json::from_str(message.to_text().unwrap()).unwrap()
    }
    let mut console = Console::open().await;
    let mut page = follow(&console).await;
    let Frame::Snapshot { data, .. } = hear(&mut page).await else {
        panic!("no snapshot");
    };
    let before = data.as_u64().expect("a number");
    console.post("/console/create", FORM).await;
    let Frame::Delta { data, .. } = hear(&mut page).await else {
        panic!("no change");
    };
    assert!(data.as_u64().unwrap() > before, "{data} after {before}");
    console.add_user(Role::Operator, None).await;
    console.sign_in("operator", PASSWORD).await;
    let mut page = follow(&console).await;
    let Frame::Snapshot { data, .. } = hear(&mut page).await else {
        panic!("no snapshot");
    };
    assert!(data.is_null(), "{data}");
}
