//! The rules of a request to create (contract: lifecycle §4, §5.1).
//!
//! ```text
//! JSON ─▶ normalise (aliases, numeric strings, nulls) ─▶ JSON Schema ─▶ cross-field rules   422
//!      ─▶ typed ─▶ rules about sandboxes, in the contract's order                           400
//! ```
//!
//! All fields at fault are reported at once, whichever rule they break. A 422 therefore also has the
//! rules about sandboxes that the readable members break.

pub(super) mod claimed;
mod cross;
mod network_policy;
mod normalise;
mod rules;
mod schema;
mod template;
mod unread;
mod volumes;

use std::{collections::BTreeMap, sync::Arc};

use osb_protocol::{
    Feature, FeatureSet, FieldError, error::Loc, labels, lifecycle::CreateSandboxRequest,
};
use osb_runtime::{CreateSpec, SecureKind};
use serde_json::Value;

pub use self::{
    network_policy::{policy_text, wrong_members},
    normalise::{whole_number, whole_number_in},
    template::{NewTemplate, TemplateRules, template},
};
use super::{Error, StorageRules};

/// Most fields that one answer reports: a body of a million mistakes must not become an answer of a
/// hundred megabytes.
const REPORTED: usize = 64;
/// Longest argument and longest `NAME=value` that Linux passes to a program, in bytes.
const ARGUMENT_MAX: usize = (128 << 10) - 1;
/// Longest entry point, in bytes without the ends of its words.
const ENTRYPOINT_MAX: usize = 192 << 10;
/// Longest metadata, and longest extensions, in bytes.
const MAP_MAX: usize = 64 << 10;

/// What the rules depend on.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Name of the runtime.
    pub runtime: &'static str,
    /// What the runtime can do that not every runtime can.
    pub features: FeatureSet,
    /// What sandboxes run under, if not as plain containers.
    pub secure: Option<SecureKind>,
    /// Longest `timeout`, in seconds.
    pub max_timeout_seconds: Option<i64>,
    /// Whether every execd gets a token.
    pub execd_auth: bool,
    /// Whether a sandbox may ask for the rights that isolated sessions take.
    pub execd_isolation: bool,
    /// The network policy of sandboxes whose request has none, as JSON.
    pub default_policy: Option<Arc<str>>,
    /// Which volumes a sandbox may have.
    pub storage: StorageRules,
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
/// [`Error::Invalid`] when a field has the wrong type, range or combination, else
/// [`Error::Broken`]; each with everything that is wrong.
pub fn request(body: Value, rules: &Rules) -> Result<Checked, Error> {
    let body = normalise::create(body);
    let mut wrong: Vec<FieldError> = schema::check(&body).take(REPORTED).collect();
    wrong.extend(cross::check(&body));
    if !wrong.is_empty() {
        let others = rules_of_readable(&body, &wrong, rules);
        wrong.extend(others);
        wrong.truncate(REPORTED);
        return Err(Error::Invalid(wrong));
    }
    let request: CreateSandboxRequest =
        serde_path_to_error::deserialize(&body).map_err(|error| {
            // The schema is stricter than the types; should it not be, the client still learns where.
            // The parser's own words would repeat the value.
            let path: Vec<String> = error.path().iter().map(ToString::to_string).collect();
            Error::Invalid(vec![FieldError::body("value_error", path, "is not valid")])
        })?;
    let spec = rules::spec(request, rules).map_err(Error::Broken)?;
    let has_policy = spec.network_policy.is_some();
    Ok(Checked {
        unread: unread::members(&body, has_policy),
        spec,
    })
}

/// The one member of `image` without which the rest can be checked.
const IMAGE_AUTH: (&str, &str) = ("image", "auth");
/// Maps whose entries are independent of each other.
const MAPS: [&str; 4] = ["env", "metadata", "resourceLimits", "extensions"];

/// The rules about sandboxes that a request breaks besides what is wrong already: without the members
/// at fault it is checked like any other.
fn rules_of_readable(body: &Value, wrong: &[FieldError], rules: &Rules) -> Vec<FieldError> {
    let Value::Object(members) = body else {
        return Vec::new();
    };
    let mut members = members.clone();
    for error in wrong {
        match error.loc.get(1..).unwrap_or_default() {
            [Loc::Name(map), Loc::Name(entry), ..]
                if MAPS.contains(&map.as_str()) || (map.as_str(), entry.as_str()) == IMAGE_AUTH =>
            {
                let map = members.get_mut(map).and_then(Value::as_object_mut);
                map.map(|map| map.remove(entry));
            }
            [Loc::Name(name), ..] => {
                members.remove(name);
            }
            _ => return Vec::new(),
        }
    }
    let Ok(request) = serde_json::from_value(Value::Object(members)) else {
        return Vec::new();
    };
    let broken = rules::spec(request, rules).err().unwrap_or_default();
    let fields = broken.iter().flat_map(Error::fields);
    // A member that was taken out is missing now.
    let is_known = |field: &FieldError| {
        let known = wrong.iter().map(|known| &known.loc);
        let mut same = known.map(|known| known.iter().zip(&field.loc).all(|(a, b)| a == b));
        same.any(|is_same| is_same)
    };
    fields.filter(|field| !is_known(field)).collect()
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

/// Checks metadata that a patch has made. What was longer before may stay so.
///
/// # Errors
/// When it is too long in all.
pub fn patched_metadata(
    metadata: &BTreeMap<String, String>,
    former: &BTreeMap<String, String>,
) -> Result<(), Error> {
    rules::total_size("metadata", metadata, Some(rules::size_of(former)))
}

#[cfg(test)]
mod tests;
