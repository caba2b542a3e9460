//! Search below a folder: its form, and what was found.

use leptos::{ev, prelude::*};
use leptos_router::hooks::use_navigate;
use osb_protocol::execd::file::{FileKind, FindStop, Found, FoundEntry, FoundLine};
use wasm_bindgen::JsCast;

use super::{Asked, changes::size_text, here::Here, path, replace::Replace, viewer::PART};
use crate::{tab::Tab, ui::Icon};

/// A GET form: without script, the button searches.
#[component]
pub(super) fn FindForm(here: Here, folder: String, asked: Asked) -> impl IntoView {
    let action = Tab::Files.address(&here.id);
    let is_asked = !asked.is_empty();
    let clear = path::address(&here.id, &folder, "");
    let at = folder.clone();
    let navigate = use_navigate();
    let submit = move |event: ev::SubmitEvent| {
        let form = event
            .target()
            .map(JsCast::unchecked_into::<web_sys::HtmlFormElement>);
        let data = form.and_then(|form| web_sys::FormData::new_with_form(&form).ok());
        let Some(data) = data else {
            return;
        };
        event.prevent_default();
        let asked = Asked {
            name: data.get("name").as_string().unwrap_or_default(),
            text: data.get("text").as_string().unwrap_or_default(),
            case: data.has("case"),
        };
        navigate(&path::search(&here.id, &at, &asked), Default::default());
    };
    let typed = here.typed;
    let Asked { name, text, case } = asked;
    view! {
        <form
            class="find"
            method="get"
            action=action
            role="search"
            aria-label="Find in this folder"
            on:submit=submit
        >
            <input type="hidden" name="path" value=folder />
            <Icon name="search" />
            <label>
                <span>"Find names"</span>
                <input
                    type="text"
                    name="name"
                    class="mono"
                    placeholder="*.py"
                    autocomplete="off"
                    spellcheck="false"
                    value=name
                    prop:value=move || typed.read().name.clone()
                    on:input=move |event| {
                        typed.update(|typed| typed.name = event_target_value(&event));
                    }
                />
            </label>
            <label>
                <span>"with the text"</span>
                <input
                    type="text"
                    name="text"
                    class="mono"
                    autocomplete="off"
                    spellcheck="false"
                    value=text
                    prop:value=move || typed.read().text.clone()
                    on:input=move |event| {
                        typed.update(|typed| typed.text = event_target_value(&event));
                    }
                />
            </label>
            <label class="check">
                <input
                    type="checkbox"
                    name="case"
                    checked=case
                    prop:checked=move || typed.read().case
                    on:change=move |event| {
                        typed.update(|typed| typed.case = event_target_checked(&event));
                    }
                />
                <span>"Match case"</span>
            </label>
            <button type="submit" class="button">
                "Find"
            </button>
            {is_asked.then(|| view! { <a class="button" href=clear>"Show the folder"</a> })}
        </form>
    }
    .into_any()
}

/// What was found, file by file.
#[component]
pub(super) fn Results(here: Here, folder: String, asked: Asked, found: Found) -> impl IntoView {
    let chosen = RwSignal::new(
        found
            .entries
            .iter()
            .filter(|entry| entry.count > 0 && !entry.lossy)
            .map(|entry| (entry.path.clone(), entry.count))
            .collect::<Vec<_>>(),
    );
    let all = StoredValue::new(chosen.get_untracked());
    let summary = summary(&found, !asked.text.is_empty());
    let stopped = found
        .stopped
        .map(|stop| view! { <p class="help">{stop_text(stop)}</p> });
    let cut = (found.cut > 0).then(|| view! { <p class="help">{cut_text(found.cut)}</p> });
    let is_empty = found.entries.is_empty();
    // Replacing looks at the case of letters: what is found without looking at it may be other text.
    let can_replace = asked.case && !chosen.read_untracked().is_empty();
    let hint = (!asked.case && !chosen.read_untracked().is_empty())
        .then(|| view! { <p class="help">"To replace the text, search with “Match case”."</p> });
    let entries = found.entries.into_iter().map(|entry| {
        view! { <FoundRow here=here.clone() folder=folder.clone() entry chosen can_replace /> }
    });
    let entries = entries.collect_view();
    let replace = can_replace.then(|| {
        let (here, folder, old) = (here.clone(), folder.clone(), asked.text.clone());
        view! { <Replace here folder old all chosen /> }
    });
    view! {
        <section class="found" aria-label="What was found">
            <p class="fine num" role="status">{summary}</p>
            {stopped}
            {cut}
            {hint}
            {replace}
            {is_empty.then(|| view! { <p class="help">"Nothing was found."</p> })}
            <ul class="found-list">{entries}</ul>
        </section>
    }
    .into_any()
}

