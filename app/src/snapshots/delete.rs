//! Deleting a snapshot, after a question. Without script a page asks.

use leptos::{ev, prelude::*};
use leptos_router::hooks::use_navigate;
use osb_protocol::lifecycle::SnapshotState;

use crate::{
    deletion,
    form::{DeleteIcon, Deleting},
    sandbox::{ActButton, BarredButton},
    snapshot::{self, address, title},
    view::{LOOKS_ONLY, SnapshotRow, kin_names, offers_changes},
};

/// Why a snapshot in this state cannot be deleted. One whose delete was refused can be tried again.
fn hindrance(state: SnapshotState) -> Option<&'static str> {
    (state == SnapshotState::Creating).then_some("It is still being taken.")
}

/// A delete button for the list.
#[component]
pub(super) fn DeleteButton(
    /// Id of the snapshot.
    id: String,
    /// Its row.
    row: Signal<SnapshotRow>,
    /// Reads the list again.
    #[prop(into)]
    read_again: Callback<()>,
) -> impl IntoView {
    let name = Signal::derive(move || title(&row.read().snapshot).to_owned());
    if !offers_changes() {
        let label = format!("Delete {}", name.get_untracked());
        return view! { <BarredButton label icon="trash-2" /> }.into_any();
    }
    let why = move || hindrance(row.read().snapshot.status.state);
    let label = Signal::derive(move || match why() {
        Some(why) => ["Delete ", &name.get(), ": ", why].concat(),
        None => ["Delete ", &name.get()].concat(),
    });
    let action = [&address(&id), "/delete"].concat();
    let then = Callback::new(move |_| {
        let _ = read_again.try_run(());
    });
    let (ask, busy) = deletion_of(id, row, then);
    let is_hindered = Signal::derive(move || busy.get() || why().is_some());
    view! {
        <form method="get" action=action on:submit=ask>
            <DeleteIcon label is_hindered />
        </form>
    }
    .into_any()
}

/// A delete button for the page of a snapshot, which leads to the list afterwards.
#[component]
pub(super) fn DeleteForm(
    /// Id of the snapshot.
    id: String,
    /// Its row.
    row: Signal<SnapshotRow>,
    /// Reads the page again.
    #[prop(into)]
    read_again: Callback<()>,
) -> impl IntoView {
    let navigate = use_navigate();
    let may_change = offers_changes();
    let why = Memo::new(move |_| match may_change {
        true => hindrance(row.read().snapshot.status.state),
        false => Some(LOOKS_ONLY),
    });
    let action = [&address(&id), "/delete"].concat();
    let then = Callback::new(move |is_done| match is_done {
        true => navigate("/console/snapshots", Default::default()),
        false => drop(read_again.try_run(())),
    });
    let (ask, busy) = deletion_of(id, row, then);
    view! {
        <form method="get" action=action on:submit=ask>
            <ActButton
                id="delete"
                icon="trash-2"
                text="Delete"
                why=why.into()
                busy
                danger=true
                asks=true
                about="this snapshot"
            />
        </form>
    }
    .into_any()
}

/// The handler that asks in a dialog, and the busy signal of a delete.
fn deletion_of(
    id: String,
    row: Signal<SnapshotRow>,
    then: Callback<bool>,
) -> (impl Fn(ev::SubmitEvent), RwSignal<bool>) {
    let deleting = Deleting {
        question: Callback::new(move |()| {
            row.with_untracked(|row| {
                let users = kin_names(&row.users, row.user_count);
                let title = deletion::snapshot_question(title(&row.snapshot));
                (title, deletion::of_snapshot(&users))
            })
        }),
        yes: "Delete snapshot",
        done: Callback::new(move |()| {
            let name = row.with_untracked(|row| title(&row.snapshot).to_owned());
            format!("The snapshot {name} is deleted")
        }),
        then,
    };
    deleting.form(move || snapshot::delete(id.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_taken_stays() {
        for state in SnapshotState::ALL {
            let stays = state == SnapshotState::Creating;
            assert_eq!(hindrance(state).is_some(), stays, "{state}");
        }
    }
}
