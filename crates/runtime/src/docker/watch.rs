//! Events of the engine, translated for the domain.
//!
//! ```text
//!        ┌─────────────── connect ◀── wait, doubling ──┐
//!        ▼                                             │ Lost
//!     open the first window of events ─▶ list ─▶ Synced ─▶ events … ─▶ error or stall
//!                                         ▲               │
//!                                         └── each minute ┘
//! ```
//!
//! Events that arrive during a list are delivered after it. An event may be delivered twice, but none
//! is lost as long as the engine keeps up. Each connection begins with a full list, which is repeated
//! every minute to recover from events that an overloaded engine dropped.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bollard::{Docker, models::EventMessage};
use futures::future::BoxFuture;
use jiff::SignedDuration;
use osb_protocol::WireTime;
use osb_service::Supervisor;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};
use tracing::{debug, info, warn};

use super::{
    DockerRuntime, KIND, error,
    event_windows::{EngineClock, EventWindows},
    translation::translate,
};
use crate::{Observed, RuntimeError, RuntimeEvent, clock};

/// Most events that wait for the domain. When the channel is full, the stream is not read.
const BUFFER: usize = 1024;
/// First and longest wait before another attempt to connect.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Longest wait for a response that is cheap for the engine. The configured limit is far longer,
/// because it has to suffice for removals and starts on a busy disk, and an engine that hangs must be
/// detected soon.
const PROMPT_RESPONSE: Duration = Duration::from_secs(5);
/// Longest time until a hanging engine and a stalled stream of events are reported.
#[cfg(test)]
const DETECTION: Duration = Duration::from_secs(10);
/// Largest difference between wall clock and monotonic clock over a list. A larger one means that the
/// wall clock was set, or that the machine slept.
const CLOCK_DRIFT: SignedDuration = SignedDuration::from_secs(5);
/// Longest wait for a list, during which events are held back.
const LIST_RESPONSE: Duration = Duration::from_secs(30);

pub(super) fn start(
    runtime: Arc<DockerRuntime>,
    tasks: &Supervisor,
) -> mpsc::Receiver<RuntimeEvent> {
    let (sender, receiver) = mpsc::channel(BUFFER);
    tasks.spawn_abortable("docker events", async move {
        let mut wait = RETRY.0;
        let mut reported: Option<String> = None;
        loop {
            let connected = follow(&runtime, &sender).await;
            let (reason, was_synced) = match connected {
                Ended::ReceiverGone => return,
                Ended::Lost { reason, was_synced } => (reason, was_synced),
            };
            if was_synced {
                (wait, reported) = (RETRY.0, None);
            }
            if reported.as_ref() != Some(&reason) {
                warn!(reason, "the Docker engine is unavailable");
                reported = Some(reason.clone());
                if sender.send(RuntimeEvent::Lost { reason }).await.is_err() {
                    return;
                }
            }
            // Nothing announces that the engine is available again.
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY.1);
        }
    });
    receiver
}

enum Ended {
    ReceiverGone,
    Lost { reason: String, was_synced: bool },
}

async fn follow(runtime: &DockerRuntime, sender: &mpsc::Sender<RuntimeEvent>) -> Ended {
    let mut was_synced = false;
    match follow_synced(runtime, sender, &mut was_synced).await {
        Ok(never) => match never {},
        Err(WatchEnd::ReceiverGone) => Ended::ReceiverGone,
        Err(WatchEnd::Lost(reason)) => Ended::Lost { reason, was_synced },
    }
}

/// Why the watch of a connection ended.
enum WatchEnd {
    ReceiverGone,
    Lost(String),
}

impl From<RuntimeError> for WatchEnd {
    fn from(error: RuntimeError) -> Self {
        match error {
            RuntimeError::Unavailable { reason, .. } => Self::Lost(reason),
            error => Self::Lost(error.to_string()),
        }
    }
}

