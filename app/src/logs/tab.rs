//! The view of the logs tab.

use std::cell::RefCell;

use leptos::{ev, prelude::*};
use leptos_router::{
    NavigateOptions,
    hooks::{use_location, use_navigate, use_query_map},
};
use osb_protocol::SandboxId;

use super::{
    api,
    buffer::Buffer,
    pattern::Pattern,
    row::{TIME_WIDTH, row},
    scroll::{Scroll, offset, space},
};
use crate::{
    browser,
    frame::{Dock, Panel, Shows},
    live::{Live, LogBatch, LogLine, LogState},
    tab::Current,
    ui::{Icon, LoadError},
    view::title,
};

/// Longest time for filtering all lines, in milliseconds.
const FILTER_MS: i64 = 1_000;

thread_local! {
    /// The filter of the page, of which a tab shows one: a JavaScript value must not enter signals.
    static PATTERN: RefCell<Option<Pattern>> = const { RefCell::new(None) };
}

fn passes(text: &str) -> bool {
    PATTERN.with_borrow(|pattern| pattern.as_ref().is_none_or(|pattern| pattern.finds(text)))
}

/// The output of the sandbox's entry point.
#[component]
pub fn LogsTab() -> impl IntoView {
    let Some(Current(current)) = use_context() else {
        return ().into_any();
    };
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    let asked = id.clone();
    let first = Resource::new_blocking(|| (), move |()| api::tail(asked.clone()));
    view! {
        <Transition fallback=|| view! { <div class="skeleton" aria-busy="true"><div class="skeleton-row"></div></div> }>
            {move || {
                let id = id.clone();
                Suspend::new(async move {
                    match first.await {
                        Ok(Ok(lines)) => view! { <Log id lines /> }.into_any(),
                        Ok(Err(why)) => view! { <NoLog why /> }.into_any(),
                        Err(error) => {
                            view! { <LoadError error again=move |()| first.refetch() /> }.into_any()
                        }
                    }
                })
            }}
        </Transition>
    }
    .into_any()
}

#[component]
fn NoLog(why: String) -> impl IntoView {
    view! {
        <section class="empty">
            <Icon name="scroll-text" />
            <h2>"No log"</h2>
            <p>{why}</p>
        </section>
    }
    .into_any()
}

/// What the address says about the view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    filter: String,
    wraps: bool,
    has_times: bool,
}

impl Wanted {
    fn of(get: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            filter: get("q").unwrap_or_default(),
            wraps: get("wrap").is_some(),
            has_times: get("times").as_deref() != Some("off"),
        }
    }

    fn query(&self) -> String {
        let mut query = leptos_router::params::ParamsMap::new();
        if !self.filter.is_empty() {
            query.insert("q", self.filter.clone());
        }
        if self.wraps {
            query.insert("wrap", "on".to_owned());
        }
        if !self.has_times {
            query.insert("times", "off".to_owned());
        }
        query.to_query_string()
    }
}

/// The state of the view. Copies share it.
#[derive(Clone, Copy)]
struct State {
    /// Whether it is in the dock, where it has no filter: that of the page is in the address.
    docked: bool,
    buffer: StoredValue<Buffer>,
    /// Counts changes of the buffer.
    revision: RwSignal<u64>,
    scroll: Scroll,
    wanted: Memo<Wanted>,
    /// What is wrong with the filter.
    problem: RwSignal<Option<String>>,
    /// Lines that there were when the view last followed the end.
    seen: RwSignal<u64>,
}

