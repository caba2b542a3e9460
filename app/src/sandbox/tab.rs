//! The tabs of a sandbox's page.
//!
//! Routes, links, breadcrumb and keys follow from [`Tab::ALL`]. A new tab is a variant with its
//! [`TabSpec`] and its view.

use leptos::{prelude::*, tachys::view::iterators::StaticVec};
use leptos_router::{
    AsPath, NestedRoute, SsrMode, StaticSegment, any_nested_route::IntoAnyNestedRoute,
    hooks::use_location,
};
use osb_protocol::{SandboxId, lifecycle::SandboxState};

use super::{overview::OverviewTab, page::Current};
use crate::{terminal::TerminalTab, ui::Icon};

/// A tab of a sandbox's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    /// What the sandbox is, and its state.
    Overview,
    /// A shell in it.
    Terminal,
}

/// What is fixed about a tab.
struct TabSpec {
    /// Last segment of its address; empty for the tab that the sandbox's own address shows.
    segment: &'static str,
    title: &'static str,
    icon: &'static str,
    /// Whether there is nothing to show before the sandbox runs.
    needs_running: bool,
    /// The key that opens it, from the list too.
    key: Option<&'static str>,
}

impl Tab {
    /// All tabs, in their order on the page.
    pub const ALL: [Self; 2] = [Self::Overview, Self::Terminal];

    const fn spec(self) -> TabSpec {
        match self {
            Self::Overview => TabSpec {
                segment: "",
                title: "Overview",
                icon: "info",
                needs_running: false,
                key: None,
            },
            Self::Terminal => TabSpec {
                segment: "terminal",
                title: "Terminal",
                icon: "terminal",
                needs_running: true,
                key: Some("t"),
            },
        }
    }

    fn view(self) -> AnyView {
        match self {
            Self::Overview => view! { <OverviewTab /> }.into_any(),
            Self::Terminal => view! { <TerminalTab /> }.into_any(),
        }
    }

    /// Its name.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.spec().title
    }

    /// Its icon.
    #[must_use]
    pub const fn icon(self) -> &'static str {
        self.spec().icon
    }

    /// Last segment of its address; also the value of `data-tab-link` on links to it.
    #[must_use]
    pub const fn segment(self) -> &'static str {
        self.spec().segment
    }

    /// The key that opens it.
    #[must_use]
    pub const fn key(self) -> Option<&'static str> {
        self.spec().key
    }

    /// The tab that this key opens.
    #[must_use]
    pub fn of_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tab| tab.key() == Some(key))
    }

    /// The tab with this last segment.
    #[must_use]
    pub fn of_segment(segment: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tab| tab.segment() == segment)
    }

    /// The tab of a sandbox's page at this path.
    fn of_path(path: &str) -> Option<Self> {
        let page = path.strip_prefix("/console/sandboxes/")?;
        let segment = page.split_once('/').map_or("", |(_, segment)| segment);
        Self::of_segment(segment.trim_end_matches('/'))
    }

    /// Its address.
    #[must_use]
    pub fn address(self, id: &SandboxId) -> String {
        match self.segment() {
            "" => format!("/console/sandboxes/{id}"),
            segment => format!("/console/sandboxes/{id}/{segment}"),
        }
    }
}

impl AsPath for Tab {
    fn as_path(&self) -> &'static str {
        self.segment()
    }
}

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
        <nav class="tabs" aria-label="Parts of this sandbox">
            {Tab::ALL.map(link).collect_view()}
        </nav>
    }
    .into_any()
}

/// The content of a tab. One that needs a running sandbox waits for it, and stays when the sandbox
/// ends: what it shows may tell why.
#[component]
fn TabBody(tab: Tab) -> impl IntoView {
    let Some(Current(current)) = use_context() else {
        return ().into_any();
    };
    if !tab.spec().needs_running {
        return tab.view();
    }
    let state = move || current.read().sandbox.status.state.clone();
    let has_run = Memo::new(move |before: Option<&bool>| {
        before.copied().unwrap_or_default() || state() == SandboxState::Running
    });
    let waiting = move || {
        view! {
            <section class="empty">
                <Icon name=tab.icon() />
                <p role="status">{move || not_running(tab, &state())}</p>
            </section>
        }
    };
    view! {
        <Show when=move || has_run.get() fallback=waiting>
            {tab.view()}
        </Show>
    }
    .into_any()
}

/// Why a tab that needs a running sandbox shows nothing.
fn not_running(tab: Tab, state: &SandboxState) -> String {
    use SandboxState::{Failed, Stopping, Terminated};
    let title = tab.title();
    match state {
        Failed | Stopping | Terminated => {
            format!("{title} is unavailable: the sandbox is not running ({state}).")
        }
        _ => format!("{title} becomes available when the sandbox is running (now {state})."),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use leptos_router::MatchNestedRoutes;

    use super::*;

    #[test]
    fn addresses_lead_back_to_their_tab() {
        let id = SandboxId::from("0b6c1f2e-aaaa");
        for tab in Tab::ALL {
            let address = tab.address(&id);
            assert_eq!(Tab::of_path(&address), Some(tab), "{address}");
            assert_eq!(Tab::of_path(&format!("{address}/")), Some(tab), "{address}");
        }
        for elsewhere in [
            "/console/sandboxes",
            "/console/sandboxes/x/y",
            "/console/create",
        ] {
            assert_eq!(Tab::of_path(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn tabs_do_not_collide() {
        let segments: BTreeSet<_> = Tab::ALL.iter().map(|tab| tab.segment()).collect();
        assert_eq!(segments.len(), Tab::ALL.len());
        let keys: Vec<_> = Tab::ALL.iter().filter_map(|tab| tab.key()).collect();
        let taken = ["/", "?", "c", "j", "k"];
        let all: BTreeSet<_> = keys.iter().copied().chain(taken).collect();
        assert_eq!(all.len(), keys.len() + taken.len(), "{keys:?}");
        for tab in Tab::ALL {
            assert_eq!(tab.key().and_then(Tab::of_key), tab.key().map(|_| tab));
        }
    }

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
