//! The create page and its form.

use std::sync::Arc;

use axum::{Json, Router, http::StatusCode, routing::get};
use osb_protocol::{Feature, FeatureSet, SandboxId, identity::Role};
use osb_runtime::{
    Address, CreateSpec, LocalImage, Ports,
    sim::{Options, SimRuntime},
};

use serde_json::{Value, json};
use tokio::{net::TcpListener, time::timeout};

use super::{Answer, Console, FORM, PATIENCE, accounts::PASSWORD, running};

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
        create_features: FeatureSet::EMPTY.with(Feature::SecureAccess),
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
    assert!(absent.contains("/entrypoint</textarea>"), "{absent}");
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
        "env": { "TOKEN": "hunter2", "OTHER": "hunter3" }, "secureAccess": true,
        "extensions": { "opensandbox.extensions.a": "b", "access.renew.extend.seconds": "600" },
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

/// Whether the form of a page asks for secure access.
fn is_secure(page: &str) -> bool {
    let input = page.split_once("id=\"secure_access\"");
    let input = input.and_then(|(_, rest)| rest.split_once('>'));
    let (input, _) = input.unwrap_or_else(|| panic!("{page}"));
    input.contains(" checked")
}

/// The spec of the sandbox to which an answer leads.
async fn created(runtime: &SimRuntime, made: &Answer) -> CreateSpec {
    let id = SandboxId::from(made.location().rsplit('/').next().unwrap());
    let created = async {
        loop {
            match runtime.spec(&id) {
                Some(spec) => return spec,
                None => tokio::task::yield_now().await,
            }
        }
    };
    let spec = timeout(PATIENCE, created).await;
    spec.unwrap_or_else(|_| panic!("{}", made.body))
}

