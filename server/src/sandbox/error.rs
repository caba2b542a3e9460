//! What can go wrong with a sandbox, independent of transport.

use std::sync::Arc;

use osb_protocol::{
    Feature, FieldError, SandboxId, WireTime, error::Loc, labels::LabelError,
    resources::ResourceError,
};
use osb_runtime::{Cause, RuntimeError};
use osb_store::StoreError;

use super::{
    explanation::explain, pool_error::PoolError, quota::QuotaError, snapshot_error::SnapshotError,
    template_error::TemplateError,
};

/// Why something was not done. The text may be shown to clients; sources are for the log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Fields have the wrong type, range or combination (contract: 422).
    #[error("{}", summary(.0))]
    Invalid(Vec<FieldError>),
    /// Rules about sandboxes are broken, in the contract's order: the first decides status and code.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Broken(Vec<Self>),
    /// A field breaks a rule about sandboxes (contract: 400).
    #[error("{field}: {rule}")]
    Rule {
        /// Which field.
        field: String,
        /// The rule in words.
        rule: String,
    },
    /// An entry of a map that the client names itself breaks a rule (contract: 400). Its name may
    /// have dots, which separate members elsewhere.
    #[error("{map}.{key}: {rule}")]
    Entry {
        /// Which map.
        map: &'static str,
        /// Which entry of it.
        key: String,
        /// The rule in words.
        rule: String,
    },
    /// A volume breaks a rule.
    #[error("volumes.{index}.{}: {rule}", .member.join("."))]
    Volume {
        /// Which volume.
        index: usize,
        /// Which member of it.
        member: &'static [&'static str],
        /// What kind of rule.
        fault: VolumeFault,
        /// The rule in words.
        rule: &'static str,
    },
    /// A metadata entry does not follow the label grammar.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// A reserved metadata key in a patch.
    #[error("{0}")]
    ReservedLabel(LabelError),
    /// A resource amount does not follow the grammar.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Resources(Vec<ResourceError>),
    /// The tenant's quota has no room.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// Something is wrong with a snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// Something is wrong with a pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Something is wrong with a template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The entry point is missing.
    #[error("entrypoint: {0}")]
    Entrypoint(&'static str),
    /// The runtime lacks a feature that the request asks for.
    #[error("{}{feature} are not available on the {runtime} runtime", in_field(*.feature))]
    Unsupported {
        /// What was asked for.
        feature: Feature,
        /// Which runtime.
        runtime: &'static str,
    },
    /// No sandbox by that name.
    #[error("sandbox {0} not found")]
    NotFound(SandboxId),
    /// The command does not run, or cannot be interrupted alone.
    #[error(
        "sandbox {0}: this command does not run any more, or runs in a session and ends with that"
    )]
    NoSuchCommand(SandboxId),
    /// Not in this state.
    #[error("sandbox {id} is {state}: {needs}")]
    WrongState {
        /// Which sandbox.
        id: SandboxId,
        /// Its state.
        state: String,
        /// What would be needed.
        needs: &'static str,
    },
    /// Paused, so nothing in it answers.
    #[error("sandbox {0} is paused: it answers after it is resumed")]
    Paused(SandboxId),
    /// The new expiry is not in the future.
    #[error("expiresAt: must be in the future")]
    ExpiryPassed,
    /// The sandbox has no expiry that could move.
    #[error("sandbox {0} has no expiration to renew: it stays until it is deleted")]
    NoExpiry(SandboxId),
    /// The new expiry is earlier than the sandbox's, and was only to be later.
    #[error("expiresAt: sandbox {id} lives until {until} already")]
    Shortens {
        /// Which sandbox.
        id: SandboxId,
        /// When it expires.
        until: WireTime,
    },
    /// Port out of range.
    #[error("port: must be between 1 and 65535")]
    Port,
    /// The sandbox is still being made, so it has no address.
    #[error("sandbox {0} has no address yet")]
    NoAddressYet(SandboxId),
    /// The sandbox has no way in for this port.
    #[error("sandbox {id} cannot be reached on port {port}: {reason}")]
    Unreachable {
        /// Which sandbox.
        id: SandboxId,
        /// Wanted port.
        port: u16,
        /// Why.
        reason: &'static str,
    },
    /// The sandbox has ended, or must not be used without a container that it has lost.
    #[error(
        "sandbox {id} cannot be reached on port {port}: it does not run. {status}{last_output}"
    )]
    NotRunning {
        /// Which sandbox.
        id: SandboxId,
        /// Wanted port.
        port: u16,
        /// What its status says.
        status: String,
        /// What it wrote last, as a sentence after a space; empty if that is not known.
        last_output: String,
    },
    /// The sandbox was created without a network policy, so it has no sidecar that could answer. The
    /// text begins like that for a sandbox that cannot be reached (contract: lifecycle §A4).
    #[error(
        "Could not connect to the backend sandbox: sandbox {0} was created without networkPolicy, \
         so it has no network policy"
    )]
    NoNetworkPolicy(SandboxId),
    /// The runtime is away, so nothing certain can be said.
    #[error("the {runtime} runtime is unavailable: {reason}")]
    RuntimeDown {
        /// Which runtime.
        runtime: &'static str,
        /// What was seen.
        reason: String,
    },
    /// The runtime failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The store failed.
    #[error("the server cannot keep its state{}", problem(.0))]
    Store(#[from] StoreError),
    /// The request that this one joined failed.
    #[error(transparent)]
    Joined(Arc<Self>),
    /// The work ended before its result was known.
    #[error("the server is shutting down")]
    ShuttingDown,
}

