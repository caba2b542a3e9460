//! Users and API keys in memory, as one immutable view that changes replace.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use osb_protocol::{
    WireTime,
    identity::{ApiKey, PrincipalKind, User},
};
use osb_store::{AccountRows, ApiKeyRow, UserRow};

use super::{Principal, Scope, Validity, rules, secret};

/// The use of a key is noted to the minute.
const USE_STEP: i64 = 60;

/// All users and keys at one revision.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Revision of the store.
    pub(super) revision: i64,
    rows: AccountRows,
    /// Keys that are not revoked, by digest.
    keys: HashMap<[u8; 32], Arc<KeyEntry>>,
    /// Users who may sign in, by id.
    users: HashMap<String, Arc<UserEntry>>,
    /// When keys were used last, by id; revoked ones included.
    uses: HashMap<String, Arc<LastUse>>,
}

#[derive(Debug)]
struct KeyEntry {
    principal: Arc<Principal>,
    expires_at: Option<WireTime>,
    last_use: Arc<LastUse>,
}

/// A user who may sign in.
#[derive(Clone, Debug)]
pub struct UserEntry {
    /// The user as an actor.
    pub principal: Arc<Principal>,
    /// Number that changes with the password; sessions end with it.
    pub password_epoch: i64,
}

/// When a key was used, in Unix seconds; 0 means never.
#[derive(Debug, Default)]
struct LastUse {
    at: AtomicI64,
    /// What the store has.
    stored: AtomicI64,
}

impl LastUse {
    fn touch(&self, now: WireTime) {
        let seconds = now.unix_us() / 1_000_000;
        // Reads of a shared cache line are cheap; writes are not.
        if seconds - self.at.load(Ordering::Relaxed) >= USE_STEP {
            self.at.store(seconds, Ordering::Relaxed);
        }
    }

    fn time(&self) -> Option<WireTime> {
        match self.at.load(Ordering::Relaxed) {
            0 => None,
            seconds => WireTime::from_unix_us(seconds * 1_000_000),
        }
    }
}

impl Index {
    /// The view of these rows. Uses of keys that the store does not have yet are taken over. On a server
    /// with tenants, what lacks one opens nothing.
    pub(super) fn new(rows: AccountRows, before: &Self, has_tenants: bool) -> Self {
        let lacks_tenant = |tenant: &Option<String>, role| {
            rules::lacks_tenant(tenant.as_deref(), role, has_tenants)
        };
        let mut index = Self {
            revision: rows.revision,
            ..Self::default()
        };
        for key in &rows.keys {
            let stored = key.last_used_at.map_or(0, |at| at.unix_us() / 1_000_000);
            let last_use = before.uses.get(&key.id).map_or_else(
                || {
                    Arc::new(LastUse {
                        at: stored.into(),
                        stored: stored.into(),
                    })
                },
                Arc::clone,
            );
            if key.revoked_at.is_none() && !lacks_tenant(&key.tenant, key.role) {
                let known = before.keys.get(&key.digest).map(|entry| &entry.principal);
                // A clock that was wrong for a moment may have ended it.
                let is_over = key.expires_at.is_some_and(|at| at <= super::now());
                let may_stay =
                    |known: &&Arc<Principal>| is_over || !known.validity.ended().is_cancelled();
                let known = known.filter(may_stay);
                let entry = KeyEntry {
                    principal: kept(known, of_key(key)),
                    expires_at: key.expires_at,
                    last_use: Arc::clone(&last_use),
                };
                index.keys.insert(key.digest, Arc::new(entry));
            }
            index.uses.insert(key.id.clone(), last_use);
        }
        let may_sign_in =
            |user: &&UserRow| !user.disabled && !lacks_tenant(&user.tenant, user.role);
        for user in rows.users.iter().filter(may_sign_in) {
            let known = before.users.get(&user.id).map(|entry| &entry.principal);
            let entry = UserEntry {
                principal: kept(known, of_user(user)),
                password_epoch: user.password_changed_at.unix_us(),
            };
            index.users.insert(user.id.clone(), Arc::new(entry));
        }
        index.rows = rows;
        index
    }

