//! The labels of a sandbox, and the form that changes them.

use std::collections::BTreeMap;

use leptos::{ev, html, prelude::*, task::spawn_local};
use osb_protocol::SandboxId;

use super::{
    api,
    label_form::{LabelRow, NAME, patch_of, rows_of},
};
use crate::{
    browser,
    frame::Toasts,
    ui::{Icon, Labels},
    view::{Answer, LOOKS_ONLY, SandboxDetail, offers_changes, title},
};

/// The labels, as facts, with a form to change them.
#[component]
pub(super) fn OwnLabels(current: RwSignal<SandboxDetail>) -> impl IntoView {
    let labels = Signal::derive(move || current.read().sandbox.metadata.clone());
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    let is_gone = Memo::new(move |_| current.read().ended.is_some());
    let may_change = offers_changes();
    view! {
        <dt>"Labels"</dt>
        <dd class="own-labels">
            <Show when=move || !labels.read().is_empty() fallback=|| "none">
                <Labels of=labels />
            </Show>
            <Show when=move || !is_gone.get()>
                {match may_change {
                    true => view! { <LabelEditor id=id.clone() current /> }.into_any(),
                    false => view! { <Barred /> }.into_any(),
                }}
            </Show>
        </dd>
    }
    .into_any()
}

/// What the role of the user forbids.
#[component]
fn Barred() -> impl IntoView {
    view! {
        <button
            type="button"
            class="text-button"
            aria-disabled="true"
            aria-describedby="labels-why"
            title=LOOKS_ONLY
        >
            "Edit labels"
        </button>
        <span id="labels-why" class="visually-hidden">{LOOKS_ONLY}</span>
    }
    .into_any()
}

/// State of the form. Copies share it.
#[derive(Clone, Copy)]
struct Editor {
    rows: RwSignal<Vec<LabelRow>>,
    /// Rows that were typed in: only these show problems, and all after an attempt.
    touched: RwSignal<Vec<u32>>,
    refusal: RwSignal<Option<String>>,
    busy: RwSignal<bool>,
    /// Counts how often the rows were read anew: then all inputs are.
    reading: RwSignal<u32>,
}

impl Editor {
    fn of(labels: &BTreeMap<String, String>) -> Self {
        Self {
            rows: RwSignal::new(rows_of(labels)),
            touched: RwSignal::new(Vec::new()),
            refusal: RwSignal::new(None),
            busy: RwSignal::new(false),
            reading: RwSignal::new(0),
        }
    }

    /// Begins again with these labels.
    fn reset(self, labels: &BTreeMap<String, String>) {
        self.touched.set(Vec::new());
        self.refusal.set(None);
        self.reading.update(|reading| *reading += 1);
        self.rows.set(rows_of(labels));
    }

    fn set(self, key: u32, set: impl FnOnce(&mut LabelRow)) {
        self.rows.update(|rows| {
            if let Some(row) = rows.iter_mut().find(|row| row.key == key) {
                set(row);
            }
            let is_full = |row: &LabelRow| !row.name.is_empty() || !row.value.is_empty();
            if rows.last().is_some_and(is_full) {
                let key = rows.iter().map(|row| row.key + 1).max().unwrap_or_default();
                rows.push(LabelRow {
                    key,
                    ..LabelRow::default()
                });
            }
        });
        self.touched.update(|touched| {
            if !touched.contains(&key) {
                touched.push(key);
            }
        });
    }

    /// What is wrong with a row that was typed in.
    fn problem(self, key: u32) -> Option<String> {
        if !self.touched.read().contains(&key) {
            return None;
        }
        let problems = self.rows.with(|rows| patch_of(rows).err())?;
        let mut problems = problems.into_iter();
        problems.find(|(row, _)| *row == key).map(|(_, text)| text)
    }

    fn touch_all(self) {
        let keys = self
            .rows
            .with_untracked(|rows| rows.iter().map(|row| row.key).collect());
        self.touched.set(keys);
    }
}

/// A form with a row for each label, which works without script as well.
#[component]
fn LabelEditor(id: SandboxId, current: RwSignal<SandboxDetail>) -> impl IntoView {
    let editor = current.with_untracked(|detail| Editor::of(&detail.sandbox.metadata));
    let reset = move || current.with_untracked(|detail| editor.reset(&detail.sandbox.metadata));
    let details = NodeRef::<html::Details>::new();
    let close = move || {
        if let Some(details) = details.get_untracked() {
            details.set_open(false);
        }
        browser::focus("edit-labels");
    };
    // What changed while it was closed is shown when it is opened.
    let on_toggle = move |_| {
        let is_open = details.get_untracked().is_some_and(|it| it.open());
        if is_open && editor.touched.read_untracked().is_empty() {
            reset();
        }
    };
    let cancel = move |_| {
        reset();
        close();
    };
    let each = move || {
        let reading = editor.reading.get();
        let rows = editor.rows.get().into_iter();
        rows.map(|row| (reading, row)).collect::<Vec<_>>()
    };
    let action = format!("/console/sandboxes/{id}/labels");
    let submit = on_submit(id, editor, current, close);
    view! {
        <details node_ref=details class="label-editor" on:toggle=on_toggle>
            <summary id="edit-labels" class="text-button">"Edit labels"</summary>
            <form method="post" action=action on:submit=submit novalidate>
                <p class="help">
                    "The label name is the title in lists. To delete a label, empty its name."
                </p>
                <For
                    each=each
                    key=|(reading, row)| (*reading, row.key)
                    children=move |(_, row)| view! { <Row editor row /> }
                />
                <p class="problem" role="alert">{move || editor.refusal.get()}</p>
                <div class="choices">
                    <button
                        type="submit"
                        class="button primary"
                        aria-disabled=move || editor.busy.get().then_some("true")
                    >
                        "Save labels"
                    </button>
                    <button type="button" class="button needs-script" on:click=cancel>
                        "Cancel"
                    </button>
                </div>
            </form>
        </details>
    }
    .into_any()
}

