//! Subscriptions, announcements and deliveries.

use osb_protocol::{SandboxId, WireTime};

use super::Stage;
use crate::{
    AnnouncedRow, Announcement, AttemptResult, DeliveryBacklog, DeliveryStatus, EndedSpec,
    HistoryEntry, NewDelivery, Outcome, Store, WebhookRow, WebhookSecret,
};

fn at(us: i64) -> WireTime {
    WireTime::from_unix_us(us).unwrap()
}

pub(super) fn webhook(id: &str, created: i64) -> WebhookRow {
    WebhookRow {
        id: id.into(),
        name: "ops".into(),
        url: "https://example.org/hook".into(),
        secret: Some(WebhookSecret("whsec_hidden".into())),
        events: vec!["sandbox.failed".into()],
        tenant: Some("team-a".into()),
        is_configured: false,
        disabled: None,
        created_at: at(created),
    }
}

pub(super) fn sandbox(id: &str, state: &str) -> AnnouncedRow {
    AnnouncedRow {
        id: id.into(),
        state: state.into(),
        reason: "R".into(),
        expires_at: Some(at(99)),
        tenant: None,
        metadata: [("k".to_owned(), "v".to_owned())].into(),
    }
}

pub(super) fn message(webhook: &str, event: &str, created: i64) -> NewDelivery {
    NewDelivery {
        webhook_id: webhook.into(),
        event_id: event.into(),
        event_type: "sandbox.failed".into(),
        sandbox_id: Some("a".into()),
        body: "{\"é\": \"\\u0000\"}".into(),
        created_at: at(created),
    }
}

fn ended(id: &str) -> HistoryEntry {
    HistoryEntry {
        id: id.into(),
        image: "debian:12".into(),
        created_at: at(1),
        ended_at: at(2),
        outcome: Outcome::Expired,
        reason: "EXPIRED".into(),
        message: "It expired.".into(),
        stages: Vec::new(),
        tenant: None,
        spec: EndedSpec::default(),
    }
}

async fn send(store: &dyn Store, messages: impl IntoIterator<Item = NewDelivery>) {
    let announcement = Announcement {
        deliveries: messages.into_iter().collect(),
        ..Announcement::default()
    };
    store.announce(&announcement).await.unwrap();
}

pub(super) fn result(status: DeliveryStatus, due: i64) -> AttemptResult {
    AttemptResult {
        status,
        at: at(50),
        due_at: at(due),
        answer: Some(500),
        error: Some("500".into()),
    }
}

pub(super) async fn subscriptions_are_kept_with_their_secrets(stage: Stage) {
    let store = stage.open().await;
    let configured = WebhookRow {
        secret: None,
        is_configured: true,
        tenant: None,
        events: Vec::new(),
        ..webhook("2", 10)
    };
    store.add_webhook(&webhook("1", 20)).await.unwrap();
    store.add_webhook(&configured).await.unwrap();
    let read = store.webhooks().await.unwrap();
    assert_eq!(read, [configured.clone(), webhook("1", 20)]);
    assert!(!format!("{read:?}").contains("whsec_hidden"));
    let changed = WebhookRow {
        disabled: Some("410".into()),
        events: vec!["sandbox.ready".into()],
        secret: None,
        ..webhook("1", 20)
    };
    assert!(store.change_webhook(&changed).await.unwrap());
    let kept = WebhookRow {
        secret: webhook("1", 20).secret,
        ..changed
    };
    assert_eq!(store.webhooks().await.unwrap()[1], kept, "the secret stays");
    assert!(store.delete_webhook("1").await.unwrap());
    assert!(!store.delete_webhook("1").await.unwrap());
    assert!(!store.change_webhook(&kept).await.unwrap());
    assert_eq!(store.webhooks().await.unwrap(), [configured]);
}

