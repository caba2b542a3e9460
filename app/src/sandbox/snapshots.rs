//! The snapshots of a sandbox, on its overview.

use leptos::{prelude::*, task::spawn_local};

use crate::{
    snapshot::{self, SnapshotBadge, Taken, address, reason, short, size, title},
    ui::{Age, LoadError},
    view::{SandboxDetail, SnapshotList, SnapshotRow, SnapshotsQuery},
};

/// Most snapshots that are shown.
const SHOWN: usize = 5;

/// A card with the newest snapshots of the sandbox, and a way to all of them.
#[component]
pub(super) fn OwnSnapshots(
    /// The sandbox.
    current: RwSignal<SandboxDetail>,
) -> impl IntoView {
    let query = current.with_untracked(|it| SnapshotsQuery::of_sandbox(&it.sandbox.id));
    let all = query.url();
    let taken = use_context::<Taken>();
    let asked = query.clone();
    let list = Resource::new_blocking(
        move || taken.map(|Taken(count)| count.get()),
        move |_| snapshot::list(asked.clone()),
    );
    let again = Callback::new(move |()| list.refetch());
    let query = StoredValue::new(query);
    view! {
        <section class="card" aria-labelledby="snapshots-title">
            <div class="card-head">
                <h2 id="snapshots-title">"Snapshots"</h2>
                <a href=all>"All of this sandbox"</a>
            </div>
            <Transition fallback=|| view! { <div class="skeleton-row"></div> }>
                {move || Suspend::new(async move {
                    match list.await {
                        Ok(list) => view! { <Loaded list query=query.get_value() /> }.into_any(),
                        Err(error) => view! { <LoadError error again /> }.into_any(),
                    }
                })}
            </Transition>
        </section>
    }
    .into_any()
}

#[component]
fn Loaded(list: SnapshotList, query: SnapshotsQuery) -> impl IntoView {
    let shown = RwSignal::new(list);
    let states = Memo::new(move |_| {
        let list = shown.read();
        let rows = list.rows.iter().take(SHOWN);
        rows.map(|row| row.snapshot.status.state).collect()
    });
    let again = Callback::new(move |()| {
        let query = query.clone();
        spawn_local(async move {
            if let Ok(list) = snapshot::list(query).await {
                let is_new = shown.try_with_untracked(|known| *known != list);
                // The tab may have been left.
                if is_new == Some(true) {
                    shown.try_set(list);
                }
            }
        });
    });
    snapshot::follow(states, again);
    let rows = move || {
        let list = shown.read();
        list.rows.iter().take(SHOWN).map(line).collect_view()
    };
    let none = move || {
        shown.read().rows.is_empty().then(|| {
            view! {
                <p class="help">
                    "None yet. “Snapshot” above keeps its files, to create other sandboxes from."
                </p>
            }
        })
    };
    let more = move || {
        let matching = shown.read().matching;
        (matching > SHOWN)
            .then(|| view! { <p class="fine num">{format!("{matching} in total")}</p> })
    };
    view! {
        <ul class="own-snapshots">{rows}</ul>
        {none}
        {more}
    }
    .into_any()
}

fn line(row: &SnapshotRow) -> AnyView {
    let snapshot = &row.snapshot;
    let name = title(snapshot).to_owned();
    let id = snapshot.id.clone();
    let short = (short(&id) != name).then(|| short(&id).to_owned());
    view! {
        <li>
            <a href=address(&id) title=id.clone()>{name}</a>
            <span class="row-id mono">{short}</span>
            <SnapshotBadge state=Signal::stored(snapshot.status.state) />
            <span class="num">{size(snapshot.size_bytes)}</span>
            <span class="num"><Age at=Signal::stored(snapshot.created_at) /> " ago"</span>
            <span class="own-snapshot-why">{reason(&snapshot.status)}</span>
        </li>
    }
    .into_any()
}
