//! Changes the text of a file: what changes is shown before it is saved, and a file that was changed
//! meanwhile is not overwritten unasked. What was typed stays in the tab's memory until it is saved or
//! discarded.

use leptos::{ev, html, prelude::*, task::spawn_local};

use super::{
    Content, FileView, Opened, Saved, api,
    diff::{LineKind, counts, difference},
    here::Here,
};
use crate::{browser::Memory, frame::Toasts, ui::Icon};

/// Bytes of the longest text that is edited here.
pub(super) const MAX: u64 = 256 * 1024;

/// How far the change is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Writing,
    /// The change is shown.
    Review,
    /// The file was changed meanwhile; its text and stamp now.
    Conflict {
        text: String,
        stamp: String,
    },
}

/// Edits the text of a whole file.
#[component]
pub(super) fn Editor(here: Here, file: FileView, editing: RwSignal<bool>) -> impl IntoView {
    let Content::Text(read) = file.content.clone() else {
        return ().into_any();
    };
    let draft_name = format!("osb.file.{}.{}", here.id, file.path);
    let draft = Memory::Tab.get(&draft_name).filter(|draft| *draft != read);
    let is_restored = RwSignal::new(draft.is_some());
    let text = RwSignal::new(draft.unwrap_or_else(|| read.clone()));
    let base = StoredValue::new(read);
    let stamp = StoredValue::new(file.stamp());
    let step = RwSignal::new(Step::Writing);
    let busy = RwSignal::new(false);
    let toasts = Toasts::current();
    let area = NodeRef::<html::Textarea>::new();
    let name = StoredValue::new(draft_name);
    let forget = move || name.with_value(|name| Memory::Tab.set(name, None));
    let is_changed = Memo::new(move |_| text.with(|text| base.with_value(|base| text != base)));

    Effect::new(move |before: Option<()>| {
        if let (None, Some(area)) = (before, area.get()) {
            let _ = area.focus();
        }
    });
    let on_input = move |event| {
        text.set(event_target_value(&event));
        name.with_value(|name| Memory::Tab.set(name, Some(&text.read_untracked())));
    };
    let review = move || {
        if is_changed.get_untracked() {
            step.set(Step::Review);
        }
    };
    let on_key = move |event: ev::KeyboardEvent| {
        let is_save = event.key() == "s" && (event.ctrl_key() || event.meta_key());
        if is_save && !event.alt_key() && !event.shift_key() {
            event.prevent_default();
            review();
        }
    };
    let discard = move |_| {
        forget();
        editing.set(false);
    };
    let (id, path, again) = (here.id.clone(), file.path.clone(), here.again);
    let save = move |over: String| {
        let (id, path) = (id.clone(), path.clone());
        busy.set(true);
        spawn_local(async move {
            let end = api::save(id.clone(), path.clone(), text.get_untracked(), Some(over)).await;
            match end {
                Ok(Ok(Saved::Done { .. })) => {
                    forget();
                    toasts.good("Saved");
                    editing.try_set(false);
                    again.try_run(());
                }
                Ok(Ok(Saved::Conflict)) => match api::open(id, path, 0, false).await {
                    Ok(Ok(Opened::File(now))) if now.is_whole() => {
                        let stamp = now.stamp();
                        if let Content::Text(text) = now.content {
                            step.try_set(Step::Conflict { text, stamp });
                        } else {
                            toasts.bad("The file was changed since it was opened, and is no text any more. Nothing was saved.");
                        }
                    }
                    Ok(Ok(_)) => {
                        toasts.bad("Something else is at this path now. Nothing was saved.")
                    }
                    Ok(Err(why)) => toasts.bad(format!("{why} Nothing was saved.")),
                    Err(error) => toasts.bad(error.to_string()),
                },
                Ok(Err(why)) => toasts.bad(why),
                Err(error) => toasts.bad(error.to_string()),
            }
            busy.try_set(false);
        });
    };
    let file_name = super::path::name(&file.path).to_owned();
    let body = move || match step.get() {
        Step::Writing => {
            let label = format!("Text of {file_name}");
            view! {
                <textarea
                    node_ref=area
                    class="file-editor mono"
                    aria-label=label
                    spellcheck="false"
                    autocapitalize="off"
                    prop:value=text.get_untracked()
                    on:input=on_input
                    on:keydown=on_key
                ></textarea>
                <div class="choices">
                    <button
                        type="button"
                        class="button primary"
                        disabled=move || !is_changed.get()
                        title="Shows what changes first (Ctrl+S)"
                        on:click=move |_| review()
                    >
                        "Review and save"
                    </button>
                    <button type="button" class="button" on:click=discard>
                        {move || if is_changed.get() { "Discard" } else { "Close" }}
                    </button>
                </div>
            }
            .into_any()
        }
        Step::Review => {
            let (save, over) = (save.clone(), stamp.get_value());
            let old = base.get_value();
            view! {
                <Difference old new=text.get_untracked() />
                <div class="choices">
                    <button
                        type="button"
                        class="button primary"
                        autofocus=true
                        disabled=move || busy.get()
                        on:click=move |_| save(over.clone())
                    >
                        "Save"
                    </button>
                    <button type="button" class="button" on:click=move |_| step.set(Step::Writing)>
                        "Back to the text"
                    </button>
                </div>
            }
            .into_any()
        }
        Step::Conflict {
            text: theirs,
            stamp,
        } => {
            let save = save.clone();
            view! {
                <p class="banner" data-tone="bad" role="alert">
                    <Icon name="triangle-alert" />
                    "The file was changed since you opened it, and nothing was saved. This is what your text would change in it as it is now:"
                </p>
                <Difference old=theirs new=text.get_untracked() />
                <div class="choices">
                    <button
                        type="button"
                        class="button danger"
                        disabled=move || busy.get()
                        on:click=move |_| save(stamp.clone())
                    >
                        "Overwrite it"
                    </button>
                    <button type="button" class="button" on:click=move |_| step.set(Step::Writing)>
                        "Back to the text"
                    </button>
                </div>
            }
            .into_any()
        }
    };
    view! {
        <Show when=move || is_restored.get()>
            <p class="banner" data-tone="quiet" role="status">
                <Icon name="info" />
                "This is what you typed before and have not saved. "
                <button
                    type="button"
                    class="button"
                    on:click=move |_| {
                        forget();
                        text.set(base.get_value());
                        if let Some(area) = area.get_untracked() {
                            area.set_value(&base.get_value());
                        }
                        is_restored.set(false);
                    }
                >
                    "Start from the file"
                </button>
            </p>
        </Show>
        {body}
    }
    .into_any()
}

/// Lines that a change adds and removes.
#[component]
fn Difference(old: String, new: String) -> impl IntoView {
    let lines = difference(&old, &new);
    let (added, removed) = counts(&lines);
    let summary = format!("{added} added, {removed} removed");
    let rows = lines.into_iter().map(|line| {
        let (mark, word, kind) = match line.kind {
            LineKind::Same => (" ", "", "same"),
            LineKind::Added => ("+", "Added: ", "added"),
            LineKind::Removed => ("-", "Removed: ", "removed"),
            LineKind::Gap => ("⋯", "", "gap"),
        };
        view! {
            <div class="diff-line" data-kind=kind>
                <span class="visually-hidden">{word}</span>
                <span aria-hidden="true">{mark}</span>
                <span>{line.text}</span>
            </div>
        }
    });
    view! {
        <section class="diff" aria-label="What changes" tabindex="0">
            <p class="fine num">{summary}</p>
            <div class="diff-lines mono">{rows.collect_view()}</div>
        </section>
    }
    .into_any()
}
