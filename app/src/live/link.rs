//! The connection: one per tab, reopened when it breaks.

use std::{cell::RefCell, rc::Rc, time::Duration};

use leptos::prelude::*;
use osb_protocol::{SandboxId, lifecycle::SandboxCommand};
use wasm_bindgen::{JsCast, closure::Closure};
use web_sys::{CloseEvent, MessageEvent, WebSocket};

use super::{
    log::LogBatch,
    watches::{Arrival, Watches},
    wire::{
        Command, Kind, Parts, Position, Received, RowChange, RowUse, Samples, Topic, Update,
        says_signed_out,
    },
};
use crate::{
    browser,
    view::{Pulse, SandboxDetail, SandboxRow},
};

/// First pause before connecting again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A connection without any message for this long is dead: the server beats every 15 s.
const SILENCE_MS: i64 = 40_000;

/// State of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// No script yet, or not connected for the first time.
    #[default]
    Starting,
    /// Messages flow.
    Live,
    /// Broken; reconnecting.
    Lost,
    /// The browser is signed out: the tab does not reconnect.
    SignedOut,
}

/// The tab's live data, provided as context by the frame. Copies are the same connection.
#[derive(Clone, Copy)]
pub struct Live {
    /// State of the connection.
    pub link: RwSignal<Link>,
    /// Unix milliseconds of the last message.
    pub heard: RwSignal<i64>,
    /// While true, messages are dropped; ending the pause asks for fresh snapshots.
    pub paused: RwSignal<bool>,
}

/// The browser's half. It lives in the thread, of which a tab has one: it holds JavaScript values,
/// which must not enter signals that the server could touch from another thread.
#[derive(Default)]
struct Tab {
    socket: Option<Socket>,
    watches: Watches<Rc<dyn Fn(Update)>>,
    /// The list, until it is whole.
    parts: Parts,
    /// The rows whose use is shown.
    shown: Vec<SandboxId>,
    failures: u32,
    epoch: String,
    /// Whether the server greeted on this connection, which proves that there was a session.
    greeted: bool,
}

struct Socket {
    raw: WebSocket,
    /// Kept for as long as the socket calls them.
    _on_message: Closure<dyn FnMut(MessageEvent)>,
    _on_close: Closure<dyn FnMut(CloseEvent)>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.raw.set_onmessage(None);
        self.raw.set_onclose(None);
        let _ = self.raw.close();
    }
}

thread_local! {
    static TAB: RefCell<Tab> = RefCell::default();
}

impl Live {
    /// Starts unconnected; [`Live::start`] connects in the browser.
    #[must_use]
    pub fn new() -> Self {
        Self {
            link: RwSignal::new(Link::Starting),
            heard: RwSignal::new(browser::now_ms()),
            paused: RwSignal::new(false),
        }
    }

    /// Connects. Called once, when the frame is mounted.
    pub fn start(self) {
        let Ok(raw) = WebSocket::new(&browser::socket_url("/console/live")) else {
            return self.retry();
        };
        let on_message = Closure::new(move |event: MessageEvent| {
            if let Some(text) = event.data().as_string() {
                self.receive(&text);
            }
        });
        let on_close = Closure::new(move |event: CloseEvent| self.closed(event.code()));
        raw.set_onmessage(Some(on_message.as_ref().unchecked_ref()));
        raw.set_onclose(Some(on_close.as_ref().unchecked_ref()));
        let socket = Socket {
            raw,
            _on_message: on_message,
            _on_close: on_close,
        };
        TAB.with_borrow_mut(|tab| {
            tab.socket = Some(socket);
            tab.greeted = false;
        });
    }

    /// Watches the numbers of the overview until the calling effect ends.
    pub fn watch_overview(self, on_pulse: impl Fn(Pulse) + 'static) {
        self.watch(Topic::Overview, move |update| {
            if let Update::Pulse(pulse) = update {
                on_pulse(*pulse);
            }
        });
    }

    /// Watches how many entries the audit trail took since the start of the server, until the calling
    /// effect ends.
    pub fn watch_events(self, on_count: impl Fn(u64) + 'static) {
        self.watch(Topic::Events, move |update| {
            if let Update::Events(count) = update {
                on_count(count);
            }
        });
    }

