//! The filter of the page: a form that makes its URL.

use leptos::{ev, prelude::*};
use leptos_router::{NavigateOptions, hooks::use_navigate};
use osb_protocol::{FieldError, audit::AuditOutcome};

use crate::{
    browser,
    ui::{Icon, LocalTimes},
    view::{EventsQuery, PERIODS},
};

/// The form. It is sent as an address, so every view can be shared; the browser's Back leads to the
/// view before.
#[component]
pub(super) fn FilterForm(
    query: EventsQuery,
    /// Names of all actions.
    actions: Vec<String>,
    /// What is wrong with it.
    problems: Vec<FieldError>,
    /// Reads the entries again.
    again: Callback<()>,
) -> impl IntoView {
    let navigate = use_navigate();
    let local = LocalTimes::current();
    let now = query.clone();
    // The browser itself would leave the page, also for a server that is away.
    let submit = move |event: ev::SubmitEvent| {
        let Some(fields) = browser::form_fields(&event) else {
            return;
        };
        event.prevent_default();
        let mut wanted = EventsQuery::from_url(|name| fields.get(name));
        for (time, before) in [
            (&mut wanted.since, &now.since),
            (&mut wanted.until, &now.until),
        ] {
            // A time that was not changed keeps its form.
            *time = match local.to_field(before) == *time {
                true => before.clone(),
                false => local.of_field(time),
            };
        }
        if wanted == now {
            again.run(());
        } else {
            let options = NavigateOptions {
                scroll: false,
                ..Default::default()
            };
            navigate(&wanted.url(), options);
        }
    };
    let problem = move |name: &str| {
        let problem = problems.iter().find(|problem| problem.field() == name)?;
        Some(format!("This {}.", problem.msg))
    };
    let is_empty = query.is_empty();
    let actions = actions.into_iter().map(|name| (name.clone(), name));
    let outcomes = AuditOutcome::ALL.map(|it| (it.as_str().to_owned(), it.as_str().to_owned()));
    let periods = PERIODS.map(|(name, words, _)| (name.to_owned(), words.to_owned()));
    view! {
        <form
            method="get"
            action="/console/events"
            class="card event-filter"
            role="search"
            on:submit=submit
        >
            <Choice
                label="Action"
                name="action"
                any="any"
                chosen=query.action
                options=actions.collect()
                problem=problem("action")
            />
            <Choice
                label="Outcome"
                name="outcome"
                any="any"
                chosen=query.outcome
                options=outcomes.into()
                problem=problem("outcome")
            />
            <Choice
                label="Within the last"
                name="last"
                any="any time"
                chosen=query.last
                options=periods.into()
                problem=problem("last")
            />
            <Text label="Who (name or id)" name="actor" value=query.actor problem=problem("actor") />
            <Text
                label="Sandbox (id)"
                name="sandbox"
                value=query.sandbox
                problem=problem("sandbox")
            />
            <Text
                label=move || if local.0.get() { "From" } else { "From (UTC)" }
                name="since"
                kind="datetime-local"
                value=move || local.to_field(&query.since)
                problem=problem("since")
            />
            <Text
                label=move || if local.0.get() { "To" } else { "To (UTC)" }
                name="until"
                kind="datetime-local"
                value=move || local.to_field(&query.until)
                problem=problem("until")
            />
            <p class="event-filter-foot">
                <button type="submit" class="button primary">
                    <Icon name="search" />
                    "Filter"
                </button>
                {(!is_empty)
                    .then(|| {
                        view! {
                            <a class="button" href="/console/events">
                                "Clear"
                            </a>
                        }
                    })}
            </p>
        </form>
    }
    .into_any()
}

#[component]
fn Choice(
    label: &'static str,
    name: &'static str,
    /// Text of the option that selects everything.
    any: &'static str,
    chosen: String,
    /// Values with their texts.
    options: Vec<(String, String)>,
    problem: Option<String>,
) -> impl IntoView {
    let id = format!("event-{name}");
    let is_wrong = problem.is_some().then_some("true");
    // What the URL has stays in the form, also when there is no such option.
    let is_known = chosen.is_empty() || options.iter().any(|(value, _)| *value == chosen);
    let unknown = (!is_known).then(|| (chosen.clone(), chosen.clone()));
    let options = unknown
        .into_iter()
        .chain(options)
        .map(move |(value, text)| {
            let selected = value == chosen;
            view! {
                <option value=value selected=selected>
                    {text}
                </option>
            }
        });
    view! {
        <div class="field">
            <label for=id.clone()>{label}</label>
            <select
                id=id.clone()
                name=name
                aria-invalid=is_wrong
                aria-describedby=format!("{id}-problem")
            >
                <option value="">{any}</option>
                {options.collect_view()}
            </select>
            <p id=format!("{id}-problem") class="problem">
                {problem}
            </p>
        </div>
    }
    .into_any()
}

#[component]
fn Text(
    #[prop(into)] label: Signal<&'static str>,
    name: &'static str,
    #[prop(default = "text")] kind: &'static str,
    #[prop(into)] value: Signal<String>,
    problem: Option<String>,
) -> impl IntoView {
    let id = format!("event-{name}");
    let is_wrong = problem.is_some().then_some("true");
    view! {
        <div class="field">
            <label for=id.clone()>{label}</label>
            <input
                id=id.clone()
                type=kind
                name=name
                value=value.get_untracked()
                prop:value=value
                autocomplete="off"
                spellcheck="false"
                aria-invalid=is_wrong
                aria-describedby=format!("{id}-problem")
            />
            <p id=format!("{id}-problem") class="problem">
                {problem}
            </p>
        </div>
    }
    .into_any()
}
