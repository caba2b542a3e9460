//! The create page and its form.

use std::sync::Arc;

use axum::http::StatusCode;
use osb_protocol::{SandboxId, identity::Role};
use osb_runtime::{
    LocalImage,
    sim::{Options, SimRuntime},
};

use serde_json::json;
use tokio::time::timeout;

use super::{Console, FORM, PATIENCE, accounts::PASSWORD};

#[tokio::test]
async fn the_create_form_comes_back_with_what_is_wrong() {
    let console = Console::open().await;
    let form = "image=&entrypoint=sh+-c+%27x&ttl=5s&cpu=fast&memory=1Gi&env=A%3D%3Ci%3E&metadata=";
    let answer = console.post("/console/create", form).await;
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        answer.body.contains("quote that is not closed"),
        "{}",
        answer.body
    );
    assert!(
        answer.body.contains("lives for at least 1 minute"),
        "{}",
        answer.body
    );
    assert!(answer.body.contains("A=&lt;i>"), "{}", answer.body);
    assert!(answer.body.contains(r#"value="5s""#), "{}", answer.body);
    assert!(
        answer.body.matches(r#"aria-invalid="true""#).count() >= 3,
        "{}",
        answer.body
    );
    // What is typed but cannot be read is not missing.
    assert!(!answer.body.contains("is required"), "{}", answer.body);
    for link in ["#image", "#entrypoint", "#ttl", "#cpu"] {
        let link = format!("href=\"{link}\"");
        assert!(answer.body.contains(&link), "{link} in {}", answer.body);
    }
    assert!(!answer.body.contains("timeout=None"), "{}", answer.body);
    assert!(console.service.registry().snapshot().0.is_empty());
}

#[tokio::test]
async fn all_kinds_of_mistakes_of_a_form_are_reported_at_once() {
    let console = Console::open().await;
    // By the schema, by the grammar of labels and of amounts, and by the form itself.
    let form = "image=debian%3A12&entrypoint=&ttl=5s&cpu=fast&memory=1Ki&env=A&metadata=%21%3Dx";
    let answer = console.post("/console/create", form).await;
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let summary = answer.body.split_once("problem-list").unwrap().1;
    let summary = summary.split_once("</ul>").unwrap().0;
    let places: Vec<_> = summary.split("href=\"#").skip(1).collect();
    let places: Vec<_> = places.iter().map(|it| it.split('"').next()).collect();
    let wanted = ["entrypoint", "ttl", "cpu", "memory", "env", "metadata"].map(Some);
    assert_eq!(places, wanted, "{summary}");
}

/// A runtime whose host has a preset's image and another one.
fn with_images() -> SimRuntime {
    let runtime = SimRuntime::with_options(Options {
        powers: true,
        ..Options::default()
    });
    let image = |reference: &str, bytes| LocalImage {
        reference: reference.to_owned(),
        bytes,
    };
    runtime.set_images([
        image("opensandbox/base:latest", 3 << 20),
        image("secret.example/of-a-tenant:1", 1),
    ]);
    runtime
}

/// The link of a preset in a page.
fn preset<'a>(page: &'a str, id: &str) -> &'a str {
    let start = format!("href=\"/console/create?preset={id}\"");
    let (_, link) = page.split_once(&start).unwrap_or_else(|| panic!("{page}"));
    link.split_once("</a>").unwrap().0
}

#[tokio::test]
async fn a_preset_fills_the_form_and_shows_whether_its_image_is_on_the_host() {
    let console = Console::open_over(with_images()).await;
    let page = console.get("/console/create").await.body;
    assert!(preset(&page, "shell").contains("data-mark=\"here\""));
    assert!(preset(&page, "browser").contains("data-mark=\"absent\""));
    assert!(!page.contains("aria-current=\"true\""), "{page}");
    assert!(
        page.contains("<option value=\"secret.example/of-a-tenant:1\""),
        "{page}"
    );
    let page = console.get("/console/create?preset=shell").await.body;
    assert!(preset(&page, "shell").contains("aria-current=\"true\""));
    assert!(page.contains("value=\"opensandbox/base:latest\""), "{page}");
    assert!(page.contains("On this host, 3.0 MiB."), "{page}");
    let absent = console.get("/console/create?preset=browser").await.body;
    assert!(absent.contains("value=\"/entrypoint\""), "{absent}");
    assert!(
        absent.contains("Not on this host: it is pulled"),
        "{absent}"
    );
    let unknown = console.get("/console/create?preset=%3Cscript%3E").await;
    assert_eq!(unknown.status(), StatusCode::OK);
    assert!(
        unknown.body.contains("<h1>Create a sandbox"),
        "{}",
        unknown.body
    );
}

#[tokio::test]
async fn without_a_list_of_images_the_page_says_nothing_about_them() {
    let console = Console::open().await;
    let page = console.get("/console/create?preset=shell").await.body;
    assert!(preset(&page, "shell").contains("data-mark=\"unknown\""));
    assert!(page.contains("An image that is not on the host is pulled first."));
}

