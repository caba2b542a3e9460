//! The view of the design page. Nothing on it acts on a sandbox.

use std::{collections::BTreeMap, sync::Arc};

use leptos::prelude::*;
use osb_protocol::{WireTime, lifecycle::SandboxState};

use crate::{
    error::ConsoleError,
    frame::Toasts,
    ui::{
        Age, AtMinute, Chart, ChartData, CodeBlock, ColumnTitle, Confirm, CopyButton, Countdown,
        Dialog, Expiry, Icon, Labels, Line, LoadError, OutcomeBadge, PageTitle, Question,
        Sparkline, StateBadge, TableHead, Unit, When,
    },
    view::Outcome,
};

/// Titles of the columns of the table.
const TITLES: &[ColumnTitle] = &[
    ColumnTitle::new("Name"),
    ColumnTitle::new("State"),
    ColumnTitle::new("Count"),
    ColumnTitle::new("Time"),
];
/// Colours of style/tokens.css that surfaces and text are made of.
const COLOURS: [&str; 18] = [
    "ground",
    "surface",
    "raised",
    "sunken",
    "hover",
    "ink",
    "ink-soft",
    "ink-faint",
    "line",
    "line-strong",
    "accent",
    "accent-fill",
    "accent-soft",
    "good",
    "bad",
    "busy",
    "calm",
    "quiet",
];
/// Steps of the scales.
const SIZES: [&str; 5] = ["xs", "s", "m", "l", "xl"];
const SPACES: [&str; 7] = ["1", "2", "3", "4", "5", "6", "7"];
const TONES: [&str; 3] = ["good", "bad", "quiet"];

/// Everything that pages are made of.
#[component]
pub fn DesignPage() -> impl IntoView {
    // The same on both sides: what is shown must not depend on when it is rendered.
    let at = WireTime::from_unix_ms(1_767_225_600_000).expect("a time in 2026");
    view! {
        <PageTitle text="Design" />
        <div class="page-head">
            <h1>"Design"</h1>
        </div>
        <p class="help">
            "What pages are made of, with all states: for those who build the console, and for those who check a theme."
        </p>
        <div class="design">
            <Colours />
            <Type />
            <Buttons />
            <Fields />
            <States />
            <Tables at />
            <Overlays />
            <Messages />
            <Charts />
            <Texts at />
        </div>
    }
    .into_any()
}

/// A part of the page.
#[component]
fn Group(title: &'static str, children: Children) -> impl IntoView {
    let id = format!("design-{}", title.to_lowercase().replace(' ', "-"));
    let labelled_by = id.clone();
    view! {
        <section class="card" aria-labelledby=labelled_by>
            <h2 id=id>{title}</h2>
            {children()}
        </section>
    }
    .into_any()
}

#[component]
fn Colours() -> impl IntoView {
    let swatch = |name: &'static str| {
        view! {
            <li>
                <span class="swatch" style=format!("background: var(--{name})")></span>
                <code>{name}</code>
            </li>
        }
    };
    view! {
        <Group title="Colours">
            <ul class="swatches">{COLOURS.map(swatch).collect_view()}</ul>
        </Group>
    }
    .into_any()
}

#[component]
fn Type() -> impl IntoView {
    let size = |name: &'static str| {
        view! {
            <p style=format!("font-size: var(--text-{name})")>
                {format!("text-{name}: the sandbox runs, 0123456789")}
            </p>
        }
    };
    let space = |name: &'static str| {
        view! {
            <li>
                <span class="space" style=format!("width: var(--space-{name})")></span>
                <code>{format!("space-{name}")}</code>
            </li>
        }
    };
    view! {
        <Group title="Type and space">
            {SIZES.map(size).collect_view()}
            <p class="mono">"mono: 0b6c1f2e-93aa, il1 O0"</p>
            <ul class="swatches">{SPACES.map(space).collect_view()}</ul>
        </Group>
    }
    .into_any()
}

