//! Snapshots in words.

use leptos::prelude::use_context;
use osb_protocol::{
    Feature,
    lifecycle::{SnapshotState, SnapshotStatus},
};

use crate::{ui::Unit, view::ServerInfo};

/// Whether the runtime has snapshots.
pub(crate) fn offers_snapshots() -> bool {
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    features.contains(Feature::Snapshots)
}

/// The address of a snapshot's page. The server makes the ids, which are UUIDs.
pub(crate) fn address(id: &str) -> String {
    ["/console/snapshots/", id].concat()
}

/// Bytes on disk.
#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
pub(crate) fn size(bytes: Option<u64>) -> String {
    match bytes {
        Some(bytes) => Unit::Bytes.text(bytes as f64),
        None => "unknown".to_owned(),
    }
}

/// Why a snapshot cannot be used; nothing about one that can, or is being taken.
pub(crate) fn reason(status: &SnapshotStatus) -> Option<String> {
    match status.state {
        SnapshotState::Creating | SnapshotState::Ready => None,
        SnapshotState::Failed | SnapshotState::Deleting => {
            let message = status
                .message
                .clone()
                .filter(|text| !text.trim().is_empty());
            message.or_else(|| status.reason.as_ref().map(|code| code.replace('_', " ")))
        }
    }
}

#[cfg(test)]
pub(crate) mod sample {
    use osb_protocol::{WireTime, lifecycle::Snapshot};

    use super::*;

    /// A snapshot of the sandbox `b`.
    pub(crate) fn snapshot(id: &str, state: SnapshotState) -> Snapshot {
        Snapshot {
            id: id.to_owned(),
            sandbox_id: "b".into(),
            name: None,
            status: SnapshotStatus {
                state,
                reason: None,
                message: None,
                last_transition_at: None,
            },
            created_at: WireTime::from_unix_ms(0).unwrap(),
            size_bytes: None,
            source_snapshot_id: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{sample::snapshot, *};

    #[test]
    fn what_cannot_be_used_says_why() {
        let mut status = snapshot("a", SnapshotState::Failed).status;
        assert_eq!(reason(&status), None);
        status.reason = Some("snapshot_runtime_timeout".to_owned());
        assert_eq!(reason(&status).as_deref(), Some("snapshot runtime timeout"));
        status.message = Some("The engine did not answer.".to_owned());
        assert_eq!(
            reason(&status).as_deref(),
            Some("The engine did not answer.")
        );
        status.state = SnapshotState::Ready;
        assert_eq!(reason(&status), None);
    }

    #[test]
    fn a_size_that_is_not_known_is_no_number() {
        assert_eq!(size(None), "unknown");
        assert_eq!(size(Some(0)), "0 B");
        assert_eq!(size(Some(3 << 20)), "3.0 MiB");
    }
}
