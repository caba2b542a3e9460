//! What is set above a log.

use leptos::{ev, prelude::*};
use leptos_router::{
    NavigateOptions,
    hooks::{use_location, use_navigate},
};
use osb_protocol::SandboxId;

use super::{
    kind::Severity,
    wanted::{Source, Wanted},
};
use crate::{
    frame::{Dock, Panel, Shows},
    tab::Current,
    ui::Icon,
    view::title,
};

/// Changes what is shown.
type Change = Callback<Wanted>;

/// Filters, switches and download of a page.
#[component]
pub(super) fn Bar(
    id: SandboxId,
    wanted: Memo<Wanted>,
    /// What is wrong with the filter.
    problem: RwSignal<Option<String>>,
) -> impl IntoView {
    let navigate = use_navigate();
    let here = use_location().pathname;
    let change = Change::new(move |wanted: Wanted| {
        let options = NavigateOptions {
            replace: true,
            scroll: false,
            ..Default::default()
        };
        let to = format!("{}{}", here.get_untracked(), wanted.query());
        navigate(&to, options);
    });
    let switch = move |set: fn(&mut Wanted, bool)| {
        move |event: ev::Event| {
            let mut next = wanted.get_untracked();
            set(&mut next, event_target_checked(&event));
            change.run(next);
        }
    };
    let initial = wanted.get_untracked();
    let panel = use_context::<Current>().map(|Current(current)| Panel {
        sandbox: id.clone(),
        shows: Shows::Log,
        name: current.with_untracked(|detail| title(&detail.sandbox).to_owned()),
    });
    let to_dock = use_context::<Dock>().zip(panel).map(|(dock, panel)| {
        view! {
            <button
                type="button"
                class="icon-button needs-script"
                aria-label="Keep in the dock"
                title="Keep in the dock, beside other pages"
                data-command="Keep the log in the dock"
                on:click=move |_| dock.open(panel.clone())
            >
                <Icon name="panel-bottom" />
            </button>
        }
    });
    view! {
        <div class="log-bar">
            <Filters field="filter".to_owned() wanted=wanted.into() change problem />
            <label class="check needs-script">
                <input
                    type="checkbox"
                    checked=initial.wraps
                    on:change=switch(|wanted, on| wanted.wraps = on)
                />
                "Wrap"
            </label>
            <label class="check needs-script">
                <input
                    type="checkbox"
                    checked=initial.has_times
                    on:change=switch(|wanted, on| wanted.has_times = on)
                />
                "Times"
            </label>
            <a
                class="button"
                rel="external"
                download
                href=format!("/console/sandboxes/{id}/logs/download")
            >
                <Icon name="download" />
                "Download"
            </a>
            {to_dock}
        </div>
        <Problem field="filter".to_owned() problem />
    }
    .into_any()
}

/// The filters of a log in the dock.
#[component]
pub(super) fn DockBar(
    id: SandboxId,
    wanted: RwSignal<Wanted>,
    /// What is wrong with the filter.
    problem: RwSignal<Option<String>>,
) -> impl IntoView {
    let field = format!("dock-filter-{id}");
    let change = Change::new(move |next| wanted.set(next));
    view! {
        <div class="log-bar">
            <Filters field=field.clone() wanted=wanted.into() change problem />
        </div>
        <Problem field problem />
    }
    .into_any()
}

#[component]
fn Problem(field: String, problem: RwSignal<Option<String>>) -> impl IntoView {
    view! {
        <p id=format!("{field}-problem") class="problem" role="alert">
            {move || problem.get()}
        </p>
    }
    .into_any()
}

/// The text to find, the output and the severity.
#[component]
fn Filters(
    /// Id of the text field.
    field: String,
    wanted: Signal<Wanted>,
    change: Change,
    problem: RwSignal<Option<String>>,
) -> impl IntoView {
    let set = move |event: &ev::Event, set: fn(&mut Wanted, String)| {
        let mut next = wanted.get_untracked();
        set(&mut next, event_target_value(event));
        change.run(next);
    };
    let invalid = move || problem.read().is_some().then_some("true");
    let initial = wanted.get_untracked();
    let sources = Source::ALL.map(|source| {
        let is_chosen = source == initial.source;
        view! { <option value=source.key() selected=is_chosen>{source.title()}</option> }
    });
    let severities = [
        (Severity::Other, "Any severity"),
        (Severity::Warning, "Warnings, errors"),
        (Severity::Error, "Errors"),
    ];
    let severities = severities.map(|(severity, words)| {
        let is_chosen = severity == initial.severity;
        view! { <option value=severity.key() selected=is_chosen>{words}</option> }
    });
    view! {
        <label class="search needs-script">
            <Icon name="search" />
            <span class="visually-hidden">"Filter by a regular expression"</span>
            <input
                id=field.clone()
                type="search"
                value=initial.filter
                placeholder="Filter: a regular expression"
                autocomplete="off"
                spellcheck="false"
                aria-invalid=invalid
                aria-describedby=format!("{field}-problem")
                on:input=move |event| set(&event, |wanted, text| wanted.filter = text)
            />
        </label>
        <label class="select needs-script">
            <span class="visually-hidden">"Output"</span>
            <select
                title="execd is the daemon of the sandbox, which writes its log to the same place"
                on:change=move |event| {
                    set(&event, |wanted, key| wanted.source = Source::of_key(&key));
                }
            >
                {sources.collect_view()}
            </select>
        </label>
        <label class="select needs-script">
            <span class="visually-hidden">"Severity"</span>
            <select
                title="As the text of a line says"
                on:change=move |event| {
                    set(&event, |wanted, key| wanted.severity = Severity::of_key(&key));
                }
            >
                {severities.collect_view()}
            </select>
        </label>
    }
    .into_any()
}
