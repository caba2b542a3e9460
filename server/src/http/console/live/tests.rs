//! The tab's WebSocket, over a real connection.

mod following;

use std::{sync::Arc, time::Duration};

use futures::{SinkExt, StreamExt};
use osb_app::live::{CLOSE_SIGNED_OUT, Command, Frame, Position, Topic};
use osb_protocol::SandboxId;
use osb_runtime::sim::{Faults, SimRuntime};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::Message;

use super::{
    super::tests::{Console, FORM, Socket, closed},
    hub::PART,
};
use crate::identity::Scope;

const MIB: usize = 1024 * 1024;

struct Page(Socket);

impl Page {
    /// Opens the WebSocket of a page and takes the greeting.
    async fn open(console: &Console) -> (Self, String) {
        let mut page = Self(console.socket("/console/live").await);
        match page.hear().await {
            Frame::Hello { epoch } => (page, epoch),
            other => panic!("{other:?}"),
        }
    }

    async fn say(&mut self, command: &Command) {
        let text = serde_json::to_string(command).unwrap();
        self.0.send(Message::text(text)).await.unwrap();
    }

    async fn subscribe(&mut self, topic: Topic, since: Option<Position>) {
        self.say(&Command::Subscribe { topic, since }).await;
    }

    async fn hear(&mut self) -> Frame {
        let message = self.0.next().await.unwrap().unwrap();
        serde_json::from_str(message.to_text().unwrap()).unwrap()
    }

    async fn snapshot(&mut self) -> (u64, Value) {
        match self.hear().await {
            Frame::Snapshot { seq, data, .. } => (seq, data),
            other => panic!("{other:?}"),
        }
    }

