//! Data between server and browser, built on the wire types where they fit.

mod access;
mod bulk;
mod events;
mod original;
mod overview;
mod pools;
mod settings;
mod snapshots;
mod templates;

pub use access::{AccessView, AccountList, Answer, SessionEntry, UserEntry};
pub use bulk::{BULK_MAX, BulkAct, BulkEnd, BulkResult, bulk_summary};
pub use events::{EventsQuery, EventsView, PERIODS};
pub use original::{Original, OriginalPolicy};
pub use overview::{
    Activity, EXPIRING_SECONDS, FailureGroup, Host, HourCount, Overview, Pulse, Readiness, Split,
    TestSandbox,
};
pub use pools::{PoolDetail, PoolFailure, PoolNumbers, PoolRow, PoolState};
pub use settings::{
    Check, CheckState, ConfigView, OperatorView, SettingView, SettingsView, StoreView, WebhookView,
};
pub use snapshots::{
    Ancestor, Kin, OFFERED_MAX, OfferedSnapshots, SNAPSHOT_PAGE, SnapshotDetail, SnapshotList,
    SnapshotRow, SnapshotTotals, SnapshotsQuery, USERS_NAMED, kin_names, snapshot_name,
    snapshot_short, snapshot_title,
};
pub use templates::{
    OfferedTemplates, TEMPLATE_PAGE, TemplateBuilds, TemplateDetail, TemplateList, TemplateOrigin,
    TemplateRow, template_short,
};

use std::{collections::BTreeMap, sync::Arc};

use leptos::prelude::use_context;
use osb_protocol::{
    FeatureSet, FieldError, SandboxId, WireTime,
    identity::{Identity, Role},
    lifecycle::{Sandbox, SandboxState, SandboxStatus},
};
use serde::{Deserialize, Serialize};

/// The server's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Version of this build.
    pub version: String,
    /// Where sandboxes run: `docker`, `sim`, …
    pub runtime: String,
    /// What keeps sandboxes further from the host's kernel than plain containers, in words, if anything
    /// does.
    #[serde(default)]
    pub secure_runtime: Option<String>,
    /// What this runtime can do that not every runtime can: pages and fields follow from it.
    #[serde(default)]
    pub features: FeatureSet,
    /// Whether the API wants a key. Without one, the console is open to everyone.
    pub key_required: bool,
    /// Whether users may sign in with a name and a password.
    #[serde(default)]
    pub has_users: bool,
    /// Longest life of a new sandbox, in seconds.
    #[serde(default)]
    pub max_timeout_seconds: Option<i64>,
    /// Whether previews may have origins of their own, with storage.
    #[serde(default)]
    pub has_previews: bool,
    /// Whether sandboxes whose request has no network policy get one of the server's.
    #[serde(default)]
    pub has_default_policy: bool,
    /// Whether network policies are enforced for addresses, too, and not for names only.
    #[serde(default)]
    pub enforces_addresses: bool,
    /// Whether the signed-in principal may have images of templates built.
    #[serde(default)]
    pub builds: TemplateBuilds,
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
        self.has_role(Role::Operator)
    }

    /// Whether the signed-in principal may read the audit trail.
    pub(crate) fn may_read_trail(&self) -> bool {
        self.has_role(Role::ServiceAdmin)
    }

    fn has_role(&self, least: Role) -> bool {
        let role = self.identity.as_ref().map(|identity| identity.role);
        role.is_none_or(|role| role >= least)
    }
}

/// Why a role that only reads cannot change anything.
pub const LOOKS_ONLY: &str = "Your role may look at sandboxes, and not change them.";

/// Whether the page offers changes, see [`ServerInfo::may_change`].
pub(crate) fn offers_changes() -> bool {
    use_context::<ServerInfo>().is_none_or(|info| info.may_change())
}

/// Whether the page leads to the audit trail, see [`ServerInfo::may_read_trail`].
pub(crate) fn offers_trail() -> bool {
    use_context::<ServerInfo>().is_none_or(|info| info.may_read_trail())
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
    /// The tenant whose sandbox it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// How it ended, if it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}

/// The end of a sandbox that is gone. Reason and message are those of its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// What ended it.
    pub outcome: Outcome,
    /// When.
    pub at: WireTime,
}