/// Saves the rows, and closes the form.
fn on_submit(
    id: SandboxId,
    editor: Editor,
    current: RwSignal<SandboxDetail>,
    close: impl Fn() + Copy + 'static,
) -> impl Fn(ev::SubmitEvent) {
    let toasts = Toasts::current();
    move |event: ev::SubmitEvent| {
        event.prevent_default();
        editor.touch_all();
        editor.refusal.set(None);
        let patch = match editor.rows.with_untracked(|rows| patch_of(rows)) {
            Ok(patch) => patch,
            Err(problems) => {
                if let Some((key, _)) = problems.first() {
                    browser::focus(&format!("label-value-{key}"));
                }
                return;
            }
        };
        if editor.busy.get_untracked() {
            return;
        }
        if patch.is_empty() {
            editor.touched.set(Vec::new());
            close();
            return;
        }
        let id = id.clone();
        editor.busy.set(true);
        spawn_local(async move {
            let (set, deleted): (Vec<_>, Vec<_>) =
                patch.into_iter().partition(|(_, value)| value.is_some());
            let set = set.into_iter();
            let set = set.map(|(name, value)| (name, value.unwrap_or_default()));
            let deleted = deleted.into_iter().map(|(name, _)| name).collect();
            let refusal = match api::change_labels(id, set.collect(), deleted).await {
                Ok(Answer::Done(())) => None,
                Ok(Answer::Invalid(problems)) => {
                    let texts: Vec<_> = problems.into_iter().map(|it| it.msg).collect();
                    Some(texts.join(" "))
                }
                Ok(Answer::Refused(why)) => Some(why),
                Err(error) => Some(error.to_string()),
            };
            editor.busy.try_set(false);
            if refusal.is_none() {
                editor.touched.try_set(Vec::new());
                let name = current.try_with_untracked(|it| title(&it.sandbox).to_owned());
                toasts.good(format!("{}: labels saved", name.unwrap_or_default()));
                close();
            }
            editor.refusal.try_set(refusal);
        });
    }
}

/// Name and value of a label, and what is wrong with them.
#[component]
fn Row(editor: Editor, row: LabelRow) -> impl IntoView {
    let key = row.key;
    let is_title = row.name == NAME && key == 0;
    let problem = Memo::new(move |_| editor.problem(key));
    let invalid = move || problem.read().is_some().then_some("true");
    let described = format!("label-problem-{key}");
    let name_of = move || {
        editor.rows.with(|rows| {
            let row = rows.iter().find(|row| row.key == key);
            row.map(|row| row.name.clone()).unwrap_or_default()
        })
    };
    let value_label = move || match name_of().as_str() {
        "" => "Value of a new label".to_owned(),
        name => format!("Value of {name}"),
    };
    let (name, value) = (NodeRef::<html::Input>::new(), NodeRef::<html::Input>::new());
    let delete = move |_| {
        editor.set(key, |row| {
            row.name.clear();
            row.value.clear();
        });
        if let Some(input) = value.get_untracked() {
            input.set_value("");
        }
        if let Some(input) = name.get_untracked() {
            input.set_value("");
            // Fails only for an element that is gone.
            let _ = input.focus();
        }
    };
    let is_deleted = move || name_of().trim().is_empty();
    view! {
        <div class="label-row">
            <input type="hidden" name="was" value=row.was.0 />
            <input type="hidden" name="old" value=row.was.1 />
            <div class="pair-row">
                <input
                    name="label"
                    node_ref=name
                    type="text"
                    value=row.name
                    readonly=is_title
                    placeholder="name"
                    spellcheck="false"
                    autocapitalize="off"
                    autocomplete="off"
                    aria-label="Label name"
                    aria-invalid=invalid
                    aria-describedby=described.clone()
                    on:input=move |event: ev::Event| {
                        let text = event_target_value(&event);
                        editor.set(key, |row| row.name = text);
                    }
                />
                <span aria-hidden="true">"="</span>
                <input
                    id=format!("label-value-{key}")
                    name="value"
                    node_ref=value
                    type="text"
                    value=row.value
                    placeholder="value"
                    spellcheck="false"
                    autocapitalize="off"
                    autocomplete="off"
                    aria-label=value_label
                    aria-invalid=invalid
                    aria-describedby=described.clone()
                    on:input=move |event: ev::Event| {
                        let text = event_target_value(&event);
                        editor.set(key, |row| row.value = text);
                    }
                />
                <button
                    type="button"
                    class="icon-button needs-script"
                    class:vacant=move || is_title || is_deleted()
                    aria-label=move || format!("Delete {}", name_of())
                    title=move || format!("Delete {}", name_of())
                    on:click=delete
                >
                    <Icon name="x" />
                </button>
            </div>
            <p id=described class="problem">{move || problem.get()}</p>
        </div>
    }
    .into_any()
}
