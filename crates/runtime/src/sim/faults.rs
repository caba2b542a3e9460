//! What tests inject into the simulated back end.

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;

use crate::Role;

/// Injected faults and delays.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Duration of each stage of a create.
    pub stage_delay: Duration,
    /// Duration of a removal.
    pub remove_delay: Duration,
    /// Whether the image of every create is missing from the registry.
    pub no_image: bool,
    /// Each image waits for one notification of this.
    pub image_gate: Option<Arc<Notify>>,
    /// Each start waits for one notification of this.
    pub start_gate: Option<Arc<Notify>>,
    /// Starts fail with this message.
    pub start_fails: Option<String>,
    /// Removals fail with this message.
    pub remove_fails: Option<String>,
    /// Containers of this role can be neither frozen nor thawed.
    pub pause_fails: Option<Role>,
    /// Each pause and each resume waits for one notification of this.
    pub pause_gate: Option<Arc<Notify>>,
    /// Pauses and resumes take effect, and their answers are lost.
    pub pause_answer_lost: bool,
    /// Each claim of a waiting sandbox waits for one notification of this.
    pub claim_gate: Option<Arc<Notify>>,
    /// Claims fail with this message.
    pub claim_fails: Option<String>,
    /// Whether claims get no answer.
    pub claim_unanswered: bool,
    /// execd was started again, and has forgotten its claim.
    pub claims_forgotten: bool,
    /// Marks of claims cannot be seen.
    pub claim_marks_unknown: bool,
    /// Captures wait for this before they take effect.
    pub capture_gate: Option<Arc<Notify>>,
    /// Captures fail with this.
    pub capture_fails: Option<String>,
    /// Captures take longer than the engine's time limit.
    pub capture_times_out: bool,
    /// Sandboxes stay frozen until this after their captures have timed out.
    pub thaw_gate: Option<Arc<Notify>>,
    /// Snapshots cannot be removed, for this reason.
    pub snapshot_remove_fails: Option<String>,
    /// Templates wait for this before they are made.
    pub template_gate: Option<Arc<Notify>>,
    /// Builds fail with this.
    pub build_fails: Option<String>,
    /// Templates cannot be removed, for this reason.
    pub template_remove_fails: Option<String>,
    /// Logs cannot be read, for this reason.
    pub log_fails: Option<String>,
    /// Lines that every entry point has printed.
    pub output: Vec<String>,
}
