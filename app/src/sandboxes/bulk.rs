//! Actions on the selected sandboxes, and what they did to each.

use std::sync::Arc;

use leptos::{ev, prelude::*, task::spawn_local};
use osb_protocol::{Feature, SandboxId};

use super::{api, list_page::ListPage, selection::Selection};
use crate::{
    browser, deletion,
    extension::{self, TimeSelect},
    frame::Toasts,
    tab::Tab,
    ui::{Clock, Confirm, Icon, Question, Subject, Subjects, duration},
    view::{BulkEnd, BulkResult, LOOKS_ONLY, ServerInfo, bulk_summary, offers_changes, title},
};

/// Address of the page that asks before the selected sandboxes are deleted, for browsers without script.
const CONFIRM_DELETE: &str = "/console/sandboxes/bulk/confirm-delete";

/// Ids of the buttons that show the selected sandboxes, and the list again.
pub(super) const SHOW_SELECTED: &str = "show-selected";
pub(super) const SHOW_LIST: &str = "show-list";
/// Most sandboxes that a question names.
const NAMED: usize = 10;

/// Id of what sums up what an action did.
const RESULTS: &str = "bulk-results";

/// An action.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Extend,
    Pause,
    Resume,
    Delete,
}

impl Act {
    /// Address of its form.
    fn address(self) -> &'static str {
        match self {
            Self::Extend => "/console/sandboxes/bulk/extend",
            Self::Pause => "/console/sandboxes/bulk/pause",
            Self::Resume => "/console/sandboxes/bulk/resume",
            Self::Delete => "/console/sandboxes/bulk/delete",
        }
    }

    /// Where its button sends the form, without script.
    fn form_address(self) -> &'static str {
        match self {
            Self::Delete => CONFIRM_DELETE,
            act => act.address(),
        }
    }

    /// What is asked before it is done to so many sandboxes.
    fn question(self, count: usize) -> String {
        let verb = match self {
            Self::Extend => "Extend",
            Self::Pause => "Pause",
            Self::Resume => "Resume",
            Self::Delete => return deletion::question(count),
        };
        match count {
            1 => format!("{verb} 1 sandbox?"),
            count => format!("{verb} {count} sandboxes?"),
        }
    }

    /// What it does. Lives are extended to so many seconds from now.
    fn effect(self, seconds: i64) -> String {
        match self {
            Self::Extend => format!(
                "Each lives for {} from now, or as long as before if that is longer.",
                duration(seconds)
            ),
            Self::Pause => "Freezes every process in them until they are resumed.".to_owned(),
            Self::Resume => "Lets their processes go on.".to_owned(),
            Self::Delete => deletion::OF_SEVERAL.to_owned(),
        }
    }

    /// The button that does it.
    fn yes(self) -> &'static str {
        match self {
            Self::Extend => "Extend selected",
            Self::Pause => "Pause selected",
            Self::Resume => "Resume selected",
            Self::Delete => "Delete selected",
        }
    }

    /// What was done to a sandbox.
    fn done(self) -> &'static str {
        match self {
            Self::Extend => "extended",
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Delete => "deleted",
        }
    }
}

/// What an action did.
#[derive(Clone)]
struct Report {
    act: Act,
    /// The title of each sandbox, with the result.
    results: Vec<(String, BulkResult)>,
}

