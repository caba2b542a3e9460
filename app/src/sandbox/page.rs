//! The page of one sandbox: header and tabs. The data is loaded once and kept live for all tabs.

use leptos::prelude::*;
use leptos_router::{components::Outlet, hooks::use_params_map};
use osb_protocol::{SandboxId, lifecycle::SandboxState};

use super::{api, header::Header, tab::TabBar};
use crate::{
    error::ConsoleError,
    frame::Titled,
    live::Live,
    snapshot::Taken,
    tab::Current,
    ui::{Icon, LoadError, PageTitle},
    view::{PageStatus, SandboxDetail, title},
};

/// Reloads the page every 2 s. Browsers with script follow the sandbox without it.
const RELOAD: &str = r#"<meta http-equiv="refresh" content="2">"#;

/// Loads a sandbox and shows the chosen tab.
#[component]
pub fn SandboxPage() -> impl IntoView {
    let params = use_params_map();
    let id = Memo::new(move |_| SandboxId::new(params.read().get("id").unwrap_or_default()));
    let first = Resource::new_blocking(move || id.get(), api::detail);
    view! {
        <Transition fallback=|| view! { <div class="skeleton" aria-busy="true"><div class="skeleton-row"></div></div> }>
            {move || Suspend::new(async move {
                match first.await {
                    Ok(detail) => view! { <Loaded detail /> }.into_any(),
                    Err(error) => view! { <Missing error again=move |()| first.refetch() /> }.into_any(),
                }
            })}
        </Transition>
    }
    .into_any()
}

#[component]
fn Loaded(detail: SandboxDetail) -> impl IntoView {
    let id = detail.sandbox.id.clone();
    let is_pending = detail.sandbox.status.state == SandboxState::Pending;
    let gone = RwSignal::new(detail.ended.is_some());
    let current = RwSignal::new(detail);
    provide_context(Current(current));
    provide_context(Taken(RwSignal::new(0)));
    let live = use_context::<Live>();
    let watched = id.clone();
    Effect::new(move |_| {
        if let Some(live) = live {
            live.watch_sandbox(watched.clone(), move |detail| match detail {
                Some(detail) => {
                    gone.set(detail.ended.is_some());
                    current.set(detail);
                }
                None => gone.set(true),
            });
        }
    });
    let name = Memo::new(move |_| title(&current.read().sandbox).to_owned());
    // The server renders the breadcrumb before it has read the sandbox.
    let Titled(titled) = expect_context();
    let titled_id = id.clone();
    Effect::new(move |_| titled.set(Some((titled_id.clone(), name.get()))));
    view! {
        <PageTitle text=name />
        {is_pending.then(|| view! { <noscript inner_html=RELOAD></noscript> })}
        <Header current gone />
        <Show when=move || gone.get()>
            <p class="banner" data-tone="quiet" role="status">
                <Icon name="info" />
                {move || {
                    let ended = current.read().ended;
                    ended.map_or("This sandbox is gone.", |ended| ended.outcome.sentence())
                }}
                " Its last known state is shown below."
            </p>
        </Show>
        <TabBar id />
        <Outlet />
    }
    .into_any()
}

#[component]
fn Missing(error: ConsoleError, #[prop(into)] again: Callback<()>) -> impl IntoView {
    let title = match error {
        ConsoleError::NotFound => "No such sandbox",
        ConsoleError::SignedOut => "Signed out",
        _ => "Unavailable",
    };
    if error == ConsoleError::NotFound {
        PageStatus::set(404);
    }
    view! {
        <PageTitle text="Sandbox" />
        <section class="empty">
            <Icon name="triangle-alert" />
            <h1>{title}</h1>
            <LoadError error again />
            <a class="button" href="/console/sandboxes">"All sandboxes"</a>
        </section>
    }
    .into_any()
}
