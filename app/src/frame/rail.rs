//! The rail: navigation between pages.

use leptos::prelude::*;
use leptos_router::{components::A, hooks::use_location};
use osb_protocol::Feature;

use crate::{
    browser::{self, Memory},
    ui::Icon,
    view::ServerInfo,
};

/// Name in the browser's memory; the script in `shell.rs` reads it before the first paint.
const NAME: &str = "osb.rail";
/// The value of a rail that shows icons only.
const SMALL: &str = "small";

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
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    let snapshots = features.contains(Feature::Snapshots).then(|| {
        view! {
            <li>
                <a
                    href="/console/snapshots"
                    aria-current=move || current("/console/snapshots")
                >
                    <Icon name="camera" />
                    <span>"Snapshots"</span>
                </a>
            </li>
        }
    });
    let pools = features.contains(Feature::Pools).then(|| {
        view! {
            <li>
                <a href="/console/pools" aria-current=move || current("/console/pools")>
                    <Icon name="layers" />
                    <span>"Pools"</span>
                </a>
            </li>
        }
    });
    let templates = features.contains(Feature::Templates).then(|| {
        view! {
            <li>
                <a
                    href="/console/templates"
                    aria-current=move || current("/console/templates")
                >
                    <Icon name="package" />
                    <span>"Templates"</span>
                </a>
            </li>
        }
    });
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
                        <span class="rail-rest">"Overview"</span>
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
                <li>
                    <a href="/console/create" aria-current=move || current("/console/create")>
                        <Icon name="plus" />
                        <span>"Create"</span>
                    </a>
                </li>
                {snapshots}
                {pools}
                {templates}
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
                        <span class="rail-rest">"Settings"</span>
                    </a>
                </li>
                <li>
                    <a href="/docs" rel="external">
                        <Icon name="book-open" />
                        <span>"API"<span class="rail-rest">" docs"</span></span>
                    </a>
                </li>
            </ul>
            <p class="rail-foot fine num">
                <span>{format!("v{version}")}</span>
                <RailSwitch />
            </p>
        </nav>
    }
    .into_any()
}

/// Makes the rail small, and wide again.
#[component]
fn RailSwitch() -> impl IntoView {
    let is_small = RwSignal::new(false);
    Effect::new(move |_| is_small.set(Memory::Browser.get(NAME).as_deref() == Some(SMALL)));
    let switch = move |_| {
        let wanted = (!is_small.get_untracked()).then_some(SMALL);
        Memory::Browser.set(NAME, wanted);
        browser::set_document_data("rail", wanted);
        is_small.set(wanted.is_some());
    };
    let label = move || match is_small.get() {
        true => "Widen the navigation",
        false => "Narrow the navigation",
    };
    view! {
        <button
            type="button"
            class="icon-button needs-script"
            data-command=label
            aria-label=label
            title=label
            on:click=switch
        >
            <Icon name="panel-left" />
        </button>
    }
    .into_any()
}