/// What ended a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A client deleted it.
    Deleted,
    /// Its time was over.
    Expired,
    /// The create failed.
    Failed,
    /// The client of the create disconnected, so no client knew it.
    Abandoned,
    /// Another program removed its container.
    Vanished,
}

impl Outcome {
    /// The outcome in a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Deleted => "Deleted",
            Self::Expired => "Expired",
            Self::Failed => "Failed",
            Self::Abandoned => "Abandoned",
            Self::Vanished => "Vanished",
        }
    }

    /// The outcome as a sentence about a sandbox.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Deleted => "This sandbox was deleted.",
            Self::Expired => "This sandbox expired.",
            Self::Failed => "This sandbox could not be created.",
            Self::Abandoned => "This sandbox was removed because its client had disconnected.",
            Self::Vanished => "The container of this sandbox was removed by another program.",
        }
    }
}

/// The title of a sandbox: its label `name`, else its short id.
#[must_use]
pub fn title(sandbox: &Sandbox) -> &str {
    let name = sandbox.metadata.get("name").map(|name| name.trim());
    name.filter(|name| !name.is_empty())
        .unwrap_or_else(|| sandbox.id.short())
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
    /// Sandboxes altogether; of the ended ones, those that were looked at.
    pub total: usize,
    /// The page that is shown, from 1: the last one if the requested page does not exist.
    #[serde(default)]
    pub page: usize,
    /// Sandboxes by state, whatever the filter.
    #[serde(default)]
    pub counts: StateCounts,
    /// Whether the rows are sandboxes that ended.
    #[serde(default)]
    pub of_ended: bool,
    /// Why the rows may be out of date.
    #[serde(default)]
    pub warning: Option<String>,
}

/// How many sandboxes there are in the states that the list can be limited to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StateCounts {
    /// Those that are not gone.
    pub all: usize,
    /// Those that run.
    pub running: usize,
    /// Those that are being created.
    pub pending: usize,
    /// Those that are paused.
    pub paused: usize,
    /// Those that failed.
    pub failed: usize,
    /// Those that are gone, up to [`ENDED_MAX`]; `None` when they cannot be counted.
    pub ended: Option<usize>,
}

/// Most ended sandboxes that are counted and searched.
pub const ENDED_MAX: usize = 10_000;

impl StateCounts {
    /// Counts one that is not gone.
    pub fn add(&mut self, state: &SandboxState) {
        self.all += 1;
        match state {
            SandboxState::Running => self.running += 1,
            SandboxState::Pending => self.pending += 1,
            SandboxState::Paused => self.paused += 1,
            SandboxState::Failed => self.failed += 1,
            _ => {}
        }
    }
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
    /// Id of the template that it was created from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Last lines of its output, when it failed.
    #[serde(default)]
    pub log_tail: Vec<String>,
    /// How it ended, if it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}

/// What an operator needs to find the fault of a sandbox: without tokens and without values of
/// variables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// What happened, oldest first.
    pub events: Vec<DiagnosisEvent>,
    /// State and settings, as aligned lines.
    pub inspection: String,
    /// The same and more as JSON: the sandbox as the API shows it, and its container.
    #[serde(default)]
    pub raw: serde_json::Value,
}

/// Something that happened to a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiagnosisEvent {
    /// When, if that is known.
    pub at: Option<WireTime>,
    /// What, in a word.
    pub name: String,
    /// What, in words.
    pub text: String,
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
    /// Host, port and possibly a path, without a scheme; reached directly.
    pub direct: String,
    /// Names of the headers that direct requests need.
    pub direct_headers: Vec<String>,
    /// Path on this server that reaches the port through it.
    pub proxied: String,
    /// Names of the headers that requests through this server need.
    pub proxied_headers: Vec<String>,
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

/// What a sandbox can have of the host: images and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostImages {
    /// The images with a name; `None` when they are not known.
    pub images: Option<Vec<HostImage>>,
    /// Whether only the images of presets are listed, because the caller may not know others.
    pub of_presets_only: bool,
    /// Memory of the host in bytes; `None` if it is not known, or not for the caller.
    pub memory_bytes: Option<u64>,
}