#[component]
fn Buttons() -> impl IntoView {
    view! {
        <Group title="Buttons">
            <p class="choices">
                <button type="button" class="button primary">
                    "Primary"
                </button>
                <button type="button" class="button">
                    <Icon name="timer-reset" />
                    "With an icon"
                </button>
                <button type="button" class="button danger">
                    <Icon name="trash-2" />
                    "Danger"
                </button>
                <a class="button" href="#design-buttons">
                    "A link"
                </a>
                <button type="button" class="icon-button" aria-label="Icon alone" title="Icon alone">
                    <Icon name="download" />
                </button>
                <CopyButton text="copied text".to_owned() what="a text" />
            </p>
            <p class="choices">
                <button type="button" class="button primary" disabled>
                    "Primary, not possible"
                </button>
                <button type="button" class="button" disabled>
                    "Not possible"
                </button>
                <button type="button" class="button danger" disabled>
                    "Danger, not possible"
                </button>
                <button
                    type="button"
                    class="button"
                    aria-disabled="true"
                    title="Your role may look at sandboxes, and not change them."
                >
                    "Not possible, says why"
                </button>
                <kbd>"Ctrl K"</kbd>
            </p>
        </Group>
    }
    .into_any()
}

#[component]
fn Fields() -> impl IntoView {
    view! {
        <Group title="Fields">
            <div class="design-fields">
                <div class="field">
                    <label for="design-text">"Text"</label>
                    <input id="design-text" type="text" value="python:3.12" />
                    <p class="help">"What a field is for."</p>
                </div>
                <div class="field">
                    <label for="design-bad">"Text that is wrong"</label>
                    <input
                        id="design-bad"
                        type="text"
                        value="fast"
                        aria-invalid="true"
                        aria-describedby="design-bad-why"
                    />
                    <p id="design-bad-why" class="problem">
                        "A CPU is a number of cores, such as 500m or 2."
                    </p>
                </div>
                <div class="field">
                    <label for="design-off">"Text that cannot be changed now"</label>
                    <input id="design-off" type="text" value="docker" disabled />
                </div>
                <div class="field">
                    <label for="design-select">"Choice"</label>
                    <select id="design-select">
                        <option>"30 min"</option>
                        <option>"1 h"</option>
                    </select>
                </div>
                <div class="field">
                    <label for="design-area">"Several lines"</label>
                    <textarea id="design-area" rows="3">
                        "MODEL=small"
                    </textarea>
                </div>
                <label class="check">
                    <input type="checkbox" checked />
                    "A box that is ticked"
                </label>
            </div>
        </Group>
    }
    .into_any()
}

#[component]
fn States() -> impl IntoView {
    let states = [
        SandboxState::Pending,
        SandboxState::Running,
        SandboxState::Pausing,
        SandboxState::Paused,
        SandboxState::Resuming,
        SandboxState::Stopping,
        SandboxState::Terminated,
        SandboxState::Failed,
        SandboxState::Unknown,
    ];
    let badge = |state: SandboxState| view! { <StateBadge state=Signal::stored(state) /> };
    let outcomes = [
        Outcome::Deleted,
        Outcome::Expired,
        Outcome::Failed,
        Outcome::Abandoned,
        Outcome::Vanished,
    ];
    let end = |outcome| view! { <OutcomeBadge outcome /> };
    let stage = Signal::stored(Some("image".to_owned()));
    view! {
        <Group title="States">
            <p class="choices">{states.map(badge).collect_view()}</p>
            <p class="choices">
                <StateBadge state=Signal::stored(SandboxState::Pending) stage />
                {outcomes.map(end).collect_view()}
            </p>
        </Group>
    }
    .into_any()
}

#[component]
fn Tables(at: WireTime) -> impl IntoView {
    let row = move |name: &'static str, state: SandboxState| {
        view! {
            <tr>
                <td>
                    <a href="#design-table-and-tabs">{name}</a>
                </td>
                <td>
                    <StateBadge state=Signal::stored(state) />
                </td>
                <td class="num">"12"</td>
                <td>
                    <AtMinute at />
                </td>
            </tr>
        }
    };
    let labels = BTreeMap::from([
        ("team".to_owned(), "agents".to_owned()),
        (
            "dataset".to_owned(),
            "web-pages-of-three-languages".to_owned(),
        ),
    ]);
    view! {
        <Group title="Table and tabs">
            <nav class="tabs" aria-label="Tabs of the design page">
                <a href="#design-table-and-tabs" aria-current="page">
                    <Icon name="info" />
                    "Current"
                </a>
                <a href="#design-table-and-tabs">
                    <Icon name="terminal" />
                    "Other"
                </a>
            </nav>
            <table class="list">
                <caption class="visually-hidden">"A table"</caption>
                <TableHead of=TITLES />
                <tbody>
                    {row("train-7b", SandboxState::Running)}
                    {row("0b6c1f2e", SandboxState::Failed)}
                </tbody>
            </table>
            <Labels of=Signal::stored(labels) />
        </Group>
    }
    .into_any()
}

