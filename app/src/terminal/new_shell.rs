//! The form of a new shell.

use leptos::{attr::custom::custom_attribute, ev, prelude::*};
use osb_protocol::SandboxId;

use super::{TerminalAction, Ui, asked::Asked};
use crate::{browser, tab::Tab};

/// Id of the first field.
pub(super) const PROGRAM: &str = "new-shell-program";
const PROGRAMS: &str = "new-shell-programs";

/// Program, user and directory of a shell that opens in a new tab of the browser, while the form is
/// open. The browser sends it to the address of the terminal.
#[component]
pub(super) fn NewShell(id: SandboxId, ui: Ui) -> impl IntoView {
    let close = move || {
        ui.starting.set(false);
        ui.action.set(Some(TerminalAction::EndFind));
    };
    let on_key = move |event: ev::KeyboardEvent| {
        if event.key() == "Escape" {
            event.prevent_default();
            close();
        }
    };
    let sandbox = StoredValue::new(id.clone());
    let sent = move |event: ev::SubmitEvent| {
        // The page that opens would ask what its user just said.
        if let Some(fields) = browser::form_fields(&event) {
            sandbox.with_value(|id| Asked::of(|name| fields.get(name)).confirm(id));
        }
        // The browser sends only a form that is still in the page.
        request_animation_frame(move || {
            let _ = ui.starting.try_set(false);
        });
    };
    let address = Tab::Terminal.address(&id);
    view! {
        <Show when=move || ui.starting.get() && ui.alive.get()>
            <form
                class="terminal-search terminal-new"
                aria-label="New shell"
                method="get"
                action=address.clone()
                target="_blank"
                // With an opener, the new tab would get the shell of this one.
                {..custom_attribute("rel", "noopener")}
                on:submit=sent
                on:keydown=on_key
            >
                <label>
                    "Shell"
                    <input
                        id=PROGRAM
                        name="program"
                        list=PROGRAMS
                        placeholder="default"
                        autocomplete="off"
                        autocapitalize="off"
                        spellcheck="false"
                    />
                </label>
                <datalist id=PROGRAMS>
                    <option value="bash"></option>
                    <option value="zsh"></option>
                    <option value="fish"></option>
                    <option value="sh"></option>
                </datalist>
                <label>
                    "User"
                    <input
                        name="user"
                        placeholder="default"
                        autocomplete="off"
                        autocapitalize="off"
                        spellcheck="false"
                    />
                </label>
                <label>
                    "Directory"
                    <input name="cwd" placeholder="default" autocomplete="off" spellcheck="false" />
                </label>
                <button type="submit" class="button primary">
                    "Open in a new tab"
                </button>
                <button type="button" class="button" on:click=move |_| close()>
                    "Cancel"
                </button>
                <p class="fine">
                    "Shell and user are names that the image has; a missing directory is created."
                </p>
            </form>
        </Show>
    }
    .into_any()
}