#[component]
fn FoundRow(
    here: Here,
    folder: String,
    entry: FoundEntry,
    chosen: RwSignal<Vec<(String, u64)>>,
    can_replace: bool,
) -> impl IntoView {
    let icon = match entry.kind {
        FileKind::Directory => "folder",
        FileKind::File => "file",
        FileKind::Symlink => "file-symlink",
        FileKind::Other => "file-question-mark",
    };
    // No path leads to it.
    let is_lossy = entry.lossy;
    let below = path::below(&folder, &entry.path).to_owned();
    let href = (!is_lossy).then(|| path::address(&here.id, &entry.path, ""));
    let size = (entry.kind == FileKind::File).then(|| size_text(entry.size));
    let count = (entry.count > 0).then(|| {
        let least = if entry.partial { "at least " } else { "" };
        let places = if entry.count == 1 { "place" } else { "places" };
        format!("{least}{} {places}", entry.count)
    });
    let hidden = u64::try_from(entry.lines.len()).is_ok_and(|shown| entry.count > shown);
    let hidden = (hidden && entry.lines.len() >= 20)
        .then(|| view! { <li class="help">"These are the first 20 lines."</li> });
    let lines = entry.lines.iter().map(|line| {
        let href = (!is_lossy).then(|| line_address(&here, &entry, line));
        view! {
            <li>
                <a href=href class="found-line mono">
                    <span class="num">{line.number}</span>
                    <span class="line">
                        {line.before.clone()}
                        <mark>{line.hit.clone()}</mark>
                        {line.after.clone()}
                    </span>
                </a>
            </li>
        }
    });
    let lines = lines.collect_view();
    let has_lines = !entry.lines.is_empty();
    let choice = (can_replace && !is_lossy).then(|| {
        let (at, count) = (entry.path.clone(), entry.count);
        let is_chosen = at.clone();
        let label = format!("Replace in {below}");
        view! {
            <input
                type="checkbox"
                class="needs-script"
                aria-label=label
                prop:checked=move || chosen.read().iter().any(|(path, _)| *path == is_chosen)
                on:change=move |event| {
                    let is_on = event_target_checked(&event);
                    chosen
                        .update(|chosen| {
                            chosen.retain(|(path, _)| *path != at);
                            if is_on {
                                chosen.push((at.clone(), count));
                            }
                        });
                }
            />
        }
    });
    view! {
        <li class="found-entry">
            <p class="found-name">
                {choice}
                <a href=href>
                    <Icon name=icon />
                    <span>{below}</span>
                </a>
                {is_lossy
                    .then(|| {
                        view! { <span class="fine">"(not UTF-8: use a terminal)"</span> }
                    })}
                <span class="fine num">{count}</span>
                <span class="fine num">{size}</span>
            </p>
            {has_lines.then(|| view! { <ol class="found-lines">{lines} {hidden}</ol> })}
        </li>
    }
    .into_any()
}

/// The page that shows a line: in a large file, the part that begins with it.
fn line_address(here: &Here, entry: &FoundEntry, line: &FoundLine) -> String {
    let number = line.number;
    // The whole line is in the first part.
    let is_first = line.offset + PART / 2 < PART || entry.size <= PART;
    let more = match is_first {
        true => format!("line={number}"),
        false => format!("line={number}&from={}", line.offset),
    };
    path::address(&here.id, &entry.path, &more) + "#line"
}

fn summary(found: &Found, in_text: bool) -> String {
    let entries = found.entries.len();
    let plural = |count: u64, one: &'static str, more: &'static str| {
        if count == 1 { one } else { more }
    };
    if !in_text {
        let entries = entries as u64;
        return format!("{entries} {}", plural(entries, "entry", "entries"));
    }
    let places: u64 = found.entries.iter().map(|entry| entry.count).sum();
    format!(
        "{places} {} in {entries} {}; {} {} searched",
        plural(places, "place", "places"),
        plural(entries as u64, "file", "files"),
        found.searched,
        plural(found.searched, "file was", "files were"),
    )
}

/// What is said of files that were not searched to their ends, and did not have the text before.
fn cut_text(cut: u64) -> String {
    match cut {
        1 => {
            "1 file was too large to be searched to its end; its beginning does not have the text."
                .to_owned()
        }
        cut => format!(
            "{cut} files were too large to be searched to their ends; their beginnings do not have the text."
        ),
    }
}

fn stop_text(stop: FindStop) -> &'static str {
    match stop {
        FindStop::Matches => {
            "There may be more: these are the first ones. Search for something rarer."
        }
        FindStop::Entries | FindStop::Bytes | FindStop::Time => {
            "There may be more: the folder is too large to be searched to its end. Search in one of its folders."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_places_and_files() {
        let entry = FoundEntry {
            path: "/a".to_owned(),
            kind: FileKind::File,
            size: 1,
            count: 3,
            partial: false,
            lines: Vec::new(),
            lossy: false,
        };
        let mut found = Found {
            entries: vec![entry.clone()],
            searched: 1,
            ..Found::default()
        };
        assert_eq!(
            summary(&found, true),
            "3 places in 1 file; 1 file was searched"
        );
        assert_eq!(summary(&found, false), "1 entry");
        found.entries.push(entry);
        assert_eq!(summary(&found, false), "2 entries");
    }
}
