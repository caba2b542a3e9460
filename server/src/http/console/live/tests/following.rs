//! Logs and samples of single sandboxes: what several tabs follow together.

use std::{collections::BTreeSet, sync::Arc};

use osb_app::live::{Frame, LogState, Topic};
use osb_protocol::SandboxId;
use osb_runtime::sim::{Options, SimRuntime};
use serde_json::Value;
use tokio::time::{Duration, sleep, timeout};

use super::{Command, Page, create_within};
use crate::{http::console::tests::Console, identity::Scope};

/// Keeps a hang from stalling the run.
const PATIENCE: Duration = Duration::from_secs(30);

async fn console() -> (Console, Arc<SimRuntime>) {
    let runtime = Arc::new(SimRuntime::with_options(Options {
        powers: true,
        ..Options::default()
    }));
    (Console::open_over(Arc::clone(&runtime)).await, runtime)
}

/// Waits until a condition holds.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("{what}"));
}

impl Page {
    /// The next message of a log: its number, that of its first line, and the texts of its lines.
    async fn lines(&mut self) -> (u64, u64, Vec<String>) {
        let frame = timeout(PATIENCE, self.hear()).await.unwrap();
        let (Frame::Snapshot { seq, data, .. } | Frame::Delta { seq, data, .. }) = frame else {
            panic!("{frame:?}");
        };
        let lines = data["lines"].as_array().unwrap();
        let text = |line: &Value| line[2].as_str().unwrap().to_owned();
        let first = data["first"].as_u64().unwrap();
        (seq, first, lines.iter().map(text).collect())
    }

    /// Reads on until a line has this text; the numbers of all lines.
    async fn until_line(&mut self, wanted: &str) -> BTreeSet<u64> {
        let mut numbers = BTreeSet::new();
        loop {
            let (_, first, lines) = self.lines().await;
            for (number, line) in (first..).zip(lines) {
                numbers.insert(number);
                if line == wanted {
                    return numbers;
                }
            }
        }
    }
}

#[tokio::test]
async fn tabs_follow_a_log_together_and_the_last_one_ends_it() {
    let (console, runtime) = console().await;
    let id = console.sandbox("a").await;
    let (mut first, _) = Page::open(&console).await;
    let (mut second, _) = Page::open(&console).await;
    for page in [&mut first, &mut second] {
        page.subscribe(Topic::Logs(id.clone()), None).await;
        page.lines().await;
    }
    until("a follower reads", || runtime.log_readers(&id) == 1).await;
    assert_eq!(console.state.hub.followed(), 1);
    runtime.print(&id, "hello");
    first.until_line("hello").await;
    second.until_line("hello").await;
    // A further tab starts with what was written before.
    let (mut third, _) = Page::open(&console).await;
    third.subscribe(Topic::Logs(id.clone()), None).await;
    let (seq, _, lines) = third.lines().await;
    assert_eq!(lines.last().map(String::as_str), Some("hello"));
    runtime.print(&id, "again");
    assert_eq!(third.lines().await.0, seq + 1);

    let topic = Topic::Logs(id.clone());
    second.say(&Command::Unsubscribe { topic }).await;
    drop(third);
    runtime.print(&id, "one is left");
    first.until_line("one is left").await;
    assert_eq!(runtime.log_readers(&id), 1);
    drop(first);
    until("the follower ends", || runtime.log_readers(&id) == 0).await;
    assert_eq!(console.state.hub.followed(), 0);
}

#[tokio::test]
async fn a_tab_that_does_not_read_gets_a_snapshot_and_the_numbers_show_the_hole() {
    let (console, runtime) = console().await;
    let id = console.sandbox("a").await;
    let (mut page, _) = Page::open(&console).await;
    page.subscribe(Topic::Logs(id.clone()), None).await;
    page.lines().await;
    until("a follower reads", || runtime.log_readers(&id) == 1).await;
    // More than connections and the follower hold.
    let long = "x".repeat(4 << 10);
    for _ in 0..8_000 {
        runtime.print(&id, &long);
        tokio::task::yield_now().await;
    }
    runtime.print(&id, "last");
    let numbers = page.until_line("last").await;
    let last = numbers.last().unwrap();
    assert!(
        numbers.len() as u64 <= *last,
        "{} of {last} lines",
        numbers.len()
    );
}