    /// Names of users and keys that open nothing on a server with tenants, because they lack one.
    pub(super) fn without_tenant(&self) -> Vec<&str> {
        let lacks =
            |tenant: &Option<String>, role| rules::lacks_tenant(tenant.as_deref(), role, true);
        let users = self.rows.users.iter();
        let users = users.filter(|user| !user.disabled && lacks(&user.tenant, user.role));
        let keys = self.rows.keys.iter();
        let keys = keys.filter(|key| key.revoked_at.is_none() && lacks(&key.tenant, key.role));
        let users = users.map(|user| user.name.as_str());
        users.chain(keys.map(|key| key.name.as_str())).collect()
    }

    /// Ends principals that a newer view does not have.
    pub(super) fn end_missing_in(&self, newer: &Self) {
        for (digest, entry) in &self.keys {
            let present = newer.keys.get(digest).map(|entry| &entry.principal);
            end_unless(&entry.principal, present);
        }
        for (id, entry) in &self.users {
            let present = newer.users.get(id).map(|entry| &entry.principal);
            end_unless(&entry.principal, present);
        }
    }

    /// Ends principals of keys that have expired; returns whether there were any.
    pub(super) fn end_expired(&self, now: WireTime) -> bool {
        let mut any = false;
        for entry in self.keys.values() {
            let has_expired = entry.expires_at.is_some_and(|at| at <= now);
            if has_expired && !entry.principal.validity.ended().is_cancelled() {
                entry.principal.validity.end();
                any = true;
            }
        }
        any
    }

    /// Whether there was never a user or key.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.users.is_empty() && self.rows.keys.is_empty()
    }

    /// Whether there is a user.
    pub(super) fn has_users(&self) -> bool {
        !self.rows.users.is_empty()
    }

    /// The principal of a key by its secret, and notes the use.
    pub(super) fn key(&self, secret: &[u8], now: WireTime) -> Option<Arc<Principal>> {
        if !secret.starts_with(secret::PREFIX.as_bytes()) {
            return None;
        }
        self.key_by_digest(&secret::digest(secret), now)
    }

    fn key_by_digest(&self, digest: &[u8; 32], now: WireTime) -> Option<Arc<Principal>> {
        let entry = self.keys.get(digest)?;
        if entry.expires_at.is_some_and(|at| at <= now) {
            return None;
        }
        entry.last_use.touch(now);
        Some(Arc::clone(&entry.principal))
    }

    /// The principal of a key by its id, if the key works.
    pub(super) fn key_by_id(&self, id: &str, now: WireTime) -> Option<Arc<Principal>> {
        let row = self.rows.keys.iter().find(|key| key.id == id)?;
        self.key_by_digest(&row.digest, now)
    }

    /// A user who may sign in, by id.
    pub(super) fn user(&self, id: &str) -> Option<Arc<UserEntry>> {
        self.users.get(id).map(Arc::clone)
    }

    /// The row of a user, by name.
    pub(super) fn user_row(&self, name: &str) -> Option<&UserRow> {
        self.rows.users.iter().find(|user| user.name == name)
    }

    /// The row of a user, by id.
    pub(super) fn user_row_by_id(&self, id: &str) -> Option<&UserRow> {
        self.rows.users.iter().find(|user| user.id == id)
    }

    /// All users as clients see them.
    pub(super) fn list_users(&self) -> Vec<User> {
        self.rows.users.iter().map(user).collect()
    }

    /// All keys as clients see them.
    pub(super) fn list_keys(&self) -> Vec<ApiKey> {
        self.rows.keys.iter().map(|row| self.shown(row)).collect()
    }

    /// A key as clients see it, by id.
    pub(super) fn listed_key(&self, id: &str) -> Option<ApiKey> {
        let row = self.rows.keys.iter().find(|row| row.id == id);
        row.map(|row| self.shown(row))
    }

    fn shown(&self, row: &ApiKeyRow) -> ApiKey {
        ApiKey {
            last_used_at: self.uses.get(&row.id).and_then(|used| used.time()),
            ..key(row)
        }
    }

    /// Uses of keys that the store does not have, by key id.
    pub(super) fn new_uses(&self) -> Vec<(String, WireTime)> {
        let is_new = |last_use: &LastUse| {
            let at = last_use.at.load(Ordering::Relaxed);
            last_use.stored.load(Ordering::Relaxed) != at
        };
        let uses = self.uses.iter().filter(|(_, last_use)| is_new(last_use));
        uses.filter_map(|(id, last_use)| Some((id.clone(), last_use.time()?)))
            .collect()
    }

    /// Notes what the store has now. A use after these were read is still new.
    pub(super) fn uses_are_stored(&self, uses: &[(String, WireTime)]) {
        for (id, time) in uses {
            if let Some(last_use) = self.uses.get(id) {
                let at = time.unix_us() / 1_000_000;
                last_use.stored.store(at, Ordering::Relaxed);
            }
        }
    }
}

