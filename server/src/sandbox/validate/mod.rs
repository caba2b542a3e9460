//! The rules of a request to create (contract: lifecycle §4, §5.1).
//!
//! ```text
//! JSON ─▶ normalise (aliases, numeric strings, nulls) ─▶ JSON Schema ─▶ cross-field rules   422
//!      ─▶ typed ─▶ rules about sandboxes, in the contract's order                           400
//! ```
//!
//! All fields that fail a schema or cross-field rule are reported at once.

mod cross;
mod normalise;
mod rules;
mod schema;
mod unread;

use std::collections::BTreeMap;

use osb_protocol::{Feature, FeatureSet, FieldError, labels, lifecycle::CreateSandboxRequest};
use osb_runtime::CreateSpec;
use serde_json::Value;

use super::Error;

/// Most fields that one answer reports: a body of a million mistakes must not become an answer of a
/// hundred megabytes.
const REPORTED: usize = 64;

/// What the rules depend on.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Name of the runtime.
    pub runtime: &'static str,
    /// What the runtime can do that not every runtime can.
    pub features: FeatureSet,
    /// Longest `timeout`, in seconds.
    pub max_timeout_seconds: Option<i64>,
    /// Whether every execd gets a token.
    pub execd_auth: bool,
    /// Whether a sandbox may ask for the rights that isolated sessions take.
    pub execd_isolation: bool,
}

impl Rules {
    /// Refuses what the runtime cannot do.
    fn require(&self, feature: Feature, is_asked_for: bool) -> Result<(), Error> {
        if is_asked_for && !self.features.contains(feature) {
            let runtime = self.runtime;
            return Err(Error::Unsupported { feature, runtime });
        }
        Ok(())
    }
}

/// A request that follows every rule.
#[derive(Debug)]
pub struct Checked {
    /// The sandbox to be.
    pub spec: CreateSpec,
    /// Members that have no effect, by name.
    pub unread: Vec<String>,
}

/// Checks a create request and turns it into a spec.
///
/// # Errors
/// [`Error::Invalid`] with all fields, or the first broken rule about sandboxes.
pub fn request(body: Value, rules: &Rules) -> Result<Checked, Error> {
    let body = normalise::create(body);
    let mut wrong: Vec<FieldError> = schema::check(&body).take(REPORTED).collect();
    wrong.extend(cross::check(&body));
    wrong.truncate(REPORTED);
    if !wrong.is_empty() {
        return Err(Error::Invalid(wrong));
    }
    let request: CreateSandboxRequest =
        serde_path_to_error::deserialize(&body).map_err(|error| {
            // The schema is stricter than the types; should it not be, the client still learns where.
            // The parser's own words would repeat the value.
            let path: Vec<String> = error.path().iter().map(ToString::to_string).collect();
            Error::Invalid(vec![FieldError::body("value_error", path, "is not valid")])
        })?;
    Ok(Checked {
        spec: rules::spec(request, rules)?,
        unread: unread::members(&body),
    })
}

/// Checks a metadata patch (contract: lifecycle §5.5). Keys to delete only must not be reserved.
///
/// # Errors
/// The first entry that breaks the grammar.
pub fn metadata_patch(patch: &BTreeMap<String, Option<String>>) -> Result<(), Error> {
    for (key, value) in patch {
        match (labels::check_key(key), value) {
            (Err(error @ labels::LabelError::Reserved(_)), _) => {
                return Err(Error::ReservedLabel(error));
            }
            (Err(_), None) => {}
            (checked, Some(value)) => {
                checked.and_then(|()| labels::check_value(key, value))?;
            }
            (Ok(()), None) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
