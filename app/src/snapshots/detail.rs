//! The page of one snapshot.

use leptos::prelude::*;
use leptos_router::hooks::use_params_map;
use osb_protocol::{SandboxId, lifecycle::SnapshotState};

use super::{
    act::{create_address, hindrance},
    calls::Calls,
    delete::DeleteForm,
    lineage::Lineage,
};
use crate::{
    error::ConsoleError,
    frame::Titled,
    reread::{self, RELOAD},
    sandbox::CreateButton,
    snapshot::{self, SnapshotBadge, address, is_under_way, reason, short, size, title},
    tab::Tab,
    ui::{Age, CopyButton, Icon, LoadError, NotShown, PageTitle, When},
    view::{PageStatus, SnapshotDetail, SnapshotRow},
};

/// The list.
const LIST: (&str, &str) = ("/console/snapshots", "All snapshots");

/// Loads a snapshot and shows it.
#[component]
pub fn SnapshotPage() -> impl IntoView {
    let params = use_params_map();
    let id = Memo::new(move |_| params.read().get("id").unwrap_or_default());
    let first = Resource::new_blocking(move || id.get(), snapshot::read);
    view! {
        <Transition fallback=|| {
            view! {
                <div class="skeleton" aria-busy="true">
                    <div class="skeleton-row"></div>
                </div>
            }
        }>
            {move || Suspend::new(async move {
                match first.await {
                    Ok(Some(detail)) => view! { <Loaded detail /> }.into_any(),
                    Ok(None) => view! { <Missing /> }.into_any(),
                    Err(error) => {
                        view! { <Unavailable error again=move |()| first.refetch() /> }.into_any()
                    }
                }
            })}
        </Transition>
    }
    .into_any()
}

#[component]
fn Loaded(detail: SnapshotDetail) -> impl IntoView {
    let id = detail.row.snapshot.id.clone();
    let first_state = detail.row.snapshot.status.state;
    let current = RwSignal::new(detail);
    let is_gone = RwSignal::new(false);
    let row = Signal::derive(move || current.read().row.clone());
    let state = Signal::derive(move || current.read().row.snapshot.status.state);
    let barred = Signal::derive(move || hindrance(state.get()));
    let asked = id.clone();
    let read_again = Callback::new(move |()| {
        reread::read_one(current, is_gone, snapshot::read(asked.clone()));
    });
    let states = Memo::new(move |_| match is_gone.get() {
        true => Vec::new(),
        false => vec![state.get()],
    });
    snapshot::follow(states, read_again);
    let name = Memo::new(move |_| title(&current.read().row.snapshot).to_owned());
    let short_id = short(&id).to_owned();
    let has_name = Memo::new({
        let short_id = short_id.clone();
        move |_| name.get() != short_id
    });
    // The server renders the breadcrumb before it has read the snapshot.
    let Titled(titled) = expect_context();
    let titled_id = SandboxId::from(id.as_str());
    Effect::new(move |_| titled.set(Some((titled_id.clone(), name.get()))));
    view! {
        <PageTitle text=name />
        {is_under_way(first_state).then(|| view! { <noscript inner_html=RELOAD></noscript> })}
        <div class="page-head sandbox-head">
            <h1 class:mono=move || !has_name.get() title=id.clone()>{name}</h1>
            <span class="head-id mono">
                {move || has_name.get().then(|| short_id.clone())}
                <CopyButton text=id.clone() what="the id" />
            </span>
            <SnapshotBadge state />
            <div class="head-actions" role="group" aria-label="Actions">
                <CreateButton
                    address=create_address(&id)
                    command="Create a sandbox from this snapshot"
                    hindrance=barred
                />
                <div data-act="delete">
                    <DeleteForm id=id.clone() row read_again />
                </div>
            </div>
        </div>
        <Show when=move || is_gone.get()>
            <p class="banner" data-tone="quiet" role="status">
                <Icon name="info" />
                "This snapshot is deleted. Its last known state is shown below."
            </p>
        </Show>
        <Reason row />
        <div class="cards">
            <section class="card" aria-labelledby="about-title">
                <h2 id="about-title">"About"</h2>
                <About row />
            </section>
            <section class="card" aria-labelledby="lineage-title">
                <h2 id="lineage-title">"Lineage"</h2>
                <Lineage current />
            </section>
        </div>
        <Calls id />
    }
    .into_any()
}

/// Why it cannot be used.
#[component]
fn Reason(row: Signal<SnapshotRow>) -> impl IntoView {
    let text = Memo::new(move |_| {
        let status = &row.read().snapshot.status;
        Some((status.state, reason(status)?))
    });
    move || {
        text.get().map(|(state, text)| {
            let tone = match state {
                SnapshotState::Failed => "bad",
                _ => "busy",
            };
            view! {
                <p class="banner" data-tone=tone role="status">
                    <Icon name="triangle-alert" />
                    <span>{text}</span>
                </p>
            }
        })
    }
}

/// What it is.
#[component]
fn About(row: Signal<SnapshotRow>) -> impl IntoView {
    let first = row.get_untracked();
    let snapshot = first.snapshot;
    let id = snapshot.id;
    let since = move || {
        let at = row.read().snapshot.status.last_transition_at;
        at.map(|at| view! { " since " <When at /> })
    };
    let source = first.source.id;
    let parent = match snapshot.source_snapshot_id {
        Some(id) => view! {
            <a class="mono" href=address(&id) title=id.clone()>
                {short(&id).to_owned()}
            </a>
        }
        .into_any(),
        None => "an image".into_any(),
    };
    let name = snapshot.name.unwrap_or_else(|| "none".to_owned());
    view! {
        <dl class="facts">
            <dt>"Id"</dt>
            <dd class="mono">{id.clone()} <CopyButton text=id what="the id" /></dd>
            <dt>"Name"</dt>
            <dd>{name}</dd>
            <dt>"State"</dt>
            <dd>{move || row.read().snapshot.status.state.as_str()} {since}</dd>
            <dt>"Sandbox"</dt>
            <dd>
                <a href=Tab::Overview.address(&source) title=source.to_string()>
                    {move || row.read().source.title.clone()}
                </a>
                {move || row.read().source.state.is_none().then_some(" (gone)")}
            </dd>
            <dt>"The sandbox was created from"</dt>
            <dd>{parent}</dd>
            <dt>"Taken"</dt>
            <dd>
                <When at=snapshot.created_at /> " (" <Age at=snapshot.created_at /> " ago)"
            </dd>
            <dt>"Size on disk"</dt>
            <dd class="num">
                {move || size(row.read().snapshot.size_bytes)}
            </dd>
        </dl>
        <p class="help">
            "It has the files of the sandbox, and the command, variables and user of its image. Programs that ran, memory and volumes are not part of it. The size is what it takes beyond that image."
        </p>
    }
    .into_any()
}

/// There is no such snapshot.
#[component]
fn Missing() -> impl IntoView {
    PageStatus::set(404);
    view! {
        <NotShown title="Snapshot" icon="camera" heading="No such snapshot" list=LIST>
            <p>"It was deleted, or there never was one with this id."</p>
        </NotShown>
    }
    .into_any()
}

/// It could not be read.
#[component]
fn Unavailable(error: ConsoleError, #[prop(into)] again: Callback<()>) -> impl IntoView {
    view! {
        <NotShown title="Snapshot" icon="triangle-alert" heading="Unavailable" list=LIST>
            <LoadError error again />
        </NotShown>
    }
    .into_any()
}