/// The known principal, with what it opened, unless it differs.
pub(super) fn kept(known: Option<&Arc<Principal>>, principal: Principal) -> Arc<Principal> {
    match known {
        Some(known) if **known == principal => Arc::clone(known),
        _ => Arc::new(principal),
    }
}

/// Ends a principal unless it is still the present one.
pub(super) fn end_unless(principal: &Arc<Principal>, present: Option<&Arc<Principal>>) {
    if !present.is_some_and(|present| Arc::ptr_eq(principal, present)) {
        principal.validity.end();
    }
}

fn of_key(row: &ApiKeyRow) -> Principal {
    Principal {
        kind: PrincipalKind::ApiKey,
        id: row.id.clone(),
        name: row.name.clone(),
        role: row.role,
        scope: Scope::of(row.tenant.as_deref()),
        validity: Validity::default(),
    }
}

fn of_user(row: &UserRow) -> Principal {
    Principal {
        kind: PrincipalKind::User,
        id: row.id.clone(),
        name: row.name.clone(),
        role: row.role,
        scope: Scope::of(row.tenant.as_deref()),
        validity: Validity::default(),
    }
}

/// A user as clients see it.
pub(super) fn user(row: &UserRow) -> User {
    User {
        id: row.id.clone(),
        name: row.name.clone(),
        role: row.role,
        tenant: row.tenant.clone(),
        disabled: row.disabled,
        created_at: row.created_at,
        password_changed_at: row.password_changed_at,
    }
}

