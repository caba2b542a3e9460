//! The list: sandboxes that are gone, pages, and actions on several.

use std::sync::Arc;

use axum::http::{Request, StatusCode, header};
use osb_app::backend::ConsoleBackend;
use osb_protocol::{SandboxId, audit::AuditOutcome};
use osb_runtime::sim::{Faults, Options, SimRuntime};
use serde_json::{Value, json};

use super::{Console, FORM};
use crate::{
    http::audited::Noted,
    identity::{Principal, Scope},
};

const ENDED: &str = "/console/sandboxes?state=Ended";

/// The table of a page, without the tabs and the help around it.
fn table(page: &str) -> &str {
    page.split_once("<table").map_or("", |(_, table)| table)
}

#[tokio::test]
async fn a_deleted_sandbox_is_listed_with_what_it_was() {
    let console = Console::open().await;
    let nothing = console.get(ENDED).await.body;
    assert!(nothing.contains("Nothing has ended"), "{nothing}");
    let id = console.sandbox("search").await;
    console.service.delete(&id, true).await.unwrap();
    let list = console.get(ENDED).await.body;
    let path = format!("/console/sandboxes/{id}");
    for part in [
        path.as_str(),
        id.short(),
        "Deleted",
        "It was deleted by request.",
        "debian:12",
        "team=search",
        "1 in total",
    ] {
        assert!(table(&list).contains(part), "{part} in {list}");
    }
    let page = console.get(&path).await;
    assert_eq!(page.status(), StatusCode::OK);
    for part in [
        "This sandbox was deleted.",
        "sleep 9",
        "team=search",
        "Ended",
    ] {
        assert!(page.body.contains(part), "{part} in {}", page.body);
    }
    for part in ["Expires", "no expiry", "Delete sandbox"] {
        assert!(!page.body.contains(part), "{part} in {}", page.body);
    }
    let live = console.get("/console/sandboxes").await.body;
    assert!(!live.contains(id.short()), "{live}");
}

