//! The engine's events, asked for in windows of a few seconds.
//!
//! A stream over a dead connection looks like one without events. No request for events is therefore
//! open-ended: each says when it ends, and one that does not end in time has stalled. Windows
//! overlap, because the engine drops what it has not sent when a window ends; what comes twice is
//! passed on once.

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

/// A window did not end.
pub(super) const STALLED: &str = "the engine's events stalled";
/// Container events that matter.
const ACTIONS: [&str; 6] = ["start", "die", "oom", "pause", "unpause", "destroy"];
/// Most events that are remembered to recognise them when they come again.
const SEEN: usize = 65_536;

/// How windows follow each other, and lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Length of a window.
    pub(super) window: Duration,
    /// A window that has not ended this long after it was asked for has stalled.
    pub(super) stall: Duration,
    /// How far a window reaches back before the end of the one before.
    pub(super) overlap: Duration,
    /// A window that ends this much too early was cut by the engine.
    pub(super) early: Duration,
    /// How often everything is looked at, events or not.
    pub(super) relist: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(5),
            stall: Duration::from_secs(7),
            overlap: Duration::from_secs(2),
            early: Duration::from_secs(1),
            relist: Duration::from_secs(60),
        }
    }
}

#[cfg(test)]
impl Pace {
    /// For windows that the fake engine holds open.
    pub(super) fn held() -> Self {
        use super::fake_engine::FakeEngine;
        Self {
            window: FakeEngine::HELD,
            stall: FakeEngine::HELD * 20,
            overlap: Duration::from_millis(50),
            early: FakeEngine::HELD / 2,
            relist: Duration::from_millis(20),
        }
    }
}

/// The engine's clock, which may differ from ours where the engine runs on another machine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EngineClock {
    ahead: SignedDuration,
}

impl EngineClock {
    /// From the time that the engine said it was, somewhere between `asked` and now.
    pub(super) fn read(asked: Timestamp, said: &str) -> Option<Self> {
        let said: Timestamp = said.parse().ok()?;
        let half = Timestamp::now().duration_since(asked) / 2;
        Some(Self {
            ahead: said.duration_since(asked) - half,
        })
    }

    pub(super) fn now(self) -> Timestamp {
        Timestamp::now() + self.ahead
    }
}

/// One window after the other, without end.
pub(super) struct EventWindows {
    docker: Docker,
    clock: EngineClock,
    pace: Pace,
    since: Timestamp,
    current: Option<Window>,
    seen: Seen,
}

struct Window {
    events: Pin<Box<dyn Stream<Item = Result<EventMessage, Error>> + Send>>,
    asked: Instant,
    until: Timestamp,
}

impl EventWindows {
    /// The events from a moment before now on. The first request goes out with the first poll.
    pub(super) fn open(docker: Docker, clock: EngineClock, pace: Pace) -> Self {
        Self {
            since: clock.now() - pace.early,
            docker,
            clock,
            pace,
            current: None,
            seen: Seen::default(),
        }
    }

    /// The next event. A caller that stops waiting loses nothing.
    ///
    /// # Errors
    /// The reason why there will be no more: the engine ended a window too early, or not in time.
    pub(super) async fn next(&mut self) -> Result<EventMessage, String> {
        loop {
            let window = match &mut self.current {
                Some(window) => window,
                None => {
                    let until = self.clock.now() + self.pace.window;
                    self.current.insert(Window {
                        events: Box::pin(request(&self.docker, self.since, until)),
                        asked: Instant::now(),
                        until,
                    })
                }
            };
            let stall = window.asked + self.pace.stall;
            match timeout_at(stall, window.events.next()).await {
                Err(_) => return Err(STALLED.to_owned()),
                Ok(Some(Ok(event))) if self.seen.is_new(&event) => return Ok(event),
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(error))) => return Err(error::reason(&error)),
                Ok(None) if window.asked.elapsed() + self.pace.early < self.pace.window => {
                    return Err(error::CLOSED.to_owned());
                }
                Ok(None) => {
                    self.since = window.until - self.pace.overlap;
                    self.seen.forget_before(self.since);
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

/// Seconds with nine decimals, as the engine reads times.
fn wire(at: Timestamp) -> String {
    format!("{}.{:09}", at.as_second(), at.subsec_nanosecond())
}

/// Events that were passed on and may come again: time in nanoseconds, container, action.
#[derive(Debug, Default)]
struct Seen(BTreeSet<(i64, String, String)>);

impl Seen {
    /// Remembers an event; answers whether it was unknown. One without a time always is.
    fn is_new(&mut self, event: &EventMessage) -> bool {
        let Some(at) = event.time_nano else {
            return true;
        };
        let actor = event.actor.as_ref().and_then(|actor| actor.id.clone());
        let action = event.action.clone();
        let key = (at, actor.unwrap_or_default(), action.unwrap_or_default());
        let is_new = self.0.insert(key);
        if self.0.len() > SEEN {
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
        EventWindows::open(engine.docker(), EngineClock::default(), Pace::held())
    }

    #[tokio::test]
    async fn what_two_windows_tell_comes_once() {
        let at = far_future();
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let engine = FakeEngine::start(move |_| {
            let [a, b, c] = [event(at, "a"), event(at + 1, "b"), event(at + 2, "c")];
            match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => (HOLD, format!("{a}\n{b}\n")),
                // The second is in both; the third has come in between.
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
        let asked = engine.asked("GET /events");
        let number = |request: &str, name: &str| -> f64 {
            let value = request.split(&format!("{name}=")).nth(1).unwrap();
            value.split('&').next().unwrap().parse().unwrap()
        };
        assert!(number(&asked[1], "since") < number(&asked[0], "until"));
        assert!(number(&asked[0], "since") < number(&asked[1], "since"));
    }

    #[tokio::test]
    async fn a_window_that_does_not_end_has_stalled() {
        // Without an answer, and in the middle of one.
        for answer in [HANG, HOLD] {
            let engine = FakeEngine::start(move |_| (answer, String::new())).await;
            let mut windows = windows(&engine);
            windows.pace.stall = FakeEngine::HELD / 4;
            let end = tokio::time::timeout(PATIENCE, windows.next()).await;
            assert_eq!(end.unwrap().unwrap_err(), STALLED);
        }
    }

    #[test]
    fn the_engines_clock_is_read() {
        let asked = Timestamp::now();
        let said = (asked + SignedDuration::from_hours(1)).to_string();
        let clock = EngineClock::read(asked, &said).unwrap();
        let ahead = clock.now().duration_since(asked);
        assert!(ahead > SignedDuration::from_mins(59), "{ahead}");
        assert!(ahead < SignedDuration::from_mins(61), "{ahead}");
        assert!(EngineClock::read(asked, "noon").is_none());
    }
}