pub(super) async fn messages_are_added_with_what_they_announce(stage: Stage) {
    let store = stage.open().await;
    store.add_webhook(&webhook("1", 1)).await.unwrap();
    assert!(!store.is_tracking().await.unwrap());
    store
        .start_tracking(&[sandbox("a", "Running")])
        .await
        .unwrap();
    assert!(store.is_tracking().await.unwrap());
    let announcement = Announcement {
        announced: vec![sandbox("a", "Paused"), sandbox("b", "Pending")],
        ended: Vec::new(),
        deliveries: vec![message("1", "e1", 5), message("1", "e2", 5)],
    };
    store.announce(&announcement).await.unwrap();
    let announced = async || {
        let mut rows = store.announced().await.unwrap();
        rows.sort_by_key(|row| row.id.to_string());
        rows
    };
    assert_eq!(announced().await, announcement.announced);
    let first = store.next_delivery("1").await.unwrap().unwrap();
    assert_eq!(
        (first.event_id.as_str(), first.attempts, first.status),
        ("e1", 0, DeliveryStatus::Pending)
    );
    assert_eq!(first.body, "{\"é\": \"\\u0000\"}", "its bytes are signed");
    assert_eq!((first.due_at, first.sandbox_id), (at(5), Some("a".into())));
    let end = Announcement {
        ended: vec!["a".into()],
        ..Announcement::default()
    };
    store.announce(&end).await.unwrap();
    assert_eq!(announced().await, [sandbox("b", "Pending")]);
    store.stop_tracking().await.unwrap();
    assert!(!store.is_tracking().await.unwrap() && announced().await.is_empty());
}

pub(super) async fn an_end_waits_to_be_announced_once_and_only_while_tracking(stage: Stage) {
    let store = stage.open().await;
    store.finish(&ended("before")).await.unwrap();
    store.start_tracking(&[]).await.unwrap();
    let waiting = async || {
        let ends = store.unannounced_ends(10).await.unwrap();
        ends.into_iter().map(|end| end.id).collect::<Vec<_>>()
    };
    assert_eq!(waiting().await, Vec::<SandboxId>::new());
    store.finish(&ended("a")).await.unwrap();
    assert_eq!(store.unannounced_ends(10).await.unwrap(), [ended("a")]);
    let end = Announcement {
        ended: vec!["a".into()],
        ..Announcement::default()
    };
    store.announce(&end).await.unwrap();
    store.finish(&ended("a")).await.unwrap();
    assert_eq!(waiting().await, Vec::<SandboxId>::new(), "written again");
    store.finish(&ended("b")).await.unwrap();
    store.stop_tracking().await.unwrap();
    store.finish(&ended("c")).await.unwrap();
    store.start_tracking(&[]).await.unwrap();
    assert_eq!(waiting().await, Vec::<SandboxId>::new());
}