#[tokio::test]
async fn a_failed_create_is_listed_with_its_reason() {
    let runtime = SimRuntime::new();
    runtime.set_faults(Faults {
        start_fails: Some("no such device".to_owned()),
        ..Faults::default()
    });
    let console = Console::open_over(runtime).await;
    let made = console.post("/console/create", FORM).await;
    let path = made.location().to_owned();
    let short = SandboxId::from(path.rsplit('/').next().unwrap());
    let mut health = console.service.subscribe();
    while console.service.find(&short).is_some() {
        let _ = health.recv().await;
    }
    let list = console.get(ENDED).await.body;
    for part in [short.short(), "Failed", "no such device"] {
        assert!(table(&list).contains(part), "{part} in {list}");
    }
    let page = console.get(&path).await.body;
    let advice = "Clone fills the create form in";
    for part in ["sleep 9", "no such device", "256Mi", advice] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[tokio::test]
async fn the_filter_applies_to_what_ended() {
    let console = Console::open().await;
    let mut ids = Vec::new();
    for team in ["a", "b"] {
        let id = console.sandbox(team).await;
        console.service.delete(&id, true).await.unwrap();
        ids.push(id);
    }
    let list = console
        .get(&format!("{ENDED}&q=label.team%3Da+state:deleted"))
        .await
        .body;
    assert!(list.contains("1 of 2"), "{list}");
    assert!(table(&list).contains(ids[0].short()) && !table(&list).contains(ids[1].short()));
    let unknown = console.get("/console/sandboxes?q=foo%3Abar").await.body;
    assert!(unknown.contains("there is no field foo"), "{unknown}");
}

#[tokio::test]
async fn what_ended_comes_in_the_order_of_the_url() {
    let console = Console::open().await;
    let mut ids = Vec::new();
    for name in ["b", "a", "c"] {
        let id = console.sandbox(name).await;
        console.service.delete(&id, true).await.unwrap();
        ids.push(id);
    }
    for (sort, order) in [("", [2, 1, 0]), ("&sort=-ended", [0, 1, 2])] {
        let list = console.get(&format!("{ENDED}{sort}")).await.body;
        let place = |at: usize| table(&list).find(ids[at].as_str()).unwrap();
        let places = order.map(place);
        assert!(places.is_sorted(), "{sort}: {places:?}");
    }
    let list = console.get(&format!("{ENDED}&sort=-lived")).await.body;
    assert!(list.contains("aria-sort=\"descending\""), "{list}");
    assert!(table(&list).contains("sort=lived"), "{list}");
    assert!(table(&list).contains("data-hidden=\"tenant \""), "{list}");
    let list = console
        .get(&format!("{ENDED}&hide=image,lived,none"))
        .await
        .body;
    let hidden = "data-hidden=\"image lived tenant \"";
    assert!(table(&list).contains(hidden), "{list}");
}

#[tokio::test]
async fn a_tenant_sees_what_ended_of_its_own() {
    let console = Console::open().await;
    let id = console.sandbox("secret").await;
    console.service.delete(&id, true).await.unwrap();
    let domain = |scope: &Scope| console.state.domains.within(scope);
    let all = domain(&Scope::All);
    assert_eq!(all.ended(0, 9).await.unwrap().len(), 1);
    assert_eq!(all.ended_count(9).await.unwrap(), 1);
    let other = domain(&Scope::of(Some("other")));
    assert_eq!(other.ended(0, 9).await.unwrap(), []);
    assert_eq!(other.ended_count(9).await.unwrap(), 0);
    assert!(other.sandbox(&id).await.is_err());
}

#[tokio::test]
async fn every_rendering_of_a_page_has_the_same_lines() {
    let sim = Arc::new(SimRuntime::with_options(Options {
        powers: true,
        ..Options::default()
    }));
    let console = Console::open_over(Arc::clone(&sim)).await;
    let print = |line: &str| {
        let output = vec![line.to_owned()];
        sim.set_faults(Faults {
            output,
            ..Faults::default()
        });
    };
    let id = console.sandbox("a").await;
    let page = || {
        let domains = &console.state.domains;
        domains.of(&Principal::configured_key(), Noted::default(), None)
    };
    let (first, next) = (page(), page());
    let lines = async |page: &Arc<dyn ConsoleBackend>| {
        let lines = page.log(&id).await.unwrap();
        lines.into_iter().map(|line| line.2).collect::<Vec<_>>()
    };
    print("one");
    assert_eq!(lines(&first).await, ["one"]);
    print("two");
    assert_eq!(lines(&first).await, ["one"], "the browser has the first");
    assert_eq!(lines(&next).await, ["two"]);
}

#[tokio::test]
async fn what_is_not_there_is_not_found_and_pages_end_with_the_last() {
    let console = Console::open().await;
    let missing = console.get("/console/sandboxes/nope").await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert!(missing.body.contains("No such sandbox"));
    let id = console.sandbox("a").await;
    let path = format!("/console/sandboxes/{id}");
    assert_eq!(console.get(&path).await.status(), StatusCode::OK);
    let list = console.get("/console/sandboxes?page=99").await.body;
    assert!(list.contains("There is no page 99"), "{list}");
    assert!(table(&list).contains(id.short()), "{list}");
}

#[tokio::test]
async fn an_action_on_several_has_a_result_and_an_entry_of_each() {
    let console = Console::open().await;
    let (one, long) = (console.sandbox("a").await, console.sandbox("b").await);
    let renew = format!("/console/sandboxes/{long}/renew");
    console.post(&renew, "seconds=86400").await;
    let expiry = |id: &SandboxId| console.service.find(id).unwrap().sandbox.expires_at;
    let (short_before, long_before) = (expiry(&one), expiry(&long));
    let form = format!("ids[0]={one}&ids[1]=nope&ids[2]={long}&ids[3]={one}&seconds=3600");
    let mut answer = None;
    let call = async {
        let request = Request::post("/console/fn/sandboxes/extend-all")
            .header("sec-fetch-site", "same-origin")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        answer = Some(console.send(request, &form).await);
    };
    let left = console.left_by(call).await;
    let answer = answer.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "{}", answer.body);
    let results: Value = serde_json::from_str(&answer.body).unwrap();
    let results = results.as_array().unwrap();
    assert_eq!(results.len(), 3, "each sandbox once: {results:?}");
    assert_eq!(results[0], json!({ "id": one.as_str(), "end": "done" }));
    assert_eq!(
        results[1]["end"],
        json!({ "failed": "This sandbox does not exist." })
    );
    let skipped = results[2]["end"]["skipped"].as_str().unwrap();
    assert!(skipped.contains("it lives until"), "{skipped}");
    assert!(expiry(&one) > short_before);
    assert_eq!(expiry(&long), long_before, "a longer life stays");
    let entries: Vec<_> = left
        .iter()
        .map(|it| (it.action.as_str(), it.object.id.as_str(), it.outcome))
        .collect();
    let renewed = "sandbox.renew";
    for entry in [
        (renewed, one.as_str(), AuditOutcome::Succeeded),
        (renewed, "nope", AuditOutcome::Failed),
        (renewed, long.as_str(), AuditOutcome::Failed),
    ] {
        assert!(entries.contains(&entry), "{entry:?} in {entries:?}");
    }
    assert_eq!(entries.len(), 3, "{entries:?}");
}

#[tokio::test]
async fn forms_act_on_the_ticked_rows() {
    let console = Console::open().await;
    let (one, other) = (console.sandbox("a").await, console.sandbox("b").await);
    let list = console.get("/console/sandboxes").await.body;
    for id in [&one, &other] {
        let boxed = format!("value=\"{id}\"");
        assert!(
            list.contains(&boxed) && list.contains("form=\"bulk\""),
            "{list}"
        );
    }
    let form = format!("id={one}&id=nope&id={other}");
    let answer = console.post("/console/sandboxes/bulk/delete", &form).await;
    assert_eq!(answer.location(), "/console/sandboxes");
    let list = console.get("/console/sandboxes").await.body;
    for part in [
        "2 of 3 deleted · 1 failed",
        "nope: This sandbox does not exist.",
    ] {
        assert!(list.contains(part), "{part} in {list}");
    }
    for (given, want) in [
        (
            "/console/sandboxes?q=team%3Da",
            "/console/sandboxes?q=team%3Da",
        ),
        ("/console/sandboxes?q=a\n", "/console/sandboxes"),
        ("/console/sandboxesx?q=a", "/console/sandboxes"),
        ("//other.example/console/sandboxes?", "/console/sandboxes"),
    ] {
        let list: String = url::form_urlencoded::byte_serialize(given.as_bytes()).collect();
        let form = format!("id=nope&list={list}");
        let answer = console.post("/console/sandboxes/bulk/pause", &form).await;
        assert_eq!(answer.location(), want, "{given}");
    }
    let nothing = console.post("/console/sandboxes/bulk/delete", "").await;
    assert_eq!(nothing.location(), "/console/sandboxes");
    let list = console.get("/console/sandboxes").await.body;
    assert!(list.contains("select between 1 and"), "{list}");
}
