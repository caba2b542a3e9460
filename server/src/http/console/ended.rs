//! Sandboxes that are gone, as the console shows them.

use osb_app::view::{self, Ended, SandboxDetail, SandboxRow};
use osb_protocol::lifecycle::{ImageRef, Sandbox, SandboxState, SandboxStatus};
use osb_runtime::Source;
use osb_store::{HistoryEntry, Outcome};

use super::stages;

/// The page of a sandbox that is gone.
pub(super) fn detail(entry: HistoryEntry) -> SandboxDetail {
    let source = Source::of_text(&entry.image);
    SandboxDetail {
        template: source.template_id().map(str::to_owned),
        stages: stages::of_history(&entry),
        resources: entry.spec.resources.clone(),
        log_tail: Vec::new(),
        ended: Some(end(&entry)),
        sandbox: sandbox(entry),
    }
}

/// The row of a sandbox that is gone.
pub(super) fn row(entry: HistoryEntry) -> SandboxRow {
    SandboxRow {
        stage: None,
        ended: Some(end(&entry)),
        tenant: entry.tenant.clone(),
        sandbox: sandbox(entry),
    }
}

fn end(entry: &HistoryEntry) -> Ended {
    let outcome = match entry.outcome {
        Outcome::Deleted => view::Outcome::Deleted,
        Outcome::Expired => view::Outcome::Expired,
        Outcome::CreateFailed => view::Outcome::Failed,
        Outcome::Abandoned => view::Outcome::Abandoned,
        Outcome::Vanished => view::Outcome::Vanished,
    };
    Ended {
        outcome,
        at: entry.ended_at,
    }
}

fn sandbox(entry: HistoryEntry) -> Sandbox {
    let state = match entry.outcome {
        Outcome::Deleted | Outcome::Expired => SandboxState::Terminated,
        Outcome::CreateFailed | Outcome::Abandoned | Outcome::Vanished => SandboxState::Failed,
    };
    let source = Source::of_text(&entry.image);
    // As the API shows the image of a sandbox from a template.
    let image = source.image().or_else(|| source.template_id());
    let image = image.filter(|image| !image.is_empty());
    Sandbox {
        id: entry.id,
        // Of a sandbox that was gone when the server started, the image is not known.
        image: image.map(|uri| ImageRef {
            uri: uri.to_owned(),
        }),
        snapshot_id: source.snapshot_id().map(str::to_owned),
        platform: None,
        status: SandboxStatus {
            state,
            reason: Some(entry.reason),
            message: Some(entry.message),
            last_transition_at: Some(entry.ended_at),
        },
        metadata: entry.spec.metadata,
        extensions: Default::default(),
        allocation: None,
        entrypoint: entry.spec.entrypoint,
        expires_at: entry.spec.expires_at,
        created_at: entry.created_at,
    }
}
