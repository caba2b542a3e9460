//! The dialog that renames an entry, moves it to another folder, or changes its mode.

use leptos::{ev, prelude::*};

use super::{
    api,
    changes::{act, mode_of},
    path::{self, join},
    tools::Tools,
};
use crate::{frame::Toasts, ui::Dialog};

/// Changes the name, the folder and the mode of an entry.
#[component]
pub(super) fn EditDialog(tools: Tools) -> impl IntoView {
    let Tools {
        here,
        folder,
        edited,
    } = tools;
    let open = RwSignal::new(false);
    let (name, mode) = (RwSignal::new(String::new()), RwSignal::new(String::new()));
    let busy = RwSignal::new(false);
    let toasts = Toasts::current();
    Effect::new(move |_| {
        if let Some(entry) = edited.get() {
            name.set(entry.name);
            mode.set(format!("{:03}", entry.mode));
            open.set(true);
        }
    });
    Effect::new(move |_| {
        if !open.get() {
            edited.set(None);
        }
    });
    // Where the entry goes, and its bits.
    let place = StoredValue::new(folder);
    let wanted = Memo::new(move |_| {
        let own = edited.with(|edited| edited.as_ref().map(|entry| entry.name.clone()));
        let own = own.unwrap_or_default();
        let to = place.with_value(|folder| path::target(folder, &own, &name.read()))?;
        let bits = mode_of(&mode.read());
        let bits = bits.ok_or("A mode is one to four digits from 0 to 7, such as 644.")?;
        Ok::<_, &'static str>((to, bits))
    });
    let why = move || wanted.get().err().filter(|_| open.get());
    let title = Signal::derive(move || {
        edited.with(|edited| {
            edited
                .as_ref()
                .map(|entry| entry.name.clone())
                .unwrap_or_default()
        })
    });
    let again = here.again;
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let (Some(entry), Ok((to, bits))) = (edited.get_untracked(), wanted.get_untracked()) else {
            return;
        };
        if busy.get_untracked() {
            return;
        }
        let id = here.id.clone();
        let from = place.with_value(|folder| join(folder, &entry.name));
        let is_moved = path::parent(&from) != path::parent(&to);
        let done = match is_moved {
            true => format!("Moved {} to {to}", entry.name),
            false => format!("Changed {}", path::name(&to)),
        };
        let doing = async move {
            if entry.mode != bits
                && let Err(why) = api::set_mode(id.clone(), from.clone(), bits).await?
            {
                return Ok(Err(why));
            }
            match from == to {
                true => Ok(Ok(())),
                false => api::move_to(id, from, to).await,
            }
        };
        let then = Callback::new(move |()| {
            open.set(false);
            again.run(());
        });
        act(done, toasts, busy, doing, then);
    };
    view! {
        <Dialog open id="edit-entry" title>
            <form class="dialog-form" on:submit=submit>
                <label for="entry-name">"Name or path"</label>
                <input
                    id="entry-name"
                    class="mono"
                    autocomplete="off"
                    spellcheck="false"
                    autofocus=true
                    required
                    aria-describedby="entry-help"
                    prop:value=move || name.get()
                    on:input=move |event| name.set(event_target_value(&event))
                />
                <p id="entry-help" class="help">
                    "A path moves it, such as ../other/ or /tmp/new-name. Folders on the way are made."
                </p>
                <label for="entry-mode">"Mode (octal)"</label>
                <input
                    id="entry-mode"
                    class="mono"
                    inputmode="numeric"
                    autocomplete="off"
                    required
                    aria-describedby="entry-why"
                    prop:value=move || mode.get()
                    on:input=move |event| mode.set(event_target_value(&event))
                />
                <p id="entry-why" class="problem" role="status">{why}</p>
                <div class="dialog-actions">
                    <button type="submit" class="button primary" disabled=move || busy.get()>
                        "Apply"
                    </button>
                </div>
            </form>
        </Dialog>
    }
    .into_any()
}