#[tokio::test]
async fn only_who_sees_all_sandboxes_sees_all_images() {
    for (role, tenant, sees_all) in [
        (Role::Operator, None, true),
        (Role::Operator, Some("red"), false),
        (Role::ReadOnly, None, false),
    ] {
        let mut console = Console::start_over(with_images()).await;
        console.add_user(role, tenant).await;
        console.sign_in(&role.to_string(), PASSWORD).await;
        let page = console.get("/console/create").await.body;
        assert!(preset(&page, "shell").contains("data-mark=\"here\""));
        assert_eq!(page.contains("of-a-tenant"), sees_all, "{role} {tenant:?}");
        let may_create = role >= Role::Operator;
        assert_eq!(page.contains("creating needs the role"), !may_create);
    }
}

#[tokio::test]
async fn a_form_names_and_labels_a_sandbox_for_the_chosen_time() {
    let console = Console::open().await;
    let form = "name=web&image=debian%3A12&entrypoint=sleep+9&lifetime=3600&ttl=&cpu=1&memory=\
        &env=A%3D1&metadata=team%3Da";
    let made = console.post("/console/create", form).await;
    assert!(
        made.location().starts_with("/console/sandboxes/"),
        "{}",
        made.body
    );
    let record = console.service.registry().snapshot().0[0].clone();
    let labels = record.sandbox.metadata.iter();
    let labels: Vec<_> = labels
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(labels, ["name=web", "team=a"]);
    let expires = record.sandbox.expires_at.unwrap().unix_ms();
    assert_eq!(expires - record.sandbox.created_at.unix_ms(), 3_600_000);
    let kept = form
        .replace("lifetime=3600", "lifetime=manual")
        .replace("web", "kept");
    console.post("/console/create", &kept).await;
    let records = console.service.registry().snapshot().0;
    let kept = records
        .iter()
        .find(|it| it.sandbox.metadata["name"] == "kept");
    assert_eq!(kept.unwrap().sandbox.expires_at, None);
}

#[tokio::test]
async fn no_longer_life_is_offered_than_the_server_allows() {
    let console = Console::open().await;
    let page = console.get("/console/create").await.body;
    assert!(page.contains("<option value=\"2592000\""), "{page}");
    let wrong = "image=debian%3A12&entrypoint=x&lifetime=banana&ttl=&cpu=&memory=&env=&metadata=";
    let answer = console.post("/console/create", wrong).await;
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        answer.body.contains("Choose a time from the list."),
        "{}",
        answer.body
    );
}

/// A console over a runtime with every power, with a sandbox that has secrets.
async fn with_secrets() -> (Arc<SimRuntime>, Console, SandboxId) {
    let runtime = Arc::new(with_images());
    let console = Console::open_over(Arc::clone(&runtime)).await;
    let body = json!({
        "image": { "uri": "debian:12" }, "entrypoint": ["sh", "-c", "it's"], "timeout": 3600,
        "resourceLimits": { "cpu": "1", "gpu": "all" }, "metadata": { "name": "web", "team": "a" },
        "env": { "TOKEN": "hunter2", "OTHER": "hunter3" },
    });
    let (record, unanswered) = console.service.create_for_answer(body).await.unwrap();
    unanswered.answered();
    let id = record.sandbox.id.clone();
    (runtime, console, id)
}

/// The form of a copy that takes one variable over and sets another.
fn copy_of(id: &SandboxId) -> String {
    format!(
        "name=web-copy&image=debian%3A12&entrypoint=sleep+9&lifetime=3600&ttl=&cpu=1&memory=\
         &env=NEW%3D1&metadata=&from={id}&kept=TOKEN"
    )
}

#[tokio::test]
async fn a_copy_takes_over_values_that_no_page_shows() {
    let (runtime, console, id) = with_secrets().await;
    let page = console.get(&format!("/console/create?from={id}")).await;
    assert_eq!(page.status(), StatusCode::OK);
    for part in [
        "value=\"web-copy\"",
        "value=\"debian:12\"",
        r#"value="sh -c 'it'\''s'""#,
        "team=a",
        "<option value=\"3600\" selected",
        "TOKEN\nOTHER",
    ] {
        let sorted = part.replace("TOKEN\nOTHER", "OTHER\nTOKEN");
        assert!(page.body.contains(&sorted), "{sorted} in {}", page.body);
    }
    assert!(!page.body.contains("hunter"), "{}", page.body);

    let mut made = None;
    let left = console
        .left_by(async { made = Some(console.post("/console/create", &copy_of(&id)).await) })
        .await;
    let made = made.unwrap();
    let copy = SandboxId::from(made.location().rsplit('/').next().unwrap());
    let created = async {
        loop {
            match runtime.spec(&copy) {
                Some(spec) => return spec,
                None => tokio::task::yield_now().await,
            }
        }
    };
    let spec = timeout(PATIENCE, created).await;
    let spec = spec.unwrap_or_else(|_| panic!("{}", made.body));
    let env: Vec<_> = spec
        .env
        .iter()
        .map(|(name, value)| (&**name, value.as_deref().unwrap()))
        .collect();
    assert_eq!(env, [("NEW", "1"), ("TOKEN", "hunter2")]);
    assert_eq!(spec.origin.resources["gpu"], "all", "no field shows it");
    let [entry] = &left[..] else {
        panic!("{left:?}");
    };
    assert_eq!(entry.changes["copyOf"], json!(id));
    assert_eq!(entry.changes["variablesOfCopy"], json!(["TOKEN"]));
    assert!(!format!("{left:?}").contains("hunter"), "{left:?}");
}