/// What can be done to the selected sandboxes. Without script, a form of the ticked rows.
#[component]
pub(super) fn BulkBar(page: ListPage, selection: Selection) -> impl IntoView {
    let report = RwSignal::new(None::<Report>);
    let busy = RwSignal::new(false);
    let first = Memo::new(move |_| first_time(page, selection));
    let chosen = RwSignal::new(None::<i64>);
    let seconds = Memo::new(move |_| chosen.get().unwrap_or_else(|| first.get()));
    let toasts = Toasts::current();
    let title_of = move |id: &SandboxId| match page.rows.get(id) {
        Some(row) => title(&row.sandbox).to_owned(),
        None => id.short().to_owned(),
    };
    let act_on = move |act: Act, ids: Vec<SandboxId>, seconds: i64| {
        if busy.get_untracked() || ids.is_empty() {
            return;
        }
        busy.set(true);
        // Before the action: afterwards they may be gone.
        let titles: Vec<_> = ids.iter().map(title_of).collect();
        let sent = ids.clone();
        spawn_local(async move {
            let results = match act {
                Act::Extend => api::extend_all(ids, seconds).await,
                Act::Pause => api::pause_all(ids).await,
                Act::Resume => api::resume_all(ids).await,
                Act::Delete => api::delete_all(ids).await,
            };
            busy.try_set(false);
            match results {
                Ok(results) => {
                    let is_failed = |it: &&BulkResult| matches!(it.end, BulkEnd::Failed(_));
                    let failed = results.iter().filter(is_failed);
                    let failed: Vec<_> = failed.map(|it| it.id.clone()).collect();
                    // Rows that were ticked meanwhile stay ticked.
                    selection.retain(|id| failed.contains(id) || !sent.contains(id));
                    if act == Act::Extend {
                        chosen.try_set(None);
                    }
                    let results = titles.into_iter().zip(results).collect();
                    report.try_set(Some(Report { act, results }));
                    // The bar goes away with the selection.
                    browser::focus_if_lost(RESULTS);
                }
                Err(error) => toasts.bad(error.to_string()),
            }
        });
    };
    let confirm = Confirm::current();
    let ask = move |act: Act, ids: Vec<SandboxId>| {
        let seconds = seconds.get_untracked();
        let shown = selection.shown();
        let (shown, hidden): (Vec<_>, Vec<_>) = ids.iter().partition(|id| shown.contains(*id));
        // What is in view needs no question, unless it cannot be undone.
        if ids.is_empty() || (act != Act::Delete && hidden.is_empty()) {
            return act_on(act, ids, seconds);
        }
        let (count, not_shown) = (ids.len(), hidden.len());
        let hidden = hidden.into_iter().map(|id| (id, Some("not shown")));
        let all = hidden.chain(shown.into_iter().map(|id| (id, None)));
        let subject = |(id, note): (&SandboxId, Option<&'static str>)| {
            let name = title_of(id);
            let short = (id.short() != name).then(|| id.short().to_owned());
            Subject {
                name,
                id: short,
                note,
            }
        };
        let subjects = Subjects {
            named: all.take(NAMED).map(subject).collect(),
            others: count.saturating_sub(NAMED),
            is_mild: act != Act::Delete,
        };
        let text = match not_shown {
            0 => act.effect(seconds),
            _ => format!(
                "{} {}",
                act.effect(seconds),
                not_shown_words(not_shown, count)
            ),
        };
        let question = Question {
            title: act.question(count),
            text,
            yes: act.yes(),
            act: Arc::new(move || act_on(act, ids.clone(), seconds)),
        };
        confirm.ask_about(question, subjects);
    };
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    let is_busy = move || busy.get();
    let is_barred = !offers_changes();
    let why = is_barred.then_some(LOOKS_ONLY);
    let button = move |act: Act, icon: &'static str, label: &'static str| {
        let click = move |event: ev::MouseEvent| {
            event.prevent_default();
            if !is_barred {
                ask(act, selection.ids());
            }
        };
        let destroys = act == Act::Delete;
        // What is not shown is named first.
        let asks = move || destroys || selection.count_not_shown() > 0;
        view! {
            <button
                // One of another type does not send the form.
                type=if is_barred { "button" } else { "submit" }
                class="button"
                class:danger=destroys
                formaction=act.form_address()
                aria-haspopup=move || asks().then_some("dialog")
                aria-disabled=is_barred.then_some("true")
                title=why
                disabled=is_busy
                on:click=click
            >
                <Icon name=icon />
                {label}
            </button>
        }
    };
    let freeze = features.contains(Feature::Pause).then(|| {
        view! {
            {button(Act::Pause, "pause", "Pause")}
            {button(Act::Resume, "play", "Resume")}
        }
    });
    let longer = Memo::new(move |_| count_longer(page, selection, seconds.get()));
    let note = move || match longer.get() {
        0 => None,
        1 => Some("1 lives longer: Extend skips it".to_owned()),
        count => Some(format!("{count} live longer: Extend skips them")),
    };
    view! {
        <form
            id="bulk"
            method="post"
            action=Act::Extend.address()
            class="bulk"
            class:is-empty=move || selection.len() == 0
            aria-label="Selected sandboxes"
        >
            <input type="hidden" name="list" value=move || page.query.read().url() />
            <p class="num needs-script" aria-live="polite">
                {move || match selection.count_not_shown() {
                    0 => format!("{} selected", selection.len()),
                    hidden => format!("{} selected, {hidden} not shown", selection.len()),
                }}
            </p>
            <NotShown selection />
            {why.map(|why| view! { <p class="fine">{why}</p> })}
            <SelectMatching page selection />
            <TimeSelect first chosen prefix="" disabled=Signal::stored(is_barred) />
            {button(Act::Extend, "timer-reset", "Extend")}
            {freeze}
            {button(Act::Delete, "trash-2", "Delete")}
            <button
                type="button"
                class="button needs-script"
                on:click=move |_| {
                    selection.replace([]);
                    selection.show_all();
                }
            >
                "Clear"
            </button>
            <p class="fine needs-script" aria-live="polite">{note}</p>
        </form>
        <Results report />
    }
    .into_any()
}

