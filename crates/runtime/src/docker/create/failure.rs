//! Why an attempt to create a sandbox failed.

use super::super::{
    KIND, egress,
    engine_message::{ClientTexts, EngineMessage},
    error, ports,
};
use crate::{CreateSpec, RuntimeError};

/// Words of an engine without a driver for the requested devices.
const NO_DEVICE_DRIVER: &str = "could not select device driver";

/// Why a container did not start.
pub(super) enum NotStarted {
    Engine(bollard::errors::Error),
    Runtime(RuntimeError),
}

impl From<RuntimeError> for NotStarted {
    fn from(error: RuntimeError) -> Self {
        Self::Runtime(error)
    }
}

impl NotStarted {
    pub(super) fn of_member(self, spec: &CreateSpec) -> Failure {
        match self {
            Self::Engine(error) => Failure::of_start(&error, spec),
            Self::Runtime(error) => Failure::Runtime(error),
        }
    }

    /// Of the sidecar of a network policy.
    pub(super) fn of_sidecar(self, spec: &CreateSpec) -> Failure {
        match self {
            Self::Engine(error) if egress::lacks_ipv6(&error) => {
                Failure::NoIpv6(EngineMessage::of(&error, &ClientTexts::of(spec)))
            }
            other => other.of_member(spec),
        }
    }
}

/// Why an attempt failed.
pub(super) enum Failure {
    /// Another process has taken the port.
    PortTaken(EngineMessage),
    /// The sidecar does not start with settings for IPv6, which the engine's kernel does not have.
    NoIpv6(EngineMessage),
    /// The engine has no driver for the devices that the request asks for.
    NoGpu(EngineMessage),
    /// The warm sidecar cannot be used.
    WarmSidecar(String),
    /// The engine cannot create a container, or cannot start a sidecar.
    Start(EngineMessage),
    /// The engine cannot start the main container.
    MainStart(EngineMessage),
    /// The engine refuses the request.
    Refused(EngineMessage),
    /// An error of another operation.
    Runtime(RuntimeError),
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        Self::Runtime(error)
    }
}

impl Failure {
    pub(super) fn of_create(error: &bollard::errors::Error, spec: &CreateSpec) -> Self {
        let message = EngineMessage::of(error, &ClientTexts::of(spec));
        match (error::unavailable(error), error::status(error)) {
            (Some(unavailable), _) => Self::Runtime(unavailable),
            (None, Some(400)) => Self::Refused(message),
            _ => Self::Start(message),
        }
    }

    pub(super) fn of_start(error: &bollard::errors::Error, spec: &CreateSpec) -> Self {
        let message = EngineMessage::of(error, &ClientTexts::of(spec));
        match error::unavailable(error) {
            Some(unavailable) => Self::Runtime(unavailable),
            None if ports::is_conflict(&message) => Self::PortTaken(message),
            None if message.begins_with(NO_DEVICE_DRIVER) => Self::NoGpu(message),
            None => Self::Start(message),
        }
    }

    pub(super) fn into_error(self, spec: &CreateSpec) -> RuntimeError {
        let start = |reason| RuntimeError::Start {
            id: spec.origin.id.clone(),
            reason,
        };
        match self {
            Self::PortTaken(message)
            | Self::NoIpv6(message)
            | Self::Start(message)
            | Self::MainStart(message) => start(message.into_reason()),
            Self::WarmSidecar(reason) => start(reason.into()),
            Self::NoGpu(message) => start(
                message.into_reason_after("resourceLimits.gpu: the engine has no GPU runtime: "),
            ),
            Self::Refused(message) => RuntimeError::Refused {
                runtime: KIND,
                reason: message.into_reason(),
            },
            Self::Runtime(error) => error,
        }
    }
}
