//! What entries tell of users and keys, for every way of managing them. Never a password or the secret
//! of a key.

use osb_protocol::identity::{ApiKey, Role, User};
use serde_json::{Map, Value, json};

use super::{bounded, change};

/// The name of an account, where no more is known.
#[must_use]
pub fn of_name(name: &str) -> Map<String, Value> {
    Map::from_iter([("name".to_owned(), json!(bounded(name)))])
}

/// What an account is to be, or was.
#[must_use]
pub fn of_account(name: &str, role: Role) -> Map<String, Value> {
    let mut facts = of_name(name);
    facts.insert("role".to_owned(), json!(role));
    facts
}

/// What a key is.
#[must_use]
pub fn of_key(key: &ApiKey) -> Map<String, Value> {
    let mut facts = of_account(&key.name, key.role);
    facts.insert("prefix".to_owned(), json!(key.prefix));
    if let Some(at) = key.expires_at {
        facts.insert("expiresAt".to_owned(), json!(at));
    }
    facts
}

/// What changed of a user.
#[must_use]
pub fn of_user_change(before: &User, after: &User, sets_password: bool) -> Map<String, Value> {
    let mut facts = of_name(&after.name);
    for (name, was, is) in [
        ("role", json!(before.role), json!(after.role)),
        ("tenant", json!(before.tenant), json!(after.tenant)),
        ("disabled", json!(before.disabled), json!(after.disabled)),
    ] {
        if was != is {
            facts.insert(name.to_owned(), change(was, is));
        }
    }
    if sets_password {
        facts.insert("passwordChanged".to_owned(), true.into());
    }
    facts
}
