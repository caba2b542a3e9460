//! Data between server and browser, built on the wire types where they fit.

use std::collections::BTreeMap;

use leptos::prelude::use_context;
use osb_protocol::{
    FeatureSet, FieldError, SandboxId, WireTime,
    identity::{Identity, Role},
    lifecycle::{Sandbox, SandboxState},
};
use serde::{Deserialize, Serialize};

/// The server's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Version of this build.
    pub version: String,
    /// Where sandboxes run: `docker`, `sim`, …
    pub runtime: String,
    /// What this runtime can do that not every runtime can: pages and fields follow from it.
    #[serde(default)]
    pub features: FeatureSet,
    /// Whether the API wants a key. Without one, the console is open to everyone.
    pub key_required: bool,
    /// Whether users may sign in with a name and a password.
    #[serde(default)]
    pub has_users: bool,
    /// Who is signed in.
    #[serde(default)]
    pub identity: Option<Identity>,
}

impl ServerInfo {
    /// What the server says about itself in this request; only called there.
    pub(crate) fn of_request() -> Self {
        use_context().unwrap_or_default()
    }

    /// Whether the signed-in principal may change sandboxes. The server decides; pages only do not
    /// offer what it would refuse.
    pub(crate) fn may_change(&self) -> bool {
        let role = self.identity.as_ref().map(|identity| identity.role);
        role.is_none_or(|role| role >= Role::Operator)
    }
}

/// Whether the page offers changes, see [`ServerInfo::may_change`].
pub(crate) fn offers_changes() -> bool {
    use_context::<ServerInfo>().is_none_or(|info| info.may_change())
}

/// One sandbox in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRow {
    /// The sandbox as the API shows it.
    #[serde(flatten)]
    pub sandbox: Sandbox,
    /// The stage it is in while it is being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

impl SandboxRow {
    /// Name of the sandbox.
    #[must_use]
    pub fn id(&self) -> &SandboxId {
        &self.sandbox.id
    }

    /// Its image or snapshot.
    #[must_use]
    pub fn origin(&self) -> &str {
        let image = self.sandbox.image.as_ref().map(|image| image.uri.as_str());
        image
            .or(self.sandbox.snapshot_id.as_deref())
            .unwrap_or("none")
    }
}

/// One page of the list, already filtered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxList {
    /// The rows of this page, newest first.
    pub rows: Vec<SandboxRow>,
    /// Rows on all pages that match the filter.
    pub matching: usize,
    /// Sandboxes altogether.
    pub total: usize,
    /// Why the rows may be out of date.
    #[serde(default)]
    pub warning: Option<String>,
}

/// Everything the page of one sandbox shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxDetail {
    /// The sandbox as the API shows it.
    pub sandbox: Sandbox,
    /// What has been done to start it, in order.
    pub stages: Vec<Stage>,
    /// Resource limits as requested.
    pub resources: BTreeMap<String, String>,
    /// Last lines of its output, when it failed.
    #[serde(default)]
    pub log_tail: Vec<String>,
}

/// One step of starting a sandbox, or what failed after the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Its name: `accepted`, `image`, `created`, `network`, `execd`, `ready`; after these at most
    /// one of `command` and `removal`, which failed.
    pub name: String,
    /// How it went.
    pub state: StageState,
    /// When it was reached, or failed, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<WireTime>,
}

/// How a step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageState {
    /// It was reached.
    Done,
    /// It is being worked on.
    Current,
    /// Its turn is still to come.
    Open,
    /// It was not reached, and nothing after it was.
    Failed,
    /// Its turn never came.
    Missed,
    /// Unknown: for example, it happened before a restart of the server.
    Unknown,
}

/// Where a port of a sandbox is reached. Tokens stay on the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortAddress {
    /// The port inside the sandbox.
    pub port: u16,
    /// Host and port, without a scheme; reached directly.
    pub direct: String,
    /// Path on this server that reaches the port through it.
    pub proxied: String,
}

/// Whether a port of a sandbox can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// It can, here.
    At(PortAddress),
    /// It cannot, for this reason.
    Nowhere(String),
}

/// Result of a create form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Creation {
    /// A sandbox.
    Made(SandboxId),
    /// Nothing: these rules are broken.
    Invalid(Vec<FieldError>),
    /// Nothing, for this reason.
    Refused(String),
}

/// What happened to the last form that was sent without script; shown once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Good or bad news.
    pub tone: Tone,
    /// The news.
    pub text: String,
}

/// Whether news is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tone {
    /// It worked.
    Good,
    /// It did not.
    Bad,
}

impl Notice {
    /// Something worked.
    pub fn good(text: impl Into<String>) -> Self {
        Self {
            tone: Tone::Good,
            text: text.into(),
        }
    }

    /// Something did not work.
    pub fn bad(text: impl Into<String>) -> Self {
        Self {
            tone: Tone::Bad,
            text: text.into(),
        }
    }
}

/// Whether a sandbox in this state can be renewed.
#[must_use]
pub fn is_alive(state: &SandboxState) -> bool {
    use SandboxState::{Failed, Stopping, Terminated};
    !matches!(state, Failed | Stopping | Terminated)
}

/// Whether a renewal to `at` leaves a life at least as long as it is. A sandbox without an expiry has
/// the longest life.
#[must_use]
pub fn extends(expires_at: Option<WireTime>, at: WireTime) -> bool {
    expires_at.is_some_and(|known| known <= at)
}

/// The moment that many seconds from now.
///
/// # Errors
/// [`crate::error::ConsoleError::Refused`] when it lies after the year 9999.
pub fn in_seconds(seconds: i64) -> Result<WireTime, crate::error::ConsoleError> {
    WireTime::from_unix_ms(crate::browser::now_ms())
        .and_then(|now| now.plus_seconds(seconds))
        .ok_or_else(|| crate::error::ConsoleError::Refused {
            message: "the expiry has to be before the year 10000".to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_that_ends_a_life_earlier_does_not_extend_it() {
        let at = |ms| WireTime::from_unix_ms(ms).unwrap();
        assert!(extends(Some(at(1_000)), at(1_001)));
        assert!(extends(Some(at(1_000)), at(1_000)));
        assert!(!extends(Some(at(1_000)), at(999)));
        assert!(!extends(None, at(1_000)));
    }
}