async fn follow_synced(
    runtime: &DockerRuntime,
    sender: &mpsc::Sender<RuntimeEvent>,
    was_synced: &mut bool,
) -> Result<std::convert::Infallible, WatchEnd> {
    let send = async |event| sender.send(event).await.map_err(|_| WatchEnd::ReceiverGone);
    let docker = runtime.docker()?;
    let clock = greet(runtime, docker).await?;
    let mut windows = EventWindows::open(docker.clone(), clock, runtime.timing);
    let mut held = VecDeque::new();
    let mut listed_at = None;
    let mut listing = Some(list(runtime, clock));
    let mut list_due = Instant::now() + runtime.timing.relist;
    loop {
        let event = tokio::select! {
            biased;
            listed = async { listing.as_mut().expect("checked by the guard").await }, if listing.is_some() => {
                let (all, at) = listed?;
                (listing, listed_at) = (None, Some(at));
                list_due = Instant::now() + runtime.timing.relist;
                let sandboxes = all.len();
                if *was_synced {
                    debug!(runtime = KIND, sandboxes, "listed everything again");
                } else {
                    info!(runtime = KIND, sandboxes, "synchronised with the engine");
                }
                send(RuntimeEvent::Synced { all, at }).await?;
                *was_synced = true;
                continue;
            }
            () = sleep_until(list_due), if listing.is_none() => {
                listing = Some(list(runtime, clock));
                continue;
            }
            Some(event) = async { held.pop_front() }, if listing.is_none() => event,
            event = windows.next() => event.map_err(WatchEnd::Lost)?,
        };
        if listing.is_some() {
            if is_repeated(&event, &held) {
                continue;
            }
            if held.len() == BUFFER {
                return Err(WatchEnd::Lost("too many events while listing".to_owned()));
            }
            held.push_back(event);
            continue;
        }
        let event = timeout(PROMPT_RESPONSE, translate(runtime, event)).await;
        match event.unwrap_or_else(|_| Err(error::no_answer())) {
            // The list knows what came of it: reported now, it would be news for a moment.
            Ok(Some(RuntimeEvent::Paused { at, .. })) if Some(at) < listed_at => {}
            Ok(Some(event)) => send(event).await?,
            Ok(None) => {}
            Err(error) if error::is_disconnected(&error) => return Err(error.into()),
            // One container cannot be inspected; the list reports it all the same.
            Err(error) => {
                debug!(runtime = KIND, %error, "cannot read an event, listing everything");
                listing = Some(list(runtime, clock));
            }
        }
    }
}

/// Whether it repeats the last held event of its container. A sandbox may run out of memory many times a
/// second.
fn is_repeated(event: &EventMessage, held: &VecDeque<EventMessage>) -> bool {
    let container = |event: &EventMessage| event.actor.as_ref()?.id.clone();
    let is_memory = |event: &EventMessage| event.action.as_deref() == Some("oom");
    let last = || {
        let mut newest_first = held.iter().rev();
        newest_first.find(|other| container(other) == container(event))
    };
    is_memory(event) && last().is_some_and(is_memory)
}

fn no_answer() -> WatchEnd {
    WatchEnd::Lost(error::NO_ANSWER.to_owned())
}

/// Negotiates the API version, and reads the engine's clock and logging driver.
async fn greet(runtime: &DockerRuntime, docker: &Docker) -> Result<EngineClock, WatchEnd> {
    // Required before the first call with newer releases of the client library, harmless now.
    let version = timeout(PROMPT_RESPONSE, docker.clone().negotiate_version()).await;
    let version = version.map_err(|_| no_answer())?;
    version.map_err(|error| WatchEnd::Lost(error::reason(&error)))?;
    let requested = clock::now();
    let info = timeout(PROMPT_RESPONSE, docker.info()).await;
    let clock = match info.map_err(|_| no_answer())? {
        Ok(info) => {
            let clock = info
                .system_time
                .as_deref()
                .and_then(|time| EngineClock::read(requested, time));
            runtime.log_driver.record(&info);
            clock
        }
        Err(error) if error::unavailable(&error).is_some() => {
            return Err(WatchEnd::Lost(error::reason(&error)));
        }
        // Without the engine's time, assume that the clocks agree.
        Err(_) => None,
    };
    let clock = clock.unwrap_or_default();
    runtime.set_clock(clock);
    Ok(clock)
}

type Listed = Result<(Vec<Observed>, WireTime), WatchEnd>;

