//! The tabs of a sandbox's page: their routes, their links and their content.

use leptos::{ev, html, prelude::*, tachys::view::iterators::StaticVec};
use leptos_router::{
    NestedRoute, SsrMode, StaticSegment, any_nested_route::IntoAnyNestedRoute, hooks::use_location,
};
use osb_protocol::{SandboxId, lifecycle::SandboxState};

use super::{not_running::NotRunning, overview};
use crate::{
    browser, diagnosis, files,
    lazy::Lazy,
    logs, metrics, network, preview, run,
    tab::{Current, Tab},
    terminal,
    ui::Icon,
    view::ServerInfo,
};

/// A route for each tab.
#[component(transparent)]
pub fn TabRoutes() -> impl leptos_router::MatchNestedRoutes + Clone {
    let route = |tab| {
        let view = move || view! { <TabBody tab /> };
        NestedRoute::new(StaticSegment(tab), view).ssr_mode(SsrMode::Async)
    };
    StaticVec::from(Tab::ALL.map(route).to_vec()).into_any_nested_route()
}

/// Links to the tabs.
#[component]
pub(super) fn TabBar(id: SandboxId) -> impl IntoView {
    let path = use_location().pathname;
    let current = Memo::new(move |_| path.with(|path| Tab::of_path(path)));
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    let offered = Tab::ALL.into_iter().filter(|tab| tab.is_offered(features));
    let bar = NodeRef::<html::Nav>::new();
    let show_current = move || {
        let bar = bar.try_get_untracked().flatten();
        if let Some((bar, tab)) = bar.zip(current.try_get_untracked().flatten()) {
            let link = format!("[data-tab-link=\"{}\"]", tab.segment());
            browser::scroll_inside(&bar, &link);
        }
    };
    // Narrow screens have no room for all of them.
    Effect::new(move |_| {
        current.track();
        if bar.get().is_some() {
            // The current tab is wider than it was: its text is bold.
            request_animation_frame(show_current);
        }
    });
    Effect::new(move |_| {
        let resized = window_event_listener(ev::resize, move |_| show_current());
        on_cleanup(move || resized.remove());
    });
    let link = |tab: Tab| {
        view! {
            <a
                href=tab.address(&id)
                data-tab-link=tab.segment()
                aria-current=move || (current.get() == Some(tab)).then_some("page")
            >
                <Icon name=tab.icon() />
                {tab.title()}
            </a>
        }
    };
    view! {
        <nav class="tabs" node_ref=bar aria-label="Parts of this sandbox">
            {offered.map(link).collect_view()}
        </nav>
    }
    .into_any()
}

/// The view of a tab.
fn content(tab: Tab) -> AnyView {
    match tab {
        Tab::Overview => view! { <Lazy part=overview::PART /> }.into_any(),
        Tab::Terminal => view! { <Lazy part=terminal::PART /> }.into_any(),
        Tab::Files => view! { <Lazy part=files::PART /> }.into_any(),
        Tab::Preview => view! { <Lazy part=preview::PART /> }.into_any(),
        Tab::Network => view! { <Lazy part=network::PART /> }.into_any(),
        Tab::Diagnostics => view! { <Lazy part=diagnosis::PART /> }.into_any(),
        Tab::Run => view! { <Lazy part=run::PART /> }.into_any(),
        Tab::Logs => view! { <Lazy part=logs::PART /> }.into_any(),
        Tab::Metrics => view! { <Lazy part=metrics::PART /> }.into_any(),
    }
}

/// The content of a tab. One that needs a running sandbox waits for it, and stays when the sandbox
/// ends: what it shows may explain the end.
#[component]
fn TabBody(tab: Tab) -> impl IntoView {
    let Some(Current(current)) = use_context() else {
        return ().into_any();
    };
    if !tab.needs_running() {
        return content(tab);
    }
    let state = move || current.read().sandbox.status.state.clone();
    let has_run = Memo::new(move |before: Option<&bool>| {
        before.copied().unwrap_or_default() || state() == SandboxState::Running
    });
    let is_running =
        Memo::new(move |_| state() == SandboxState::Running && current.read().ended.is_none());
    view! {
        <Show when=move || !is_running.get()>
            <NotRunning tab current />
        </Show>
        <Show when=move || has_run.get()>{content(tab)}</Show>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use leptos_router::MatchNestedRoutes;

    use super::*;

    #[test]
    fn every_tab_has_a_route() {
        let routes = TabRoutes();
        for tab in Tab::ALL {
            let path = match tab.segment() {
                "" => String::new(),
                segment => format!("/{segment}"),
            };
            let (matched, rest) = routes.match_nested(&path);
            assert!(matched.is_some() && rest.is_empty(), "{path:?}");
        }
        assert!(routes.match_nested("/nowhere").0.is_none());
        assert_eq!(routes.generate_routes().into_iter().count(), Tab::ALL.len());
    }
}
