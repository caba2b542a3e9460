//! The page about users, API keys and sessions.

use axum::http::{Request, StatusCode};
use osb_protocol::identity::{NewApiKey, Role};
use serde_json::{Value, json};

use super::{Answer, Console, accounts::PASSWORD};

const PAGE: &str = "/console/access";

impl Console {
    /// Calls a server function of the page.
    async fn call(&self, name: &str, form: &str) -> Value {
        let answer = self.call_raw(name, form).await;
        assert_eq!(answer.status(), StatusCode::OK, "{name}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }

    async fn call_raw(&self, name: &str, form: &str) -> Answer {
        let request = Request::post(format!("/console/fn/access/{name}"))
            .header("sec-fetch-site", "same-origin")
            .header("content-type", "application/x-www-form-urlencoded");
        self.send(request, form).await
    }

    /// What the page says about the form that was sent last.
    async fn news(&self) -> String {
        let page = self.get(PAGE).await.body;
        let (_, toasts) = page.split_once("class=\"toasts\"").unwrap();
        toasts.split("</section>").next().unwrap().to_owned()
    }
}

/// The secret in a page.
fn secret(page: &str) -> String {
    let (_, rest) = page
        .split_once("OPEN-SANDBOX-API-KEY: ")
        .unwrap_or_else(|| panic!("{page}"));
    let end = rest.find(|char: char| !char.is_ascii_alphanumeric() && !"_-".contains(char));
    rest[..end.unwrap()].to_owned()
}

#[tokio::test]
async fn an_administrator_sees_users_keys_and_sessions() {
    let mut console = Console::open().await;
    console.add_user(Role::Operator, Some("red")).await;
    let administrators = console.cookie.clone();
    console.sign_in("operator", PASSWORD).await;
    console.cookie = administrators;
    console
        .call("add-key", "form[name]=nightly+<b>&form[role]=read_only")
        .await;
    let page = console.get(PAGE).await;
    assert_eq!(page.status(), StatusCode::OK);
    let page = page.body;
    assert_eq!(page.matches("<h1>").count(), 1);
    for part in [
        "<h1>Access</h1>",
        "server.api_key",
        "configured key",
        "May sign in",
        "nightly &lt;b&gt;",
        "This browser",
        "End the session of operator",
        "aria-current=\"page\"",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("nightly <b>"), "{page}");
}

#[tokio::test]
async fn the_secret_of_a_key_is_in_the_answer_to_its_form_only() {
    let console = Console::open().await;
    let form = "name=laptop&role=operator&tenant=&days=30";
    let made = console.post(PAGE, form).await;
    assert_eq!(made.status(), StatusCode::OK, "{}", made.body);
    assert!(made.body.contains("it is not shown again"), "{}", made.body);
    let secret = secret(&made.body);
    let keys = &console.state.keys;
    let (_, principal) = keys.sign_in_with_key(secret.as_bytes()).unwrap();
    assert_eq!(
        (principal.name.as_str(), principal.role),
        ("laptop", Role::Operator)
    );
    let listed = keys.accounts().keys();
    let expires = listed[0].expires_at.unwrap().unix_ms() - listed[0].created_at.unix_ms();
    assert!((expires / 1_000 - 30 * 86_400).abs() < 60, "{expires}");
    let page = console.get(PAGE).await.body;
    assert!(page.contains("laptop") && !page.contains(&secret), "{page}");
    let path = format!("/console/access/keys/{}/revoke", listed[0].id);
    assert_eq!(console.post(&path, "").await.location(), PAGE);
    assert!(console.news().await.contains("The API key is revoked."));
    assert!(keys.sign_in_with_key(secret.as_bytes()).is_err());
    assert!(
        console
            .get(PAGE)
            .await
            .body
            .contains("Revoked and expired (1)")
    );
}

#[tokio::test]
async fn users_are_managed_without_script() {
    let console = Console::open().await;
    let accounts = console.state.keys.accounts().clone();
    let short = "name=zoe&password=short&role=operator&tenant=";
    assert_eq!(
        console
            .post("/console/access/users", short)
            .await
            .location(),
        PAGE
    );
    let news = console.news().await;
    assert!(news.contains("password: must have at least 12"), "{news}");
    let form = "name=zoe&password=a+long+password&role=operator&tenant=red";
    console.post("/console/access/users", form).await;
    assert!(console.news().await.contains("The user is added."));
    let zoe = || accounts.users().into_iter().next().unwrap();
    assert_eq!(
        (zoe().role, zoe().tenant.as_deref()),
        (Role::Operator, Some("red"))
    );
    console.post("/console/access/users", form).await;
    let news = console.news().await;
    assert!(news.contains("named zoe exists already"), "{news}");
    let path = |what: &str| format!("/console/access/users/{}/{what}", zoe().id);
    console
        .post(&path("change"), "role=read_only&tenant=&disabled=true")
        .await;
    assert_eq!(
        (zoe().role, zoe().tenant.as_deref()),
        (Role::ReadOnly, None)
    );
    assert!(zoe().disabled);
    console
        .post(&path("change"), "role=read_only&tenant=")
        .await;
    assert!(!zoe().disabled);
    let wrong = console.post(&path("change"), "role=king&tenant=").await;
    assert_eq!(wrong.location(), PAGE);
    let news = console.news().await;
    assert!(news.contains("role: must be one of"), "{news}");
    let before = zoe().password_changed_at;
    console
        .post(&path("password"), "password=another+long+one")
        .await;
    assert!(zoe().password_changed_at > before);
    console.post(&path("delete"), "").await;
    assert!(accounts.users().is_empty());
}

#[tokio::test]
async fn what_is_wrong_with_a_form_is_an_answer_that_names_the_field() {
    let console = Console::open().await;
    let short = "form[name]=Z+Z&form[password]=x&form[role]=operator";
    let answer = console.call("add-user", short).await;
    let problems = answer["invalid"].as_array().unwrap();
    let fields: Vec<_> = problems.iter().map(|it| it["loc"][1].clone()).collect();
    assert_eq!(fields, [json!("name"), json!("password")], "{answer}");
    let days = "form[name]=k&form[role]=operator&form[days]=soon";
    let answer = console.call("add-key", days).await;
    assert_eq!(answer["invalid"][0]["loc"][1], "days", "{answer}");
    let admin = "form[name]=k&form[role]=service_admin&form[tenant]=red";
    let answer = console.call("add-key", admin).await;
    assert_eq!(answer["invalid"][0]["loc"][1], "tenant", "{answer}");
    let none = console.call("revoke-key", "id=none").await;
    assert_eq!(none["refused"], "This API key does not exist.");
    assert!(console.state.keys.accounts().keys().is_empty());
}

#[tokio::test]
async fn other_roles_learn_why_they_see_no_accounts_and_manage_their_own_sessions() {
    let mut console = Console::start().await;
    for role in [Role::ReadOnly, Role::Operator] {
        console.add_user(role, None).await;
    }
    let key = NewApiKey {
        name: "nightly".into(),
        role: Role::ReadOnly,
        tenant: None,
        expires_at: None,
    };
    let accounts = console.state.keys.accounts().clone();
    accounts.add_key(key).await.unwrap();
    console.sign_in("operator", PASSWORD).await;
    let operators = console.cookie.clone();
    console.sign_in("read_only", PASSWORD).await;
    let other_browser = console.cookie.clone();
    console.sign_in("read_only", PASSWORD).await;
    let page = console.get(PAGE).await.body;
    let why = "Your role is read_only: users and API keys are for the role service_admin.";
    assert!(page.contains(why), "{page}");
    assert!(
        !page.contains("nightly") && !page.contains("operator</span>"),
        "{page}"
    );
    let view = console.call("get", "").await;
    assert_eq!(view["accounts"]["Err"], why, "{view}");
    let sessions = view["sessions"]["Ok"].as_array().unwrap();
    assert_eq!(sessions.len(), 2, "{view}");
    let own = sessions
        .iter()
        .find(|it| it["is_this"] == json!(false))
        .unwrap();
    let id = own["session"]["id"].as_str().unwrap();
    // The session of another user is as if it did not exist.
    let all = super::super::session::list(&*console.store, &console.state.keys, None).await;
    let all = all.unwrap();
    let foreign = all.iter().find(|it| it.name == "operator").unwrap();
    let refused = console
        .call("end-session", &format!("id={}", foreign.id))
        .await;
    assert_eq!(refused["refused"], "This session is over already.");
    let path = format!("/console/access/sessions/{}/end", foreign.id);
    console.post(&path, "").await;
    assert!(console.news().await.contains("over already"));
    assert!(console.call("end-session", &format!("id={id}")).await["done"].is_null());
    let readers = std::mem::replace(&mut console.cookie, other_browser);
    assert_eq!(console.get(PAGE).await.status(), StatusCode::SEE_OTHER);
    console.cookie = operators;
    assert_eq!(console.get(PAGE).await.status(), StatusCode::OK);
    console.cookie = readers;
    for (name, form) in [
        ("add-user", "form[name]=a&form[role]=operator"),
        ("add-key", "form[name]=a&form[role]=operator"),
        ("revoke-key", "id=none"),
    ] {
        let answer = console.call_raw(name, form).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{name}");
    }
    assert_eq!((accounts.users().len(), accounts.keys().len()), (2, 1));
}

#[tokio::test]
async fn acts_on_accounts_are_recorded_without_secrets() {
    let console = Console::open().await;
    let form = "form[name]=zoe&form[password]=hunter2hunter2&form[role]=operator";
    let left = console.left_by(console.call("add-user", form)).await;
    let [added] = &left[..] else {
        panic!("{left:?}");
    };
    assert_eq!(added.action, "user.create");
    assert_eq!(added.changes["name"], json!("zoe"));
    let id = added.object.id.clone();
    let form = format!("id={id}&form[password]=hunter3hunter3");
    let left = console.left_by(console.call("set-password", &form)).await;
    assert_eq!(
        (left[0].action.as_str(), &left[0].object.id),
        ("user.update", &id)
    );
    assert_eq!(left[0].changes["passwordChanged"], json!(true));
    let again = "name=zoe&password=hunter2hunter2&role=operator&tenant=";
    let left = console
        .left_by(console.post("/console/access/users", again))
        .await;
    assert_eq!(left[0].status, Some(409), "{left:?}");
    let made = console
        .post(PAGE, "name=k&role=read_only&tenant=&days=")
        .await;
    let text = format!("{:?}", console.left_by(async {}).await);
    assert!(
        !text.contains(&secret(&made.body)) && !text.contains("hunter"),
        "{text}"
    );
}