impl State {
    /// Whether a line is shown.
    fn passes(self) -> &'static dyn Fn(&str) -> bool {
        match self.docked {
            true => &|_| true,
            false => &passes,
        }
    }

    fn receive(self, batch: LogBatch) {
        let scroll = self.scroll;
        // Another tab may be shown by now.
        let Some(follows) = scroll.follows.try_get_untracked() else {
            return;
        };
        let dropped = self.buffer.try_update_value(|buffer| {
            let before = buffer.dropped;
            buffer.add(batch, self.passes());
            buffer.dropped - before
        });
        let dropped = dropped.unwrap_or_default();
        let is_plain = self
            .wanted
            .with_untracked(|it| !it.wraps && it.filter.is_empty());
        if dropped > 0 && !follows && is_plain {
            scroll.drop_above(usize::try_from(dropped).unwrap_or(usize::MAX));
        }
        self.changed();
    }

    fn changed(self) {
        self.revision.update(|revision| *revision += 1);
        if self.scroll.follows.get_untracked() {
            self.scroll.to_end();
        }
    }

    fn filter(self, text: &str) {
        let (pattern, problem) = match text {
            "" => (None, None),
            text => match Pattern::new(text) {
                Ok(pattern) => (Some(pattern), None),
                Err(problem) => (None, Some(problem)),
            },
        };
        PATTERN.set(pattern);
        let end = browser::now_ms() + FILTER_MS;
        let is_over = move || browser::now_ms() > end;
        let done = self
            .buffer
            .try_update_value(|buffer| buffer.filter(&passes, &is_over));
        if done == Some(false) {
            PATTERN.set(None);
            let problem = "This filter takes too long. All lines are shown.";
            self.problem.set(Some(problem.to_owned()));
        } else {
            self.problem.set(problem);
        }
        self.changed();
    }

    fn status(self) -> String {
        self.revision.track();
        self.buffer.with_value(|buffer| {
            let (held, matching) = buffer.counts();
            let mut text = match matching == held {
                true if held == 1 => "1 line".to_owned(),
                true => format!("{held} lines"),
                false => format!("{matching} of {held} lines"),
            };
            if buffer.dropped > 0 {
                text += &format!(" · {} older ones dropped", buffer.dropped);
            }
            if buffer.skipped > 0 {
                text += &format!(" · {} left out", buffer.skipped);
            }
            match &buffer.state {
                LogState::Waiting | LogState::Following => {}
                LogState::Ended => text += " · ended",
                LogState::Failed(why) => text += &format!(" · cannot be read: {why}. Retrying …"),
            }
            text
        })
    }
}

#[component]
fn Log(id: SandboxId, lines: Vec<LogLine>) -> impl IntoView {
    let params = use_query_map();
    let docked = use_context::<Panel>().is_some();
    let state = State {
        docked,
        buffer: StoredValue::new(Buffer::of(lines)),
        revision: RwSignal::new(0),
        scroll: Scroll::new(),
        wanted: Memo::new(move |_| Wanted::of(|name| params.read().get(name).filter(|_| !docked))),
        problem: RwSignal::new(None),
        seen: RwSignal::new(0),
    };
    follow(state, id.clone());
    let label = match docked {
        true => format!("Log of {}", id.short()),
        false => "Logs".to_owned(),
    };
    view! {
        <section class="logs" aria-label=label>
            {(!docked).then(|| view! { <Bar state id /> })}
            <Lines state />
            <p class="help num">{move || state.status()}</p>
        </section>
    }
    .into_any()
}

/// Starts what only the browser does.
fn follow(state: State, id: SandboxId) {
    let live = use_context::<Live>();
    Effect::new(move |_| {
        state.scroll.measure();
        let resized = window_event_listener(ev::resize, move |_| state.scroll.measure());
        on_cleanup(move || {
            resized.remove();
            if !state.docked {
                PATTERN.set(None);
            }
        });
        if let Some(live) = live {
            live.watch_log(id.clone(), move |batch| state.receive(batch));
        }
    });
    let filter = Memo::new(move |_| state.wanted.read().filter.clone());
    Effect::new(move |_| {
        if !state.docked {
            state.filter(&filter.get());
        }
    });
    // Other widths of rows, or the end again.
    Effect::new(move |_| {
        state.wanted.track();
        if state.scroll.follows.get() {
            state.scroll.to_end();
        }
    });
    Effect::new(move |_| {
        state.revision.track();
        if state.scroll.follows.get() {
            state.seen.set(state.buffer.with_value(Buffer::total));
        }
    });
}