    async fn delta(&mut self) -> (u64, Value) {
        match self.hear().await {
            Frame::Delta { seq, data, .. } => (seq, data),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_snapshot_is_followed_by_every_change_in_order() {
    let console = Console::open().await;
    console.sandbox("before").await;
    let (mut page, _) = Page::open(&console).await;
    page.subscribe(Topic::Sandboxes, None).await;
    let (mut last, list) = page.snapshot().await;
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(list[0]["metadata"], json!({ "team": "before" }));
    let id = console.sandbox("after").await;
    loop {
        let (seq, change) = page.delta().await;
        assert_eq!(seq, last + 1);
        last = seq;
        assert_eq!(change["put"]["id"], id.as_str());
        if change["put"]["status"]["state"] == "Running" {
            break;
        }
    }
    console.service.delete(&id, true).await.unwrap();
    loop {
        let (seq, change) = page.delta().await;
        assert_eq!(seq, last + 1);
        last = seq;
        if change["removed"] == id.as_str() {
            break;
        }
    }
}

#[tokio::test]
async fn a_long_list_comes_in_parts() {
    let console = Console::open().await;
    for _ in 0..=2 * PART {
        console.post("/console/create", FORM).await;
    }
    let (mut page, _) = Page::open(&console).await;
    page.subscribe(Topic::Sandboxes, None).await;
    let mut ids = Vec::new();
    let mut take = |data: Value| {
        let rows = data.as_array().unwrap().clone();
        ids.extend(rows.iter().map(|row| row["id"].to_string()));
        rows.len()
    };
    for wanted in [0, PART] {
        let Frame::Part { after, data, .. } = page.hear().await else {
            panic!("no part after {wanted}");
        };
        assert_eq!((after, take(data)), (wanted, PART));
    }
    let Frame::Snapshot { after, data, .. } = page.hear().await else {
        panic!("no end");
    };
    assert_eq!((after, take(data)), (2 * PART, 1));
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 2 * PART + 1);
}

#[tokio::test]
async fn a_page_that_comes_back_gets_what_it_missed_or_everything() {
    let console = Console::open().await;
    let (mut page, epoch) = Page::open(&console).await;
    page.subscribe(Topic::Sandboxes, None).await;
    let (seq, _) = page.snapshot().await;
    console.sandbox("missed").await;
    let newest = console.service.registry().snapshot().1;

    let (mut back, _) = Page::open(&console).await;
    back.subscribe(Topic::Sandboxes, Some(Position { epoch, seq }))
        .await;
    for wanted in seq + 1..=newest {
        assert_eq!(back.delta().await.0, wanted);
    }
    let other = Position {
        epoch: "of another process".to_owned(),
        seq,
    };
    let (mut stranger, _) = Page::open(&console).await;
    stranger.subscribe(Topic::Sandboxes, Some(other)).await;
    assert_eq!(stranger.snapshot().await.0, newest);
}

#[tokio::test]
async fn a_sandbox_is_followed_to_its_end() {
    let console = Console::open().await;
    let id = console.sandbox("a").await;
    let (mut page, _) = Page::open(&console).await;
    page.subscribe(Topic::Sandbox(id.clone()), None).await;
    let (_, detail) = page.snapshot().await;
    assert_eq!(detail["sandbox"]["id"], id.as_str());
    assert_eq!(detail["stages"][0]["name"], "accepted");
    console.service.delete(&id, true).await.unwrap();
    let last = loop {
        let (_, detail) = page.snapshot().await;
        if !detail["ended"].is_null() {
            break detail;
        }
    };
    assert_eq!(last["ended"]["outcome"], "deleted", "{last}");
    assert_eq!(last["sandbox"]["metadata"]["team"], "a", "{last}");
}

#[tokio::test]
async fn a_create_that_fails_is_followed_to_the_reason() {
    let runtime = SimRuntime::new();
    let gate = Arc::new(Notify::new());
    runtime.set_faults(Faults {
        start_gate: Some(gate.clone()),
        start_fails: Some("no such command".to_owned()),
        ..Faults::default()
    });
    let console = Console::open_over(runtime).await;
    console.post("/console/create", FORM).await;
    let id = console.service.registry().snapshot().0[0]
        .sandbox
        .id
        .clone();
    let (mut page, _) = Page::open(&console).await;
    page.subscribe(Topic::Sandbox(id), None).await;
    let (_, detail) = page.snapshot().await;
    assert_eq!(detail["sandbox"]["status"]["state"], "Pending");
    gate.notify_one();
    let failed = loop {
        let (_, detail) = page.snapshot().await;
        if detail["sandbox"]["status"]["state"] != "Pending" {
            break detail;
        }
    };
    let status = &failed["sandbox"]["status"];
    assert_eq!(status["state"], "Failed", "{failed}");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("no such command"), "{failed}");
    let stages = failed["stages"].as_array().unwrap();
    assert!(
        stages.iter().any(|stage| stage["state"] == "failed"),
        "{failed}"
    );
}

#[tokio::test]
async fn what_is_not_understood_is_passed_over() {
    let console = Console::open().await;
    let (mut page, _) = Page::open(&console).await;
    for text in [
        "",
        "no json",
        r#"{"op":"dance"}"#,
        r#"{"op":"subscribe","topic":"moon"}"#,
    ] {
        page.0.send(Message::text(text)).await.unwrap();
    }
    page.subscribe(Topic::Sandboxes, None).await;
    assert_eq!(page.snapshot().await.1, json!([]));
}

/// Nothing else makes it look at its session here ([`Console::watch_sessions`]).
#[tokio::test]
async fn a_logout_closes_it_at_once() {
    let console = Console::open().await;
    let (page, _) = Page::open(&console).await;
    console.post("/console/logout", "").await;
    assert_eq!(closed(page.0).await, Some(CLOSE_SIGNED_OUT));
}

#[tokio::test]
async fn a_session_that_ends_without_a_logout_closes_it_too() {
    let mut console = Console::open().await;
    console.watch_sessions(Duration::from_millis(20));
    let (page, _) = Page::open(&console).await;
    console.log_in().await;
    assert_eq!(closed(page.0).await, Some(CLOSE_SIGNED_OUT));
}

/// Any program can come without a session.
#[tokio::test]
async fn long_messages_without_a_session_are_not_read() {
    let mut console = Console::open().await;
    console.cookie.clear();
    let mut stranger = console.socket("/console/live").await;
    let mut went_out = 0;
    // More than a connection holds when the other end does not read.
    while went_out < 64 * MIB
        && let Ok(()) = stranger.send(Message::binary(vec![0; MIB])).await
    {
        went_out += MIB;
    }
    assert!(went_out < 64 * MIB);
}

/// A page sees nothing of a handshake that fails, so this one succeeds.
#[tokio::test]
async fn a_page_without_a_session_is_closed_with_the_reason() {
    let mut console = Console::open().await;
    console.set_key("another").await;
    let old = console.socket("/console/live").await;
    assert_eq!(closed(old).await, Some(CLOSE_SIGNED_OUT), "a new key");
    console.cookie.clear();
    let none = console.socket("/console/live").await;
    assert_eq!(closed(none).await, Some(CLOSE_SIGNED_OUT), "no cookie");
}

#[tokio::test]
async fn the_end_of_the_server_is_not_the_end_of_the_session() {
    let console = Console::open().await;
    let (page, _) = Page::open(&console).await;
    console.tasks.stop();
    assert_ne!(closed(page.0).await, Some(CLOSE_SIGNED_OUT));
}

#[tokio::test]
async fn a_tab_gets_what_is_within_its_scope() {
    let console = Console::open().await;
    let own = create_within(&console, "a").await;
    let foreign = console.sandbox("secret").await;
    let (hub, scope) = (&console.state.hub, Scope::of(Some("a")));
    for _ in 0..2 {
        let listed = |scope| {
            let (_, parts) = hub.list(scope);
            parts.iter().map(|part| part.as_str()).collect::<String>()
        };
        let all = listed(&Scope::All);
        assert!(all.contains(foreign.as_str()) && all.contains(own.as_str()));
        let list = listed(&scope);
        assert!(list.contains(own.as_str()) && !list.contains(foreign.as_str()));
        let detail = hub.detail(&foreign, &Scope::All).await;
        assert!(detail.as_str().contains("secret"), "{detail}");
        let detail = hub.detail(&foreign, &scope).await;
        assert!(detail.as_str().contains("\"data\":null"), "{detail}");
        let detail = hub.detail(&own, &scope).await;
        assert!(detail.as_str().contains("mine"), "{detail}");
    }
}

#[tokio::test]
async fn changes_of_another_tenant_reach_a_tab_without_their_content() {
    let console = Console::open().await;
    let mut changes = console.state.hub.subscribe();
    let id = console.sandbox("secret").await;
    let change = changes.recv().await.unwrap();
    let own = change.frame_within(&Scope::All);
    assert!(own.as_str().contains(id.as_str()), "{own}");
    let hidden = change.frame_within(&Scope::of(Some("a")));
    assert!(!hidden.as_str().contains(id.as_str()), "{hidden}");
    let seq = format!("\"seq\":{}", change.seq);
    assert!(hidden.as_str().contains(&seq), "{hidden}");
}

#[tokio::test]
async fn one_tenant_leaves_room_for_what_others_follow() {
    let console = Console::open().await;
    let [one, other] = ["a", "b"].map(|tenant| Scope::of(Some(tenant)));
    let hub = &console.state.hub;
    let (mut held, mut refused) = (Vec::new(), 0);
    for _ in 0..22 {
        let id = create_within(&console, "a").await;
        let topics = [Topic::Logs, Topic::Metrics, Topic::Commands];
        for topic in topics.map(|topic| topic(id.clone())) {
            match hub.follow(&topic, &one) {
                Some((_, subscription)) => held.push(subscription),
                None => refused += 1,
            }
        }
    }
    assert_eq!((held.len(), refused), (64, 2));
    let id = create_within(&console, "b").await;
    assert!(hub.follow(&Topic::Logs(id), &other).is_some());
    assert!(hub.follow(&Topic::Overview, &one).is_some());
}

async fn create_within(console: &Console, tenant: &str) -> SandboxId {
    let body = json!({
        "image": { "uri": "debian:12" }, "entrypoint": ["sleep", "9"], "timeout": 600,
        "resourceLimits": { "cpu": "1" }, "metadata": { "team": "mine" },
    });
    let service = console.service.within(&Scope::of(Some(tenant)));
    let (record, unanswered) = service.create_for_answer(body).await.unwrap();
    unanswered.answered();
    record.sandbox.id.clone()
}
