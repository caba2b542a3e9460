//! Replaces the text that was found, in the files that are chosen.

use std::sync::Arc;

use leptos::{ev, prelude::*, task::spawn_local};

use super::{api, here::Here, path};
use crate::{
    frame::Toasts,
    ui::{Confirm, Icon, Question},
};

/// Most files that the question names.
const NAMED: usize = 8;
/// Most failures that get a message of their own.
const SHOWN: usize = 3;

/// A field for the new text, and a button that asks with the counts of each file.
#[component]
pub(super) fn Replace(
    here: Here,
    folder: String,
    /// The text that was found.
    old: String,
    /// All files with it, and how often they have it.
    all: StoredValue<Vec<(String, u64)>>,
    /// Those of them that are chosen.
    chosen: RwSignal<Vec<(String, u64)>>,
) -> impl IntoView {
    let new = RwSignal::new(String::new());
    let busy = RwSignal::new(false);
    let (confirm, toasts) = (Confirm::current(), Toasts::current());
    let count = move || chosen.read().len();
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let files = chosen.get_untracked();
        if files.is_empty() || busy.get_untracked() {
            return;
        }
        let text = question(&folder, &files, &old, &new.read_untracked());
        let (here, folder, old) = (here.clone(), folder.clone(), old.clone());
        confirm.ask(Question {
            title: format!("Replace in {}?", files_text(files.len())),
            text,
            yes: "Replace",
            act: Arc::new(move || {
                let paths: String = files.iter().flat_map(|(path, _)| [path, "\0"]).collect();
                let (here, new) = (here.clone(), new.get_untracked());
                let doing = api::replace(here.id, folder.clone(), paths, old.clone(), new);
                busy.set(true);
                spawn_local(async move {
                    let end = doing.await;
                    busy.try_set(false);
                    match end {
                        Ok(Ok(replaced)) => {
                            let (places, files) = (replaced.places, files_text(replaced.files));
                            toasts.good(format!("Replaced {places} places in {files}"));
                            for why in failures(replaced.failed) {
                                toasts.bad(why);
                            }
                            here.again.try_run(());
                        }
                        Ok(Err(why)) => toasts.bad(why),
                        Err(error) => toasts.bad(error.to_string()),
                    }
                });
            }),
        });
    };
    view! {
        <form class="find replace needs-script" on:submit=submit>
            <Icon name="pencil" />
            <label>
                <span>"Replace with"</span>
                <input
                    type="text"
                    class="mono"
                    autocomplete="off"
                    spellcheck="false"
                    prop:value=move || new.get()
                    on:input=move |event| new.set(event_target_value(&event))
                />
            </label>
            <button
                type="submit"
                class="button"
                disabled=move || busy.get() || count() == 0
            >
                {move || format!("Replace in {} …", files_text(count()))}
            </button>
            <button type="button" class="button" on:click=move |_| chosen.set(all.get_value())>
                "All"
            </button>
            <button type="button" class="button" on:click=move |_| chosen.set(Vec::new())>
                "None"
            </button>
        </form>
    }
    .into_any()
}

fn files_text(count: usize) -> String {
    match count {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    }
}

/// What could not be changed, as a few messages.
fn failures(mut failed: Vec<String>) -> Vec<String> {
    let more = failed.len().saturating_sub(SHOWN);
    failed.truncate(SHOWN);
    if more > 0 {
        failed.push(format!("Not changed either: {}", files_text(more)));
    }
    failed
}

/// What replacing does, file by file.
fn question(folder: &str, files: &[(String, u64)], old: &str, new: &str) -> String {
    let places: u64 = files.iter().map(|(_, count)| count).sum();
    let named = files.iter().take(NAMED);
    let named: Vec<String> = named
        .map(|(at, count)| format!("{} ({count})", path::below(folder, at)))
        .collect();
    let more = match files.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let change = match new {
        "" => format!("Removes “{old}”"),
        new => format!("Writes “{new}” in place of “{old}”"),
    };
    format!(
        "{change} in {places} places: {}{more}. This cannot be undone.",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_failures_are_counted() {
        let failed = |count: usize| (0..count).map(|n| format!("/f{n}: why")).collect();
        assert_eq!(failures(failed(3)), ["/f0: why", "/f1: why", "/f2: why"]);
        let messages = failures(failed(5));
        assert_eq!(messages[2..], ["/f2: why", "Not changed either: 2 files"]);
        assert!(failures(failed(0)).is_empty());
    }

    #[test]
    fn a_question_names_files_and_counts() {
        let files: Vec<_> = (1..=10).map(|n| (format!("/a/f{n}"), n)).collect();
        assert_eq!(
            question("/a", &files[..2], "x", "y"),
            "Writes “y” in place of “x” in 3 places: f1 (1), f2 (2). This cannot be undone."
        );
        let text = question("/a", &files, "x", "");
        assert!(
            text.starts_with("Removes “x” in 55 places: f1 (1), "),
            "{text}"
        );
        assert!(
            text.ends_with("f8 (8) and 2 more. This cannot be undone."),
            "{text}"
        );
    }
}
