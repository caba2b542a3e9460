//! Secrets in a configuration that is shown.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::address::{self, MASK};

fn masked(secret: &SecretString) -> &'static str {
    match secret.expose_secret().trim().is_empty() {
        true => "",
        false => MASK,
    }
}

/// Serialises a secret as whether there is one.
pub(super) fn mask<S: Serializer>(secret: &SecretString, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(masked(secret))
}

/// Serialises a secret that may be absent.
pub(super) fn mask_key<S: Serializer>(
    secret: &Option<SecretString>,
    to: S,
) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(masked).serialize(to)
}

/// Serialises an address without the credentials that it may have.
pub(super) fn mask_address<S: Serializer>(
    address: &Option<String>,
    to: S,
) -> Result<S::Ok, S::Error> {
    address.as_deref().map(address::shown).serialize(to)
}

/// Serialises the names of variables; their values may be secrets.
pub(super) fn mask_values<S: Serializer>(
    variables: &BTreeMap<String, String>,
    to: S,
) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(variables.len()))?;
    for name in variables.keys() {
        map.serialize_entry(name, MASK)?;
    }
    map.end()
}