#[tokio::test]
async fn a_copy_that_is_refused_comes_back_without_values() {
    let (_runtime, console, id) = with_secrets().await;
    let form = copy_of(&id).replace("cpu=1", "cpu=fast");
    let answer = console.post("/console/create", &form).await;
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(answer.body.contains("TOKEN"), "{}", answer.body);
    assert!(!answer.body.contains("hunter"), "{}", answer.body);
    let unknown = copy_of(&id).replace("kept=TOKEN", "kept=PATH");
    let answer = console.post("/console/create", &unknown).await;
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        answer.body.contains("PATH is no variable of"),
        "{}",
        answer.body
    );
    assert_eq!(console.service.registry().snapshot().0.len(), 1);
}

#[tokio::test]
async fn a_sandbox_of_another_tenant_is_not_copied() {
    let (_runtime, mut console, id) = with_secrets().await;
    console.add_user(Role::Operator, Some("red")).await;
    console.sign_in("operator", PASSWORD).await;
    let page = console.get(&format!("/console/create?from={id}")).await;
    assert_eq!(page.status(), StatusCode::NOT_FOUND);
    for secret in ["TOKEN", "web", "hunter"] {
        assert!(!page.body.contains(secret), "{secret} in {}", page.body);
    }
    let answer = console.post("/console/create", &copy_of(&id)).await;
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(answer.body.contains("does not exist"), "{}", answer.body);
    assert_eq!(console.service.registry().snapshot().0.len(), 1);
}

#[tokio::test]
async fn a_sandbox_that_is_gone_is_copied_as_far_as_it_is_known() {
    let (_runtime, console, id) = with_secrets().await;
    console.service.delete(&id, false).await.unwrap();
    let gone = async {
        while console.service.find(&id).is_some() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
    let page = console.get(&format!("/console/create?from={id}")).await;
    assert_eq!(page.status(), StatusCode::OK);
    for part in [
        "value=\"web-copy\"",
        "team=a",
        "variables of the original are not known",
    ] {
        assert!(page.body.contains(part), "{part} in {}", page.body);
    }
    let none = copy_of(&id).replace("kept=TOKEN", "kept=");
    let made = console.post("/console/create", &none).await;
    assert!(
        made.location().starts_with("/console/sandboxes/"),
        "{}",
        made.body
    );
}

#[tokio::test]
async fn advanced_fields_come_back_with_what_is_wrong_but_without_the_password() {
    let console = Console::open().await;
    let more = "%7B%22volumes%22%3A%5B%7B%22name%22%3A%22v%22%7D%5D%2C%22env%22%3A%7B%7D%7D";
    let form = format!("{FORM}&auth_user=zoe&auth_password=xyzzy&extensions=a&more={more}");
    let form = form.replace("env=&", "env=A%3D1&");
    let answer = console.post("/console/create", &form).await;
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    for part in [
        "value=\"zoe\"",
        "Line 1 is not name=value.",
        "env has a field of its own",
    ] {
        assert!(answer.body.contains(part), "{part} in {}", answer.body);
    }
    assert!(!answer.body.contains("xyzzy"), "{}", answer.body);
    let before = answer.body.split_once(" class=\"advanced\"").unwrap().0;
    assert!(before.ends_with("<details open"), "{}", answer.body);
    // A member without a field is checked by the server's rules.
    let more = "%7B%22volumes%22%3A%5B%7B%22name%22%3A%22V_%22%7D%5D%7D";
    let answer = console
        .post("/console/create", &format!("{FORM}&more={more}"))
        .await;
    assert!(
        answer.body.contains("volumes.0.mountPath: "),
        "{}",
        answer.body
    );
    assert!(answer.body.contains("href=\"#more\""), "{}", answer.body);
    let more = "%7B%22extensions%22%3A%7B%22access.renew.extend.seconds%22%3A%22600%22%7D%7D";
    let made = console
        .post("/console/create", &format!("{FORM}&more={more}"))
        .await;
    assert!(
        made.location().starts_with("/console/sandboxes/"),
        "{}",
        made.body
    );
}