#[tokio::test]
async fn a_log_ends_with_its_sandbox() {
    let (console, runtime) = console().await;
    let id = console.sandbox("a").await;
    let (mut page, _) = Page::open(&console).await;
    page.subscribe(Topic::Logs(id.clone()), None).await;
    until("a follower reads", || runtime.log_readers(&id) == 1).await;
    console.service.delete(&id, true).await.unwrap();
    let ended = serde_json::to_value(LogState::Ended).unwrap();
    loop {
        let frame = timeout(PATIENCE, page.hear()).await.unwrap();
        let (Frame::Snapshot { data, .. } | Frame::Delta { data, .. }) = frame else {
            continue;
        };
        if data["state"] == ended {
            return;
        }
    }
}

#[tokio::test]
async fn samples_come_while_a_tab_watches() {
    let (console, _) = console().await;
    let id = console.sandbox("a").await;
    let (mut page, _) = Page::open(&console).await;
    page.subscribe(Topic::Metrics(id.clone()), None).await;
    let (mut seq, recent) = page.snapshot().await;
    assert!(recent.as_array().unwrap().is_empty(), "{recent}");
    for _ in 0..2 {
        let frame = timeout(PATIENCE, page.delta()).await.unwrap();
        seq += 1;
        assert_eq!(frame.0, seq);
        assert_eq!(frame.1["memoryBytes"], 64 << 20, "{}", frame.1);
    }
    let topic = Topic::Metrics(id.clone());
    page.say(&Command::Unsubscribe { topic }).await;
    until("the follower ends", || console.state.hub.followed() == 0).await;
}

#[tokio::test]
async fn a_foreign_sandbox_is_as_silent_as_one_that_does_not_exist() {
    let (console, _) = console().await;
    let own = create_within(&console, "a").await;
    let foreign = console.sandbox("secret").await;
    let (hub, scope) = (&console.state.hub, Scope::of(Some("a")));
    let none = SandboxId::from("none");
    for topic in [Topic::Logs, Topic::Metrics] {
        assert!(hub.follow(&topic(foreign.clone()), &scope).is_none());
        assert!(hub.follow(&topic(none.clone()), &Scope::All).is_none());
        assert!(hub.follow(&topic(own.clone()), &scope).is_some());
    }
    assert_eq!(hub.followed(), 0, "dropped at once");
}

#[tokio::test]
async fn a_tab_follows_a_bounded_number_of_topics() {
    let (console, _) = console().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(console.sandbox("a").await);
    }
    let (mut page, _) = Page::open(&console).await;
    for id in &ids {
        page.subscribe(Topic::Metrics(id.clone()), None).await;
        page.subscribe(Topic::Logs(id.clone()), None).await;
    }
    let mut refused = 0;
    let mut answered = 0;
    while answered < 10 {
        let frame = timeout(PATIENCE, page.hear()).await.unwrap();
        if let Frame::Snapshot { data, .. } = frame {
            answered += 1;
            refused += usize::from(data.is_null());
        }
    }
    assert_eq!((refused, console.state.hub.followed()), (2, 8));
}

#[tokio::test]
async fn a_tab_gets_the_use_of_the_rows_that_it_shows_within_its_scope() {
    let (console, runtime) = console().await;
    let own = console.sandbox("a").await;
    let other = console.sandbox("b").await;
    let service = &console.service;
    let sampled = |id: &SandboxId| service.recent_use(std::slice::from_ref(id))[0].is_some();
    until("sampled", || sampled(&own) && sampled(&other)).await;
    let (mut page, _) = Page::open(&console).await;
    let ids = vec![own.clone(), "unknown".into()];
    page.say(&Command::Usage { ids }).await;
    let (seq, rows) = page.snapshot().await;
    assert_eq!(rows.as_array().unwrap().len(), 1, "{rows}");
    assert_eq!(rows[0]["id"], own.as_str());
    assert!(rows[0]["cpu"]["now"].is_string(), "{rows}");
    // The next round of samples comes without being asked for.
    let (next, rows) = timeout(PATIENCE, page.snapshot()).await.unwrap();
    assert!(next > seq, "{next} {seq}");
    assert_eq!(rows[0]["id"], own.as_str());
    let foreign = service.within(&Scope::of(Some("red")));
    assert_eq!(foreign.recent_use(std::slice::from_ref(&own)), [None]);
    // What has ended uses nothing, also when nothing else is sampled.
    for id in [&own, &other] {
        runtime.exit(id, 1).await;
    }
    until("ended", || !sampled(&own) && !sampled(&other)).await;
    let gone = async {
        loop {
            if let Frame::Snapshot { data, .. } = page.hear().await
                && data.as_array().is_some_and(Vec::is_empty)
            {
                break;
            }
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
}