    /// Watches the list until the calling effect ends.
    pub fn watch_list(
        self,
        on_list: impl Fn(Vec<SandboxRow>) + 'static,
        on_change: impl Fn(RowChange) + 'static,
    ) {
        self.watch(Topic::Sandboxes, move |update| match update {
            Update::List(rows) => on_list(rows),
            Update::Change(change) => on_change(change),
            _ => {}
        });
    }

    /// Watches what rows use until the calling effect ends; those that [`Self::show_rows`] names.
    pub fn watch_usage(self, on_rows: impl Fn(Vec<RowUse>) + 'static) {
        self.watch(Topic::Usage, move |update| {
            if let Update::Rows(rows) = update {
                on_rows(rows);
            }
        });
    }

    /// Sets the rows whose use is watched.
    pub fn show_rows(self, ids: Vec<SandboxId>) {
        TAB.with_borrow_mut(|tab| {
            if tab.shown != ids {
                tab.shown = ids;
                if tab.watches.topics().contains(&Topic::Usage) {
                    tab.subscribe(&Topic::Usage);
                }
            }
        });
    }

    /// Watches one sandbox until the calling effect ends; `None` once it is gone.
    pub fn watch_sandbox(self, id: SandboxId, on_detail: impl Fn(Option<SandboxDetail>) + 'static) {
        self.watch(Topic::Sandbox(id), move |update| {
            if let Update::Detail(detail) = update {
                on_detail(detail.map(|it| *it));
            }
        });
    }

    /// Watches the log of a sandbox until the calling effect ends.
    pub fn watch_log(self, id: SandboxId, on_batch: impl Fn(LogBatch) + 'static) {
        self.watch(Topic::Logs(id), move |update| {
            if let Update::Log(batch) = update {
                on_batch(batch);
            }
        });
    }

    /// Watches the resource use of a sandbox until the calling effect ends.
    pub fn watch_metrics(self, id: SandboxId, on_samples: impl Fn(Samples) + 'static) {
        self.watch(Topic::Metrics(id), move |update| {
            if let Update::Usage(samples) = update {
                on_samples(samples);
            }
        });
    }

    /// Watches what runs in a sandbox until the calling effect ends.
    pub fn watch_commands(
        self,
        id: SandboxId,
        on_commands: impl Fn(Vec<SandboxCommand>) + 'static,
    ) {
        self.watch(Topic::Commands(id), move |update| {
            if let Update::Commands(commands) = update {
                on_commands(commands);
            }
        });
    }

    fn watch(self, topic: Topic, on_update: impl Fn(Update) + 'static) {
        let on_update = Rc::new(on_update);
        let number = TAB.with_borrow_mut(|tab| tab.watch(&topic, on_update));
        on_cleanup(move || TAB.with_borrow_mut(|tab| tab.unwatch(topic, number)));
    }

    /// Starts a pause, or ends it with fresh data.
    pub fn toggle_pause(self) {
        let paused = !self.paused.get_untracked();
        self.paused.set(paused);
        if !paused {
            TAB.with_borrow_mut(Tab::subscribe_afresh);
        }
    }

    /// Called every second: drops a connection that has been silent for too long.
    pub fn check(self, now_ms: i64) {
        let silent = now_ms - self.heard.get_untracked() > SILENCE_MS;
        if silent && self.link.get_untracked() == Link::Live {
            self.retry();
        }
    }

