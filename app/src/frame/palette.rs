//! The palette over the page, and the button that opens it.

use std::time::Duration;

use leptos::{ev, html::Dialog, prelude::*, task::spawn_local};
use wasm_bindgen::JsCast;

use crate::{
    lazy::{Lazy, Part},
    ui::{Icon, close_signal},
};

/// Time after which a page has loaded what it shows.
const SETTLED: Duration = Duration::from_secs(2);

/// Whether the palette is open.
#[derive(Clone, Copy)]
pub(crate) struct PaletteOpen(pub(crate) RwSignal<bool>);

/// What was typed into the open palette before its code was there; a line break is Enter, which ends it.
#[derive(Clone, Copy)]
pub(crate) struct TypedEarly(pub(crate) StoredValue<String>);

/// What is in the palette. It knows pages, and pages are in the frame: hence the application hands
/// it in.
#[derive(Clone, Copy)]
pub(crate) struct PaletteContent(pub(crate) Part);

/// The palette. Its content stays once it was opened.
#[component]
pub(super) fn Palette() -> impl IntoView {
    let PaletteOpen(open) = expect_context();
    let content = use_context::<PaletteContent>();
    let dialog = NodeRef::<Dialog>::new();
    let was_opened = RwSignal::new(false);
    // It opens at once, so its code is loaded before; until then, what is typed is kept.
    let early = StoredValue::new(String::new());
    provide_context(TypedEarly(early));
    let keep_early = move |event: ev::KeyboardEvent| {
        let key = event.key();
        let is_command = event.ctrl_key() || event.meta_key() || event.alt_key();
        // The dialog has the focus until there is a field in it.
        if !is_dialog(event.target()) || is_command {
            return;
        }
        early.update_value(|early| match key.as_str() {
            _ if early.ends_with('\n') => {}
            "Enter" => early.push('\n'),
            "Backspace" => drop(early.pop()),
            key if key.chars().count() == 1 => early.push_str(key),
            _ => {}
        });
    };
    Effect::new(move |_| {
        let load = move || {
            if let Some(PaletteContent(part)) = content {
                spawn_local(async move {
                    // The palette itself says so when it is opened.
                    let _ = (part.load)().await;
                });
            }
        };
        set_timeout(load, SETTLED);
    });
    Effect::new(move |_| {
        let Some(dialog) = dialog.get() else {
            return;
        };
        match open.get() {
            true if !dialog.open() => {
                was_opened.set(true);
                // Fails only if it is open.
                let _ = dialog.show_modal();
            }
            false => {
                early.set_value(String::new());
                dialog.close();
            }
            true => {}
        }
    });
    let close_outside = move |event: ev::MouseEvent| {
        // Its backdrop belongs to the dialog, what is in it does not.
        if is_dialog(event.target()) {
            open.set(false);
        }
    };
    view! {
        <dialog
            node_ref=dialog
            class="palette"
            aria-label="Go to"
            on:click=close_outside
            on:keydown=keep_early
            on:close=move |_| close_signal(dialog, open)
        >
            {move || {
                let content = content.filter(|_| was_opened.get());
                content.map(|PaletteContent(part)| view! { <Lazy part /> })
            }}
        </dialog>
    }
    .into_any()
}

fn is_dialog(target: Option<web_sys::EventTarget>) -> bool {
    let element = target.and_then(|it| it.dyn_into::<web_sys::Element>().ok());
    element.is_some_and(|it| it.tag_name() == "DIALOG")
}

/// Opens the palette.
#[component]
pub(super) fn PaletteButton() -> impl IntoView {
    let PaletteOpen(open) = expect_context();
    view! {
        <button
            type="button"
            class="button palette-opener needs-script"
            aria-keyshortcuts="Control+K Meta+K"
            title="Go to a sandbox, a page or an action (Ctrl+K)"
            on:click=move |_| open.set(true)
        >
            <Icon name="search" />
            <span>"Go to … "</span>
            <kbd>"Ctrl K"</kbd>
        </button>
    }
    .into_any()
}
