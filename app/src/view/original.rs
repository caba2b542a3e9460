//! Data of the form of a copy.

use std::collections::BTreeMap;

use osb_protocol::lifecycle::{NetworkPolicy, Volume};
use serde::{Deserialize, Serialize};

/// What another sandbox like this one would be created with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// Its image, unless it was made from something else.
    pub image: Option<String>,
    /// Id of the snapshot that it was made from, if it was.
    #[serde(default)]
    pub snapshot: Option<String>,
    /// Id of the template that it was made from, if it was.
    #[serde(default)]
    pub template: Option<String>,
    /// Its entry point.
    pub entrypoint: Vec<String>,
    /// Its resource limits as requested.
    pub resources: BTreeMap<String, String>,
    /// Its labels.
    pub metadata: BTreeMap<String, String>,
    /// Its extensions, as far as they are known.
    pub extensions: BTreeMap<String, String>,
    /// Its volumes, without credentials, as far as they are known.
    pub volumes: Vec<Volume>,
    /// Whether its endpoints need a token of their own.
    pub secure_access: bool,
    /// Its network policy.
    pub network_policy: OriginalPolicy,
    /// The life that it was created for, in seconds; `None` for one without an end.
    pub timeout: Option<i64>,
    /// Names of the variables of its request, whose values stay on the server; `None` when they are
    /// not known any more.
    pub variables: Option<Vec<String>>,
}

/// The network policy of a sandbox that is to be copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OriginalPolicy {
    /// It has none, or that of every sandbox whose request has none.
    #[default]
    Usual,
    /// This one is in force.
    InForce(NetworkPolicy),
    /// It was created with this one. What was changed since is not known: its sidecar does not answer.
    OfCreate(NetworkPolicy),
    /// It has one that is not known.
    Unknown,
}
