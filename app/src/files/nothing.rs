//! What is shown where nothing can be opened: why, and the text that was typed for this path.

use leptos::{prelude::*, task::spawn_local};

use super::{Saved, api, draft::Draft, here::Here, path};
use crate::{frame::Toasts, ui::Icon};

/// Why nothing is shown, with ways on.
#[component]
pub(super) fn Nothing(here: Here, path: String, why: String) -> impl IntoView {
    let root = path::address(&here.id, "/", "");
    let again = here.again;
    view! {
        <Unsaved here path />
        <section class="empty">
            <Icon name="folder" />
            <p role="status">{why}</p>
            <p class="choices">
                <button type="button" class="button needs-script" on:click=move |_| again.run(())>
                    <Icon name="refresh-cw" />
                    "Try again"
                </button>
                <a class="button" href=root>
                    "Root folder"
                </a>
            </p>
        </section>
    }
    .into_any()
}

/// Offers to write a file that was deleted while it was edited.
#[component]
fn Unsaved(here: Here, path: String) -> impl IntoView {
    let draft = Draft::of(&here.id, &path);
    let kept = RwSignal::new(None::<String>);
    let busy = RwSignal::new(false);
    let toasts = Toasts::current();
    // Only the browser has it.
    let known = draft.clone();
    Effect::new(move |_| kept.set(known.text()));
    let discarded = draft.clone();
    let discard = move || {
        discarded.forget();
        kept.set(None);
    };
    let write = move || {
        let Some(text) = kept.get_untracked() else {
            return;
        };
        let (here, path, draft) = (here.clone(), path.clone(), draft.clone());
        busy.set(true);
        spawn_local(async move {
            match api::save(here.id, path, text, None).await {
                Ok(Ok(Saved::Done { .. })) => {
                    draft.forget();
                    toasts.good("Saved");
                    here.again.try_run(());
                }
                Ok(Ok(Saved::Conflict | Saved::Gone)) => {
                    toasts.bad("Something is at this path now. Nothing was saved.");
                    here.again.try_run(());
                }
                Ok(Err(why)) => toasts.bad(why),
                Err(error) => toasts.bad(error.to_string()),
            }
            busy.try_set(false);
        });
    };
    let offer = move || {
        kept.read().as_ref()?;
        let (write, discard) = (write.clone(), discard.clone());
        Some(view! {
            <p class="banner" data-tone="quiet" role="status">
                <Icon name="info" />
                "What you typed into this file was not saved. "
                <button
                    type="button"
                    class="button"
                    disabled=move || busy.get()
                    on:click=move |_| write()
                >
                    "Write it again"
                </button>
                <button
                    type="button"
                    class="button"
                    disabled=move || busy.get()
                    on:click=move |_| discard()
                >
                    "Discard"
                </button>
            </p>
        })
    };
    offer.into_any()
}
