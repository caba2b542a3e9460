//! The engine's event stream (contract: decisions on reads; architecture: nothing polls).
//!
//! ```text
//!        ┌──────────── connect ◀── wait, doubling ──┐
//!        ▼                                          │ Lost
//!     note the time ─▶ list ─▶ Synced ─▶ events since then … ─▶ stream ends
//! ```
//!
//! The events since a moment before the list are read while the list is: an event may be told twice,
//! never not at all, as long as the engine keeps up. Every connection begins with the full picture,
//! which heals what an overloaded engine dropped.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use bollard::{
    Docker,
    models::{EventMessage, EventMessageTypeEnum},
    query_parameters::EventsOptionsBuilder,
};
use futures::{Stream, StreamExt};
use osb_protocol::{SandboxId, WireTime};
use osb_service::Supervisor;
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::{DockerRuntime, KIND, error, labels};
use crate::{Role, RuntimeError, RuntimeEvent};

/// Events waiting for the domain. When it is full the stream waits, and the engine with it.
const BUFFER: usize = 1024;
/// First and longest wait before the engine is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How often a silent engine is asked whether it still lives: a stream over a dead connection looks
/// like one without events.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Container events that matter.
const ACTIONS: [&str; 6] = ["start", "die", "oom", "pause", "unpause", "destroy"];

