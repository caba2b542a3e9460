//! The engine's events, requested in windows of a few seconds.
//!
//! A stream over a dead connection looks like one without events. No request for events is therefore
//! open-ended: each has an end, and one that does not end in time has stalled. Windows overlap,
//! because the engine drops unsent events when a window ends. Duplicates are dropped.

use std::{
    collections::{BTreeSet, HashMap},
    pin::Pin,
    time::Duration,
};

use bollard::{
    Docker, errors::Error, models::EventMessage, query_parameters::EventsOptionsBuilder,
};
use futures::{Stream, StreamExt};
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, timeout_at};

use super::{error, labels};
use crate::clock;

/// Reason when a window does not end in time.
pub(super) const STALLED: &str = "the engine's events stalled";
/// A timer that fires this late says that this process did not run, not that the engine is silent: it
/// was suspended, or the host was too busy.
const SUSPENDED: Duration = Duration::from_millis(250);
/// Container events that are requested.
const ACTIONS: [&str; 6] = ["start", "die", "oom", "pause", "unpause", "destroy"];
/// Most events that are remembered to detect duplicates.
const MAX_REMEMBERED: usize = 65_536;

/// Timing of windows and lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowTiming {
    /// Length of a window.
    pub(super) window: Duration,
    /// A window that has not ended this long after its request has stalled.
    pub(super) stall: Duration,
    /// Least wait for the rest of a window. An event that took long to handle is no stall, and the end
    /// of its window may not have been read yet.
    pub(super) late: Duration,
    /// How far a window reaches back before the end of its predecessor.
    pub(super) overlap: Duration,
    /// A window that ends this much too early was cut off by the engine.
    pub(super) early: Duration,
    /// Interval between full lists.
    pub(super) relist: Duration,
}

impl Default for WindowTiming {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(5),
            stall: Duration::from_secs(7),
            late: Duration::from_secs(1),
            overlap: Duration::from_secs(2),
            early: Duration::from_secs(1),
            relist: Duration::from_secs(60),
        }
    }
}

#[cfg(test)]
impl WindowTiming {
    /// For windows that the fake engine holds open.
    pub(super) fn held() -> Self {
        use super::fake_engine::FakeEngine;
        Self {
            window: FakeEngine::HELD,
            stall: FakeEngine::HELD * 20,
            late: FakeEngine::HELD * 20,
            overlap: Duration::from_millis(50),
            early: FakeEngine::HELD / 2,
            relist: Duration::from_millis(20),
        }
    }
}

/// The engine's clock, which may differ from the server's if the engine runs on another machine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EngineClock {
    ahead: SignedDuration,
}

impl EngineClock {
    /// Compares the time that the engine reported, at some moment between `requested` and now. Clocks
    /// that this cannot tell apart agree: on one machine they are the same, and reports must not seem
    /// older than what they report because the engine was slow to answer.
    pub(super) fn read(requested: Timestamp, reported: &str) -> Option<Self> {
        let reported = reported.parse().ok()?;
        Some(Self::between(requested, clock::now(), reported))
    }

    fn between(requested: Timestamp, answered: Timestamp, reported: Timestamp) -> Self {
        let half = answered.duration_since(requested) / 2;
        let ahead = reported.duration_since(requested) - half;
        match ahead.abs() <= half {
            true => Self::default(),
            false => Self { ahead },
        }
    }

    pub(super) fn now(self) -> Timestamp {
        clock::now() + self.ahead
    }
}

/// Consecutive windows of events, without end.
pub(super) struct EventWindows {
    docker: Docker,
    clock: EngineClock,
    timing: WindowTiming,
    since: Timestamp,
    current: Option<Window>,
    delivered: Delivered,
}

struct Window {
    events: Pin<Box<dyn Stream<Item = Result<EventMessage, Error>> + Send>>,
    requested: Instant,
    until: Timestamp,
}

impl EventWindows {
    /// Starts with the events of the last moment. The first request is sent on the first poll.
    pub(super) fn open(docker: Docker, clock: EngineClock, timing: WindowTiming) -> Self {
        Self {
            since: clock.now() - timing.early,
            docker,
            clock,
            timing,
            current: None,
            delivered: Delivered::default(),
        }
    }

