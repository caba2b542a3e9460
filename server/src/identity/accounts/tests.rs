use osb_protocol::identity::Role;
use osb_store::Location;

use super::*;

const PASSWORD: &str = "a long password";

async fn accounts() -> (Accounts, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::Sqlite(folder.path().join("s.db"));
    let store = osb_store::open(&location).await.unwrap();
    (Accounts::open(store).await.unwrap(), folder)
}

fn zoe() -> NewUser {
    NewUser {
        name: "Zoe".into(),
        password: PASSWORD.into(),
        role: Role::Operator,
        tenant: Some("a".into()),
    }
}

fn key(role: Role) -> NewApiKey {
    NewApiKey {
        name: "ci".into(),
        role,
        tenant: None,
        expires_at: None,
    }
}

#[tokio::test]
async fn a_user_signs_in_with_the_present_password_only() {
    let (accounts, _folder) = accounts().await;
    let user = accounts.add_user(zoe()).await.unwrap();
    let sign_in = async |name, password: &str| {
        let found = accounts.sign_in(name, password.into()).await.unwrap();
        found.map(|entry| entry.password_epoch)
    };
    let first = sign_in(" zOE", PASSWORD).await.expect("the password");
    assert_eq!(sign_in("zoe", "another password").await, None);
    assert_eq!(sign_in("adam", PASSWORD).await, None);
    let taken = accounts.add_user(zoe()).await.unwrap_err();
    assert!(matches!(taken, AccountError::NameTaken(_)), "{taken}");
    let edit = UserEdit {
        password: Some("another password".into()),
        ..UserEdit::default()
    };
    accounts.change_user(&user.id, edit).await.unwrap();
    assert_eq!(sign_in("zoe", PASSWORD).await, None);
    let second = sign_in("zoe", "another password").await;
    assert!(second.is_some_and(|epoch| epoch != first));
    let edit = UserEdit {
        disabled: Some(true),
        ..UserEdit::default()
    };
    let changed = accounts.change_user(&user.id, edit).await.unwrap().after;
    assert!(changed.disabled && changed.tenant.as_deref() == Some("a"));
    assert_eq!(sign_in("zoe", "another password").await, None);
    assert!(accounts.user(&user.id).is_none());
}

#[tokio::test]
async fn every_broken_rule_is_reported_and_administrators_leave_their_tenant() {
    let (accounts, _folder) = accounts().await;
    let bad = NewUser {
        name: "-".into(),
        password: "short".into(),
        role: Role::ServiceAdmin,
        tenant: Some("a".into()),
    };
    let AccountError::Invalid(wrong) = accounts.add_user(bad).await.unwrap_err() else {
        panic!("no broken rule");
    };
    let fields: Vec<_> = wrong.iter().map(FieldError::field).collect();
    assert_eq!(fields, ["name", "password", "tenant"]);
    let user = accounts.add_user(zoe()).await.unwrap();
    let promote = |tenant| UserEdit {
        role: Some(Role::ServiceAdmin),
        tenant,
        ..UserEdit::default()
    };
    let refused = accounts.change_user(&user.id, promote(None)).await;
    assert!(matches!(refused, Err(AccountError::Invalid(_))));
    let promoted = accounts.change_user(&user.id, promote(Some(None))).await;
    assert_eq!(promoted.unwrap().after.tenant, None);
}

#[tokio::test]
async fn the_first_key_closes_the_server_and_no_revocation_opens_it() {
    let (accounts, _folder) = accounts().await;
    assert!(!accounts.are_used());
    let issued = accounts.add_key(key(Role::ReadOnly)).await.unwrap();
    assert!(accounts.are_used());
    let principal = accounts.key(issued.secret.as_bytes()).unwrap();
    assert_eq!(
        (principal.role, &principal.id),
        (Role::ReadOnly, &issued.key.id)
    );
    assert!(accounts.keys()[0].last_used_at.is_some());
    accounts.revoke_key(&issued.key.id).await.unwrap();
    assert!(accounts.key(issued.secret.as_bytes()).is_none());
    assert!(accounts.are_used());
    let none = accounts.revoke_key("none").await;
    assert!(matches!(none, Err(AccountError::NoKey)));
}

#[tokio::test]
async fn each_of_concurrent_changes_has_the_user_just_before_it() {
    let (accounts, _folder) = accounts().await;
    let user = accounts.add_user(zoe()).await.unwrap();
    let tenants = ["b", "c", "d", "e", "f", "g"];
    let changes = tenants.map(|tenant| {
        let edit = UserEdit {
            tenant: Some(Some(tenant.into())),
            ..UserEdit::default()
        };
        accounts.change_user(&user.id, edit)
    });
    let mut known = user.tenant;
    let mut changed: Vec<_> = futures::future::try_join_all(changes).await.unwrap();
    // Each change begins where another one ends, whatever their order is.
    while let Some(index) = changed.iter().position(|it| it.before.tenant == known) {
        known = changed.swap_remove(index).after.tenant;
    }
    assert!(changed.is_empty(), "{changed:?}");
    let removed = accounts.delete_user(&user.id).await.unwrap();
    assert_eq!(removed.tenant, known);
}

/// As `opensandbox-server user reset` waits for the password beside a server.
#[tokio::test]
async fn a_change_keeps_what_another_process_changed_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::Sqlite(folder.path().join("s.db"));
    let store = osb_store::open(&location).await.unwrap();
    let server = Accounts::open(store).await.unwrap();
    let user = server.add_user(zoe()).await.unwrap();
    let beside = osb_store::open_shared(&location).await.unwrap().unwrap();
    let beside = Accounts::open(beside).await.unwrap();
    let demote = UserEdit {
        role: Some(Role::ReadOnly),
        tenant: Some(Some("b".into())),
        ..UserEdit::default()
    };
    server.change_user(&user.id, demote).await.unwrap();
    let reset = UserEdit {
        password: Some("another password".into()),
        ..UserEdit::default()
    };
    let changed = beside.change_user(&user.id, reset).await.unwrap().after;
    assert_eq!(changed.role, Role::ReadOnly);
    assert_eq!(changed.tenant.as_deref(), Some("b"));
}

#[tokio::test]
async fn changes_of_another_process_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::Sqlite(folder.path().join("s.db"));
    let store = osb_store::open(&location).await.unwrap();
    let server = Accounts::open(store).await.unwrap();
    let beside = osb_store::open_shared(&location).await.unwrap().unwrap();
    let beside = Accounts::open(beside).await.unwrap();
    let mut ends = server.session_ends().subscribe();
    let issued = beside.add_key(key(Role::ServiceAdmin)).await.unwrap();
    assert!(server.key(issued.secret.as_bytes()).is_none());
    server.follow().await.unwrap();
    assert!(server.key(issued.secret.as_bytes()).is_some());
    assert!(ends.has_changed().unwrap(), "sessions are checked again");
    ends.mark_unchanged();
    server.follow().await.unwrap();
    assert!(!ends.has_changed().unwrap());
    server.store_uses().await;
    assert!(!ends.has_changed().unwrap());
    beside.follow().await.unwrap();
}