/// Says how many of the sandboxes are not shown.
fn not_shown_words(not_shown: usize, count: usize) -> String {
    match (not_shown, count) {
        (1, 1) => "It is not shown in the list.".to_owned(),
        (1, _) => "1 of them is not shown in the list.".to_owned(),
        (all, count) if all == count => "None of them is shown in the list.".to_owned(),
        (some, _) => format!("{some} of them are not shown in the list."),
    }
}

/// What can be done about selected sandboxes that the page does not show.
#[component]
fn NotShown(selection: Selection) -> impl IntoView {
    let is_any = Memo::new(move |_| selection.count_not_shown() > 0);
    let show = move |_| {
        selection.show_only();
        browser::focus_if_lost(SHOW_LIST);
    };
    let leave = move |_| {
        let shown = selection.shown();
        selection.retain(|id| shown.contains(id));
        browser::focus_if_lost(browser::MAIN);
    };
    view! {
        <Show when=move || is_any.get() && !selection.is_shown_only()>
            <button
                id=SHOW_SELECTED
                type="button"
                class="button needs-script"
                title="List all that is selected"
                on:click=show
            >
                "Show them"
            </button>
        </Show>
        <Show when=move || is_any.get()>
            <button
                type="button"
                class="button needs-script"
                title="Deselect what is not shown"
                on:click=leave
            >
                "Deselect them"
            </button>
        </Show>
    }
    .into_any()
}

/// The time that lengthens the life of every selected sandbox. Tracks the selection.
fn first_time(page: ListPage, selection: Selection) -> i64 {
    let longest = selection.with(|ids| ids.filter_map(|id| page.rows.expiry_of(id)).max());
    extension::first(longest, browser::now_ms())
}

/// How many of the selected sandboxes live longer than that many seconds. Tracks the selection.
fn count_longer(page: ListPage, selection: Selection, seconds: i64) -> usize {
    let at = browser::now_ms() + 1_000 * seconds;
    let lives_longer = |id: &&SandboxId| {
        let expires_at = page.rows.expiry_of(id);
        expires_at.is_some_and(|expires_at| expires_at.unix_ms() > at)
    };
    selection.with(|ids| ids.filter(lives_longer).count())
}