/// A page reads by itself what its server functions refuse to a role.
#[tokio::test]
async fn who_may_not_create_gets_nothing_of_an_original() {
    let (_runtime, mut console, id) = with_secrets().await;
    console.add_user(Role::ReadOnly, None).await;
    console.sign_in("read_only", PASSWORD).await;
    let page = console.get(&format!("/console/create?from={id}")).await;
    assert_eq!(page.status(), StatusCode::OK);
    for part in ["web-copy", "TOKEN", "it'\\''s"] {
        assert!(!page.body.contains(part), "{part} in {}", page.body);
    }
    let form = format!("id={id}");
    let read = console.call_function("sandboxes/original", &form).await;
    assert_eq!(read.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_copy_takes_over_values_that_no_page_shows() {
    let (runtime, console, id) = with_secrets().await;
    let page = console.get(&format!("/console/create?from={id}")).await;
    assert_eq!(page.status(), StatusCode::OK);
    for part in [
        "value=\"web-copy\"",
        "value=\"debian:12\"",
        r"sh -c 'it'\''s'</textarea>",
        "team=a",
        "<option value=\"3600\" selected",
        "TOKEN\nOTHER",
    ] {
        let sorted = part.replace("TOKEN\nOTHER", "OTHER\nTOKEN");
        assert!(page.body.contains(&sorted), "{sorted} in {}", page.body);
    }
    assert!(!page.body.contains("hunter"), "{}", page.body);
    let extensions = "access.renew.extend.seconds=600\nopensandbox.extensions.a=b";
    assert!(page.body.contains(extensions), "{}", page.body);
    assert!(is_secure(&page.body), "{}", page.body);

    let mut made = None;
    let left = console
        .left_by(async { made = Some(console.post("/console/create", &copy_of(&id)).await) })
        .await;
    let spec = created(&runtime, &made.unwrap()).await;
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
async fn a_copy_has_the_extensions_and_the_secure_access_that_its_form_says() {
    let (runtime, console, id) = with_secrets().await;
    let made = console.post("/console/create", &copy_of(&id)).await;
    let without = created(&runtime, &made).await.origin;
    assert!(without.extensions.is_empty(), "{without:?}");
    assert_eq!(without.renew_extend_seconds, None);
    assert!(without.secure_access.is_none());
    let form = format!(
        "{}&extensions=opensandbox.extensions.a%3Dc&secure_access=true",
        copy_of(&id)
    );
    let made = console.post("/console/create", &form).await;
    let with = created(&runtime, &made).await.origin;
    assert_eq!(with.extensions["opensandbox.extensions.a"], "c");
    assert_eq!(with.renew_extend_seconds, None);
    assert!(with.secure_access.is_some());
    let page = console.get("/console/create").await;
    assert!(!is_secure(&page.body), "{}", page.body);
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

/// A policy that allows one name.
fn only(name: &str) -> Value {
    json!({ "defaultAction": "deny", "egress": [{ "action": "allow", "target": name }] })
}

/// A console with a sandbox that was created with this policy. Its sidecar says that `in_force` is in
/// force, or does not answer.
async fn with_policy(
    policy: &Value,
    in_force: Option<Value>,
) -> (Arc<SimRuntime>, Console, SandboxId) {
    let runtime = Arc::new(SimRuntime::with_options(Options {
        powers: true,
        create_features: FeatureSet::EMPTY.with(Feature::NetworkPolicy),
        sidecar: true,
        ..Options::default()
    }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let execd = listener.local_addr().unwrap().port();
    runtime.set_address(Address {
        ports: Ports {
            execd: Some(execd),
            http: None,
        },
        ..Address::default()
    });
    let console = Console::open_over(Arc::clone(&runtime)).await;
    let answer = in_force.map(|policy| {
        json!({ "status": "ok", "mode": "enforcing", "enforcementMode": "dns", "policy": policy })
    });
    // The way to the sidecar leads through execd.
    let reported = async move || match answer {
        Some(answer) => Ok(Json(answer)),
        None => Err(StatusCode::BAD_GATEWAY),
    };
    console.serve(
        listener,
        Router::new()
            .route("/ping", get(async || ""))
            .route("/proxy/18080/policy", get(reported)),
    );
    let body = json!({
        "image": { "uri": "debian:12" }, "entrypoint": ["sleep", "9"], "timeout": 3600,
        "resourceLimits": { "cpu": "1" }, "networkPolicy": policy,
    });
    let (record, unanswered) = console.service.create_for_answer(body).await.unwrap();
    unanswered.answered();
    let id = record.sandbox.id.clone();
    (runtime, console, id)
}

/// The form of a copy with this network.
fn copy_with(id: &SandboxId, network: &str) -> String {
    let copy = copy_of(id).replace("kept=TOKEN", "kept=");
    format!("{copy}&network={network}")
}

/// The network policy of the sandbox to which an answer leads.
async fn policy_of(runtime: &SimRuntime, made: &Answer) -> Option<Value> {
    let policy = created(runtime, made).await.network_policy?;
    Some(serde_json::from_str(&policy.rules).unwrap())
}

#[tokio::test]
async fn a_copy_has_the_network_policy_that_is_in_force_unless_its_form_says_otherwise() {
    let (now, then) = (only("now.example"), only("then.example"));
    let (runtime, console, id) = with_policy(&then, Some(now.clone())).await;
    let page = console
        .get(&format!("/console/create?from={id}"))
        .await
        .body;
    for part in [
        "<option value=\"only\" selected",
        "now.example</textarea>",
        "in force there now",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("then.example"), "{page}");
    let form = copy_with(&id, "only&network_rules=now.example");
    let made = console.post("/console/create", &form).await;
    assert_eq!(policy_of(&runtime, &made).await, Some(now));
    let form = copy_with(&id, "only&network_rules=other.example");
    let made = console.post("/console/create", &form).await;
    assert_eq!(
        policy_of(&runtime, &made).await,
        Some(only("other.example"))
    );
    let form = copy_with(&id, "usual&network_rules=now.example");
    let made = console.post("/console/create", &form).await;
    assert_eq!(policy_of(&runtime, &made).await, None, "taken out");
}

#[tokio::test]
async fn a_copy_has_the_network_policy_of_the_create_if_the_sidecar_does_not_answer() {
    let then = only("then.example");
    let (_runtime, console, id) = with_policy(&then, None).await;
    let page = console
        .get(&format!("/console/create?from={id}"))
        .await
        .body;
    for part in [
        "<option value=\"only\" selected",
        "then.example</textarea>",
        "what was changed since is not known",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[tokio::test]
async fn a_copy_whose_network_policy_is_not_known_needs_a_choice() {
    let mut sandbox = running("a", 1);
    sandbox.origin.egress_token = Some("sesame".into());
    let console = Console::open_over(SimRuntime::with([sandbox])).await;
    let page = console.get("/console/create?from=a").await.body;
    assert!(
        page.contains("<option value=\"unknown\" selected"),
        "{page}"
    );
    let form = copy_with(&"a".into(), "unknown");
    let answer = console.post("/console/create", &form).await;
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        answer.body.contains("choose what the copy may connect to"),
        "{}",
        answer.body
    );
    assert_eq!(console.service.registry().snapshot().0.len(), 1);
}

#[tokio::test]
async fn a_copy_that_does_not_mention_the_network_policy_of_its_original_is_refused() {
    let (runtime, console, id) = with_policy(&only("then.example"), None).await;
    let mut body = json!({
        "image": { "uri": "debian:12" }, "entrypoint": ["sleep", "9"], "timeout": 3600,
        "resourceLimits": { "cpu": "1" },
    });
    let refused = console.service.accept_copy(body.clone(), &id, &[]).await;
    let why = refused.unwrap_err().to_string();
    assert!(why.starts_with("networkPolicy: is missing"), "{why}");
    body["networkPolicy"] = Value::Null;
    let copy = console.service.accept_copy(body, &id, &[]).await.unwrap();
    assert_ne!(copy, id);
    assert!(runtime.spec(&id).unwrap().network_policy.is_some());
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
    // Nor with one that is among the further members.
    let more = "%7B%22image%22%3A%7B%22auth%22%3A%7B%22username%22%3A%22zoe%22%2C%22password%22%3A%22xyzzy%22%7D%7D%7D";
    let form = format!("{FORM}&more={more}");
    let answer = console.post("/console/create", &form).await;
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(answer.body.contains("username"), "{}", answer.body);
    assert!(!answer.body.contains("xyzzy"), "{}", answer.body);
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
