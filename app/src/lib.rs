//! The console: pages and components, rendered by the server and hydrated in the browser.
//!
//! | Module | What |
//! |---|---|
//! | [`app`], [`shell`] | routes, and the HTML document around them |
//! | [`frame`] | rail, top bar, theme, toasts, keys: what surrounds every page |
//! | [`overview`], [`sandboxes`], [`sandbox`], [`create`], [`events`], [`access`], [`settings`], [`login`] | the pages |
//! | [`logs`], [`run`], [`files`], [`preview`], [`metrics`], [`diagnosis`] | tabs of a sandbox: its output, its commands, its files, its ports, its resource use, its faults |
//! | `palette` | one field that finds sandboxes, pages and actions |
//! | `calls` | what pages do, as calls of the API in four languages |
//! | `condition` | why a sandbox is as it is, and the stages of its create |
//! | `design` | what pages are made of, on one page |
//! | `dock` | what is in the dock below the page: shells and log tails of several sandboxes |
//! | [`deletion`] | what is asked before a delete |
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
pub mod files;
pub mod frame;
mod lazy;
pub mod live;
pub mod login;
pub mod logs;
pub mod metrics;
pub mod overview;
mod palette;
pub mod preview;
mod quote;
pub mod run;
pub mod sandbox;
pub mod sandboxes;
pub mod settings;
pub mod shell;
#[cfg(feature = "hydrate")]
mod socket;
pub mod tab;
pub mod terminal;
pub mod ui;
#[cfg(feature = "hydrate")]
mod vendor;
pub mod view;

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
