//! Actions on the selected sandboxes, and what they did to each.

use std::sync::Arc;

use leptos::{ev, prelude::*, task::spawn_local};
use osb_protocol::{Feature, SandboxId};

use super::{api, list_page::ListPage, selection::Selection};
use crate::{
    deletion,
    frame::Toasts,
    tab::Tab,
    ui::{Clock, Confirm, Icon, Question, duration},
    view::{BulkEnd, BulkResult, LOOKS_ONLY, ServerInfo, bulk_summary, offers_changes, title},
};

/// Offered times for an extension, in seconds.
const TIMES: [i64; 6] = [900, 1_800, 3_600, 14_400, 86_400, 604_800];
/// The one that is chosen at first.
const TIME: i64 = 1_800;

/// Address of the page that asks before the selected sandboxes are deleted, for browsers without script.
const CONFIRM_DELETE: &str = "/console/sandboxes/bulk/confirm-delete";

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
    let seconds = RwSignal::new(TIME);
    let toasts = Toasts::current();
    let act_on = move |act: Act, ids: Vec<SandboxId>| {
        if busy.get_untracked() || ids.is_empty() {
            return;
        }
        busy.set(true);
        let title_of = move |id: &SandboxId| match page.rows.get(id) {
            Some(row) => title(&row.sandbox).to_owned(),
            None => id.short().to_owned(),
        };
        // Before the action: afterwards they may be gone.
        let titles: Vec<_> = ids.iter().map(title_of).collect();
        spawn_local(async move {
            let results = match act {
                Act::Extend => api::extend_all(ids, seconds.get_untracked()).await,
                Act::Pause => api::pause_all(ids).await,
                Act::Resume => api::resume_all(ids).await,
                Act::Delete => api::delete_all(ids).await,
            };
            busy.try_set(false);
            match results {
                Ok(results) => {
                    let is_failed = |it: &&BulkResult| matches!(it.end, BulkEnd::Failed(_));
                    let failed = results.iter().filter(is_failed);
                    selection.replace(failed.map(|it| it.id.clone()).collect::<Vec<_>>());
                    let results = titles.into_iter().zip(results).collect();
                    report.try_set(Some(Report { act, results }));
                }
                Err(error) => toasts.bad(error.to_string()),
            }
        });
    };
    let confirm = Confirm::current();
    let ask = move |ids: Vec<SandboxId>| {
        if ids.is_empty() {
            return;
        }
        confirm.ask(Question {
            title: deletion::question(ids.len()),
            text: deletion::OF_SEVERAL.to_owned(),
            yes: "Delete selected",
            act: Arc::new(move || act_on(Act::Delete, ids.clone())),
        });
    };
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    let is_busy = move || busy.get();
    let is_barred = !offers_changes();
    let why = is_barred.then_some(LOOKS_ONLY);
    let button = move |act: Act, icon: &'static str, label: &'static str| {
        let click = move |event: ev::MouseEvent| {
            event.prevent_default();
            match act {
                _ if is_barred => {}
                Act::Delete => ask(selection.ids()),
                act => act_on(act, selection.ids()),
            }
        };
        let asks = act == Act::Delete;
        view! {
            <button
                // One of another type does not send the form.
                type=if is_barred { "button" } else { "submit" }
                class="button"
                class:danger=asks
                formaction=act.form_address()
                aria-haspopup=asks.then_some("dialog")
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
    let times = TIMES.into_iter().map(|time| {
        view! { <option value=time selected=time == TIME>{duration(time)}</option> }
    });
    let on_time = move |event| {
        if let Ok(chosen) = event_target_value(&event).parse() {
            seconds.set(chosen);
        }
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
            <p class="num needs-script" aria-live="polite">
                {move || format!("{} selected", selection.len())}
            </p>
            {why.map(|why| view! { <p class="fine">{why}</p> })}
            <SelectMatching page selection />
            <label class="select">
                <span class="visually-hidden">"New time to live"</span>
                <select name="seconds" disabled=is_barred on:change=on_time>{times.collect_view()}</select>
            </label>
            {button(Act::Extend, "timer-reset", "Extend")}
            {freeze}
            {button(Act::Delete, "trash-2", "Delete")}
            <button
                type="button"
                class="button needs-script"
                on:click=move |_| selection.replace([])
            >
                "Clear"
            </button>
        </form>
        <Results report />
    }
    .into_any()
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
        let is_asked = is_clear && selection.len() > 0 && selection.has_page();
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
                <summary>
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