    /// Returns the next event. Cancel safe.
    ///
    /// # Errors
    /// The reason why the events end: the engine ended a window too early, or not in time.
    pub(super) async fn next(&mut self) -> Result<EventMessage, String> {
        loop {
            let window = match &mut self.current {
                Some(window) => window,
                None => {
                    let until = self.clock.now() + self.timing.window;
                    self.current.insert(Window {
                        events: Box::pin(request(&self.docker, self.since, until)),
                        requested: Instant::now(),
                        until,
                    })
                }
            };
            let stall = window.requested + self.timing.stall;
            let stall = stall.max(Instant::now() + self.timing.late);
            match timeout_at(stall, window.events.next()).await {
                // What the engine sent meanwhile has not been read yet. It has `late` to show that it
                // answers.
                Err(_) if stall.elapsed() > SUSPENDED => {}
                Err(_) => return Err(STALLED.to_owned()),
                Ok(Some(Ok(event))) if self.delivered.is_new(&event) => return Ok(event),
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(error))) => return Err(error::reason(&error)),
                Ok(None) if window.requested.elapsed() + self.timing.early < self.timing.window => {
                    return Err(error::CLOSED.to_owned());
                }
                Ok(None) => {
                    // The clock may have been set back since.
                    let ended = window.until.min(self.clock.now());
                    self.since = ended - self.timing.overlap;
                    self.delivered.forget_before(self.since);
                    self.current = None;
                }
            }
        }
    }
}

fn request(
    docker: &Docker,
    since: Timestamp,
    until: Timestamp,
) -> impl Stream<Item = Result<EventMessage, Error>> + use<> {
    let filter = HashMap::from([
        ("type", vec!["container"]),
        ("label", vec![labels::ID]),
        ("event", ACTIONS.to_vec()),
    ]);
    let options = EventsOptionsBuilder::default()
        .since(&wire(since))
        .until(&wire(until))
        .filters(&filter)
        .build();
    docker.events(Some(options))
}

/// Formats a time as the engine parses it: seconds with nine decimals.
fn wire(at: Timestamp) -> String {
    format!("{}.{:09}", at.as_second(), at.subsec_nanosecond())
}

/// Delivered events that may come again: time in nanoseconds, container, action.
#[derive(Debug, Default)]
struct Delivered(BTreeSet<(i64, String, String)>);

impl Delivered {
    /// Adds an event; returns whether it is new. One without a time always is.
    fn is_new(&mut self, event: &EventMessage) -> bool {
        let Some(at) = event.time_nano else {
            return true;
        };
        let actor = event.actor.as_ref().and_then(|actor| actor.id.clone());
        let action = event.action.clone();
        let key = (at, actor.unwrap_or_default(), action.unwrap_or_default());
        let is_new = self.0.insert(key);
        if self.0.len() > MAX_REMEMBERED {
            self.0.pop_first();
        }
        is_new
    }

    fn forget_before(&mut self, at: Timestamp) {
        let nanos = i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX);
        self.0 = self.0.split_off(&(nanos, String::new(), String::new()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::docker::fake_engine::{FakeEngine, HANG, HOLD};

    /// Guards against hanging.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn clocks_differ_only_if_the_time_of_the_request_does_not_explain_it() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let ahead = |reported| EngineClock::between(at(100), at(110), at(reported)).ahead;
        for within in [100, 102, 109, 110] {
            assert_eq!(ahead(within), SignedDuration::ZERO, "{within}");
        }
        assert_eq!(ahead(205), SignedDuration::from_secs(100));
        assert_eq!(ahead(95), SignedDuration::from_secs(-10));
    }

    fn event(at: i64, container: &str) -> String {
        json!({
            "Type": "container", "Action": "start", "time": at, "timeNano": at * 1_000_000_000,
            "Actor": {"ID": container, "Attributes": {}},
        })
        .to_string()
    }

    fn far_future() -> i64 {
        Timestamp::now().as_second() + 1000
    }

    fn windows(engine: &FakeEngine) -> EventWindows {
        EventWindows::open(
            engine.docker(),
            EngineClock::default(),
            WindowTiming::held(),
        )
    }

    #[tokio::test]
    async fn an_event_in_two_windows_is_delivered_once() {
        let at = far_future();
        let requested = std::sync::atomic::AtomicUsize::new(0);
        let engine = FakeEngine::start(move |_| {
            let [a, b, c] = [event(at, "a"), event(at + 1, "b"), event(at + 2, "c")];
            match requested.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => (HOLD, format!("{a}\n{b}\n")),
                // The second event is in both windows.
                1 => (HOLD, format!("{b}\n{c}\n")),
                _ => (HANG, String::new()),
            }
        })
        .await;
        let mut windows = windows(&engine);
        for container in ["a", "b", "c"] {
            let event = tokio::time::timeout(PATIENCE, windows.next()).await;
            let actor = event.unwrap().unwrap().actor.unwrap();
            assert_eq!(actor.id.as_deref(), Some(container));
        }
        let requests = engine.requests("GET /events");
        let number = |request: &str, name: &str| -> f64 {
            let value = request.split(&format!("{name}=")).nth(1).unwrap();
            value.split('&').next().unwrap().parse().unwrap()
        };
        assert!(number(&requests[1], "since") < number(&requests[0], "until"));
        assert!(number(&requests[0], "since") < number(&requests[1], "since"));
    }

