//! The page that creates a sandbox.
//!
//! The form posts to `/console/create`, which answers with this page again when something is wrong:
//! the input and its problems come back as [`Draft`]. With script the same form calls server
//! functions instead, and checks the input while the user types.

use leptos::{ev, prelude::*, task::spawn_local};
use leptos_router::hooks::use_navigate;
use osb_protocol::SandboxId;

use super::{
    CreateForm, Draft, api,
    code::EquivalentCode,
    copy,
    fields::Fields,
    lifetime,
    preset_list::PresetList,
    presets::Preset,
    source::Start,
    source_field::Offered,
    state::State,
    summary::{SUMMARY, Summary},
    unsent::{Keeper, UnsentNote, forget},
};
use crate::{
    browser,
    error::ConsoleError,
    frame::Toasts,
    query_string::use_query,
    snapshot::{self, offers_snapshots},
    template::{self, offers_templates},
    ui::{Icon, LoadError, PageTitle},
    view::{
        Creation, HostImages, OfferedSnapshots, OfferedTemplates, Original, PageStatus, ServerInfo,
        offers_changes,
    },
};

/// The page.
#[component]
pub fn CreatePage() -> impl IntoView {
    let draft = SharedValue::new(use_context::<Draft>).into_inner();
    let images = Resource::new_blocking(|| (), |()| api::images());
    let has_snapshots = offers_snapshots();
    let snapshots = Resource::new_blocking(
        || (),
        move |()| async move {
            match has_snapshots {
                true => snapshot::offered().await,
                false => Ok(OfferedSnapshots::default()),
            }
        },
    );
    let has_templates = offers_templates();
    let templates = Resource::new_blocking(
        || (),
        move |()| async move {
            match has_templates {
                true => template::offered().await,
                false => Ok(OfferedTemplates::default()),
            }
        },
    );
    let query = use_query();
    // Read-only users get no copy.
    let may_create = offers_changes();
    let from = Memo::new(move |_| {
        let from = query.read().get("from").map(SandboxId::new);
        from.filter(|_| may_create)
    });
    let original = Resource::new_blocking(
        move || from.get(),
        |from| async move {
            match from {
                Some(id) => Some((id.clone(), api::read_original(id).await)),
                None => None,
            }
        },
    );
    view! {
        <PageTitle text="Create" />
        <div class="page-head">
            <h1>"Create a sandbox"</h1>
        </div>
        <Transition fallback=|| {
            view! {
                <div class="skeleton" aria-busy="true">
                    <div class="skeleton-row"></div>
                </div>
            }
        }>
            {move || {
                let draft = draft.clone();
                Suspend::new(async move {
                    // The form works without knowing them.
                    let images = images.await.unwrap_or_default();
                    let offered = Offered {
                        snapshots: snapshots.await.unwrap_or_default(),
                        templates: templates.await.unwrap_or_default(),
                    };
                    match original.await {
                        Some((id, Err(error))) => {
                            view! { <NoOriginal id error again=move |()| original.refetch() /> }
                                .into_any()
                        }
                        Some((id, Ok(of))) => {
                            let original = Some((id, of));
                            view! { <Loaded draft images offered original /> }.into_any()
                        }
                        None => {
                            view! { <Loaded draft images offered original=None /> }.into_any()
                        }
                    }
                })
            }}
        </Transition>
    }
    .into_any()
}

/// The form of a new page, with the preset or the source in its address.
fn first_form(preset: Option<&Preset>, start: Option<Start>) -> CreateForm {
    let most = use_context::<ServerInfo>().and_then(|info| info.max_timeout_seconds);
    let mut form = CreateForm {
        lifetime: lifetime::usual(most),
        ..CreateForm::default()
    };
    if let Some(preset) = preset {
        preset.fill(&mut form);
    }
    if let Some(start) = start {
        form.begin_from(start);
    }
    form
}

/// Shown when the sandbox that is to be copied cannot be read.
#[component]
fn NoOriginal(
    id: SandboxId,
    error: ConsoleError,
    #[prop(into)] again: Callback<()>,
) -> impl IntoView {
    if error == ConsoleError::NotFound {
        PageStatus::set(404);
    }
    view! {
        <section class="empty">
            <Icon name="triangle-alert" />
            <h2>{format!("{} cannot be copied", id.short())}</h2>
            <LoadError error again />
            <a class="button" href="/console/create">
                "Create another sandbox"
            </a>
        </section>
    }
    .into_any()
}

/// Which sandbox is copied.
#[component]
fn CopyNote(
    id: SandboxId,
    /// The label `name` of the original, if it has one.
    name: Option<String>,
    /// What is to be known about its network policy.
    network: Option<&'static str>,
) -> impl IntoView {
    let (name, more) = match name {
        Some(name) => (name, Some(id.short().to_owned())),
        None => (id.short().to_owned(), None),
    };
    let mono = more.is_none().then_some("mono");
    view! {
        <p class="copy-note">
            <Icon name="copy" />
            <span>
                "A copy of "
                <a class=mono href=format!("/console/sandboxes/{id}")>
                    {name}
                </a>
                {more.map(|id| view! { " (" <span class="mono">{id}</span> ")" })}
                ", created anew: its files are not copied. " {network}
            </span>
        </p>
    }
    .into_any()
}