#[component]
fn Overlays() -> impl IntoView {
    let open = RwSignal::new(false);
    let toasts = Toasts::current();
    let confirm = Confirm::current();
    let ask = move |_| {
        confirm.ask(Question {
            title: "Delete train-7b?".to_owned(),
            text: "This is only an example: nothing is deleted.".to_owned(),
            yes: "Delete nothing",
            act: Arc::new(move || toasts.good("Nothing was deleted")),
        });
    };
    view! {
        <Group title="Dialogs and messages that pass">
            <p class="choices needs-script">
                <button type="button" class="button" on:click=move |_| open.set(true)>
                    "Dialog"
                </button>
                <button type="button" class="button" on:click=ask>
                    "Question"
                </button>
                <button type="button" class="button" on:click=move |_| toasts.good("It worked")>
                    "Success"
                </button>
                <button
                    type="button"
                    class="button"
                    on:click=move |_| toasts.bad("It did not work, and this is why.")
                >
                    "Failure"
                </button>
            </p>
            <details class="confirm" name="confirm">
                <summary class="button">"Menu"</summary>
                <div class="card confirm-card">
                    <p>"What opens over the page closes on Escape and on a click outside."</p>
                </div>
            </details>
            <Dialog open id="design-dialog" title=Signal::stored("A dialog".to_owned())>
                <p>"The focus stays in it, and returns when it is closed."</p>
                <div class="dialog-actions">
                    <button type="button" class="button" on:click=move |_| open.set(false)>
                        "Close it"
                    </button>
                </div>
            </Dialog>
        </Group>
    }
    .into_any()
}

#[component]
fn Messages() -> impl IntoView {
    let banner = |tone: &'static str| {
        view! {
            <p class="banner" data-tone=tone>
                <Icon name="info" />
                {format!("A banner of the tone {tone}.")}
            </p>
        }
    };
    let error = ConsoleError::Refused {
        message: "Port 8080 of the host is taken by another program.".to_owned(),
    };
    view! {
        <Group title="Messages that stay">
            {TONES.map(banner).collect_view()}
            <LoadError error again=Callback::new(|()| ()) />
            <div class="skeleton" role="status" aria-busy="true" aria-label="Loading">
                <div class="skeleton-row"></div>
                <div class="skeleton-row"></div>
            </div>
            <div class="empty">
                <Icon name="box" />
                <h3>"Nothing here yet"</h3>
                <p>"Says what the page is for, and offers the first action."</p>
                <a class="button" href="#design-messages-that-stay">
                    "First action"
                </a>
            </div>
        </Group>
    }
    .into_any()
}

/// A wave with a gap.
fn points() -> Vec<(i64, Option<f64>)> {
    let value = |at: i32| match at {
        40..50 => None,
        // A triangle, twice.
        at => Some(f64::from((at % 50 - 25).abs()) / 25.0),
    };
    (0..100_i32).map(|at| (i64::from(at), value(at))).collect()
}

#[component]
fn Charts() -> impl IntoView {
    let data = ChartData {
        title: "CPU",
        unit: Unit::Cores,
        lines: vec![Line {
            name: "",
            points: points(),
        }],
        limit: Some(1.2),
        from: 0,
        to: 99,
    };
    view! {
        <Group title="Charts">
            <Chart data=Signal::stored(data) />
            <p class="design-spark">
                "Sparkline " <Sparkline points=Signal::stored(points()) limit=None />
            </p>
        </Group>
    }
    .into_any()
}

#[component]
fn Texts(at: WireTime) -> impl IntoView {
    let code = "curl -H \"OPEN-SANDBOX-API-KEY: $KEY\" \"$URL/v1/sandboxes\"";
    view! {
        <Group title="Code and times">
            <CodeBlock code=Signal::stored(code.to_owned()) what="an example" />
            <dl class="facts">
                <dt>"Exact"</dt>
                <dd>
                    <When at />
                </dd>
                <dt>"To the minute"</dt>
                <dd>
                    <AtMinute at />
                </dd>
                <dt>"Age"</dt>
                <dd>
                    <Age at />
                </dd>
                <dt>"Countdown"</dt>
                <dd>
                    <Countdown until=Signal::stored(None) />
                </dd>
                <dt>"Expiry"</dt>
                <dd>
                    <Expiry at=Signal::stored(Some(at)) counts=Signal::stored(false) />
                </dd>
            </dl>
        </Group>
    }
    .into_any()
}
