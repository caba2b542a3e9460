use osb_store::Location;

use super::*;

async fn trail(limits: AuditLimits) -> (AuditTrail, Arc<dyn Store>, Supervisor, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::Sqlite(folder.path().join("s.db"));
    let store = osb_store::open(&location).await.unwrap();
    let tasks = Supervisor::new();
    let trail = AuditTrail::start(Arc::clone(&store), limits, &tasks);
    (trail, store, tasks, folder)
}

fn act(name: &str) -> AuditEntry {
    let mut act = entry(Action::SandboxDelete, system(), AuditOutcome::Succeeded);
    act.object.id = name.to_owned();
    act
}

async fn stored(store: &dyn Store) -> Vec<AuditEntry> {
    let found = store.audit(&AuditQuery::default(), 100_000).await.unwrap();
    found.into_iter().rev().map(|(_, entry)| entry).collect()
}

#[tokio::test]
async fn what_was_recorded_before_and_during_the_drain_is_stored_in_order() {
    let (trail, store, tasks, _folder) = trail(AuditLimits::default()).await;
    for number in 0..1_000 {
        trail.record(act(&number.to_string()));
    }
    tasks.drain(Duration::from_secs(60)).await;
    trail.record(act("last"));
    trail.finish().await;
    let stored = stored(&*store).await;
    let names: Vec<_> = stored.iter().map(|it| it.object.id.as_str()).collect();
    let expected = (0..1_000).map(|number| number.to_string());
    let expected: Vec<_> = expected.chain(["last".to_owned()]).collect();
    assert_eq!(names, expected);
}

#[tokio::test]
async fn what_finds_no_room_is_counted_in_its_place() {
    let (trail, store, tasks, _folder) = trail(AuditLimits::default()).await;
    // Without the writer everything waits.
    tasks.drain(Duration::from_secs(60)).await;
    let mut fitted = 0;
    while trail.backlog().lost < 7 {
        let mut large = act(&fitted.to_string());
        large
            .changes
            .insert("a".to_owned(), json!(vec![[1, 2]; 150]));
        trail.record(large);
        fitted += 1;
    }
    fitted -= 7;
    let backlog = AuditBacklog {
        waiting: fitted,
        lost: 7,
    };
    assert_eq!(trail.backlog(), backlog);
    let (bytes, allocated) = {
        let queue = trail.queue();
        let allocated: usize = queue.waiting.iter().map(|row| row.len()).sum();
        (queue.bytes, allocated)
    };
    assert!(allocated < bytes && bytes <= WAITING, "{allocated} {bytes}");
    assert!(bytes > WAITING - 4_096, "{bytes}");
    assert_eq!(
        trail.queue().unwritten(),
        u64::try_from(fitted).unwrap() + 7
    );
    // On a busy machine this is more than one last write stores in its time.
    for _ in 0..20 {
        trail.finish().await;
    }
    assert_eq!(trail.queue().bytes, 0);
    trail.record(act("after"));
    trail.finish().await;
    let stored = stored(&*store).await;
    assert_eq!(stored.len(), fitted + 2);
    let (lost, after) = (&stored[fitted], &stored[fitted + 1]);
    assert_eq!((lost.action.as_str(), lost.count), ("audit.lost", 7));
    assert_eq!(after.object.id, "after");
}

#[tokio::test]
async fn repeated_refusals_are_stored_when_the_server_stops() {
    let (trail, store, tasks, _folder) = trail(AuditLimits::default()).await;
    for _ in 0..10 {
        let denied = entry(Action::AccessDenied, system(), AuditOutcome::Denied);
        trail.record_denial(denied);
    }
    tasks.drain(Duration::from_secs(60)).await;
    trail.finish().await;
    let counts: Vec<_> = stored(&*store).await.iter().map(|it| it.count).collect();
    assert_eq!(counts, [1, 9]);
}

#[tokio::test]
async fn nothing_is_recorded_when_it_is_turned_off() {
    let limits = AuditLimits {
        enabled: false,
        ..AuditLimits::default()
    };
    let (trail, store, _tasks, _folder) = trail(limits).await;
    trail.record(act("a"));
    trail.finish().await;
    assert_eq!(stored(&*store).await, []);
}

#[tokio::test]
async fn old_entries_and_those_beyond_the_limit_go() {
    let limits = AuditLimits {
        max_entries: 1_500,
        ..AuditLimits::default()
    };
    let (trail, store, tasks, _folder) = trail(limits).await;
    tasks.drain(Duration::from_secs(60)).await;
    let old = |mut entry: AuditEntry, days: i64| {
        entry.at = entry.at.plus_seconds(-days * DAY).unwrap();
        entry
    };
    for _ in 0..1_400 {
        trail.record(old(act("old"), 91));
    }
    trail.record(old(act("young"), 6));
    trail.finish().await;
    let mut clock = Clock::default();
    assert_eq!(trail.prune(&mut clock).await.unwrap(), 1_400);
    assert_eq!(stored(&*store).await.len(), 1);
    for _ in 0..4_000 {
        trail.record(act("new"));
    }
    trail.finish().await;
    assert_eq!(trail.prune(&mut clock).await.unwrap(), 2_501);
    assert_eq!(stored(&*store).await.len(), 1_500);
}

#[tokio::test]
async fn a_clock_that_has_jumped_ahead_deletes_nothing() {
    let (trail, store, tasks, _folder) = trail(AuditLimits::default()).await;
    tasks.drain(Duration::from_secs(60)).await;
    let mut before = act("before the jump");
    before.at = before.at.plus_seconds(-400 * DAY).unwrap();
    trail.record(before);
    trail.finish().await;
    let mut clock = Clock::default();
    assert_eq!(trail.prune(&mut clock).await.unwrap(), 0);
    // What is recorded by the wrong clock changes nothing.
    trail.record(act("after the jump"));
    trail.finish().await;
    assert_eq!(trail.prune(&mut clock).await.unwrap(), 0);
    assert_eq!(stored(&*store).await.len(), 2);
}

#[tokio::test]
async fn pages_end_where_the_trail_ends() {
    let (trail, _store, _tasks, _folder) = trail(AuditLimits::default()).await;
    for number in 0..5 {
        trail.record(act(&number.to_string()));
    }
    trail.finish().await;
    let mut query = AuditQuery::default();
    let mut sizes = Vec::new();
    loop {
        let page = trail.page(query.clone(), 2).await.unwrap();
        sizes.push(page.items.len());
        let Some(next) = page.next else { break };
        query.before = Some(AuditPlace(next.parse().unwrap()));
    }
    assert_eq!(sizes, [2, 2, 1]);
    let all = trail.page(AuditQuery::default(), 5).await.unwrap();
    assert_eq!((all.items.len(), all.next), (5, None));
}
