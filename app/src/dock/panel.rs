//! One panel of the dock.

use leptos::prelude::*;

use crate::{
    error::ConsoleError,
    frame::{Panel, Shows},
    lazy::Lazy,
    live::Live,
    logs, sandbox,
    tab::Current,
    terminal,
    ui::LoadError,
    view::SandboxDetail,
};

/// Loads the sandbox of a panel and shows its shell or its log.
#[component]
pub(super) fn PanelBody(panel: Panel) -> impl IntoView {
    let asked = panel.sandbox.clone();
    let first = Resource::new(|| (), move |()| sandbox::detail(asked.clone()));
    view! {
        <Transition fallback=|| view! { <p class="help dock-note" role="status">"Loading …"</p> }>
            {move || {
                let panel = panel.clone();
                Suspend::new(async move {
                    match first.await {
                        Ok(detail) => view! { <Shown panel detail /> }.into_any(),
                        Err(ConsoleError::NotFound) => {
                            view! { <p class="help dock-note">"This sandbox is gone."</p> }.into_any()
                        }
                        Err(error) => {
                            view! { <LoadError error again=move |()| first.refetch() /> }.into_any()
                        }
                    }
                })
            }}
        </Transition>
    }
    .into_any()
}

#[component]
fn Shown(panel: Panel, detail: SandboxDetail) -> impl IntoView {
    let current = RwSignal::new(detail);
    provide_context(Current(current));
    let (id, shows) = (panel.sandbox.clone(), panel.shows);
    provide_context(panel);
    let live = use_context::<Live>();
    Effect::new(move |_| {
        if let Some(live) = live {
            live.watch_sandbox(id.clone(), move |detail| {
                if let Some(detail) = detail {
                    current.set(detail);
                }
            });
        }
    });
    match shows {
        Shows::Shell(_) => view! { <Lazy part=terminal::PART /> }.into_any(),
        Shows::Log => view! { <Lazy part=logs::PART /> }.into_any(),
    }
}
