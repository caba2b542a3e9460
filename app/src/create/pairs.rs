//! A field of names with values: rows with script, and one line each in a text area without.

use leptos::{ev, html, prelude::*};

use super::{Field, state::State};
use crate::{browser, form::raw_text, ui::Icon};

/// A row. Its key stays when rows above it are deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    key: u32,
    name: String,
    value: String,
}

impl Row {
    fn is_blank(&self) -> bool {
        self.name.trim().is_empty() && self.value.is_empty()
    }

    /// Its line in the text. A name that would make the line a comment makes it an unreadable line,
    /// so that it is reported and not passed over.
    fn line(&self) -> String {
        let mark = if self.name.trim_start().starts_with('#') {
            "="
        } else {
            ""
        };
        format!("{mark}{}={}", self.name, self.value)
    }
}

/// The rows of a text, and one more to type in.
fn rows_of(text: &str) -> Vec<Row> {
    let lines = text.lines().filter(|line| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#')
    });
    let split = lines.map(|line| line.split_once('=').unwrap_or((line, "")));
    let mut rows: Vec<_> = (0..)
        .zip(split)
        .map(|(key, (name, value))| Row {
            key,
            name: name.trim().to_owned(),
            value: value.trim_end_matches('\r').to_owned(),
        })
        .collect();
    end_with_blank(&mut rows);
    rows
}

fn text_of(rows: &[Row]) -> String {
    let filled = rows.iter().filter(|row| !row.is_blank());
    let lines: Vec<_> = filled.map(Row::line).collect();
    lines.join("\n")
}

fn end_with_blank(rows: &mut Vec<Row>) {
    if rows.last().is_none_or(|row| !row.is_blank()) {
        let key = rows.iter().map(|row| row.key + 1).max().unwrap_or_default();
        rows.push(Row {
            key,
            name: String::new(),
            value: String::new(),
        });
    }
}

/// The rows of a field. Copies share them.
#[derive(Clone, Copy)]
struct Rows {
    state: State,
    field: Field,
    list: RwSignal<Vec<Row>>,
}

impl Rows {
    fn change(self, change: impl FnOnce(&mut Vec<Row>)) {
        self.list.update(|rows| {
            change(rows);
            end_with_blank(rows);
        });
        let text = text_of(&self.list.read_untracked());
        self.state.edit(self.field, text);
    }

    fn set(self, key: u32, set: impl FnOnce(&mut Row)) {
        self.change(|rows| {
            if let Some(row) = rows.iter_mut().find(|row| row.key == key) {
                set(row);
            }
        });
    }

    /// Deletes a row. The one that takes its place gets the focus.
    fn delete(self, key: u32) {
        let place = self
            .list
            .read_untracked()
            .iter()
            .position(|row| row.key == key);
        self.change(|rows| rows.retain(|row| row.key != key));
        let next = place.and_then(|place| Some(self.list.read_untracked().get(place)?.key));
        let name = self.field.input().unwrap_or_default();
        if let Some(next) = next {
            browser::focus(&format!("{name}-name-{next}"));
        }
    }

    /// Shows another text. Its rows have new keys, so that their inputs are made anew.
    fn follow(self, text: &str) {
        let known = self.list.with_untracked(|rows| text_of(rows));
        if known == text {
            return;
        }
        self.list.update(|rows| {
            let first = rows.iter().map(|row| row.key + 1).max().unwrap_or_default();
            *rows = rows_of(text);
            rows.iter_mut().for_each(|row| row.key += first);
        });
    }

    fn name_of(self, key: u32) -> String {
        let rows = self.list.read();
        let row = rows.iter().find(|row| row.key == key);
        row.map(|row| row.name.trim().to_owned())
            .unwrap_or_default()
    }
}

/// Names with values.
#[component]
pub(super) fn PairsField(
    state: State,
    field: Field,
    name: &'static str,
    /// What a row is.
    what: &'static str,
    help: &'static str,
    /// How lines are written.
    line_help: &'static str,
    /// What stands above the rows.
    #[prop(optional)]
    children: Option<Children>,
) -> impl IntoView {
    let initial = state
        .form
        .with_untracked(|form| form.text(field).to_owned());
    let rows = Rows {
        state,
        field,
        list: RwSignal::new(rows_of(&initial)),
    };
    let as_text = RwSignal::new(false);
    let area = NodeRef::<html::Textarea>::new();
    // A form that is filled in from JSON has other rows.
    let text = Memo::new(move |_| state.form.read().text(field).to_owned());
    Effect::new(move |ran: Option<()>| {
        let wanted = text.get();
        if ran.is_some() {
            rows.follow(&wanted);
            if let Some(area) = area.get_untracked().filter(|area| area.value() != wanted) {
                area.set_value(&wanted);
            }
        }
    });
    let toggle = move |_| {
        let text = state.form.read_untracked().text(field).to_owned();
        if as_text.get_untracked() {
            rows.list.set(rows_of(&text));
        } else if let Some(area) = area.get_untracked() {
            area.set_value(&text);
        }
        as_text.update(|on| *on = !*on);
    };
    let invalid = move || state.problem(field).is_some().then_some("true");
    let row = move |row: Row| view! { <PairRow rows row name what /> };
    view! {
        <fieldset class="field pairs" data-mode=move || if as_text.get() { "text" } else { "rows" }>
            <legend id=format!("{name}-label")>{field.label()}</legend>
            {children.map(|children| children())}
            <Show when=move || !as_text.get()>
                <div class="pair-rows needs-script" id=format!("{name}-rows")>
                    <For each=move || rows.list.get() key=|row| row.key children=row />
                </div>
            </Show>
            <textarea
                id=name
                name=name
                node_ref=area
                rows="3"
                spellcheck="false"
                aria-labelledby=format!("{name}-label")
                aria-invalid=invalid
                aria-describedby=format!("{name}-problem {name}-help")
                on:input=move |event: ev::Event| state.edit(field, event_target_value(&event))
            >
                {raw_text(&initial)}
            </textarea>
            <p id=format!("{name}-problem") class="problem">{move || state.problem(field)}</p>
            <div class="pairs-foot">
                <p id=format!("{name}-help") class="help">
                    {help}
                    <span class="line-help">{line_help}</span>
                </p>
                <button type="button" class="text-button needs-script" on:click=toggle>
                    {move || if as_text.get() { "Edit as rows" } else { "Edit as text" }}
                    <span class="visually-hidden">{format!(": {}", field.label())}</span>
                </button>
            </div>
        </fieldset>
    }
    .into_any()
}