/// Filter, switches and download.
#[component]
fn Bar(state: State, id: SandboxId) -> impl IntoView {
    let navigate = use_navigate();
    let here = use_location().pathname;
    let go = move |change: &dyn Fn(&mut Wanted)| {
        let mut wanted = state.wanted.get_untracked();
        change(&mut wanted);
        let options = NavigateOptions {
            replace: true,
            scroll: false,
            ..Default::default()
        };
        navigate(
            &format!("{}{}", here.get_untracked(), wanted.query()),
            options,
        );
    };
    let (go_wrap, go_times) = (go.clone(), go.clone());
    let on_filter = move |event: ev::Event| {
        let text = event_target_value(&event);
        go(&|wanted| wanted.filter.clone_from(&text));
    };
    let on_wrap = move |event: ev::Event| {
        let checked = event_target_checked(&event);
        go_wrap(&|wanted| wanted.wraps = checked);
    };
    let on_times = move |event: ev::Event| {
        let checked = event_target_checked(&event);
        go_times(&|wanted| wanted.has_times = checked);
    };
    let initial = state.wanted.get_untracked();
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
    let invalid = move || state.problem.read().is_some().then_some("true");
    view! {
        <div class="log-bar">
            <label class="search needs-script">
                <Icon name="search" />
                <span class="visually-hidden">"Filter by a regular expression"</span>
                <input
                    id="filter"
                    type="search"
                    value=initial.filter
                    placeholder="Filter: a regular expression"
                    autocomplete="off"
                    spellcheck="false"
                    aria-invalid=invalid
                    aria-describedby="log-problem"
                    on:input=on_filter
                />
            </label>
            <label class="check needs-script">
                <input type="checkbox" checked=initial.wraps on:change=on_wrap />
                "Wrap"
            </label>
            <label class="check needs-script">
                <input type="checkbox" checked=initial.has_times on:change=on_times />
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
        <p id="log-problem" class="problem" role="alert">{move || state.problem.get()}</p>
    }
    .into_any()
}

#[component]
fn Lines(state: State) -> impl IntoView {
    let scroll = state.scroll;
    let window = Memo::new(move |_| {
        state.revision.track();
        let (first, count) = scroll.rows();
        let (columns, prefix) = state.wanted.with(|wanted| {
            let prefix = if wanted.has_times { TIME_WIDTH } else { 0 };
            (wanted.wraps.then(|| scroll.columns.get()), prefix)
        });
        state
            .buffer
            .with_value(|buffer| buffer.window(first, count, columns, prefix))
    });
    // The server's text is in UTC; hydration finds the same.
    let offset_minutes = RwSignal::new(0);
    Effect::new(move |_| offset_minutes.set(browser::minutes_east_of_utc()));
    let unseen = move || {
        state.revision.track();
        state.buffer.with_value(Buffer::total) - state.seen.get()
    };
    let pill = move || match unseen() {
        0 => "To the end".to_owned(),
        count => format!("{count} new"),
    };
    let to_end = move |_| {
        scroll.follows.set(true);
        scroll.to_end();
    };
    let is_empty = move || window.with(|window| window.rows == 0);
    view! {
        <div class="log-frame">
            <div
                class="log-view"
                class:wraps=move || state.wanted.read().wraps
                class:no-times=move || !state.wanted.read().has_times
                node_ref=scroll.element
                tabindex="0"
                role="region"
                aria-label="Output"
                on:scroll=move |_| scroll.moved()
            >
                <div class="log-probe" node_ref=scroll.probe aria-hidden="true">
                    {"0".repeat(100)}
                </div>
                <div class="log-space" style:height=move || window.with(space)>
                    <div class="log-lines" style:transform=move || window.with(offset)>
                        <For
                            each=move || window.get().lines
                            key=|(number, line)| (*number, line.at)
                            let((_, line))
                        >
                            {row(&line, offset_minutes)}
                        </For>
                    </div>
                </div>
                <Show when=is_empty>
                    <p class="help log-empty">{move || nothing(state)}</p>
                </Show>
            </div>
            <button
                type="button"
                class="button log-pill needs-script"
                hidden=move || scroll.follows.get()
                on:click=to_end
            >
                <Icon name="arrow-down" />
                {pill}
            </button>
        </div>
    }
    .into_any()
}

/// Why there is no line.
fn nothing(state: State) -> &'static str {
    state.revision.track();
    match state.buffer.with_value(Buffer::counts) {
        (0, _) => {
            "No output yet. What the entry point writes is shown here, not what commands write."
        }
        _ => "No line matches the filter.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_holds_the_view() {
        for wanted in [
            Wanted {
                has_times: true,
                ..Wanted::default()
            },
            Wanted {
                filter: "a|b c&d".to_owned(),
                wraps: true,
                has_times: false,
            },
        ] {
            let query = wanted.query();
            let pairs: Vec<(String, String)> = query
                .trim_start_matches('?')
                .split('&')
                .filter_map(|pair| pair.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            let get = |name: &str| {
                let found = pairs.iter().find(|(known, _)| known == name)?;
                // The only escapes that the test's values need.
                Some(
                    found
                        .1
                        .replace("%20", " ")
                        .replace("%7C", "|")
                        .replace("%26", "&"),
                )
            };
            assert_eq!(Wanted::of(get), wanted, "{query}");
        }
    }
}
