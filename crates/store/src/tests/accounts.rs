//! Users and API keys.

use osb_protocol::{WireTime, identity::Role};

use super::Stage;
use crate::{ApiKeyRow, PasswordHash, UserChange, UserRow};

fn at(us: i64) -> WireTime {
    WireTime::from_unix_us(us).unwrap()
}

fn user(id: &str, name: &str) -> UserRow {
    UserRow {
        id: id.into(),
        name: name.into(),
        password: PasswordHash("$argon2id$first".into()),
        role: Role::Operator,
        tenant: Some("team-a".into()),
        disabled: false,
        created_at: at(1),
        password_changed_at: at(1),
    }
}

fn key(id: &str, digest: u8, created: i64) -> ApiKeyRow {
    ApiKeyRow {
        id: id.into(),
        name: "ci".into(),
        digest: [digest; 32],
        prefix: "osb_01234567".into(),
        role: Role::ServiceAdmin,
        tenant: None,
        created_at: at(created),
        expires_at: Some(at(100)),
        last_used_at: None,
        revoked_at: None,
    }
}

pub(super) async fn users_have_unique_names_and_change_in_parts(stage: Stage) {
    let store = stage.open().await;
    assert!(store.add_user(&user("1", "zoe")).await.unwrap());
    assert!(store.add_user(&user("2", "adam")).await.unwrap());
    assert!(!store.add_user(&user("3", "zoe")).await.unwrap());
    let nothing = UserChange::default();
    assert!(store.change_user("1", &nothing).await.unwrap());
    assert!(!store.change_user("3", &nothing).await.unwrap());
    let read = store.accounts().await.unwrap().users;
    assert_eq!(read, [user("2", "adam"), user("1", "zoe")]);
    let change = UserChange {
        password: Some((PasswordHash("$argon2id$second".into()), at(7))),
        role: Some(Role::ServiceAdmin),
        tenant: Some(None),
        disabled: Some(true),
    };
    assert!(store.change_user("1", &change).await.unwrap());
    let changed = UserRow {
        password: PasswordHash("$argon2id$second".into()),
        password_changed_at: at(7),
        role: Role::ServiceAdmin,
        tenant: None,
        disabled: true,
        ..user("1", "zoe")
    };
    assert_eq!(store.accounts().await.unwrap().users[1], changed);
    assert!(!format!("{changed:?}").contains("argon2id"));
    assert!(store.delete_user("1").await.unwrap());
    assert!(!store.delete_user("1").await.unwrap());
    assert_eq!(store.accounts().await.unwrap().users, [user("2", "adam")]);
}

pub(super) async fn keys_are_kept_until_they_are_revoked(stage: Stage) {
    let store = stage.open().await;
    store.add_key(&key("1", 1, 10)).await.unwrap();
    store.add_key(&key("2", 2, 20)).await.unwrap();
    let again = store.add_key(&key("3", 2, 30)).await;
    assert!(again.is_err(), "two keys with one secret");
    let used = |us| vec![("1".to_owned(), at(us)), ("unknown".to_owned(), at(us))];
    store.touch_keys(&used(50)).await.unwrap();
    store.touch_keys(&used(40)).await.unwrap();
    assert!(store.revoke_key("1", at(60)).await.unwrap());
    assert!(store.revoke_key("1", at(70)).await.unwrap());
    assert!(!store.revoke_key("3", at(70)).await.unwrap());
    let gone = ApiKeyRow {
        last_used_at: Some(at(50)),
        revoked_at: Some(at(60)),
        ..key("1", 1, 10)
    };
    let read = store.accounts().await.unwrap().keys;
    assert_eq!(read, [key("2", 2, 20), gone]);
}

pub(super) async fn every_change_counts_and_the_use_of_a_key_does_not(stage: Stage) {
    let store = stage.open().await;
    let revision = async || store.accounts_revision().await.unwrap();
    let mut last = revision().await;
    let mut grows = async |what: &str| {
        let now = revision().await;
        assert!(now > last, "{what}: {now}");
        last = now;
    };
    store.add_user(&user("1", "zoe")).await.unwrap();
    grows("a new user").await;
    store
        .change_user("1", &UserChange::default())
        .await
        .unwrap();
    grows("a changed user").await;
    store.delete_user("1").await.unwrap();
    grows("a deleted user").await;
    store.add_key(&key("1", 1, 10)).await.unwrap();
    grows("a new key").await;
    store.revoke_key("1", at(1)).await.unwrap();
    grows("a revoked key").await;
    let before = revision().await;
    store.touch_keys(&[("1".to_owned(), at(5))]).await.unwrap();
    assert!(!store.delete_user("1").await.unwrap());
    assert!(!store.revoke_key("2", at(1)).await.unwrap());
    assert_eq!(revision().await, before);
    assert_eq!(store.accounts().await.unwrap().revision, before);
}

pub(super) async fn a_store_is_administered_beside_its_server(stage: Stage) {
    assert!(stage.open_shared().await.is_none(), "there is no store yet");
    let server = stage.open().await;
    let beside = stage.open_shared().await.expect("the store of the server");
    let before = server.accounts_revision().await.unwrap();
    assert!(beside.add_user(&user("1", "zoe")).await.unwrap());
    beside.close().await;
    drop(beside);
    assert_ne!(server.accounts_revision().await.unwrap(), before);
    assert_eq!(server.accounts().await.unwrap().users.len(), 1);
    server.check().await.unwrap();
    assert!(server.add_user(&user("2", "adam")).await.unwrap());
    server.close().await;
    drop(server);
    let alone = stage
        .open_shared()
        .await
        .expect("the store without a server");
    assert!(alone.delete_user("1").await.unwrap());
    alone.close().await;
    drop(alone);
    let server = stage.open().await;
    assert_eq!(server.accounts().await.unwrap().users, [user("2", "adam")]);
    server.close().await;
}