/// Selects what is on the other pages too. Not while a word of the filter is left out: it would be
/// more than what the filter says.
#[component]
fn SelectMatching(page: ListPage, selection: Selection) -> impl IntoView {
    let Clock(now) = Clock::current();
    let matching = move || {
        let (query, filter) = (page.query.read(), page.filter.read());
        page.rows.matching(&query, &filter, now.get_untracked())
    };
    let select = move |_| selection.replace(untrack(matching).into_iter().map(|(id, _)| id));
    let more = Memo::new(move |_| {
        let is_clear = page.filter.with(|filter| filter.problems().is_empty());
        // Only asked for when it can be more than the page.
        let is_asked =
            is_clear && selection.len() > 0 && selection.has_page() && !selection.is_shown_only();
        let count = is_asked.then(|| {
            page.rows.track();
            matching().len()
        });
        count.filter(|count| *count > selection.len())
    });
    move || {
        more.get().map(|count| {
            view! {
                <button type="button" class="button needs-script" on:click=select>
                    {format!("Select all {count} that match")}
                </button>
            }
        })
    }
}

/// What the last action did, until it is dismissed.
#[component]
fn Results(
    /// The last action's.
    report: RwSignal<Option<Report>>,
) -> impl IntoView {
    let shown = report;
    let line = |(name, result): &(String, BulkResult), done: &'static str| {
        let (tone, word, why) = match &result.end {
            BulkEnd::Done => ("good", done, String::new()),
            BulkEnd::Skipped(why) => ("quiet", "skipped", why.clone()),
            BulkEnd::Failed(why) => ("bad", "failed", why.clone()),
        };
        let icon = match &result.end {
            BulkEnd::Done => "circle-check",
            BulkEnd::Skipped(_) => "info",
            BulkEnd::Failed(_) => "circle-x",
        };
        view! {
            <li>
                <span class="badge" data-tone=tone>
                    <Icon name=icon />
                    <span>{word}</span>
                </span>
                <a href=Tab::Overview.address(&result.id)>{name.clone()}</a>
                <span class="row-id mono">{result.id.short().to_owned()}</span>
                <span class="why">{why}</span>
            </li>
        }
    };
    let content = move || {
        let report = report.get()?;
        let rank = |end: &BulkEnd| match end {
            BulkEnd::Failed(_) => 0,
            BulkEnd::Skipped(_) => 1,
            BulkEnd::Done => 2,
        };
        let mut results = report.results.clone();
        results.sort_by_key(|(_, result)| rank(&result.end));
        let done = report.act.done();
        let ends = results.iter().map(|(_, result)| &result.end);
        let summary = bulk_summary(ends, done);
        let has_problem = results
            .first()
            .is_some_and(|(_, result)| result.end != BulkEnd::Done);
        Some(view! {
            <details class="card results" open=has_problem>
                <summary id=RESULTS>
                    <strong>{summary}</strong>
                </summary>
                <ul tabindex="0" aria-label="Results">
                    {results.iter().map(|it| line(it, done)).collect_view()}
                </ul>
            </details>
            <button
                type="button"
                class="icon-button"
                aria-label="Dismiss the results"
                title="Dismiss"
                on:click=move |_| shown.set(None)
            >
                <Icon name="x" />
            </button>
        })
    };
    view! { <div class="bulk-results" role="status">{content}</div> }.into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_count_what_is_not_shown() {
        assert_eq!(Act::Extend.question(1), "Extend 1 sandbox?");
        assert_eq!(Act::Pause.question(3), "Pause 3 sandboxes?");
        assert_eq!(Act::Delete.question(2), "Delete 2 sandboxes?");
        assert_eq!(not_shown_words(1, 1), "It is not shown in the list.");
        assert_eq!(not_shown_words(2, 2), "None of them is shown in the list.");
        assert_eq!(not_shown_words(1, 2), "1 of them is not shown in the list.");
        assert_eq!(
            not_shown_words(2, 3),
            "2 of them are not shown in the list."
        );
    }
}
