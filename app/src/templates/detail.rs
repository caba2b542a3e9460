//! The page of one template.

use leptos::prelude::*;
use leptos_router::hooks::use_params_map;
use osb_protocol::{SandboxId, lifecycle::TemplatePhase};

use super::{calls::Calls, delete::DeleteForm, log::BuildLog, row::create_address};
use crate::{
    error::ConsoleError,
    frame::Titled,
    kin,
    quote::shell_line,
    reread::{self, RELOAD},
    sandbox::CreateButton,
    template::{self, TemplateBadge, hindrance, is_under_way, reason, short, size},
    ui::{Age, CodeBlock, CopyButton, Icon, LoadError, NotShown, PageTitle, When},
    view::{PageStatus, TemplateDetail, TemplateRow},
};

/// The list.
const LIST: (&str, &str) = ("/console/templates", "All templates");
/// What its sandboxes run if it does not say.
const ENTRYPOINT: &str = "tail -f /dev/null";

/// Loads a template and shows it.
#[component]
pub fn TemplatePage() -> impl IntoView {
    let params = use_params_map();
    let id = Memo::new(move |_| params.read().get("id").unwrap_or_default());
    let first = Resource::new_blocking(move || id.get(), template::read);
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
fn Loaded(detail: TemplateDetail) -> impl IntoView {
    let id = detail.row.id.clone();
    let is_build = detail.row.origin.is_build();
    let changes = is_under_way(detail.row.phase);
    // Neither of the two changes.
    let (name, dockerfile) = (detail.row.title().to_owned(), detail.dockerfile.clone());
    let has_name = detail.row.name.is_some();
    let current = RwSignal::new(detail);
    let is_gone = RwSignal::new(false);
    let row = Signal::derive(move || current.read().row.clone());
    let phase = Signal::derive(move || current.read().row.phase);
    let barred = Signal::derive(move || hindrance(phase.get()));
    let asked = id.clone();
    let read_again = Callback::new(move |()| {
        reread::read_one(current, is_gone, template::read(asked.clone()));
    });
    // A log that grows is read often, too. One that is cut has another first line each time.
    let shown = Memo::new(move |_| {
        let detail = current.read();
        let first_line = detail.log.lines().next().map(str::to_owned);
        (!is_gone.get()).then(|| (detail.row.phase, detail.log.len(), first_line))
    });
    let may_change = |shown: &Option<(TemplatePhase, usize, Option<String>)>| {
        let phase = shown.as_ref().map(|(phase, ..)| *phase);
        phase.is_some_and(is_under_way)
    };
    reread::follow(shown, may_change, read_again);
    let short_id = short(&id).to_owned();
    // The server renders the breadcrumb before it has read the template.
    let Titled(titled) = expect_context();
    let entry = (SandboxId::from(id.as_str()), name.clone());
    Effect::new(move |_| titled.set(Some(entry.clone())));
    view! {
        <PageTitle text=name.clone() />
        {changes.then(|| view! { <noscript inner_html=RELOAD></noscript> })}
        <div class="page-head sandbox-head">
            <h1 class:mono=!has_name title=id.clone()>{name}</h1>
            <span class="head-id mono">
                {has_name.then_some(short_id)} <CopyButton text=id.clone() what="the id" />
            </span>
            <TemplateBadge phase />
            <div class="head-actions" role="group" aria-label="Actions">
                <CreateButton
                    address=create_address(&id)
                    command="Create from this template"
                    text="Create from this template"
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
                "This template is deleted. Its last known state is shown below."
            </p>
        </Show>
        <Reason row />
        <div class="cards">
            <section class="card" aria-labelledby="about-title">
                <h2 id="about-title">"About"</h2>
                <About current />
            </section>
            <section class="card" aria-labelledby="sandboxes-title">
                <h2 id="sandboxes-title">"Its sandboxes"</h2>
                <Sandboxes current />
            </section>
        </div>
        {is_build.then(|| view! { <BuildLog current /> })}
        {dockerfile
            .map(|text| {
                view! {
                    <details class="card">
                        <summary><h2>"Dockerfile"</h2></summary>
                        <CodeBlock code=Signal::stored(text) what="the Dockerfile" />
                    </details>
                }
            })}
        <Calls id is_build />
    }
    .into_any()
}

/// Why it cannot be used.
#[component]
fn Reason(row: Signal<TemplateRow>) -> impl IntoView {
    let text = Memo::new(move |_| {
        let row = row.read();
        Some((row.phase, reason(&row)?))
    });
    move || {
        text.get().map(|(phase, text)| {
            let tone = match phase {
                TemplatePhase::Failed => "bad",
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
fn About(current: RwSignal<TemplateDetail>) -> impl IntoView {
    let TemplateDetail {
        row,
        labels,
        publish,
        ..
    } = current.get_untracked();
    let changed = Signal::derive(move || current.read().changed_at);
    let manifest = move || {
        let manifest = current.read().manifest.clone();
        manifest.unwrap_or_else(|| "none yet".to_owned())
    };
    let labels: Vec<_> = labels
        .iter()
        .filter(|(name, _)| *name != "name")
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let labels = match labels.is_empty() {
        true => "none".to_owned(),
        false => labels.join(", "),
    };
    let is_image = !row.origin.is_build();
    view! {
        <dl class="facts">
            <dt>"Id"</dt>
            <dd class="mono">{row.id.clone()} <CopyButton text=row.id.clone() what="the id" /></dd>
            <dt>"Made from"</dt>
            <dd class:mono=is_image>{row.origin.words().to_owned()}</dd>
            <dt>"Phase"</dt>
            <dd>{move || current.read().row.phase.as_str()} " since " <When at=changed /></dd>
            <dt>"Image on the engine"</dt>
            <dd class="mono">{manifest}</dd>
            <dt>"Size on disk"</dt>
            <dd class="num">{move || size(&current.read().row)}</dd>
            <dt>"Labels"</dt>
            <dd class="mono">{labels}</dd>
            <dt>"Publish"</dt>
            <dd class="mono">{publish}</dd>
            <dt>"Made"</dt>
            <dd><When at=row.created_at /> " (" <Age at=row.created_at /> " ago)"</dd>
        </dl>
        <p class="help">
            "The image stays what it was when the template was made. “Publish” is kept for runtimes of micro-VMs and has no effect here."
        </p>
    }
    .into_any()
}

/// What its sandboxes run, and which there are.
#[component]
fn Sandboxes(current: RwSignal<TemplateDetail>) -> impl IntoView {
    let detail = current.get_untracked();
    let entrypoint = match detail.entrypoint {
        Some(words) => shell_line(&words),
        None => ENTRYPOINT.to_owned(),
    };
    let limit = |name: &'static str, usual: &'static str| {
        let amount = detail.resources.get(name).cloned();
        view! {
            <dt>"Limit of " {name}</dt>
            <dd class="num">{amount.unwrap_or_else(|| usual.to_owned())}</dd>
        }
    };
    let limits = (limit("cpu", "1"), limit("memory", "512Mi"));
    let variables = match detail.variables.as_slice() {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    let users = move || {
        let detail = current.read();
        kin::users(&detail.row.users, detail.row.user_count)
    };
    view! {
        <dl class="facts">
            <dt>"Entry point"</dt>
            <dd class="mono">{entrypoint}</dd>
            {limits}
            <dt>"Variables"</dt>
            <dd class="mono">{variables}</dd>
        </dl>
        <p class="help">"Of variables only the names are shown."</p>
        {users}
    }
    .into_any()
}

/// There is no such template.
#[component]
fn Missing() -> impl IntoView {
    PageStatus::set(404);
    view! {
        <NotShown title="Template" icon="package" heading="No such template" list=LIST>
            <p>"It was deleted, belongs to another tenant, or there never was one with this id."</p>
        </NotShown>
    }
    .into_any()
}

/// It could not be read.
#[component]
fn Unavailable(error: ConsoleError, #[prop(into)] again: Callback<()>) -> impl IntoView {
    view! {
        <NotShown title="Template" icon="triangle-alert" heading="Unavailable" list=LIST>
            <LoadError error again />
        </NotShown>
    }
    .into_any()
}
