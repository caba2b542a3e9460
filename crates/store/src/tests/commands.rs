//! Commands that sandboxes reported.

use osb_protocol::WireTime;

use super::Stage;
use crate::{COMMAND_BYTES_MAX, EndedSpec, HistoryEntry, Outcome, ReportedCommand};

fn command(started_at: i64, number: i64) -> ReportedCommand {
    ReportedCommand {
        started_at,
        number,
        kind: "foreground".to_owned(),
        command: format!("echo {number}"),
        cwd: None,
        uid: Some(1000),
        finished_at: None,
        exit_code: None,
        error: None,
        reported_at: started_at,
    }
}

pub(super) async fn a_command_is_updated_by_its_end_and_the_oldest_go_first(stage: Stage) {
    let store = stage.open().await;
    let (a, b) = ("a".into(), "b".into());
    let first = [command(10, 1), command(11, 2)];
    store.put_commands(&a, &first, 3).await.unwrap();
    store.put_commands(&b, &[command(10, 1)], 3).await.unwrap();
    let ended = ReportedCommand {
        finished_at: Some(20),
        exit_code: Some(-1),
        error: Some("signal: killed\0".to_owned()),
        reported_at: 30,
        ..command(10, 1)
    };
    // execd was started again, so its numbers begin again.
    let later = [ended.clone(), command(40, 1)];
    store.put_commands(&a, &later, 3).await.unwrap();
    let read = store.commands(&a, 10).await.unwrap();
    assert_eq!(read[..2], [command(40, 1), command(11, 2)]);
    assert_eq!(
        (read[2].exit_code, read[2].finished_at),
        (Some(-1), Some(20))
    );
    store.put_commands(&a, &[command(41, 2)], 3).await.unwrap();
    let read = store.commands(&a, 10).await.unwrap();
    assert_eq!(read, [command(41, 2), command(40, 1), command(11, 2)]);
    assert_eq!(store.commands(&a, 1).await.unwrap(), [command(41, 2)]);
    assert_eq!(store.commands(&b, 10).await.unwrap().len(), 1);
    let c = "c".into();
    store.put_commands(&c, &[command(10, 1)], 3).await.unwrap();
    let alive = std::slice::from_ref(&c);
    assert_eq!(store.prune_commands(10, &[], u64::MAX).await.unwrap(), 0);
    assert_eq!(
        store.prune_commands(41, alive, u64::MAX).await.unwrap(),
        1,
        "those of b"
    );
    assert_eq!(
        store.prune_commands(41, &[], u64::MAX).await.unwrap(),
        1,
        "those of c"
    );
    assert_eq!(store.commands(&a, 10).await.unwrap().len(), 3);
}

pub(super) async fn commands_of_a_sandbox_are_bounded_in_rows_and_bytes(stage: Stage) {
    let store = stage.open().await;
    let (a, b) = ("a".into(), "b".into());
    store.put_commands(&b, &[command(1, 1)], 9).await.unwrap();
    let many: Vec<_> = (0..250).map(|number| command(5, number)).collect();
    store.put_commands(&a, &many, 120).await.unwrap();
    let read = store.commands(&a, 999).await.unwrap();
    assert_eq!((read.len(), read[119].number), (120, 130));
    let long = |number| ReportedCommand {
        command: "\u{e9}".repeat(1000),
        cwd: Some("/".repeat(1000)),
        error: Some("x".repeat(996)),
        ..command(6, number)
    };
    let many: Vec<_> = (0..300).map(long).collect();
    store.put_commands(&a, &many, 1000).await.unwrap();
    let read = store.commands(&a, 999).await.unwrap();
    // About 4,096 bytes each.
    let most = usize::try_from(COMMAND_BYTES_MAX >> 12).unwrap();
    assert_eq!((read.len(), read[0].number), (most, 299));
    assert_eq!(store.commands(&b, 9).await.unwrap().len(), 1);
}

pub(super) async fn commands_are_kept_from_the_end_of_their_sandbox(stage: Stage) {
    let store = stage.open().await;
    for id in ["quiet", "old", "unknown"] {
        let id = id.into();
        store.put_commands(&id, &[command(10, 1)], 9).await.unwrap();
    }
    for (id, second) in [("quiet", 100), ("old", 20)] {
        let ended = ended(id, second);
        store.finish(&ended).await.unwrap();
    }
    let pruned = store.prune_commands(50, &[], u64::MAX).await.unwrap();
    assert_eq!(pruned, 2, "of the old and of the unknown one");
    assert_eq!(store.commands(&"quiet".into(), 9).await.unwrap().len(), 1);
    assert_eq!(store.prune_commands(101, &[], u64::MAX).await.unwrap(), 1);
}

pub(super) async fn the_oldest_commands_of_all_go_first(stage: Stage) {
    let store = stage.open().await;
    let long = |at| ReportedCommand {
        command: "x".repeat(900),
        ..command(at, 1)
    };
    for (id, at) in [("first", 10), ("second", 20), ("third", 30)] {
        store
            .put_commands(&id.into(), &[long(at)], 9)
            .await
            .unwrap();
    }
    let alive = ["first".into(), "second".into(), "third".into()];
    assert_eq!(store.prune_commands(0, &alive, 3000).await.unwrap(), 0);
    assert_eq!(store.prune_commands(0, &alive, 2999).await.unwrap(), 1);
    assert_eq!(store.commands(&"first".into(), 9).await.unwrap(), []);
    assert_eq!(store.commands(&"second".into(), 9).await.unwrap().len(), 1);
}

/// A sandbox that ended at this Unix second.
pub(super) fn ended(id: &str, second: i64) -> HistoryEntry {
    let at = WireTime::from_unix_us(second * 1_000_000).unwrap();
    HistoryEntry {
        id: id.into(),
        image: "debian:12".into(),
        created_at: at,
        ended_at: at,
        outcome: Outcome::Deleted,
        reason: "DELETED".into(),
        message: String::new(),
        stages: Vec::new(),
        tenant: None,
        spec: EndedSpec::default(),
    }
}