/// A key as clients see it.
pub(super) fn key(row: &ApiKeyRow) -> ApiKey {
    ApiKey {
        id: row.id.clone(),
        name: row.name.clone(),
        prefix: row.prefix.clone(),
        role: row.role,
        tenant: row.tenant.clone(),
        created_at: row.created_at,
        expires_at: row.expires_at,
        last_used_at: row.last_used_at,
        revoked_at: row.revoked_at,
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::identity::Role;

    use super::*;

    fn at(seconds: i64) -> WireTime {
        WireTime::from_unix_us(seconds * 1_000_000).unwrap()
    }

    fn row(id: &str, secret: &str) -> ApiKeyRow {
        ApiKeyRow {
            id: id.into(),
            name: id.into(),
            digest: secret::digest(secret.as_bytes()),
            prefix: String::new(),
            role: Role::Operator,
            tenant: Some("a".into()),
            created_at: at(0),
            expires_at: Some(at(1000)),
            last_used_at: None,
            revoked_at: None,
        }
    }

    fn index(keys: Vec<ApiKeyRow>, before: &Index) -> Index {
        let rows = AccountRows {
            keys,
            ..AccountRows::default()
        };
        Index::new(rows, before, false)
    }

    #[test]
    fn a_key_works_until_it_expires_or_is_revoked() {
        let revoked = ApiKeyRow {
            revoked_at: Some(at(5)),
            ..row("gone", "osb_gone")
        };
        let index = index(vec![row("one", "osb_one"), revoked], &Index::default());
        let found = index.key(b"osb_one", at(999)).unwrap();
        assert_eq!(
            (found.id.as_str(), found.scope.tenant()),
            ("one", Some("a"))
        );
        assert!(index.key(b"osb_one", at(1000)).is_none());
        assert!(index.key(b"osb_gone", at(1)).is_none());
        assert!(index.key(b"osb_other", at(1)).is_none());
        assert!(index.key(b"one", at(1)).is_none());
        assert!(index.key_by_id("one", at(999)).is_some());
        assert!(index.key_by_id("one", at(1000)).is_none());
        assert!(index.key_by_id("gone", at(1)).is_none());
    }

    #[test]
    fn a_principal_ends_when_its_key_is_changed_revoked_or_expired() {
        let ended = |principal: &Principal| principal.validity.ended().is_cancelled();
        let principal = |index: &Index| index.key(b"osb_one", at(1)).unwrap();
        let first = index(vec![row("one", "osb_one")], &Index::default());
        let one = principal(&first);
        let next = |row: ApiKeyRow| {
            let next = index(vec![row, row_of_other()], &first);
            first.end_missing_in(&next);
            next
        };
        let same = principal(&next(row("one", "osb_one")));
        assert!(Arc::ptr_eq(&one, &same) && !ended(&one));
        assert!(!first.end_expired(at(999)) && !ended(&one));
        let reader = ApiKeyRow {
            role: Role::ReadOnly,
            ..row("one", "osb_one")
        };
        let changed = principal(&next(reader));
        assert!(ended(&one) && !ended(&changed));
        let second = index(vec![row("one", "osb_one")], &Index::default());
        let one = principal(&second);
        assert!(second.end_expired(at(1000)) && ended(&one));
        assert!(!second.end_expired(at(1000)), "once");
        let third = index(vec![row("one", "osb_one")], &Index::default());
        let one = principal(&third);
        let revoked = ApiKeyRow {
            revoked_at: Some(at(5)),
            ..row("one", "osb_one")
        };
        third.end_missing_in(&index(vec![revoked], &third));
        assert!(ended(&one));
    }

    #[test]
    fn a_key_that_a_wrong_clock_has_ended_works_again() {
        let row = || ApiKeyRow {
            expires_at: Some(at(i64::from(u32::MAX))),
            ..row("one", "osb_one")
        };
        let first = index(vec![row()], &Index::default());
        assert!(first.end_expired(at(i64::from(u32::MAX))));
        let second = index(vec![row()], &first);
        let one = second.key(b"osb_one", at(1)).unwrap();
        assert!(!one.validity.ended().is_cancelled());
        assert!(!second.end_expired(at(1)));
    }

    fn row_of_other() -> ApiKeyRow {
        row("other", "osb_other")
    }

    #[test]
    fn with_tenants_only_administrators_have_none() {
        let with = |role, tenant: Option<&str>, has_tenants| {
            let key = ApiKeyRow {
                role,
                tenant: tenant.map(str::to_owned),
                ..row("one", "osb_one")
            };
            let rows = AccountRows {
                keys: vec![key],
                ..AccountRows::default()
            };
            let index = Index::new(rows, &Index::default(), has_tenants);
            let works = index.key(b"osb_one", at(1)).is_some();
            assert_eq!(works, index.key_by_id("one", at(1)).is_some());
            (works, index.without_tenant().len())
        };
        assert_eq!(with(Role::Operator, None, false), (true, 1));
        assert_eq!(with(Role::Operator, None, true), (false, 1));
        assert_eq!(with(Role::ReadOnly, None, true), (false, 1));
        assert_eq!(with(Role::Operator, Some("a"), true), (true, 0));
        assert_eq!(with(Role::ServiceAdmin, None, true), (true, 0));
    }

    #[test]
    fn uses_are_noted_to_the_minute_and_survive_a_new_view() {
        let first = index(vec![row("one", "osb_one")], &Index::default());
        let used = |index: &Index, seconds| index.key(b"osb_one", at(seconds)).unwrap();
        assert_eq!(first.new_uses(), []);
        used(&first, 100);
        used(&first, 159);
        assert_eq!(first.list_keys()[0].last_used_at, Some(at(100)));
        let next = index(vec![row("one", "osb_one")], &first);
        let uses = next.new_uses();
        assert_eq!(uses, [("one".to_owned(), at(100))]);
        assert_eq!(next.new_uses(), uses, "the store has failed");
        used(&next, 160);
        next.uses_are_stored(&uses);
        assert_eq!(next.new_uses(), [("one".to_owned(), at(160))]);
        next.uses_are_stored(&next.new_uses());
        assert_eq!(next.new_uses(), [], "the store has it");
    }
}