pub(super) fn start(
    runtime: Arc<DockerRuntime>,
    tasks: &Supervisor,
) -> mpsc::Receiver<RuntimeEvent> {
    let (sender, receiver) = mpsc::channel(BUFFER);
    tasks.spawn_abortable("docker events", async move {
        let mut wait = RETRY.0;
        // The reason that the domain knows; it may be another one soon.
        let mut told: Option<String> = None;
        loop {
            let connected = follow(&runtime, &sender).await;
            let (reason, was_synced) = match connected {
                Ended::ReceiverGone => return,
                Ended::Lost { reason, was_synced } => (reason, was_synced),
            };
            if was_synced {
                (wait, told) = (RETRY.0, None);
            }
            if told.as_ref() != Some(&reason) {
                warn!(reason, "the Docker engine does not answer");
                told = Some(reason.clone());
                if sender.send(RuntimeEvent::Lost { reason }).await.is_err() {
                    return;
                }
            }
            // No event tells that a socket will be answered again.
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
    let lost = |reason: String| Ended::Lost {
        reason,
        was_synced: false,
    };
    // Required before the first call with newer releases of the client library, harmless now.
    let docker = match runtime.docker() {
        Ok(docker) => docker,
        Err(RuntimeError::Unavailable { reason, .. }) => return lost(reason),
        Err(error) => return lost(error.to_string()),
    };
    if let Err(error) = docker.clone().negotiate_version().await {
        return lost(error::reason(&error));
    }
    let mut events = std::pin::pin!(subscribe(docker));
    let at = WireTime::new(jiff::Timestamp::now());
    let (all, mut early) = {
        // Both at once: the events of the time that the list takes wait here.
        let mut listing = std::pin::pin!(runtime.observe_all());
        let mut early = VecDeque::new();
        loop {
            tokio::select! {
                all = &mut listing => break (all, early),
                event = events.next() => match event {
                    Some(Ok(event)) if early.len() < BUFFER => early.push_back(event),
                    Some(Ok(_)) => return lost("too many events while listing".to_owned()),
                    Some(Err(error)) => return lost(error::reason(&error)),
                    None => return lost(error::CLOSED.to_owned()),
                },
            }
        }
    };
    let all = match all {
        Ok(all) => all,
        Err(RuntimeError::Unavailable { reason, .. }) => return lost(reason),
        Err(error) => return lost(error.to_string()),
    };
    info!(
        runtime = KIND,
        sandboxes = all.len(),
        "synchronised with the engine"
    );
    if sender.send(RuntimeEvent::Synced { all, at }).await.is_err() {
        return Ended::ReceiverGone;
    }
    loop {
        let event = tokio::select! {
            biased;
            Some(event) = std::future::ready(early.pop_front()) => Some(Ok(event)),
            event = events.next() => event,
            () = tokio::time::sleep(HEARTBEAT) => match docker.ping().await {
                Ok(_) => continue,
                Err(error) => return Ended::Lost { reason: error::reason(&error), was_synced: true },
            },
        };
        let reason = match event {
            Some(Ok(event)) => {
                match translate(runtime, event).await {
                    Ok(None) => {}
                    Ok(Some(event)) => {
                        if sender.send(event).await.is_err() {
                            return Ended::ReceiverGone;
                        }
                    }
                    // What happened is not known: everything is looked at again.
                    Err(error) => {
                        let reason = error.to_string();
                        return Ended::Lost {
                            reason,
                            was_synced: true,
                        };
                    }
                }
                continue;
            }
            Some(Err(error)) => error::reason(&error),
            None => error::CLOSED.to_owned(),
        };
        return Ended::Lost {
            reason,
            was_synced: true,
        };
    }
}

/// The events from now on. The request goes out when the stream is first polled; `since` makes the
/// engine repeat what happens until then.
fn subscribe(
    docker: &Docker,
) -> impl Stream<Item = Result<EventMessage, bollard::errors::Error>> + use<> {
    let filter = HashMap::from([
        ("type", vec!["container"]),
        ("label", vec![labels::ID]),
        ("event", ACTIONS.to_vec()),
    ]);
    let now = jiff::Timestamp::now().as_second().to_string();
    let options = EventsOptionsBuilder::default()
        .since(&now)
        .filters(&filter)
        .build();
    docker.events(Some(options))
}

/// An event of ours in the domain's terms.
async fn translate(
    runtime: &DockerRuntime,
    event: EventMessage,
) -> Result<Option<RuntimeEvent>, RuntimeError> {
    let Some(event) = Ours::of(runtime, event) else {
        return Ok(None);
    };
    let Ours {
        id,
        container,
        action,
        attributes,
        at,
    } = event;
    // A create under way looks for itself.
    let own_start = action == "start" && runtime.creating.contains(&id);
    let seen = match runtime.originals.of(&id) {
        Some(known) if known != container => {
            if action == "start" && !own_start {
                runtime.originals.report_copy(&id, &container);
            }
            return Ok(None);
        }
        Some(_) if action == "start" && !own_start => {
            // Only the engine knows the address that the container got.
            runtime.observe(&container).await.map(Some)
        }
        Some(_) => Ok(None),
        // Nothing is known that could be gone.
        None if action == "destroy" || own_start => return Ok(None),
        None => match runtime.observe_unknown(&container).await {
            Ok(None) => return Ok(None),
            seen => seen,
        },
    };
    let seen = match seen {
        Err(RuntimeError::NotFound(_)) => return Ok(None),
        seen => seen?,
    };
    let event = match action.as_str() {
        "start" => match seen {
            Some(observed) => RuntimeEvent::Changed(Box::new(observed)),
            None => return Ok(None),
        },
        "die" => {
            let code = attributes
                .get("exitCode")
                .and_then(|code| code.parse().ok());
            RuntimeEvent::Exited {
                id,
                role: Role::Main,
                code: code.unwrap_or(-1),
                at,
            }
        }
        "oom" => RuntimeEvent::OutOfMemory { id },
        "pause" => RuntimeEvent::Paused {
            id,
            paused: true,
            at,
        },
        "unpause" => RuntimeEvent::Paused {
            id,
            paused: false,
            at,
        },
        "destroy" => {
            runtime.originals.forget(&id, &container);
            RuntimeEvent::Removed { id, at }
        }
        _ => return Ok(None),
    };
    Ok(Some(event))
}

/// An event about a container of this installation.
struct Ours {
    id: SandboxId,
    container: String,
    action: String,
    attributes: HashMap<String, String>,
    at: WireTime,
}

impl Ours {
    fn of(runtime: &DockerRuntime, event: EventMessage) -> Option<Self> {
        if event.typ != Some(EventMessageTypeEnum::CONTAINER) {
            return None;
        }
        let actor = event.actor?;
        let attributes = actor.attributes?;
        let id = runtime.id_if_ours(&attributes)?;
        let at = event
            .time_nano
            .and_then(|nanos| WireTime::from_unix_us(nanos / 1000));
        Some(Self {
            id,
            container: actor.id?,
            action: event.action?,
            at: at.unwrap_or_else(|| WireTime::new(jiff::Timestamp::now())),
            attributes,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{
        Runtime,
        docker::fake_engine::{CUT, FakeEngine},
    };

    /// Guards against hanging.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// The first reasons that an engine's watch tells.
    async fn reasons<const N: usize>(engine: &FakeEngine) -> [String; N] {
        let tasks = Supervisor::new();
        let mut events = Arc::new(engine.runtime()).watch(&tasks);
        let mut told = Vec::new();
        while told.len() < N {
            let event = tokio::time::timeout(PATIENCE, events.recv()).await;
            match event.unwrap().unwrap() {
                RuntimeEvent::Lost { reason } => told.push(reason),
                RuntimeEvent::Synced { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        tasks.stop();
        told.try_into().unwrap()
    }

    #[tokio::test]
    async fn a_reason_is_told_once_and_again_when_it_changes() {
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
        let told = reasons::<2>(&engine).await;
        assert_eq!(told, ["it starts", "its disk is full"]);
    }

    #[tokio::test]
    async fn an_engine_that_hangs_up_has_closed_the_connection() {
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

    #[tokio::test]
    async fn an_engine_that_is_not_there_is_told_with_the_systems_reason() {
        let engine = FakeEngine::start(|_| (200, String::new())).await;
        engine.stop().await;
        let [reason] = reasons(&engine).await;
        assert!(
            reason.starts_with("cannot connect to the engine: Connection refused"),
            "{reason}"
        );
    }
}
