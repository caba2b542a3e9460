//! The pages about pools, and their forms.

use std::sync::Arc;

use axum::http::StatusCode;
use osb_protocol::{
    SandboxId,
    audit::{AuditEntry, AuditOutcome},
    identity::Role,
};
use osb_runtime::sim::{Faults, Options, SimRuntime};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Answer, Console, PATIENCE, accounts::PASSWORD};
use crate::sandbox::PoolOverview;

const PAGE: &str = "/console/pools";
/// A form without mistakes.
const FORM: &str = "name=python&image=debian%3A12&entrypoint=sleep+9&cpu=1&memory=256Mi\
                    &env=TOKEN%3Dsecret&buffer_min=1&buffer_max=2&pool_min=0&pool_max=4";
const CAPACITY: &str = "buffer_min=1&buffer_max=1&pool_min=0&pool_max=9";

fn with_pools() -> SimRuntime {
    SimRuntime::with_options(Options {
        powers: true,
        ..Options::default()
    })
}

impl Console {
    /// Waits until the pool of the form is like this.
    async fn pool_when(&self, is_so: impl Fn(&PoolOverview) -> bool) -> PoolOverview {
        let look = async {
            loop {
                let pool = self.service.pool_overview("python").unwrap();
                if is_so(&pool) {
                    return pool;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, look).await.expect("the pool in time")
    }

    /// A sandbox of the pool of the form.
    async fn claimed(&self) -> SandboxId {
        let body = json!({ "extensions": { "poolRef": "python" }, "timeout": 600 });
        let (record, unanswered) = self.service.create_for_answer(body).await.unwrap();
        unanswered.answered();
        record.sandbox.id.clone()
    }

    /// The entry that a form leaves.
    pub(super) async fn entry_of(&self, form: impl Future<Output = Answer>) -> AuditEntry {
        let [entry]: [AuditEntry; 1] = self.left_by(form).await.try_into().unwrap();
        entry
    }
}

/// A form as a server function gets it.
pub(super) fn nested(form: &str) -> String {
    let fields = form.split('&').map(|field| {
        let (name, value) = field.split_once('=').unwrap();
        format!("form[{name}]={value}")
    });
    fields.collect::<Vec<_>>().join("&")
}

#[tokio::test]
async fn a_pool_is_added_listed_changed_and_deleted_without_script() {
    let console = Console::open_over(with_pools()).await;
    let empty = console.get(PAGE).await.body;
    assert_eq!(empty.matches("<h1>").count(), 1, "{empty}");
    for part in [
        "No pools yet",
        "extensions.poolRef",
        "/v1/pools",
        "aria-current=\"page\"",
    ] {
        assert!(empty.contains(part), "{part} in {empty}");
    }
    let added = console.post(PAGE, FORM).await;
    assert_eq!(added.location(), format!("{PAGE}/python"), "{}", added.body);
    let news = console.news_at(added.location()).await;
    assert!(news.contains("The pool python is added"), "{news}");
    console.pool_when(|pool| pool.counts.ready == 2).await;

    let list = console.get(PAGE).await.body;
    assert_eq!(list.matches("<h1>").count(), 1, "{list}");
    for part in [
        "href=\"/console/pools/python\"",
        "debian:12",
        "Ready",
        "1–2",
        "0–4",
    ] {
        assert!(list.contains(part), "{part} in {list}");
    }
    let user = console.claimed().await;
    let user_page = console
        .get(&format!("/console/sandboxes/{user}"))
        .await
        .body;
    assert!(
        user_page.contains("href=\"/console/pools/python\""),
        "{user_page}"
    );

    let page = format!("{PAGE}/python");
    let detail = console.get(&page).await.body;
    for part in [
        "debian:12",
        "sleep 9",
        "Limit of ",
        "256Mi",
        "TOKEN",
        "at most 20 s",
        "As API calls",
    ] {
        assert!(detail.contains(part), "{part} in {detail}");
    }
    assert!(!detail.contains("secret"), "{detail}");

    let resize = format!("{page}/capacity");
    assert_eq!(console.post(&resize, CAPACITY).await.location(), page);
    let news = console.news_at(&page).await;
    assert!(news.contains("The capacity is changed"), "{news}");
    let pool = console.service.pool_overview("python").unwrap();
    assert_eq!((pool.capacity.buffer_max, pool.capacity.pool_max), (1, 9));
    console
        .post(&resize, "buffer_min=x&buffer_max=1&pool_min=0&pool_max=9")
        .await;
    let news = console.news_at(&page).await;
    assert!(
        news.contains("Fewest that wait must be a whole number"),
        "{news}"
    );

    let delete = format!("{page}/delete");
    let question = console.get(&delete).await.body;
    for part in ["Delete the pool python?", "The one that is claimed goes on"] {
        assert!(question.contains(part), "{part} in {question}");
    }
    assert_eq!(console.post(&delete, "").await.location(), PAGE);
    let news = console.news_at(PAGE).await;
    assert!(news.contains("The pool python is deleted"), "{news}");
    let missing = console.get(&page).await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert!(missing.body.contains("No such pool"), "{}", missing.body);
    assert_eq!(console.get(&delete).await.location(), page);
    assert!(console.service.find(&user).is_some(), "its client has it");
}

#[tokio::test]
async fn a_refused_form_comes_back_with_each_problem_at_its_field() {
    let console = Console::open_over(with_pools()).await;
    let form = "name=Python&image=%3Cb%3E&entrypoint=%27&cpu=many&memory=1Gi&env=A\
                &buffer_min=1&buffer_max=2&pool_min=0&pool_max=-1";
    let refused = console.post(PAGE, form).await;
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let page = &refused.body;
    for (field, text) in [
        ("pool-name", "lower-case letters"),
        ("pool-image", "must be an image reference"),
        ("pool-entrypoint", "has a quote that is not closed."),
        ("pool-cpu", "This must be "),
        ("pool-env", "Line 1 is not NAME=value."),
        ("pool-pool_max", "must be a whole number"),
    ] {
        let (_, problem) = page.split_once(&format!("id=\"{field}-problem\"")).unwrap();
        let problem = problem.split("</p>").next().unwrap();
        assert!(problem.contains(text), "{field}: {problem}");
    }
    // What was typed is still there.
    assert!(page.contains("value=\"Python\""), "{page}");
    assert!(!page.contains("<b>"), "{page}");
    assert!(console.service.pool_overviews().unwrap().is_empty());

    console.post(PAGE, FORM).await;
    let again = console.post(PAGE, FORM).await;
    let (_, problem) = again.body.split_once("id=\"pool-name-problem\"").unwrap();
    let problem = problem.split("</p>").next().unwrap();
    assert!(problem.contains("is the name of another pool"), "{problem}");
}

#[tokio::test]
async fn hydrated_pages_get_answers_and_no_errors_for_what_is_refused() {
    let console = Console::open_over(with_pools()).await;
    let added = console.json_of("pools/create", &nested(FORM)).await;
    assert_eq!(added, json!({ "done": "python" }));
    let again = console.json_of("pools/create", &nested(FORM)).await;
    assert_eq!(
        again["invalid"][0]["loc"],
        json!(["body", "name"]),
        "{again}"
    );
    console.pool_when(|pool| pool.counts.ready == 2).await;
    let list = console.json_of("pools/list", "").await;
    let numbers = json!({ "ready": 2, "warming": 0, "claimed": 0, "draining": 0 });
    assert_eq!(list[0]["numbers"], numbers, "{list}");
    let detail = console.json_of("pools/get", "name=python").await;
    assert_eq!(detail["variables"], json!(["TOKEN"]), "{detail}");
    assert!(!detail.to_string().contains("secret"), "{detail}");
    assert_eq!(console.json_of("pools/get", "name=none").await, Value::Null);
    let resize = format!("name=python&{}", nested(CAPACITY));
    let resized = console.json_of("pools/resize", &resize).await;
    assert!(resized.get("done").is_some(), "{resized}");
    let wrong = "name=python&form[pool_max]=";
    let wrong = console.json_of("pools/resize", wrong).await;
    assert_eq!(wrong["invalid"].as_array().unwrap().len(), 4, "{wrong}");
    let unknown = format!("name=none&{}", nested(CAPACITY));
    for (call, form) in [("resize", unknown.as_str()), ("delete", "name=none")] {
        let refused = console.json_of(&format!("pools/{call}"), form).await;
        let why = refused["refused"].as_str().unwrap();
        assert!(why.contains("not found"), "{call}: {why}");
    }
    let deleted = console.json_of("pools/delete", "name=python").await;
    assert!(deleted.get("done").is_some(), "{deleted}");
}

#[tokio::test]
async fn acts_leave_the_entries_that_the_api_leaves() {
    let console = Console::open_over(with_pools()).await;
    let added = console.entry_of(console.post(PAGE, FORM)).await;
    assert_eq!(
        (added.action.as_str(), added.object.id.as_str()),
        ("pool.create", "python")
    );
    assert_eq!(added.outcome, AuditOutcome::Succeeded);
    assert_eq!(added.changes["capacitySpec"]["poolMax"], 4, "{added:?}");
    assert!(!format!("{added:?}").contains("secret"), "{added:?}");
    let again = console.entry_of(console.post(PAGE, FORM)).await;
    assert_eq!(
        (again.outcome, again.status),
        (AuditOutcome::Failed, Some(409))
    );
    let resized = console
        .entry_of(console.post(&format!("{PAGE}/python/capacity"), CAPACITY))
        .await;
    assert_eq!(resized.action, "pool.update");
    assert_eq!(resized.changes["capacitySpec"]["poolMax"], 9, "{resized:?}");
    let wrong = console
        .entry_of(console.post(&format!("{PAGE}/python/capacity"), ""))
        .await;
    assert_eq!(
        (wrong.outcome, wrong.status),
        (AuditOutcome::Failed, Some(422))
    );
    let deleted = console
        .entry_of(console.post(&format!("{PAGE}/python/delete"), ""))
        .await;
    assert_eq!(
        (deleted.action.as_str(), deleted.outcome),
        ("pool.delete", AuditOutcome::Succeeded)
    );
}

#[tokio::test]
async fn a_pool_that_cannot_be_filled_says_why() {
    let runtime = Arc::new(with_pools());
    runtime.set_faults(Faults {
        start_fails: Some("no space <left>".to_owned()),
        ..Faults::default()
    });
    let console = Console::open_over(Arc::clone(&runtime)).await;
    console.post(PAGE, FORM).await;
    console.pool_when(|pool| pool.is_failing).await;
    for path in [PAGE, "/console/pools/python"] {
        let page = console.get(path).await.body;
        for part in ["Failing", "no space &lt;left&gt;"] {
            assert!(page.contains(part), "{part} in {path}: {page}");
        }
    }
    runtime.set_faults(Faults::default());
    console.pool_when(|pool| pool.counts.ready == 2).await;
    let page = console.get("/console/pools/python").await.body;
    assert!(page.contains("Last failure"), "{page}");
}

#[tokio::test]
async fn a_viewer_sees_pools_and_why_nothing_can_be_changed() {
    let mut console = Console::open_over(with_pools()).await;
    console.post(PAGE, FORM).await;
    console.add_user(Role::ReadOnly, None).await;
    console.sign_in("read_only", PASSWORD).await;
    let list = console.get(PAGE).await.body;
    assert!(list.contains("href=\"/console/pools/python\""), "{list}");
    assert!(!list.contains("action=\"/console/pools\""), "{list}");
    let page = console.get("/console/pools/python").await.body;
    for (page, button) in [(&list, "add-pool"), (&page, "resize"), (&page, "delete")] {
        let marker = format!("data-act-button=\"{button}\"");
        let (_, shown) = page.split_once(&marker).unwrap();
        let shown = shown.split("</button>").next().unwrap();
        assert!(shown.contains("aria-disabled=\"true\""), "{shown}");
        assert!(shown.contains("Your role may look"), "{shown}");
    }
    let refused = console.post(PAGE, FORM).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_runtime_without_pools_says_so_and_offers_none() {
    let console = Console::open().await;
    let page = console.get(PAGE).await;
    assert_eq!(page.status(), StatusCode::OK);
    assert!(page.body.contains("has no pools"), "{}", page.body);
    assert!(
        !page.body.contains("href=\"/console/pools\""),
        "{}",
        page.body
    );
    let refused = console.json_of("pools/create", &nested(FORM)).await;
    let why = refused["refused"].as_str().unwrap();
    assert!(why.contains("has no pools"), "{why}");
}