    #[tokio::test]
    async fn a_window_that_does_not_end_in_time_has_stalled() {
        // Without a response, and in the middle of one.
        for status in [HANG, HOLD] {
            let engine = FakeEngine::start(move |_| (status, String::new())).await;
            let mut windows = windows(&engine);
            windows.timing.stall = FakeEngine::HELD / 4;
            windows.timing.late = FakeEngine::HELD / 4;
            let end = tokio::time::timeout(PATIENCE, windows.next()).await;
            assert_eq!(end.unwrap().unwrap_err(), STALLED);
        }
    }

    #[tokio::test]
    async fn a_window_that_ended_while_an_event_was_handled_has_not_stalled() {
        let at = far_future();
        let requested = std::sync::atomic::AtomicUsize::new(0);
        let engine = FakeEngine::start(move |_| {
            let [a, b, c] = [event(at, "a"), event(at + 1, "b"), event(at + 2, "c")];
            match requested.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => (HOLD, format!("{a}\n{b}\n")),
                _ => (HOLD, format!("{c}\n")),
            }
        })
        .await;
        let mut windows = windows(&engine);
        windows.timing.stall = FakeEngine::HELD * 2;
        for container in ["a", "b", "c"] {
            let event = tokio::time::timeout(PATIENCE, windows.next()).await;
            let actor = event.unwrap().unwrap().actor.unwrap();
            assert_eq!(actor.id.as_deref(), Some(container));
            if container == "a" {
                // The window ends, and would be late by now.
                tokio::time::sleep(FakeEngine::HELD * 3).await;
            }
        }
    }

    #[tokio::test]
    async fn an_engine_has_not_stalled_while_this_process_was_suspended() {
        let at = far_future();
        let requested = std::sync::atomic::AtomicUsize::new(0);
        let engine = FakeEngine::start(move |_| {
            match requested.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => (HOLD, format!("{}\n", event(at, "a"))),
                _ => (HOLD, format!("{}\n", event(at + 1, "b"))),
            }
        })
        .await;
        let mut windows = windows(&engine);
        windows.timing.stall = FakeEngine::HELD * 2;
        windows.timing.late = FakeEngine::HELD * 2;
        let first = tokio::time::timeout(PATIENCE, windows.next()).await;
        first.unwrap().unwrap();
        // Blocks the only thread, which the engine runs in too, once the window is waited for.
        let suspended = async {
            let end = Instant::now() + FakeEngine::HELD * 4 + SUSPENDED * 2;
            while Instant::now() < end {
                std::thread::park_timeout(FakeEngine::HELD);
            }
        };
        let (second, ()) = tokio::join!(windows.next(), suspended);
        let actor = second.unwrap().actor.unwrap();
        assert_eq!(actor.id.as_deref(), Some("b"));
    }

    #[test]
    fn the_difference_of_the_engines_clock_is_computed() {
        let requested = Timestamp::now();
        let reported = (requested + SignedDuration::from_hours(1)).to_string();
        let clock = EngineClock::read(requested, &reported).unwrap();
        let ahead = clock.now().duration_since(requested);
        assert!(ahead > SignedDuration::from_mins(59), "{ahead}");
        assert!(ahead < SignedDuration::from_mins(61), "{ahead}");
        assert!(EngineClock::read(requested, "noon").is_none());
    }
}
