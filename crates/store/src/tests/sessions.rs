//! Sessions of the console.

use super::Stage;
use crate::{BATCH_ROWS, SessionRow};

pub(super) async fn many_sessions_are_pruned_at_once(stage: Stage) {
    let store = stage.open().await;
    let rows = BATCH_ROWS * 2 + 1;
    let data = stage.dialect("x''", "''");
    let insert = format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
         INSERT INTO sessions (id, data, expires_at) SELECT 's' || i, {data}, 5 FROM n"
    );
    stage.execute(insert).await;
    stage
        .execute("INSERT INTO sessions VALUES ('kept', '', 6)".replace("''", data))
        .await;
    assert_eq!(store.session_prune(6).await.unwrap(), rows.unsigned_abs());
    let left = store.sessions().await.unwrap();
    assert_eq!((left.len(), left[0].id.as_str()), (1, "kept"));
}

pub(super) async fn sessions_are_created_once_and_pruned_by_expiry(stage: Stage) {
    let store = stage.open().await;
    let row = SessionRow {
        id: "s".into(),
        data: vec![1, 2],
        expires_at: 100,
    };
    assert!(store.session_create(&row).await.unwrap());
    assert!(!store.session_create(&row).await.unwrap());
    let newer = SessionRow {
        data: vec![3],
        expires_at: 200,
        ..row
    };
    store.session_save(&newer).await.unwrap();
    assert_eq!(store.session_load("s").await.unwrap(), Some(newer.clone()));
    assert_eq!(store.session_prune(200).await.unwrap(), 0);
    assert_eq!(store.session_prune(201).await.unwrap(), 1);
    assert_eq!(store.session_load("s").await.unwrap(), None);
    // A request that ends after the logout does not bring the session back.
    store.session_save(&newer).await.unwrap();
    assert_eq!(store.session_load("s").await.unwrap(), None);
    store.session_delete("s").await.unwrap();
}