/// An image on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostImage {
    /// Its name, as a create request names it.
    pub reference: String,
    /// Its size in bytes; 0 when it is not known.
    pub bytes: u64,
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

/// Sets the HTTP status of the page that is being rendered. The server provides it as context.
#[derive(Clone)]
pub struct PageStatus(pub Arc<dyn Fn(u16) + Send + Sync>);

impl PageStatus {
    /// Sets it on the server; nothing in the browser.
    pub(crate) fn set(status: u16) {
        if let Some(Self(set)) = use_context() {
            set(status);
        }
    }
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

/// Why a sandbox is not what it should be, in two or three words.
#[must_use]
pub fn reason_words(status: &SandboxStatus) -> Option<String> {
    let message = status.message.as_deref().unwrap_or_default();
    match status.state {
        SandboxState::Failed | SandboxState::Terminated => {}
        _ => return None,
    }
    if message.contains("memory limit was reached") {
        return Some("out of memory".to_owned());
    }
    let code = message.split_once("exit code ").map(|(_, rest)| {
        let end = rest.find(|char: char| !char.is_ascii_digit() && char != '-');
        &rest[..end.unwrap_or(rest.len())]
    });
    match (code, &status.reason) {
        (Some(code), _) => Some(["exit ", code].concat()),
        (None, Some(reason)) => Some(reason.to_lowercase().replace('_', " ")),
        (None, None) => None,
    }
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
    use osb_protocol::identity::PrincipalKind;

    use super::*;

    #[test]
    fn a_role_may_do_what_lesser_ones_may() {
        let may = |role| {
            let identity = Identity {
                kind: PrincipalKind::User,
                id: "1".to_owned(),
                name: "zoe".to_owned(),
                role,
                tenant: None,
            };
            let info = ServerInfo {
                identity: Some(identity),
                ..ServerInfo::default()
            };
            (info.may_change(), info.may_read_trail())
        };
        assert_eq!(may(Role::ReadOnly), (false, false));
        assert_eq!(may(Role::Operator), (true, false));
        assert_eq!(may(Role::ServiceAdmin), (true, true));
    }

    #[test]
    fn the_label_name_is_the_title_unless_it_is_empty() {
        let mut sandbox = crate::ui::sample::row("0b6c1f2e-aaaa", "Running").sandbox;
        assert_eq!(title(&sandbox), "0b6c1f2e");
        for (name, shown) in [(" ", "0b6c1f2e"), ("search", "search")] {
            sandbox.metadata.insert("name".to_owned(), name.to_owned());
            assert_eq!(title(&sandbox), shown);
        }
    }

    #[test]
    fn a_failure_says_why_in_two_words() {
        let ended = "The entry point ended with exit code 3.";
        for (state, reason, message, words) in [
            ("Failed", "CONTAINER_EXITED_ERROR", ended, Some("exit 3")),
            (
                "Failed",
                "CONTAINER_EXITED_ERROR",
                "The entry point ended with exit code 137 because its memory limit was reached.",
                Some("out of memory"),
            ),
            ("Failed", "REMOVAL_FAILED", "", Some("removal failed")),
            (
                "Terminated",
                "CONTAINER_EXITED",
                "… exit code 0.",
                Some("exit 0"),
            ),
            ("Running", "CONTAINER_RUNNING", "", None),
        ] {
            let status = SandboxStatus {
                state: state.into(),
                reason: Some(reason.to_owned()),
                message: Some(message.to_owned()),
                last_transition_at: None,
            };
            assert_eq!(reason_words(&status).as_deref(), words, "{reason}");
        }
    }

    #[test]
    fn a_renewal_that_ends_a_life_earlier_does_not_extend_it() {
        let at = |ms| WireTime::from_unix_ms(ms).unwrap();
        assert!(extends(Some(at(1_000)), at(1_001)));
        assert!(extends(Some(at(1_000)), at(1_000)));
        assert!(!extends(Some(at(1_000)), at(999)));
        assert!(!extends(None, at(1_000)));
    }
}