/// Kind of rule that a volume breaks (contract: lifecycle §4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeFault {
    /// Two volumes have one name.
    DuplicateName,
    /// The place in the sandbox.
    MountPath,
    /// The directory below the volume's root.
    SubPath,
    /// The directory of the host.
    HostPath,
    /// The directory of the host is not one that sandboxes may get.
    HostPathNotAllowed,
    /// The bucket.
    OssfsBucket,
    /// The address of the object storage.
    OssfsEndpoint,
    /// An option of the mount.
    OssfsOption,
    /// A text that would be more than a parameter of the mount.
    OssfsParameter,
    /// The keys of the object storage.
    OssfsCredentials,
}

impl Error {
    /// A rule about one field.
    pub fn rule(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Rule {
            field: field.into(),
            rule: rule.into(),
        }
    }

    /// The common cause of the failure, if it is recognised.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Self::Runtime(error) => Cause::of(error),
            Self::Joined(error) => error.cause(),
            Self::RuntimeDown { runtime, reason } => Cause::of(&RuntimeError::Unavailable {
                runtime,
                reason: reason.clone(),
            }),
            _ => None,
        }
    }

    /// The text with the cause in words and a suggested fix.
    #[must_use]
    pub fn explained(&self) -> String {
        match (self, self.cause()) {
            // Its text has the cause in words.
            (Self::Runtime(RuntimeError::ImagePull { .. }), Some(cause)) => {
                format!("{self}. {}", cause.fix())
            }
            (_, cause) => explain(self.to_string(), cause),
        }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Runtime(error) => error.retryable(),
            Self::Joined(error) => error.retryable(),
            Self::Broken(errors) => errors.iter().all(Self::retryable),
            Self::Quota(error) => !matches!(error, QuotaError::Unlimited { .. }),
            Self::Snapshot(error) => error.retryable(),
            Self::Pool(error) => error.retryable(),
            Self::Template(error) => error.retryable(),
            Self::NoAddressYet(_)
            | Self::RuntimeDown { .. }
            | Self::Store(_)
            | Self::ShuttingDown => true,
            Self::Invalid(_)
            | Self::Rule { .. }
            | Self::Entry { .. }
            | Self::Volume { .. }
            | Self::Label(_)
            | Self::ReservedLabel(_)
            | Self::Resources(_)
            | Self::Entrypoint(_)
            | Self::Unsupported { .. }
            | Self::NotFound(_)
            | Self::NoSuchCommand(_)
            | Self::NoNetworkPolicy(_)
            | Self::WrongState { .. }
            | Self::Paused(_)
            | Self::ExpiryPassed
            | Self::NoExpiry(_)
            | Self::Shortens { .. }
            | Self::Port
            | Self::NotRunning { .. }
            | Self::Unreachable { .. } => false,
        }
    }

    /// The fields at fault, for a form.
    #[must_use]
    pub fn fields(&self) -> Vec<FieldError> {
        match self {
            Self::Invalid(fields) => fields.clone(),
            Self::Joined(error) => error.fields(),
            Self::Broken(errors) => errors.iter().flat_map(Self::fields).collect(),
            Self::Rule { field, rule } => vec![FieldError::body("value_error", path(field), rule)],
            Self::Entry { map, key, rule } => {
                vec![FieldError::body("value_error", [*map, key.as_str()], rule)]
            }
            Self::Volume {
                index,
                member,
                rule,
                ..
            } => {
                let place = [Loc::from("volumes"), Loc::Index(*index)].into_iter();
                let path = place.chain(member.iter().map(|name| Loc::from(*name)));
                vec![FieldError::body("value_error", path, *rule)]
            }
            Self::Label(error) | Self::ReservedLabel(error) => {
                let place = ["metadata", error.key()];
                vec![FieldError::body("value_error", place, self.to_string())]
            }
            Self::Resources(errors) => errors
                .iter()
                .map(|error| {
                    let text = format!("expected {}", error.expected);
                    FieldError::body("value_error", ["resourceLimits", error.key], text)
                })
                .collect(),
            Self::Snapshot(error) if error.is_about_source() => {
                vec![of_source("snapshotId", &error.to_string())]
            }
            Self::Pool(error) if error.is_about_source() => {
                vec![of_source("extensions.poolRef", &error.to_string())]
            }
            Self::Template(error) if error.is_about_source() => {
                vec![of_source("templateId", &error.to_string())]
            }
            Self::Runtime(RuntimeError::Volume {
                index,
                member,
                reason,
                ..
            }) => {
                let place = [Loc::from("volumes"), Loc::Index(*index)].into_iter();
                let path = place.chain(path(member));
                vec![FieldError::body("value_error", path, reason.as_str())]
            }
            Self::Entrypoint(rule) => vec![FieldError::body("value_error", ["entrypoint"], *rule)],
            Self::Unsupported { feature, runtime } => {
                let rule = format!("{feature} are not available on the {runtime} runtime");
                let field = feature.field().into_iter();
                field
                    .map(|path| FieldError::body("value_error", path.iter().copied(), rule.clone()))
                    .collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The field that asks for a feature, to go before a rule.
fn in_field(feature: Feature) -> String {
    let path = feature.field();
    path.map_or_else(String::new, |path| format!("{}: ", path.join(".")))
}

/// An error about the field that names what a sandbox is created from. The text begins with the field.
fn of_source(field: &str, text: &str) -> FieldError {
    let rule = text.strip_prefix(field);
    let rule = rule.and_then(|rule| rule.strip_prefix(": "));
    FieldError::body("value_error", path(field), rule.unwrap_or(text))
}

fn path(field: &str) -> Vec<Loc> {
    field
        .split('.')
        .map(|part| {
            part.parse::<usize>()
                .map_or_else(|_| part.into(), Into::into)
        })
        .collect()
}

/// What is in the store's way, as far as it is known.
fn problem(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable { problem, .. } => format!(": {problem}"),
        _ => String::new(),
    }
}

fn summary(fields: &[FieldError]) -> String {
    let each = fields.iter().map(|error| match error.field().as_str() {
        "" => error.msg.clone(),
        field => format!("{field}: {}", error.msg),
    });
    let text = each.collect::<Vec<_>>().join("; ");
    if text.is_empty() {
        "the request is not valid".to_owned()
    } else {
        text
    }
}
