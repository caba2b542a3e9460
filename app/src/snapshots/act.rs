//! The way from a snapshot to a sandbox.

use osb_protocol::lifecycle::SnapshotState;

/// Why no sandbox can be created from a snapshot in this state.
pub(super) fn hindrance(state: SnapshotState) -> Option<&'static str> {
    match state {
        SnapshotState::Ready => None,
        SnapshotState::Creating => Some("It is still being taken."),
        SnapshotState::Failed => Some("It could not be taken."),
        SnapshotState::Deleting => Some("It is being deleted."),
    }
}

/// The create form, with this snapshot.
pub(super) fn create_address(id: &str) -> String {
    ["/console/create?snapshot=", id].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ready_becomes_a_sandbox() {
        for state in SnapshotState::ALL {
            let is_ready = state == SnapshotState::Ready;
            assert_eq!(hindrance(state).is_none(), is_ready, "{state}");
        }
    }
}
