//! Routes. Every page is rendered whole on the server, so that it reads without script.

use leptos::prelude::*;
use leptos_meta::provide_meta_context;
use leptos_router::{
    SsrMode,
    components::{ParentRoute, Route, Router, Routes},
    path,
};

use crate::{
    access, create, design, diagnosis, dock, events, files,
    frame::{DockContent, Frame, NotFound, PaletteContent},
    lazy::{Lazy, Part},
    login::LoginPage,
    logs, metrics, network, overview, palette, pools, preview, run,
    sandbox::{self, SandboxPage, TabRoutes},
    sandboxes::SandboxesPage,
    settings, snapshots, templates, terminal,
};

/// All parts with a file of their own.
#[cfg_attr(
    not(feature = "hydrate"),
    expect(dead_code, reason = "the browser loads them")
)]
pub(crate) const PARTS: [Part; 23] = [
    access::PART,
    create::PART,
    design::PART,
    diagnosis::PART,
    dock::PART,
    events::PART,
    files::PART,
    logs::PART,
    metrics::PART,
    network::PART,
    overview::PART,
    palette::PART,
    pools::PART,
    pools::DETAIL,
    preview::PART,
    run::PART,
    sandbox::PART,
    settings::PART,
    snapshots::PART,
    snapshots::DETAIL,
    templates::PART,
    templates::DETAIL,
    terminal::PART,
];

/// The console.
#[component]
pub fn App() -> impl IntoView {
    provide_meta_context();
    provide_context(PaletteContent(palette::PART));
    provide_context(DockContent(dock::PART));
    view! {
        <Router>
            <Routes fallback=NotFound>
                <Route path=path!("/console/login") view=LoginPage ssr=SsrMode::Async />
                <ParentRoute path=path!("/console") view=Frame ssr=SsrMode::Async>
                    <Route path=path!("") view=|| view! { <Lazy part=overview::PART /> } ssr=SsrMode::Async />
                    <Route path=path!("/sandboxes") view=SandboxesPage ssr=SsrMode::Async />
                    <Route path=path!("/create") view=|| view! { <Lazy part=create::PART /> } ssr=SsrMode::Async />
                    <Route path=path!("/snapshots") view=|| view! { <Lazy part=snapshots::PART /> } ssr=SsrMode::Async />
                    <Route path=path!("/snapshots/:id") view=|| view! { <Lazy part=snapshots::DETAIL /> } ssr=SsrMode::Async />
                    <Route path=path!("/pools") view=|| view! { <Lazy part=pools::PART /> } ssr=SsrMode::Async />
                    <Route path=path!("/pools/:id") view=|| view! { <Lazy part=pools::DETAIL /> } ssr=SsrMode::Async />
                    <Route path=path!("/templates") view=|| view! { <Lazy part=templates::PART /> } ssr=SsrMode::Async />
                    <Route path=path!("/templates/:id") view=|| view! { <Lazy part=templates::DETAIL /> } ssr=SsrMode::Async />
                    <Route path=path!("/access") view=|| view! { <Lazy part=access::PART /> } ssr=SsrMode::Async />
                    <Route path=path!("/events") view=|| view! { <Lazy part=events::PART /> } ssr=SsrMode::Async />
                    <Route path=path!("/settings") view=|| view! { <Lazy part=settings::PART /> } ssr=SsrMode::Async />
                    <Route path=path!("/design") view=|| view! { <Lazy part=design::PART /> } ssr=SsrMode::Async />
                    <ParentRoute path=path!("/sandboxes/:id") view=SandboxPage ssr=SsrMode::Async>
                        <TabRoutes />
                    </ParentRoute>
                </ParentRoute>
            </Routes>
        </Router>
    }
    .into_any()
}
