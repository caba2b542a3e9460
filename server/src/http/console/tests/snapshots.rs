//! The pages about snapshots, and their forms.

use axum::http::StatusCode;
use osb_protocol::{SandboxId, lifecycle::SnapshotState};
use osb_runtime::sim::{Faults, Options, SimRuntime};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Console, FORM, PATIENCE};
use crate::sandbox::{SnapshotListQuery, snapshots::NAME_MAX};

const PAGE: &str = "/console/snapshots";

fn with_snapshots() -> SimRuntime {
    SimRuntime::with_options(Options {
        powers: true,
        ..Options::default()
    })
}

impl Console {
    /// Takes a snapshot with the form of a sandbox's page; its id, once it is ready.
    async fn snapshot_of(&self, sandbox: &SandboxId, name: &str) -> String {
        let path = format!("/console/sandboxes/{sandbox}/snapshot");
        let answer = self.post(&path, &format!("name={name}")).await;
        assert_eq!(answer.location(), format!("/console/sandboxes/{sandbox}"));
        let query = SnapshotListQuery {
            sandbox_id: None,
            name: None,
            states: Vec::new(),
            page: 1,
            page_size: 1,
        };
        let newest = self.service.list_snapshots(query).await.unwrap();
        let id = newest.items[0].id.clone();
        self.reaches(&id, SnapshotState::Ready).await;
        id
    }