#[component]
fn Loaded(
    draft: Option<Draft>,
    images: HostImages,
    offered: Offered,
    /// What is copied.
    original: Option<(SandboxId, Original)>,
) -> impl IntoView {
    let query = use_query();
    let preset = Memo::new(move |_| query.read().get("preset"));
    let start = Memo::new(move |_| Start::of_query(|name| query.read().get(name)));
    let first = match &original {
        Some((id, original)) => copy::form_of(id, original),
        None => first_form(
            preset.with_untracked(|id| Preset::named(id.as_deref()?)),
            start.get_untracked(),
        ),
    };
    let keeper = Keeper::of(first.clone());
    let is_refused = draft.is_some();
    let state = State::new(first, draft);
    // A rejected form has the names that were known when it was sent.
    let are_known = match &original {
        Some((_, original)) => original.variables.is_some(),
        None => true,
    };
    let name = original.as_ref().and_then(|(_, original)| {
        let name = original.metadata.get("name").map(|name| name.trim());
        name.filter(|name| !name.is_empty()).map(str::to_owned)
    });
    let network = original.as_ref();
    let network = network.and_then(|(_, original)| copy::network_note(&original.network_policy));
    let from = state.form.read_untracked().from.clone();
    let copied = (!from.is_empty()).then(|| SandboxId::new(from));
    // Links and the Back button change the preset.
    Effect::new(move |before: Option<Option<String>>| {
        let id = preset.get();
        if let (true, Some(preset)) = (
            before.is_some_and(|before| before != id),
            id.as_deref().and_then(Preset::named),
        ) {
            state.fill(preset);
        }
        id
    });
    Effect::new(move |before: Option<Option<Start>>| {
        let now = start.get();
        if let (true, Some(start)) = (before.is_some_and(|before| before != now), now.clone()) {
            state.start_from(start);
        }
        now
    });
    let images = StoredValue::new(images);
    let offered = StoredValue::new(offered);
    let may_create = offers_changes();
    let submit = on_submit(state, keeper);
    view! {
        <div class="split">
            <div class="create">
                <UnsentNote state keeper preset is_refused />
                {match copied {
                    Some(id) => view! { <CopyNote id name network /> }.into_any(),
                    None => view! { <PresetList state images /> }.into_any(),
                }}
                <form
                    method="post"
                    action="/console/create"
                    class="card form"
                    on:submit=submit
                    novalidate
                >
                    <Summary state />
                    <Fields state images offered are_known />
                    <div class="form-foot">
                        <button
                            type="submit"
                            class="button primary"
                            disabled=!may_create
                            aria-describedby=(!may_create).then_some("may-not-create")
                            aria-disabled=move || state.busy.get().then_some("true")
                        >
                            <Icon name="plus" />
                            "Create"
                        </button>
                        {(!may_create)
                            .then(|| {
                                view! {
                                    <p id="may-not-create" class="fine">
                                        "Your role is read_only: creating needs the role operator."
                                    </p>
                                }
                            })}
                    </div>
                </form>
            </div>
            <EquivalentCode state />
        </div>
    }
    .into_any()
}

/// Sends the form, and opens the page of the sandbox or shows why there is none.
fn on_submit(state: State, keeper: Keeper) -> impl Fn(ev::SubmitEvent) {
    let navigate = use_navigate();
    let toasts = Toasts::current();
    move |event: ev::SubmitEvent| {
        event.prevent_default();
        if state.busy.get_untracked() {
            return;
        }
        let navigate = navigate.clone();
        let kept = keeper.place();
        state.begin();
        let lost = state.lost_values();
        if !lost.is_empty() {
            state.refuse(lost, None);
            browser::focus_when_shown(SUMMARY);
            return;
        }
        spawn_local(async move {
            let (problems, refusal) = match api::create(state.form.get_untracked()).await {
                // The sandbox's page follows its stages.
                Ok(Creation::Made(id)) => {
                    forget(&kept);
                    let form = state.form.read_untracked();
                    toasts.good(format!("{} is being created", form.title(&id)));
                    drop(form);
                    navigate(&format!("/console/sandboxes/{id}"), Default::default());
                    return;
                }
                Ok(Creation::Invalid(problems)) => (problems, None),
                Ok(Creation::Refused(why)) => (Vec::new(), Some(why)),
                Err(error) => (Vec::new(), Some(error.to_string())),
            };
            state.refuse(problems, refusal);
            browser::focus_when_shown(SUMMARY);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::Field;

    #[test]
    fn every_field_of_the_form_can_be_focused() {
        for field in Field::ALL.into_iter().filter(|field| *field != Field::Form) {
            let id = format!("#{}", field.input().unwrap_or_default());
            assert!(field.focus_targets().contains(&&*id), "{field:?}");
        }
        assert!(Field::Form.focus_targets().is_empty());
    }
}
