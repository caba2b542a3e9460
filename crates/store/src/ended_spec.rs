//! The JSON columns of an ended sandbox, the same in every database.

use std::collections::BTreeMap;

use osb_protocol::WireTime;
use serde::{Serialize, de::DeserializeOwned};

use crate::{EndedSpec, StoreError};

/// The texts of the columns `metadata`, `entrypoint` and `resources`.
pub(crate) type SpecTexts = [Option<String>; 3];

/// Encodes what a sandbox had been created with.
pub(crate) fn encode(spec: &EndedSpec) -> Result<SpecTexts, StoreError> {
    Ok([
        text(&spec.metadata)?,
        text(&spec.entrypoint)?,
        text(&spec.resources)?,
    ])
}

/// Decodes what [`encode`] made. A column without a value, of an earlier release, is empty.
pub(crate) fn decode(
    [metadata, entrypoint, resources]: SpecTexts,
    expires_at: Option<WireTime>,
) -> Result<EndedSpec, StoreError> {
    Ok(EndedSpec {
        metadata: value::<BTreeMap<_, _>>(metadata)?,
        entrypoint: value::<Vec<_>>(entrypoint)?,
        resources: value::<BTreeMap<_, _>>(resources)?,
        expires_at,
    })
}

fn text(value: &impl Serialize) -> Result<Option<String>, StoreError> {
    serde_json::to_string(value).map(Some).map_err(damaged)
}

fn value<T: DeserializeOwned + Default>(text: Option<String>) -> Result<T, StoreError> {
    let value = text.map(|text| serde_json::from_str(&text)).transpose();
    value.map(Option::unwrap_or_default).map_err(damaged)
}

fn damaged(source: serde_json::Error) -> StoreError {
    StoreError::Damaged {
        what: "the description of an ended sandbox",
        source,
    }
}