    /// Waits until a snapshot is in a state.
    async fn reaches(&self, id: &str, state: SnapshotState) {
        let look = async {
            loop {
                let snapshot = self.service.snapshot_by_id(id).await.unwrap();
                if snapshot.status.state == state {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, look).await.expect("the state in time");
    }

    /// What the page says about the form that was sent last.
    pub(super) async fn news_at(&self, path: &str) -> String {
        let page = self.get(path).await.body;
        let (_, toasts) = page.split_once("class=\"toasts\"").unwrap();
        toasts.split("</section>").next().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_snapshot_is_taken_listed_used_and_deleted_without_script() {
    let console = Console::open_over(with_snapshots()).await;
    let empty = console.get(PAGE).await.body;
    assert!(empty.contains("No snapshots yet"), "{empty}");
    assert!(
        empty.contains("POST /v1/sandboxes/{id}/snapshots"),
        "{empty}"
    );
    let source = console.sandbox("search").await;
    let id = console.snapshot_of(&source, "before+%3Cb%3E").await;
    let page = format!("/console/sandboxes/{source}");
    let overview = console.get(&page).await.body;
    for part in ["The snapshot before &lt;b&gt; is being taken", &id] {
        assert!(overview.contains(part), "{part} in {overview}");
    }

    let list = console.get(PAGE).await.body;
    assert_eq!(list.matches("<h1>").count(), 1, "{list}");
    for part in [
        "before &lt;b&gt;",
        source.short(),
        "Ready",
        "1 snapshot takes 1000 B on disk",
        "1 in total",
        "Create a sandbox from before &lt;b&gt;",
    ] {
        assert!(list.contains(part), "{part} in {list}");
    }
    assert!(!list.contains("before <b>"), "{list}");

    // The form of a new sandbox begins with it.
    let address = format!("/console/create?snapshot={id}");
    let form = console.get(&address).await.body;
    let chosen = format!("<option value=\"{id}\" selected");
    assert!(form.contains(&chosen), "{form}");
    let sent = format!("{FORM}&source=snapshot&snapshot={id}&name=user");
    let made = console.post("/console/create", &sent).await;
    let user = made.location().to_owned();
    assert!(user.starts_with("/console/sandboxes/"), "{}", made.body);
    let user_page = console.get(&user).await.body;
    let link = format!("href=\"/console/snapshots/{id}\"");
    assert!(user_page.contains(&link), "{user_page}");

    let detail = console.get(&format!("{PAGE}/{id}")).await.body;
    for part in [
        "1 sandbox was created from it",
        "An image",
        "this snapshot",
        "user",
        "As API calls",
    ] {
        assert!(detail.contains(part), "{part} in {detail}");
    }

    // It is in use.
    let delete = format!("{PAGE}/{id}/delete");
    let question = console.get(&delete).await.body;
    for part in ["Delete the snapshot before", "still need them: user."] {
        assert!(question.contains(part), "{part} in {question}");
    }
    let refused = console.post(&delete, "").await;
    assert_eq!(refused.location(), format!("{PAGE}/{id}"));
    let news = console.news_at(refused.location()).await;
    assert!(news.contains("is in use"), "{news}");
    assert!(news.contains("Created from it: user."), "{news}");
    let refused = console.get(PAGE).await.body;
    assert!(refused.contains("Deleting"), "{refused}");

    console.post(&format!("{user}/delete"), "").await;
    let gone = async {
        // Repeated, as a user would: the sandbox ends meanwhile.
        while console.post(&delete, "").await.location() != PAGE {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, gone).await.expect("deleted in time");
    let news = console.news_at(PAGE).await;
    assert!(news.contains("The snapshot is deleted"), "{news}");
    let missing = console.get(&format!("{PAGE}/{id}")).await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert!(
        missing.body.contains("No such snapshot"),
        "{}",
        missing.body
    );
    // A page that asks about one that is gone leads to the page that says so.
    assert_eq!(
        console.get(&delete).await.location(),
        format!("{PAGE}/{id}")
    );
}

#[tokio::test]
async fn hydrated_pages_get_answers_and_no_errors_for_what_is_refused() {
    let console = Console::open_over(with_snapshots()).await;
    let source = console.sandbox("a").await;
    let taken = console
        .json_of("snapshots/take", &format!("id={source}&name=+one+"))
        .await;
    let snapshot = &taken["done"];
    assert_eq!(snapshot["name"], "one", "{taken}");
    assert_eq!(snapshot["sandboxId"], source.as_str());
    let id = snapshot["id"].as_str().unwrap().to_owned();
    console.reaches(&id, SnapshotState::Ready).await;

    let list = console.json_of("snapshots/list", "query[name]=one").await;
    let row = &list["rows"][0];
    assert_eq!(row["snapshot"]["id"], id.as_str(), "{list}");
    assert_eq!(row["source"]["state"], "Running");
    assert_eq!(list["totals"]["ready"], 1);
    let other = console.json_of("snapshots/list", "query[name]=on").await;
    assert_eq!(other["matching"], 0, "all of the name counts");
    assert_eq!(other["totals"]["all"], 1, "whatever the filter");
    let far = "query[state]=Ready&query[page]=9";
    let far = console.json_of("snapshots/list", far).await;
    assert_eq!((&far["page"], &far["matching"]), (&json!(1), &json!(1)));

    let offered = console.json_of("snapshots/offered", "").await;
    assert_eq!(offered["snapshots"][0][0]["id"], id.as_str(), "{offered}");
    let none = console.json_of("snapshots/get", "id=none").await;
    assert_eq!(none, Value::Null);

    let long = format!("id={source}&name={}", "x".repeat(NAME_MAX + 1));
    let invalid = console.json_of("snapshots/take", &long).await;
    assert_eq!(invalid["invalid"][0]["loc"], json!(["body", "name"]));
    let missing = console
        .call_function("snapshots/take", "id=none&name=")
        .await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND, "{}", missing.body);
    let unknown = console.json_of("snapshots/delete", "id=none").await;
    let why = unknown["refused"].as_str().unwrap();
    assert!(why.contains("not found"), "{why}");
    let deleted = console
        .json_of("snapshots/delete", &format!("id={id}"))
        .await;
    assert!(deleted.get("done").is_some(), "{deleted}");
}

#[tokio::test]
async fn a_create_from_a_snapshot_that_cannot_be_used_is_refused_at_its_field() {
    let console = Console::open_over(with_snapshots()).await;
    for (snapshot, text) in [("none", "not found"), ("", "Choose a snapshot")] {
        let form = format!("{FORM}&source=snapshot&snapshot={snapshot}");
        let answer = console.post("/console/create", &form).await;
        assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
        let (_, problem) = answer.body.split_once("id=\"snapshot-problem\"").unwrap();
        let problem = problem.split("</p>").next().unwrap();
        assert!(problem.contains(text), "{snapshot:?}: {problem}");
    }
}

#[tokio::test]
async fn a_capture_that_fails_says_why() {
    let runtime = with_snapshots();
    runtime.set_faults(Faults {
        capture_fails: Some("no space <left>".to_owned()),
        ..Faults::default()
    });
    let console = Console::open_over(runtime).await;
    let source = console.sandbox("a").await;
    let form = format!("id={source}&name=");
    let taken = console.json_of("snapshots/take", &form).await;
    let id = taken["done"]["id"].as_str().unwrap().to_owned();
    console.reaches(&id, SnapshotState::Failed).await;
    let page = console.get(&format!("{PAGE}/{id}")).await.body;
    assert!(page.contains("no space &lt;left&gt;"), "{page}");
    let list = console.get(&format!("{PAGE}?state=Failed")).await.body;
    assert!(list.contains("no space &lt;left&gt;"), "{list}");
    let none = console.get(&format!("{PAGE}?state=Ready")).await.body;
    assert!(none.contains("No snapshot matches"), "{none}");
}

#[tokio::test]
async fn a_runtime_without_snapshots_says_so_and_offers_none() {
    let console = Console::open().await;
    let page = console.get(PAGE).await;
    assert_eq!(page.status(), StatusCode::OK);
    assert!(page.body.contains("has no snapshots"), "{}", page.body);
    assert!(!page.body.contains("href=\"/console/snapshots\""));
    let id = console.sandbox("a").await;
    let sandbox = console.get(&format!("/console/sandboxes/{id}")).await.body;
    let (_, button) = sandbox.split_once("data-act-button=\"snapshot\"").unwrap();
    let button = button.split("</button>").next().unwrap();
    assert!(button.contains("aria-disabled=\"true\""), "{button}");
    assert!(button.contains("has no snapshots"), "{button}");
    let create = console.get("/console/create").await.body;
    assert!(!create.contains("name=\"source\""), "{create}");
    let refused = console
        .json_of("snapshots/take", &format!("id={id}&name="))
        .await;
    assert!(refused["refused"].is_string(), "{refused}");
}

#[tokio::test]
async fn the_lineage_goes_back_over_what_is_gone() {
    let console = Console::open_over(with_snapshots()).await;
    let first = console.sandbox("a").await;
    let oldest = console.snapshot_of(&first, "oldest").await;
    let form = format!("{FORM}&source=snapshot&snapshot={oldest}&name=between");
    let made = console.post("/console/create", &form).await;
    let between = SandboxId::from(made.location().rsplit('/').next().unwrap());
    let runs = async {
        loop {
            let record = console.service.find(&between).unwrap();
            if record.sandbox.status.state.as_str() == "Running" {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, runs).await.expect("it runs in time");
    let newest = console.snapshot_of(&between, "newest").await;
    console
        .post(&format!("/console/sandboxes/{first}/delete"), "")
        .await;
    let gone = async {
        while console.service.find(&first).is_some() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, gone).await.expect("gone in time");
    let page = console.get(&format!("{PAGE}/{newest}")).await.body;
    let (_, lineage) = page.split_once("class=\"lineage\"").unwrap();
    let places: Vec<_> = ["An image", first.as_str(), "oldest", "between", "newest"]
        .iter()
        .map(|text| {
            lineage
                .find(text)
                .unwrap_or_else(|| panic!("{text} in {lineage}"))
        })
        .collect();
    assert!(places.is_sorted(), "{places:?} in {lineage}");
    assert!(lineage.contains("gone"), "{lineage}");
    let list = console.get(&format!("{PAGE}?sandbox={between}")).await.body;
    assert!(
        list.contains("newest") && !list.contains(">oldest<"),
        "{list}"
    );
}
