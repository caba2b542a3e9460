//! The console: pages and components, rendered by the server and hydrated in the browser.
//!
//! | Module | What |
//! |---|---|
//! | [`app`], [`shell`] | routes, and the HTML document around them |
//! | [`frame`] | rail, top bar, theme, toasts, keys: what surrounds every page |
//! | [`overview`], [`sandboxes`], [`sandbox`], [`create`], `snapshots`, [`pools`], [`templates`], [`events`], [`access`], [`settings`], [`login`] | the pages |
//! | [`logs`], [`run`], [`files`], [`preview`], [`network`], [`metrics`], [`diagnosis`] | tabs of a sandbox: its output, its commands, its files, its ports, its network, its resource use, its faults |
//! | `palette` | one field that finds sandboxes, pages and actions |
//! | `calls` | what pages do, as calls of the API in four languages |
//! | `condition` | why a sandbox is as it is, and the stages of its create |
//! | `design` | what pages are made of, on one page |
//! | `dock` | what is in the dock below the page: shells and log tails of several sandboxes |
//! | [`deletion`] | what is asked before a delete |
//! | `extension` | the times to which a life can be extended |
//! | `form` | fields of forms, and how a form stands |
//! | `reread` | reading what a page shows again while it may change |
//! | `snapshot`, `pool` | what the pages about snapshots and pools share with those of sandboxes |
//! | `template` | the same for templates |
//! | `workload` | what the sandboxes of a pool or a template run, as fields |
//! | `kin` | sandboxes that were created from a snapshot or a template |
//! | `lazy` | parts of the console whose code is loaded when they are first shown |
//! | [`tab`] | the tabs of a sandbox's page |
//! | [`terminal`] | xterm over the server's terminal bridge |
//! | [`live`] | the tab's one WebSocket |
//! | [`quote`] | commands as one types them |
//! | [`backend`] | the domain behind the pages' server functions |
//! | [`view`] | what travels between server and browser |
//!
//! Feature `ssr` is the server's half, `hydrate` the browser's. Nothing here knows axum, Docker or
//! a store: the server provides a [`backend::ConsoleBackend`] as context.
#![recursion_limit = "256"]
#![expect(
    unreachable_pub,
    reason = "#[component] makes a public struct of every component's properties"
)]

pub mod access;
pub mod app;
#[cfg(feature = "ssr")]
pub mod backend;
pub mod browser;
mod calls;
mod condition;
pub mod create;
pub mod deletion;
mod design;
pub mod diagnosis;
mod dock;
pub mod error;
pub mod events;
mod extension;
pub mod files;
mod form;
pub mod frame;
mod kin;
mod lazy;
pub mod live;
pub mod login;
pub mod logs;
pub mod metrics;
pub mod network;
pub mod overview;
mod palette;
mod pool;
pub mod pools;
pub mod preview;
mod query_string;
mod quote;
mod reread;
pub mod run;
pub mod sandbox;
pub mod sandboxes;
pub mod settings;
pub mod shell;
mod snapshot;
mod snapshots;
#[cfg(feature = "hydrate")]
mod socket;
pub mod tab;
mod template;
pub mod templates;
pub mod terminal;
pub mod ui;
#[cfg(feature = "hydrate")]
mod vendor;
pub mod view;
mod workload;

/// Takes over the page that the server rendered, once the code of its parts is loaded. Without
/// that the page stays as rendered, and says so.
#[cfg(feature = "hydrate")]
pub fn hydrate() {
    console_error_panic_hook::set_once();
    wasm_bindgen_futures::spawn_local(async {
        if lazy::load_rendered(&app::PARTS).await {
            leptos::mount::hydrate_body(app::App);
        } else {
            browser::set_document_data("script", Some("failed"));
        }
    });
}
