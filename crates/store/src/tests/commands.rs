//! Commands that sandboxes reported.

use super::Stage;
use crate::ReportedCommand;

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
    assert_eq!(store.prune_commands(10, &[]).await.unwrap(), 0);
    assert_eq!(
        store.prune_commands(41, alive).await.unwrap(),
        1,
        "those of b"
    );
    assert_eq!(
        store.prune_commands(41, &[]).await.unwrap(),
        1,
        "those of c"
    );
    assert_eq!(store.commands(&a, 10).await.unwrap().len(), 3);
}