pub(super) async fn deliveries_are_due_in_order_and_end_once(stage: Stage) {
    let store = stage.open().await;
    for id in ["1", "2"] {
        store.add_webhook(&webhook(id, 1)).await.unwrap();
    }
    send(
        &*store,
        [
            message("1", "a", 10),
            message("2", "a", 10),
            message("1", "b", 10),
        ],
    )
    .await;
    let next = async |webhook| store.next_delivery(webhook).await.unwrap();
    let first = next("1").await.unwrap();
    assert!(store.begin_attempt(first.id).await.unwrap());
    let same = next("1").await.unwrap();
    assert_eq!(
        (same.id, same.attempts),
        (first.id, 1),
        "a crash changes no order"
    );
    let again = result(DeliveryStatus::Pending, 70);
    store.end_attempt(first.id, &again).await.unwrap();
    let second = next("1").await.unwrap();
    assert_eq!(second.event_id, "b", "the first one is not due");
    assert!(store.begin_attempt(second.id).await.unwrap());
    let done = result(DeliveryStatus::Delivered, 0);
    store.end_attempt(second.id, &done).await.unwrap();
    let failed = next("1").await.unwrap();
    assert_eq!(
        (failed.attempts, failed.due_at, failed.answer, failed.error),
        (1, at(70), Some(500), Some("500".into()))
    );
    assert_eq!(next("2").await.unwrap().event_id, "a");
    let dead = result(DeliveryStatus::Dead, 0);
    store.end_attempt(first.id, &dead).await.unwrap();
    assert!(!store.begin_attempt(first.id).await.unwrap());
    assert_eq!(next("1").await, None);
    let list = async |status, before, limit| {
        let rows = store.deliveries("1", status, before, limit).await.unwrap();
        rows.iter()
            .map(|row| row.event_id.clone())
            .collect::<String>()
    };
    assert_eq!(list(None, None, 9).await, "ba");
    assert_eq!(list(None, None, 1).await, "b");
    assert_eq!(list(None, Some(second.id), 9).await, "a");
    assert_eq!(list(Some(DeliveryStatus::Dead), None, 9).await, "a");
    assert_eq!(
        list(Some(DeliveryStatus::Dead), Some(first.id), 9).await,
        ""
    );
    assert_eq!(list(Some(DeliveryStatus::Delivered), None, 1).await, "b");
    assert_eq!(list(Some(DeliveryStatus::Pending), None, 9).await, "");
    let backlog = DeliveryBacklog {
        pending: 1,
        dead: 1,
        oldest_pending: Some(at(10)),
    };
    assert_eq!(store.backlog().await.unwrap(), backlog);
    let pending = store.pending_by_webhook().await.unwrap();
    assert_eq!(pending, [("2".to_owned(), 1)]);
}

pub(super) async fn deliveries_are_given_up_redelivered_and_pruned_in_batches(stage: Stage) {
    let store = stage.open().await;
    store.add_webhook(&webhook("1", 1)).await.unwrap();
    let events = (0..5).map(|n| message("1", &n.to_string(), n));
    send(&*store, events).await;
    let give_up = async |limit| {
        let done = store.give_up("1", "disabled", at(50), limit).await;
        done.unwrap()
    };
    assert_eq!((give_up(3).await, give_up(3).await), (3, 2));
    let dead = store.deliveries("1", None, None, 9).await.unwrap();
    assert!(dead.iter().all(|row| row.status == DeliveryStatus::Dead));
    let id = dead[0].id;
    assert!(!store.redeliver("2", id, at(60)).await.unwrap());
    assert!(store.redeliver("1", id, at(60)).await.unwrap());
    assert!(!store.redeliver("1", id, at(60)).await.unwrap(), "pending");
    let next = store.next_delivery("1").await.unwrap().unwrap();
    assert_eq!((next.id, next.due_at, next.ended_at), (id, at(60), None));
    let prune = async |before, limit| {
        let done = store.prune_deliveries(at(99), at(before), limit).await;
        done.unwrap()
    };
    assert_eq!(prune(50, 9).await, 0, "too young");
    assert_eq!((prune(51, 3).await, prune(51, 3).await), (3, 1));
    assert_eq!(prune(51, 9).await, 0, "a pending one stays");
    for kept in ["0", "2"] {
        store.add_webhook(&webhook(kept, 1)).await.unwrap();
        send(&*store, [message(kept, "a", 1)]).await;
    }
    assert_eq!(prune(0, 9).await, 0, "each has a subscription");
    assert!(store.delete_webhook("1").await.unwrap());
    send(&*store, [message("3", "a", 1)]).await;
    assert_eq!((prune(0, 1).await, prune(0, 9).await), (1, 1));
    assert_eq!(prune(0, 9).await, 0, "of no subscription");
    for kept in ["0", "2"] {
        assert!(store.next_delivery(kept).await.unwrap().is_some());
        assert!(store.delete_webhook(kept).await.unwrap());
    }
    assert_eq!(prune(0, 9).await, 2, "the last ones");
}