/// A name, its value, and a button that deletes them.
#[component]
fn PairRow(rows: Rows, row: Row, name: &'static str, what: &'static str) -> impl IntoView {
    let key = row.key;
    let entry = move || rows.name_of(key);
    let invalid = move || {
        let entry = entry();
        let is_wrong = !entry.is_empty() && rows.state.has_problem(rows.field, &entry);
        is_wrong.then_some("true")
    };
    let is_last = move || {
        let rows = rows.list.read();
        rows.last().is_some_and(|last| last.key == key)
    };
    let value_label = move || match entry().as_str() {
        "" => format!("{what} value"),
        entry => format!("Value of {entry}"),
    };
    let delete_label = move || format!("Delete {}", entry());
    let described = format!("{name}-problem");
    let (first_name, first_value) = (NodeRef::<html::Input>::new(), NodeRef::<html::Input>::new());
    adopt(first_name, row.name.clone(), move |text| {
        rows.set(key, |row| row.name = text);
    });
    adopt(first_value, row.value.clone(), move |text| {
        rows.set(key, |row| row.value = text);
    });
    view! {
        <div class="pair-row">
            <input
                id=format!("{name}-name-{key}")
                node_ref=first_name
                type="text"
                value=row.name
                placeholder="name"
                spellcheck="false"
                autocapitalize="off"
                autocomplete="off"
                aria-label=format!("{what} name")
                aria-invalid=invalid
                aria-describedby=described.clone()
                on:input=move |event: ev::Event| {
                    let text = event_target_value(&event);
                    rows.set(key, |row| row.name = text);
                }
            />
            <span aria-hidden="true">"="</span>
            <input
                node_ref=first_value
                type="text"
                value=row.value
                placeholder="value"
                spellcheck="false"
                autocapitalize="off"
                autocomplete="off"
                aria-label=value_label
                aria-invalid=invalid
                aria-describedby=described
                on:input=move |event: ev::Event| {
                    let text = event_target_value(&event);
                    rows.set(key, |row| row.value = text);
                }
            />
            <button
                type="button"
                class="icon-button"
                class:vacant=is_last
                aria-label=delete_label
                title=delete_label
                on:click=move |_| rows.delete(key)
            >
                <Icon name="x" />
            </button>
        </div>
    }
    .into_any()
}

/// Takes over what the user typed into an input before the page was live.
fn adopt(input: NodeRef<html::Input>, known: String, take: impl Fn(String) + 'static) {
    Effect::new(move |ran: Option<()>| {
        if let (None, Some(input)) = (ran, input.get()) {
            let shown = input.value();
            if shown != known {
                take(shown);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::{super::words::pairs, *};

    #[test]
    fn rows_and_text_mean_the_same() {
        let text = "A=1\n\n# a note\n B = x=y \nC=\nD";
        let rows = rows_of(text);
        let seen: Vec<_> = rows
            .iter()
            .map(|row| (row.key, &*row.name, &*row.value))
            .collect();
        let wanted = [
            (0, "A", "1"),
            (1, "B", " x=y "),
            (2, "C", ""),
            (3, "D", ""),
            (4, "", ""),
        ];
        assert_eq!(seen, wanted);
        assert_eq!(text_of(&rows), "A=1\nB= x=y \nC=\nD=");
        assert_eq!(rows_of(&text_of(&rows)), rows);
        assert_eq!(rows_of("").len(), 1, "one to type in");
        assert_eq!(text_of(&rows_of("")), "");
    }

    #[test]
    fn a_row_is_read_or_reported_and_never_lost() {
        let row = |name: &str, value: &str| Row {
            key: 0,
            name: name.to_owned(),
            value: value.to_owned(),
        };
        for (row, names) in [
            (row("A", "#1"), Some(1)),
            (row("", "1"), None),
            (row("#A", "1"), None),
            (row(" #A", "1"), None),
            (row("", ""), Some(0)),
        ] {
            let read = pairs(&text_of(std::slice::from_ref(&row)));
            assert_eq!(read.ok().map(|pairs| pairs.len()), names, "{row:?}");
        }
    }
}
