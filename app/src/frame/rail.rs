//! The rail: navigation between pages.

use leptos::prelude::*;
use leptos_router::{components::A, hooks::use_location};

use crate::{ui::Icon, view::offers_changes};

/// The left rail; a bar at the bottom on narrow screens.
#[component]
pub(super) fn Rail(
    /// Version of the server.
    version: String,
) -> impl IntoView {
    let path = use_location().pathname;
    // The page of a sandbox belongs to the list.
    let current = move |prefix: &'static str| {
        let here = path.with(|path| path.starts_with(prefix));
        here.then_some("page")
    };
    let is_overview = move || path.with(|path| path == "/console").then_some("page");
    view! {
        <nav class="rail" aria-label="Main">
            <A href="/console" attr:class="rail-brand" attr:aria-label="OpenSandbox, home">
                <Icon name="box" />
                <span>"OpenSandbox"</span>
            </A>
            <ul>
                <li>
                    <a href="/console" aria-current=is_overview>
                        <Icon name="layout-dashboard" />
                        <span>"Overview"</span>
                    </a>
                </li>
                <li>
                    <a
                        href="/console/sandboxes"
                        aria-current=move || current("/console/sandboxes")
                    >
                        <Icon name="box" />
                        <span>"Sandboxes"</span>
                    </a>
                </li>
                {offers_changes()
                    .then(|| {
                        view! {
                            <li>
                                <a
                                    href="/console/create"
                                    aria-current=move || current("/console/create")
                                >
                                    <Icon name="plus" />
                                    <span>"Create"</span>
                                </a>
                            </li>
                        }
                    })}
                <li>
                    <a href="/console/events" aria-current=move || current("/console/events")>
                        <Icon name="scroll-text" />
                        <span>"Events"</span>
                    </a>
                </li>
                <li>
                    <a href="/console/access" aria-current=move || current("/console/access")>
                        <Icon name="key-round" />
                        <span>"Access"</span>
                    </a>
                </li>
                <li>
                    <a
                        href="/console/settings"
                        aria-current=move || current("/console/settings")
                    >
                        <Icon name="settings" />
                        <span>"Settings"</span>
                    </a>
                </li>
                <li>
                    <a href="/docs" rel="external">
                        <Icon name="book-open" />
                        <span>"API docs"</span>
                    </a>
                </li>
            </ul>
            <p class="rail-foot fine num">{format!("v{version}")}</p>
        </nav>
    }
    .into_any()
}
