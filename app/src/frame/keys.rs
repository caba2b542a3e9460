//! Keyboard shortcuts.

use leptos::{ev, prelude::*};
use leptos_router::hooks::use_navigate;
use osb_protocol::{FeatureSet, SandboxId};
use wasm_bindgen::JsCast;

use super::{dock::Dock, palette::PaletteOpen};
use crate::{
    browser::{self, FOCUS_FILTER, Memory},
    tab::Tab,
    ui::Dialog,
    view::ServerInfo,
};

/// Keys of the whole console and what they do; tabs add theirs.
const KEYS: [(&str, &str); 14] = [
    ("Ctrl K", "Go to a sandbox, a page or an action"),
    ("/", "Filter the list"),
    ("c", "Create a sandbox"),
    ("j", "Next row"),
    ("k", "Previous row"),
    ("Enter", "Open it"),
    ("x", "Select it"),
    ("r", "Extend its life"),
    ("p", "Pause or resume it"),
    ("s", "Take a snapshot of it, on its page"),
    ("Del", "Delete it, after a confirmation"),
    ("d", "Fold or unfold the dock"),
    ("Ctrl Shift ↑", "From a terminal to its tools"),
    ("?", "This help"),
];

/// Selects the links to sandboxes among those that `j` and `k` step through.
const SANDBOX_LINK: &str = "[data-row-link][href^='/console/sandboxes/']";

/// Selects the dialog that is open: no key is for the page behind it, wherever the focus is.
const DIALOG: &str = "dialog[open]";

/// Acts on keys of the whole page, in the browser.
pub(super) fn listen(
    help_open: RwSignal<bool>,
    PaletteOpen(palette_open): PaletteOpen,
    dock: Dock,
) {
    let navigate = use_navigate();
    let features = features();
    Effect::new(move |_| {
        let navigate = navigate.clone();
        let outside = window_event_listener(ev::pointerdown, |event| {
            let target = event.target().and_then(|it| it.dyn_into().ok());
            browser::close_popovers(target.as_ref());
        });
        let handle = window_event_listener(ev::keydown, move |event| {
            if event.key() == "Escape" && browser::close_popovers(None) {
                return event.prevent_default();
            }
            if opens_palette(&event) {
                // Escape closes it before the signal says so.
                palette_open.set(!browser::exists(".palette[open]"));
                return event.prevent_default();
            }
            let is_command = event.ctrl_key() || event.meta_key() || event.alt_key();
            if is_command || browser::exists(DIALOG) || is_typing(&event) {
                return;
            }
            match event.key().as_str() {
                "/" if browser::exists("#filter") => browser::focus("filter"),
                "/" => {
                    Memory::Tab.set(FOCUS_FILTER, Some("on"));
                    navigate("/console/sandboxes", Default::default());
                }
                "c" => navigate("/console/create", Default::default()),
                "j" => browser::focus_step(1),
                "k" => browser::focus_step(-1),
                "x" => browser::click_in_focus("[name=id]"),
                "r" => browser::click_in_focus("[data-act=renew] button"),
                "p" => browser::click_in_focus("[data-act=pause] button"),
                "s" => browser::click("[data-act-button=snapshot]"),
                "Delete" => browser::click_in_focus("[data-act=delete] button"),
                "d" => dock.toggle(),
                "?" => help_open.set(true),
                key => match Tab::of_key(key) {
                    Some(tab) => {
                        let link = tab_link(tab);
                        if browser::exists(&link) {
                            browser::click(&link);
                        } else if let Some(address) = address_of_row(tab, features) {
                            navigate(&address, Default::default());
                        }
                    }
                    None => return,
                },
            }
            event.prevent_default();
        });
        on_cleanup(move || {
            handle.remove();
            outside.remove();
        });
    });
}

/// What the runtime can do.
fn features() -> FeatureSet {
    use_context::<ServerInfo>().unwrap_or_default().features
}

/// The address of a tab of the sandbox whose row of the list is the current one. A sandbox's own page
/// has a link to each tab that the runtime offers, so its rows, which are files, are not asked.
fn address_of_row(tab: Tab, features: FeatureSet) -> Option<String> {
    if !tab.is_offered(features) {
        return None;
    }
    let id = browser::current_row(SANDBOX_LINK)?;
    browser::remember_row(&id);
    Some(tab.address(&SandboxId::from(id.as_str())))
}

/// Selects links to a tab.
fn tab_link(tab: Tab) -> String {
    format!("[data-tab-link='{}']", tab.segment())
}

/// Whether it is Ctrl+K, or ⌘K on a Mac. In a terminal, Ctrl+K belongs to the shell.
fn opens_palette(event: &ev::KeyboardEvent) -> bool {
    let is_k = event.key().eq_ignore_ascii_case("k") && !event.alt_key() && !event.shift_key();
    is_k && (event.meta_key() || event.ctrl_key() && !is_in(event, ".terminal"))
}

/// Whether the key belongs to a field or a terminal. Until its next frame, Chromium leaves the focus in a
/// dialog that was closed: a key there is for the page.
fn is_typing(event: &ev::KeyboardEvent) -> bool {
    is_in(
        event,
        "input:not([type=checkbox]), textarea, select, .terminal",
    ) && !is_in(event, "dialog:not([open])")
}

fn is_in(event: &ev::KeyboardEvent, selector: &str) -> bool {
    let target = event
        .target()
        .and_then(|it| it.dyn_into::<web_sys::Element>().ok());
    target.is_some_and(|it| matches!(it.closest(selector), Ok(Some(_))))
}

/// The help over the page.
#[component]
pub(super) fn Help(
    /// Whether it is shown.
    open: RwSignal<bool>,
) -> impl IntoView {
    let features = features();
    let offered = Tab::ALL
        .into_iter()
        .filter(move |tab| tab.is_offered(features));
    let tabs = offered.filter_map(|tab| {
        let does = format!("Its {}", tab.title().to_lowercase());
        Some((tab.key()?, does))
    });
    let keys = KEYS.map(|(key, does)| (key, does.to_owned()));
    let rows = keys.into_iter().chain(tabs).map(|(key, does)| {
        view! {
            <dt>
                <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
        }
    });
    view! {
        <Dialog open id="help" title="Keyboard">
            <dl class="keys">{rows.collect_view()}</dl>
        </Dialog>
    }
    .into_any()
}
