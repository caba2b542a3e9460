//! Reads snapshots again while one of them is being taken or deleted.

use leptos::prelude::*;
use osb_protocol::lifecycle::SnapshotState;

use crate::reread;

/// Whether a snapshot in this state changes without anything else being done.
pub(crate) fn is_under_way(state: SnapshotState) -> bool {
    matches!(state, SnapshotState::Creating | SnapshotState::Deleting)
}

/// Calls `again` every now and then while one of these is under way, in the browser. The states are in
/// the order of the snapshots.
pub(crate) fn follow(states: Memo<Vec<SnapshotState>>, again: Callback<()>) {
    let may_change = |states: &Vec<SnapshotState>| states.iter().copied().any(is_under_way);
    reread::follow(states, may_change, again);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_by_itself_is_followed() {
        let followed: Vec<_> = SnapshotState::ALL
            .into_iter()
            .filter(|state| is_under_way(*state))
            .collect();
        assert_eq!(followed, [SnapshotState::Creating, SnapshotState::Deleting]);
    }
}