    fn receive(self, text: &str) {
        self.heard.set(browser::now_ms());
        let Ok(frame) = serde_json::from_str::<Received<'_>>(text) else {
            return;
        };
        let Some(topic) = frame.topic.clone() else {
            if frame.kind == Kind::Hello {
                self.link.set(Link::Live);
                TAB.with_borrow_mut(|tab| tab.begin(frame.epoch));
            }
            return;
        };
        if self.paused.get_untracked() {
            return;
        }
        if frame.kind == Kind::Part {
            if let Some(Update::List(rows)) = frame.update() {
                TAB.with_borrow_mut(|tab| tab.parts.add(frame.after, rows));
            }
            return;
        }
        let is_delta = frame.kind == Kind::Delta;
        let handlers = TAB.with_borrow_mut(|tab| tab.arrive(&topic, frame.seq, is_delta));
        if handlers.is_empty() {
            return;
        }
        let update = match frame.update() {
            Some(Update::List(rest)) => {
                TAB.with_borrow_mut(|tab| tab.complete(&topic, frame.after, rest))
            }
            update => update,
        };
        let Some(update) = update else {
            return;
        };
        // Outside the borrow: a handler may watch or unwatch.
        if let Some((last, others)) = handlers.split_last() {
            others
                .iter()
                .for_each(|on_update| on_update(update.clone()));
            last(update);
        }
    }

    fn closed(self, code: u16) {
        if says_signed_out(code, TAB.with_borrow(|tab| tab.greeted)) {
            TAB.with_borrow_mut(|tab| tab.socket = None);
            self.link.set(Link::SignedOut);
        } else {
            self.retry();
        }
    }

    fn retry(self) {
        self.link.set(Link::Lost);
        let failures = TAB.with_borrow_mut(|tab| {
            tab.socket = None;
            tab.failures += 1;
            tab.failures
        });
        let pause = FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(8));
        set_timeout(move || self.connect_now(), pause.min(LONGEST_PAUSE));
    }

    /// Connects without a pause, unless it is connected or connecting.
    pub fn connect_now(self) {
        let waits = self.link.get_untracked() == Link::Lost;
        if waits && TAB.with_borrow(|tab| tab.socket.is_none()) {
            self.start();
        }
    }
}

impl Default for Live {
    fn default() -> Self {
        Self::new()
    }
}

impl Tab {
    fn begin(&mut self, epoch: String) {
        if epoch != self.epoch {
            self.watches.forget_positions();
        }
        self.epoch = epoch;
        self.failures = 0;
        self.greeted = true;
        self.subscribe_all();
    }

    fn watch(&mut self, topic: &Topic, on_update: Rc<dyn Fn(Update)>) -> u64 {
        let number = self.watches.begin(topic, on_update);
        self.subscribe(topic);
        number
    }

    fn unwatch(&mut self, topic: Topic, number: u64) {
        if self.watches.end(&topic, number) {
            self.send(&Command::Unsubscribe { topic });
        }
    }

    fn subscribe_afresh(&mut self) {
        self.watches.forget_positions();
        self.subscribe_all();
    }

    fn subscribe_all(&self) {
        let topics = self.watches.topics();
        topics.iter().for_each(|topic| self.subscribe(topic));
    }

    fn subscribe(&self, topic: &Topic) {
        if *topic == Topic::Usage {
            let ids = self.shown.clone();
            return self.send(&Command::Usage { ids });
        }
        let seq = self.watches.position(topic);
        self.send(&Command::Subscribe {
            topic: topic.clone(),
            since: seq.map(|seq| Position {
                epoch: self.epoch.clone(),
                seq,
            }),
        });
    }

    /// Sends when connected; otherwise the greeting of the next connection does.
    fn send(&self, command: &Command) {
        if let (Some(socket), Ok(text)) = (&self.socket, serde_json::to_string(command))
            && socket.raw.ready_state() == WebSocket::OPEN
            && !self.epoch.is_empty()
        {
            let _ = socket.raw.send_with_str(&text);
        }
    }

    /// The list with all its parts; without some of them it asks for another snapshot.
    fn complete(&mut self, topic: &Topic, after: usize, rest: Vec<SandboxRow>) -> Option<Update> {
        let whole = self.parts.complete(after, rest);
        if whole.is_none() {
            self.watches.forget_position(topic);
            self.subscribe(topic);
        }
        whole.map(Update::List)
    }

    /// Notes a message; returns the handlers that show it. After a hole in the numbers it asks for a
    /// snapshot instead.
    fn arrive(&mut self, topic: &Topic, seq: u64, is_delta: bool) -> Vec<Rc<dyn Fn(Update)>> {
        match self.watches.arrive(topic, seq, is_delta) {
            Arrival::Shown(handlers) => handlers,
            Arrival::Old => Vec::new(),
            Arrival::Hole => {
                self.subscribe(topic);
                Vec::new()
            }
        }
    }
}
