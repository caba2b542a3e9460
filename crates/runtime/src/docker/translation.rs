//! One event of the engine, as the domain knows it.

use std::collections::HashMap;

use bollard::models::{EventMessage, EventMessageTypeEnum};
use osb_protocol::{SandboxId, WireTime};

use super::{DockerRuntime, labels};
use crate::{Role, RuntimeError, RuntimeEvent, clock};

/// Translates an event of this installation's containers.
pub(super) async fn translate(
    runtime: &DockerRuntime,
    event: EventMessage,
) -> Result<Option<RuntimeEvent>, RuntimeError> {
    adopt_started(runtime, &event).await?;
    let Some(event) = SandboxEvent::of(runtime, event) else {
        return Ok(None);
    };
    if event.role != Role::Main {
        return translate_sidecar(runtime, event).await;
    }
    let SandboxEvent {
        id,
        role,
        container,
        action,
        attributes,
        at,
    } = event;
    let is_start = action == "start";
    let observed = match runtime.originals.main(&id) {
        Some(known) if known != container => {
            // A create that retries has another container by now.
            if is_start && !runtime.creating.contains(&id) {
                runtime.originals.report_copy(&id, &container);
            }
            return Ok(None);
        }
        Some(_) => {
            let by_create =
                (is_start || action == "die") && runtime.originals.take_created(&container);
            match (is_start, by_create) {
                // Its create inspects it.
                (true, true) => return Ok(None),
                // Only the engine knows the address that it assigned.
                (true, false) => runtime.observe(&container).await.map(Some),
                (false, _) => Ok(None),
            }
        }
        // An unknown container need not be reported as removed.
        None if action == "destroy" => return Ok(None),
        None => match runtime.observe_unknown(&container).await {
            Ok(None) => return Ok(None),
            observed => observed,
        },
    };
    let observed = match observed {
        Err(RuntimeError::NotFound(_)) => return Ok(None),
        observed => observed?,
    };
    let event = match action.as_str() {
        "start" => match observed {
            Some(observed) => RuntimeEvent::Changed(Box::new(observed)),
            None => return Ok(None),
        },
        "die" => RuntimeEvent::Exited {
            code: exit_code(&attributes),
            id,
            role,
            at,
        },
        "oom" => RuntimeEvent::OutOfMemory { id },
        // Only while the engine captures it.
        "pause" if runtime.capturing.contains(&id) => return Ok(None),
        "pause" => RuntimeEvent::Paused {
            id,
            paused: true,
            at,
        },
        "unpause" => {
            runtime.settle_thawed(&id).await?;
            RuntimeEvent::Paused {
                id,
                paused: false,
                at,
            }
        }
        "destroy" => {
            runtime.originals.forget(&id, role, &container);
            RuntimeEvent::Removed { id, at }
        }
        _ => return Ok(None),
    };
    Ok(Some(event))
}

/// Finds the owner of a sandbox without an installation label that starts.
async fn adopt_started(runtime: &DockerRuntime, event: &EventMessage) -> Result<(), RuntimeError> {
    let actor = event.actor.as_ref();
    let Some(attributes) = actor.and_then(|actor| actor.attributes.as_ref()) else {
        return Ok(());
    };
    let read = labels::Read(attributes);
    match (event.action.as_deref(), read.server(), read.id()) {
        (Some("start"), None, Some(id))
            if runtime.config.take_over && !runtime.adoptions.is_decided(&id) =>
        {
            runtime.adopt(&id).await
        }
        _ => Ok(()),
    }
}

/// Translates an event of a sidecar. Its exit is always reported, its start only when the sandbox had
/// lost it. Freezing and thawing are reported for the main container.
async fn translate_sidecar(
    runtime: &DockerRuntime,
    event: SandboxEvent,
) -> Result<Option<RuntimeEvent>, RuntimeError> {
    let SandboxEvent {
        id,
        role,
        container,
        action,
        attributes,
        at,
    } = event;
    // One that waits for its sandbox is none of the domain's.
    if matches!(action.as_str(), "die" | "destroy") && runtime.warm.lose(&id) {
        runtime.originals.forget(&id, role, &container);
        return Ok(None);
    }
    if runtime.originals.of(&id, role).as_ref() != Some(&container) {
        return Ok(None);
    }
    match action.as_str() {
        "die" | "destroy" => {
            let code = exit_code(&attributes);
            if action == "destroy" {
                runtime.originals.forget(&id, role, &container);
            }
            Ok(Some(RuntimeEvent::Exited { id, role, code, at }))
        }
        "start" if !runtime.originals.take_created(&container) => {
            let Some(main) = runtime.originals.main(&id) else {
                return Ok(None);
            };
            match runtime.observe(&main).await {
                Ok(observed) => Ok(Some(RuntimeEvent::Changed(Box::new(observed)))),
                Err(RuntimeError::NotFound(_)) => Ok(None),
                Err(error) => Err(error),
            }
        }
        _ => Ok(None),
    }
}

/// Returns the exit status in an event, or -1 if there is none.
fn exit_code(attributes: &HashMap<String, String>) -> i64 {
    let code = attributes.get("exitCode");
    code.and_then(|code| code.parse().ok()).unwrap_or(-1)
}

/// An event about a container of this installation.
struct SandboxEvent {
    id: SandboxId,
    role: Role,
    container: String,
    action: String,
    attributes: HashMap<String, String>,
    at: WireTime,
}

impl SandboxEvent {
    fn of(runtime: &DockerRuntime, event: EventMessage) -> Option<Self> {
        if event.typ != Some(EventMessageTypeEnum::CONTAINER) {
            return None;
        }
        let actor = event.actor?;
        let attributes = actor.attributes?;
        let (id, role) = runtime.place_if_ours(&attributes)?;
        let at = event
            .time_nano
            .and_then(|nanos| WireTime::from_unix_us(nanos / 1000));
        Some(Self {
            id,
            role,
            container: actor.id?,
            action: event.action?,
            at: at.unwrap_or_else(|| WireTime::new(clock::now())),
            attributes,
        })
    }
}
