//! Sessions of the console.

use super::Stage;
use crate::SessionRow;

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
