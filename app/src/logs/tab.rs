//! The view of the logs tab.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::atomic::{AtomicU32, Ordering},
};

use leptos::{ev, prelude::*};
use osb_protocol::SandboxId;

use super::{
    api,
    bar::{Bar, DockBar},
    buffer::Buffer,
    kind::Kind,
    pattern::Pattern,
    row::{TIME_WIDTH, row},
    scroll::{Scroll, offset, space},
    wanted::Wanted,
};
use crate::{
    browser,
    frame::Panel,
    live::{Live, LogBatch, LogLine, LogState},
    query_string::use_query,
    tab::Current,
    ui::{Icon, LoadError},
};

/// Longest time for filtering all lines, in milliseconds.
const FILTER_MS: i64 = 1_000;

thread_local! {
    /// The patterns of the views that are shown, by their numbers: a JavaScript value must not enter
    /// signals.
    static PATTERNS: RefCell<BTreeMap<u32, Pattern>> = const { RefCell::new(BTreeMap::new()) };
}

/// Numbers the views of the page.
static VIEWS: AtomicU32 = AtomicU32::new(0);

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
    let current = use_context::<Current>();
    let why = move || {
        let ended = current.and_then(|current| current.of_ended("Its log is not kept."));
        ended.unwrap_or_else(|| why.clone())
    };
    view! {
        <section class="empty">
            <Icon name="scroll-text" />
            <h2>"No log"</h2>
            <p>{why}</p>
        </section>
    }
    .into_any()
}

/// The state of the view. Copies share it.
#[derive(Clone, Copy)]
struct State {
    /// Its number.
    view: u32,
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
    fn passes(self, kind: Kind, text: &str) -> bool {
        self.wanted.with_untracked(|wanted| wanted.takes(kind))
            && PATTERNS.with_borrow(|patterns| {
                let pattern = patterns.get(&self.view);
                pattern.is_none_or(|pattern| pattern.finds(text))
            })
    }

    fn receive(self, batch: LogBatch) {
        let scroll = self.scroll;
        // Another tab may be shown by now.
        let Some(follows) = scroll.follows.try_get_untracked() else {
            return;
        };
        let filter = move |kind, text: &str| self.passes(kind, text);
        let dropped = self.buffer.try_update_value(|buffer| {
            let before = buffer.dropped;
            buffer.add(batch, &filter);
            buffer.dropped - before
        });
        let dropped = dropped.unwrap_or_default();
        let is_plain = self.wanted.with_untracked(|it| !it.wraps && it.takes_all());
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

    fn set_pattern(self, pattern: Option<Pattern>) {
        PATTERNS.with_borrow_mut(|patterns| match pattern {
            Some(pattern) => patterns.insert(self.view, pattern),
            None => patterns.remove(&self.view),
        });
    }

    fn filter(self, text: &str) {
        let (pattern, problem) = match text {
            "" => (None, None),
            text => match Pattern::new(text) {
                Ok(pattern) => (Some(pattern), None),
                Err(problem) => (None, Some(problem)),
            },
        };
        self.set_pattern(pattern);
        let end = browser::now_ms() + FILTER_MS;
        let is_over = move || browser::now_ms() > end;
        let filter = move |kind, text: &str| self.passes(kind, text);
        let done = self
            .buffer
            .try_update_value(|buffer| buffer.filter(&filter, &is_over));
        if done == Some(false) {
            self.set_pattern(None);
            // Output and severity are still looked at, as they are for the lines that come later.
            self.buffer
                .try_update_value(|buffer| buffer.filter(&filter, &|| false));
            let problem = "This filter takes too long. Lines are shown without it.";
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
    let params = use_query();
    let docked = use_context::<Panel>().is_some();
    // The view of a page is in its address; that of the dock is not.
    let of_dock = RwSignal::new(Wanted::of(|_| None));
    let state = State {
        view: VIEWS.fetch_add(1, Ordering::Relaxed),
        buffer: StoredValue::new(Buffer::of(lines)),
        revision: RwSignal::new(0),
        scroll: Scroll::new(),
        wanted: Memo::new(move |_| match docked {
            true => of_dock.get(),
            false => Wanted::of(|name| params.read().get(name)),
        }),
        problem: RwSignal::new(None),
        seen: RwSignal::new(0),
    };
    follow(state, id.clone());
    let label = match docked {
        true => format!("Log of {}", id.short()),
        false => "Logs".to_owned(),
    };
    let (wanted, problem) = (state.wanted, state.problem);
    let bar = match docked {
        true => view! { <DockBar id wanted=of_dock problem /> }.into_any(),
        false => view! { <Bar id wanted problem /> }.into_any(),
    };
    view! {
        <section class="logs" aria-label=label>
            {bar}
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
            state.set_pattern(None);
        });
        if let Some(live) = live {
            live.watch_log(id.clone(), move |batch| state.receive(batch));
        }
    });
    let filter = Memo::new(move |_| {
        let wanted = state.wanted.read();
        (wanted.filter.clone(), wanted.source, wanted.severity)
    });
    Effect::new(move |_| state.filter(&filter.read().0));
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
    let to_end = move |_| scroll.follow();
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
                on:wheel=move |event| scroll.turned(&event)
                on:keydown=move |event| scroll.key(&event)
                on:pointerdown=move |_| scroll.touched()
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
            "No output yet. What the entry point and execd write is shown here, not what commands write."
        }
        _ => "No line matches the filter.",
    }
}