/// Lists all sandboxes, with the engine's time at the beginning. If the clock was set or the machine
/// slept meanwhile, that time cannot be compared with those of other reports, and the list is read
/// again.
fn list(runtime: &DockerRuntime, clock: EngineClock) -> BoxFuture<'_, Listed> {
    Box::pin(async move {
        loop {
            let (at, begun) = (clock.now(), Instant::now());
            let all = timeout(LIST_RESPONSE, runtime.observe_all()).await;
            let all = all.map_err(|_| no_answer())??;
            let elapsed = SignedDuration::try_from(begun.elapsed()).unwrap_or(SignedDuration::MAX);
            if (clock.now().duration_since(at) - elapsed).abs() < CLOCK_DRIFT {
                return Ok((all, WireTime::new(at)));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bollard::models::EventActor;
    use serde_json::json;

    use super::*;
    use crate::{
        Runtime,
        docker::{
            event_windows::WindowTiming,
            fake_engine::{CUT, FakeEngine, HOLD},
            labels,
        },
    };

    /// Guards against hanging.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Collects the first reasons that an engine's watch reports.
    async fn reasons<const N: usize>(engine: &FakeEngine) -> [String; N] {
        let tasks = Supervisor::new();
        let mut events = Arc::new(engine.runtime()).watch(&tasks);
        let mut reasons = Vec::new();
        while reasons.len() < N {
            let event = timeout(PATIENCE, events.recv()).await;
            match event.unwrap().unwrap() {
                RuntimeEvent::Lost { reason } => reasons.push(reason),
                RuntimeEvent::Synced { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        tasks.stop();
        reasons.try_into().unwrap()
    }

    #[test]
    fn a_silent_engine_is_reported_within_ten_seconds() {
        let timing = WindowTiming::default();
        // The engine may hang just after a window began, and then again before the next one.
        assert!(timing.stall + timing.late < DETECTION);
        assert!(PROMPT_RESPONSE < DETECTION);
        assert!(
            timing.window < timing.stall,
            "or every window would be a stall"
        );
    }

    #[tokio::test]
    async fn a_reason_is_reported_once_and_again_when_it_changes() {
        let attempts = AtomicUsize::new(0);
        let engine = FakeEngine::start(move |request| {
            assert!(request.starts_with("GET /version"), "{request}");
            let reason = match attempts.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => "it starts",
                _ => "its disk is full",
            };
            (503, format!(r#"{{"message": "{reason}"}}"#))
        })
        .await;
        let reported = reasons::<2>(&engine).await;
        assert_eq!(reported, ["it starts", "its disk is full"]);
    }

    #[tokio::test]
    async fn an_engine_that_cuts_off_a_response_has_closed_the_connection() {
        for end_of_events in [200, CUT] {
            let engine = FakeEngine::start(move |request| match request {
                "GET /version" => (200, r#"{"ApiVersion": "1.47"}"#.to_owned()),
                _ if request.starts_with("GET /events") => (end_of_events, String::new()),
                _ => (200, "[]".to_owned()),
            })
            .await;
            let [reason] = reasons(&engine).await;
            assert_eq!(reason, "the engine closed the connection");
        }
    }

    #[test]
    fn only_the_same_end_of_memory_is_repeated() {
        let event = |container: &str, action: &str| EventMessage {
            action: Some(action.to_owned()),
            actor: Some(EventActor {
                id: Some(container.to_owned()),
                ..EventActor::default()
            }),
            ..EventMessage::default()
        };
        let held = [("a", "oom"), ("b", "oom"), ("b", "start"), ("c", "die")];
        let held = held.map(|(container, action)| event(container, action));
        for (container, action, is) in [
            ("a", "oom", true),
            ("b", "oom", false),
            ("c", "oom", false),
            ("d", "oom", false),
            ("c", "die", false),
        ] {
            let found = is_repeated(&event(container, action), &held.clone().into());
            assert_eq!(found, is, "{container} {action}");
        }
    }

    #[tokio::test]
    async fn a_container_that_cannot_be_inspected_does_not_interrupt_the_watch() {
        let label = json!({labels::ID: "a", labels::SERVER: "us", labels::ENTRYPOINT: "[\"x\"]"});
        let windows = AtomicUsize::new(0);
        let engine = FakeEngine::start(move |request| match request {
            "GET /version" => (200, r#"{"ApiVersion": "1.47"}"#.to_owned()),
            "GET /info" => (200, "{}".to_owned()),
            _ if request.starts_with("GET /containers/json") => {
                let running = json!({"Id": "c", "Labels": label, "State": "running"});
                (200, json!([running]).to_string())
            }
            _ if request.starts_with("GET /events") => {
                let nanos = (jiff::Timestamp::now().as_second() + 1) * 1_000_000_000;
                let actor = json!({"ID": "c", "Attributes": label});
                let start = json!({
                    "Type": "container", "Action": "start", "timeNano": nanos, "Actor": actor,
                });
                match windows.fetch_add(1, Ordering::Relaxed) {
                    0 => (HOLD, format!("{start}\n")),
                    _ => (HOLD, String::new()),
                }
            }
            _ => (500, json!({"message": "layer is damaged"}).to_string()),
        })
        .await;
        let mut runtime = engine.runtime();
        runtime.timing = WindowTiming::held();
        let tasks = Supervisor::new();
        let mut events = Arc::new(runtime).watch(&tasks);
        // Over more than one window after the event.
        while engine.requests("GET /events").len() < 3 {
            let event = timeout(PATIENCE, events.recv()).await;
            let event = event.unwrap().unwrap();
            assert!(matches!(event, RuntimeEvent::Synced { .. }), "{event:?}");
        }
        let inspected = engine.requests("GET /containers/c/json");
        assert!(!inspected.is_empty(), "the event was read");
        tasks.stop();
    }

    #[tokio::test]
    async fn a_pause_from_before_the_list_is_not_reported() {
        let label = json!({labels::ID: "a", labels::SERVER: "us", labels::ENTRYPOINT: "[\"x\"]"});
        let engine = FakeEngine::start(move |request| match request {
            "GET /version" => (200, r#"{"ApiVersion": "1.47"}"#.to_owned()),
            "GET /info" => (200, "{}".to_owned()),
            _ if request.starts_with("GET /containers/json") => {
                let running = json!({"Id": "c", "Labels": label, "State": "running"});
                (200, json!([running]).to_string())
            }
            _ if request.starts_with("GET /events") => {
                let event = |action: &str, second: i64| {
                    let nanos = (jiff::Timestamp::now().as_second() + second) * 1_000_000_000;
                    let actor = json!({"ID": "c", "Attributes": label});
                    json!({"Type": "container", "Action": action, "timeNano": nanos, "Actor": actor})
                };
                let [old, new] = [event("pause", -3), event("unpause", 100)];
                (HOLD, format!("{old}\n{new}\n"))
            }
            _ => FakeEngine::with_volumes(request),
        })
        .await;
        let mut runtime = engine.runtime();
        runtime.timing = WindowTiming::held();
        let tasks = Supervisor::new();
        let mut events = Arc::new(runtime).watch(&tasks);
        loop {
            match timeout(PATIENCE, events.recv()).await.unwrap().unwrap() {
                RuntimeEvent::Synced { .. } => {}
                RuntimeEvent::Paused { paused, .. } => break assert!(!paused),
                other => panic!("{other:?}"),
            }
        }
        tasks.stop();
    }

    #[tokio::test]
    async fn a_container_is_inspected_once_for_each_start() {
        let label = json!({labels::ID: "a", labels::SERVER: "us", labels::ENTRYPOINT: "[\"x\"]"});
        let windows = AtomicUsize::new(0);
        let engine = FakeEngine::start(move |request| {
            let start = |second: i64| {
                let nanos = (jiff::Timestamp::now().as_second() + second) * 1_000_000_000;
                let actor = json!({"ID": "c", "Attributes": label});
                json!({"Type": "container", "Action": "start", "timeNano": nanos, "Actor": actor})
            };
            let container = json!({
                "Created": "2031-05-01T10:00:00Z", "Config": {"Labels": label},
                "State": {"Running": true, "StartedAt": "2031-05-01T10:00:01Z"},
            });
            match request {
                "GET /version" => (200, r#"{"ApiVersion": "1.47"}"#.to_owned()),
                "GET /containers/c/json" => (200, container.to_string()),
                _ if request.starts_with("GET /containers/json") => {
                    let running = json!({"Id": "c", "Labels": label, "State": "running"});
                    (200, json!([running]).to_string())
                }
                _ if request.starts_with("GET /events") => {
                    match windows.fetch_add(1, Ordering::Relaxed) {
                        0 => (HOLD, format!("{}\n{}\n", start(1), start(2))),
                        _ => (HOLD, String::new()),
                    }
                }
                _ => FakeEngine::with_volumes(request),
            }
        })
        .await;
        let mut runtime = engine.runtime();
        runtime.timing = WindowTiming::held();
        let runtime = Arc::new(runtime);
        let spec = labels::tests::spec();
        runtime.create(spec, &|_| {}).await.unwrap();
        // Before its start, for what its image declares, and after.
        assert_eq!(engine.requests("GET /containers/c/json").len(), 2);
        let tasks = Supervisor::new();
        let mut events = Arc::clone(&runtime).watch(&tasks);
        loop {
            let event = timeout(PATIENCE, events.recv()).await;
            match event.unwrap().unwrap() {
                RuntimeEvent::Synced { .. } => {}
                // The second start, which no create requested.
                RuntimeEvent::Changed(_) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(engine.requests("GET /containers/c/json").len(), 3);
        tasks.stop();
    }

    #[tokio::test]
    async fn everything_is_listed_again_without_an_event() {
        let engine = FakeEngine::start(|request| match request {
            "GET /version" => (200, r#"{"ApiVersion": "1.47"}"#.to_owned()),
            _ if request.starts_with("GET /events") => (HOLD, String::new()),
            _ => (200, "[]".to_owned()),
        })
        .await;
        let mut runtime = engine.runtime();
        runtime.timing = WindowTiming::held();
        let tasks = Supervisor::new();
        let mut events = Arc::new(runtime).watch(&tasks);
        // Over more than one window.
        while engine.requests("GET /events").len() < 3 {
            let event = timeout(PATIENCE, events.recv()).await;
            let event = event.unwrap().unwrap();
            assert!(matches!(event, RuntimeEvent::Synced { .. }), "{event:?}");
        }
        tasks.stop();
    }

    #[tokio::test]
    async fn a_refused_connection_is_reported_with_the_systems_reason() {
        let engine = FakeEngine::start(|_| (200, String::new())).await;
        engine.stop().await;
        let [reason] = reasons(&engine).await;
        assert!(
            reason.starts_with("cannot connect to the engine: Connection refused"),
            "{reason}"
        );
    }
}
