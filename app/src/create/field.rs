//! The fields of the create form, and which of them filled a place in the request.

use osb_protocol::{FieldError, error::Loc};

/// Label that is a sandbox's title in lists and on its page.
pub(super) const NAME: &str = "name";
/// Place of a problem with the further members as a whole. No member of a request is called this.
pub(super) const MORE: &str = "more";
/// Members of a request that only the further members can have.
const OTHERS: [&str; 6] = [
    "platform",
    "resourceRequests",
    "credentialProxy",
    "volumes",
    "lifecycle",
    "allocation",
];

/// A field of the form, in the order of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "named as in CreateForm")]
pub enum Field {
    /// No field: shown above the form.
    Form,
    Name,
    Image,
    /// The snapshot that takes the place of the image.
    Snapshot,
    /// The template that takes the place of the image.
    Template,
    Entrypoint,
    /// Both the chosen and the typed lifetime.
    Ttl,
    Cpu,
    Memory,
    Env,
    Metadata,
    /// What the sandbox may connect to.
    Network,
    Extensions,
    AuthUser,
    AuthPassword,
    SecureAccess,
    /// The command before the entry point.
    PreStart,
    /// Further members.
    More,
}

impl Field {
    /// The field for a place that an error names.
    #[must_use]
    pub fn of(problem: &FieldError) -> Self {
        let mut parts = problem.loc.iter().skip(1).map(|part| match part {
            Loc::Name(name) => name.as_str(),
            Loc::Index(_) => "",
        });
        let first = parts.next().unwrap_or_default();
        match (first, parts.next()) {
            ("image", Some("auth")) if parts.next() == Some("password") => Self::AuthPassword,
            ("image", Some("auth")) => Self::AuthUser,
            ("image", _) => Self::Image,
            ("snapshotId", _) => Self::Snapshot,
            ("templateId", _) => Self::Template,
            ("entrypoint", _) => Self::Entrypoint,
            ("env", _) => Self::Env,
            ("resourceLimits", Some("memory")) => Self::Memory,
            ("resourceLimits", _) => Self::Cpu,
            ("timeout", _) => Self::Ttl,
            ("metadata", Some(NAME)) => Self::Name,
            ("metadata", _) => Self::Metadata,
            ("networkPolicy", _) => Self::Network,
            ("extensions", _) => Self::Extensions,
            ("secureAccess", _) => Self::SecureAccess,
            ("lifecycle", Some("preStart")) => Self::PreStart,
            (name, _) if name == MORE || OTHERS.contains(&name) => Self::More,
            _ => Self::Form,
        }
    }

    /// All fields, in the order of the page.
    pub(super) const ALL: [Self; 18] = [
        Self::Form,
        Self::Name,
        Self::Image,
        Self::Snapshot,
        Self::Template,
        Self::Entrypoint,
        Self::Ttl,
        Self::Cpu,
        Self::Memory,
        Self::Env,
        Self::Metadata,
        Self::Network,
        Self::Extensions,
        Self::AuthUser,
        Self::AuthPassword,
        Self::SecureAccess,
        Self::PreStart,
        Self::More,
    ];

    /// Whether it is in the part that is folded at first.
    pub(super) fn is_advanced(self) -> bool {
        self >= Self::Network
    }

    /// Its label in the page.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Form => "Request",
            Self::Name => "Name",
            Self::Image => "Image",
            Self::Snapshot => "Snapshot",
            Self::Template => "Template",
            Self::Entrypoint => "Entry point",
            Self::Ttl => "Lifetime",
            Self::Cpu => "CPU",
            Self::Memory => "Memory",
            Self::Env => "Environment",
            Self::Metadata => "Labels",
            Self::Network => "Network",
            Self::Extensions => "Extensions",
            Self::AuthUser => "Registry user",
            Self::AuthPassword => "Registry password",
            Self::SecureAccess => "Secure access",
            Self::PreStart => "Command before the start",
            Self::More => "Further members",
        }
    }

    /// Name of its input, and its id in the page.
    pub(super) fn input(self) -> Option<&'static str> {
        match self {
            Self::Name => Some("name"),
            Self::Image => Some("image"),
            Self::Snapshot => Some("snapshot"),
            Self::Template => Some("template"),
            Self::Entrypoint => Some("entrypoint"),
            Self::Ttl => Some("ttl"),
            Self::Cpu => Some("cpu"),
            Self::Memory => Some("memory"),
            Self::Env => Some("env"),
            Self::Metadata => Some("metadata"),
            Self::Network => Some("network_rules"),
            Self::Extensions => Some("extensions"),
            Self::AuthUser => Some("auth_user"),
            Self::AuthPassword => Some("auth_password"),
            Self::SecureAccess => Some("secure_access"),
            Self::PreStart => Some("pre_start"),
            Self::More => Some("more"),
            Self::Form => None,
        }
    }

    /// Where the focus goes for it: the first of these elements that is visible.
    pub(super) fn focus_targets(self) -> &'static [&'static str] {
        match self {
            Self::Name => &["#name"],
            Self::Image => &["#image"],
            Self::Snapshot => &["#snapshot", "#source"],
            Self::Template => &["#template", "#source"],
            Self::Entrypoint => &["#entrypoint", "#source"],
            Self::Ttl => &["#ttl", "#lifetime"],
            Self::Cpu => &["#cpu", "#source"],
            Self::Memory => &["#memory", "#source"],
            Self::Env => &["#env-rows [aria-invalid]", "#env-rows input", "#env"],
            Self::Metadata => &[
                "#metadata-rows [aria-invalid]",
                "#metadata-rows input",
                "#metadata",
            ],
            Self::Network => &["#network_rules", "#network"],
            Self::Extensions => &[
                "#extensions-rows [aria-invalid]",
                "#extensions-rows input",
                "#extensions",
            ],
            Self::AuthUser => &["#auth_user"],
            Self::AuthPassword => &["#auth_password"],
            Self::SecureAccess => &["#secure_access"],
            Self::PreStart => &["#pre_start"],
            Self::More => &["#more"],
            Self::Form => &[],
        }
    }
}
