//! Changes the text of a file: what changes is shown before it is saved, and a file that was changed
//! or deleted meanwhile is not written unasked. What was typed stays in the tab's memory until it is saved or
//! discarded.

use leptos::{ev, html, prelude::*};
use osb_protocol::execd::file::FileKind;

use super::{
    Content, FileView,
    diff::{LineKind, difference},
    draft::Draft,
    here::Here,
    line_ending::LineEnding,
    saving::{SAVE, Saving, Step},
};
use crate::{
    frame::Toasts,
    ui::{Confirm, Icon},
};

/// Bytes of the longest text that is edited here.
pub(super) const MAX: u64 = 256 * 1024;

/// Edits the text of a whole file.
#[component]
pub(super) fn Editor(here: Here, file: FileView, editing: RwSignal<bool>) -> impl IntoView {
    let Content::Text(read) = file.content.clone() else {
        return ().into_any();
    };
    // A text area knows one line ending only.
    let ending = LineEnding::of(&read);
    let read = ending.shown(&read);
    let draft = Draft::of(&here.id, &file.path);
    let typed = draft.text().filter(|typed| *typed != read);
    let is_restored = RwSignal::new(typed.is_some());
    // A draft is a change of the file as it was when it was begun: if that has changed since, saving
    // asks.
    let begun = draft.base().filter(|_| typed.is_some());
    let now = StoredValue::new(file.stamp());
    let stamp = StoredValue::new(begun.unwrap_or_else(|| now.get_value()));
    let text = RwSignal::new(typed.unwrap_or_else(|| read.clone()));
    let base = StoredValue::new(read);
    let step = RwSignal::new(Step::Writing);
    let busy = RwSignal::new(false);
    let area = NodeRef::<html::Textarea>::new();
    let draft = StoredValue::new(draft);
    let forget = move || draft.with_value(Draft::forget);
    let is_changed = Memo::new(move |_| text.with(|text| base.with_value(|base| text != base)));

    Effect::new(move |before: Option<()>| {
        if let (None, Some(area)) = (before, area.get()) {
            let _ = area.focus();
        }
    });
    let on_input = move |event| {
        text.set(event_target_value(&event));
        draft.with_value(|draft| draft.keep(&text.read_untracked(), &stamp.get_value()));
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
    let is_file = file.entry.kind == FileKind::File;
    let saving = Saving {
        id: here.id.clone(),
        path: file.path.clone(),
        mode: is_file.then_some(file.entry.mode),
        ending,
        text,
        draft: draft.get_value(),
        step,
        busy,
        editing,
        again: here.again,
        saved: here.saved,
        toasts: Toasts::current(),
        confirm: Confirm::current(),
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
            let (saving, over) = (saving.clone(), stamp.get_value());
            let old = base.get_value();
            view! {
                <Difference old new=text.get_untracked() />
                <div class="choices">
                    <button
                        id=SAVE
                        type="button"
                        class="button primary"
                        autofocus=true
                        disabled=move || busy.get()
                        on:click=move |_| saving.save(Some(over.clone()))
                    >
                        "Save"
                    </button>
                    // What is typed while a save is under way would be taken for saved.
                    <button
                        type="button"
                        class="button"
                        disabled=move || busy.get()
                        on:click=move |_| step.set(Step::Writing)
                    >
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
            let saving = saving.clone();
            view! {
                <p class="banner" data-tone="bad" role="alert">
                    <Icon name="triangle-alert" />
                    "The file was changed since you opened it, and nothing was saved. This is what your text would change in it as it is now:"
                </p>
                <Difference old=theirs new=text.get_untracked() />
                <div class="choices">
                    <button
                        id=SAVE
                        type="button"
                        class="button danger"
                        disabled=move || busy.get()
                        on:click=move |_| saving.save(Some(stamp.clone()))
                    >
                        "Overwrite it"
                    </button>
                    // What is typed while a save is under way would be taken for saved.
                    <button
                        type="button"
                        class="button"
                        disabled=move || busy.get()
                        on:click=move |_| step.set(Step::Writing)
                    >
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
                        stamp.set_value(now.get_value());
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
    let changes = difference(&old, &new);
    let summary = changes.summary();
    let rows = changes.lines.into_iter().map(|line| {
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
