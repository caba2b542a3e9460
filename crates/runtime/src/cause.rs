//! Common causes of failures, in words and with a suggested fix.
//!
//! Engines, registries and kernels word the same fault in many ways. One table recognises the
//! wordings and explains each cause to people.

use crate::PullFault;

/// A common cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The process may not use the engine's socket.
    SocketDenied,
    /// The engine does not answer in time.
    EngineHung,
    /// The engine cannot be reached.
    EngineDown,
    /// The disk of the engine is full.
    DiskFull,
    /// The registry allows no more pulls for now.
    RateLimited,
    /// The image is for another platform.
    WrongPlatform,
    /// The registry has no such image, or hides it.
    ImageNotFound,
    /// The registry rejects the credentials, or requires some.
    RegistryDenied,
    /// The registry cannot be reached.
    RegistryUnreachable,
    /// The engine does not trust the registry's certificate.
    RegistryUntrusted,
    /// The pull made no progress.
    PullStalled,
    /// No port of the configured range is free.
    PortsExhausted,
    /// Another program has the port.
    PortTaken,
    /// The network does not exist.
    NoNetwork,
    /// Another container has the name.
    NameConflict,
    /// The seccomp or `AppArmor` profile cannot be used.
    SecurityProfile,
    /// A host directory or volume does not exist.
    MountMissing,
    /// The engine has no such OCI runtime.
    UnknownOciRuntime,
    /// The engine has no driver for GPUs.
    NoGpu,
    /// The host cannot grant the requested limits.
    LimitRefused,
    /// The host has not enough memory, or the limit is too low to start a process.
    NoMemory,
    /// execd cannot be placed in the sandbox.
    ExecdMissing,
    /// execd does not answer.
    ExecdSilent,
    /// The entry point does not exist in the image.
    EntrypointNotFound,
    /// The entry point cannot be executed.
    EntrypointNotExecutable,
    /// The entry point ended at once.
    EntrypointEnded,
    /// The kernel killed the entry point because the memory limit was reached.
    OutOfMemory,
    /// The entry point was killed.
    Killed,
    /// The entry point was asked to end.
    Terminated,
}

/// A row of the table.
struct Row {
    cause: Cause,
    /// Sentence about the cause.
    words: &'static str,
    /// Sentence about what to do.
    fix: &'static str,
    /// Parts of messages, in lower case, that reveal the cause.
    patterns: &'static [&'static str],
}

impl Row {
    /// Whether a message in lower case reveals the cause.
    fn matches(&self, message: &str) -> bool {
        self.patterns.iter().any(|part| message.contains(part))
    }
}

const fn row(
    cause: Cause,
    words: &'static str,
    fix: &'static str,
    patterns: &'static [&'static str],
) -> Row {
    Row {
        cause,
        words,
        fix,
        patterns,
    }
}

/// Every cause. Of several rows that match a message, the first counts.
static TABLE: [Row; 29] = [
    row(
        Cause::SocketDenied,
        "The server may not use the engine's socket.",
        "Add the server's user to the group of the socket (usually `docker`) and restart the server.",
        &["cannot connect to the engine: permission denied"],
    ),
    row(
        Cause::EngineHung,
        "The engine accepts connections and does not answer.",
        "Look at the engine's log and the host's load; restart the engine if it stays like this.",
        &["the engine did not answer in time"],
    ),
    row(
        Cause::EngineDown,
        "The engine is not running, or not where DOCKER_HOST says.",
        "Start the engine (`systemctl start docker`), and check DOCKER_HOST.",
        &[
            "cannot connect to the engine",
            "the engine closed the connection",
        ],
    ),
    row(
        Cause::DiskFull,
        "The disk of the engine is full.",
        "Free space on it, for example with `docker system prune`, or delete sandboxes.",
        &[
            "no space left on device",
            "disk quota exceeded",
            "not enough space",
        ],
    ),
    row(
        Cause::RateLimited,
        "The registry allows no more pulls for now.",
        "Try later, log in to the registry (`image.auth`), or pull from a mirror.",
        &["toomanyrequests", "rate limit", "too many requests"],
    ),
    row(
        Cause::WrongPlatform,
        "The image or its program is for another processor than this host's.",
        "Use an image for this host's platform, or name the right one in `platform`.",
        &[
            "exec format error",
            "no matching manifest",
            "does not match the specified platform",
            "no match for platform",
            "does not provide the specified platform",
        ],
    ),
    row(
        Cause::ImageNotFound,
        "The registry has no such image, or shows it only to users that it knows.",
        "Check name and tag of the image; a private one needs `image.auth`.",
        &[
            "manifest unknown",
            "manifest not found",
            "repository does not exist",
            "no such image",
            "name unknown",
            "repository name not known",
            ": not found",
        ],
    ),
    row(
        Cause::RegistryDenied,
        "The registry rejects the credentials, or requires some.",
        "Check the name of the image and `image.auth`, whose user must be allowed to pull it.",
        &[
            "unauthorized",
            "authentication required",
            "no basic auth credentials",
            "requested access to the resource is denied",
            "pull access denied",
            "incorrect username or password",
            "403 forbidden",
        ],
    ),
    row(
        Cause::RegistryUnreachable,
        "The registry cannot be reached from the engine's host.",
        "Check the registry's name, the host's DNS, proxy and firewall; or load the image on the host.",
        &[
            "no such host",
            "server misbehaving",
            "name resolution",
            "connection refused",
            "no route to host",
            "network is unreachable",
            "i/o timeout",
            "tls handshake timeout",
            "awaiting headers",
            "context deadline exceeded",
            "connection reset by peer",
        ],
    ),
    row(
        Cause::RegistryUntrusted,
        "The engine does not trust the registry's certificate.",
        "Install the registry's authority on the engine's host, or list the registry as insecure there.",
        &[],
    ),
    row(
        Cause::PullStalled,
        "The pull made no progress.",
        "Check the connection to the registry; a slow one may need a larger docker.api_timeout.",
        &["reported no progress"],
    ),
    row(
        Cause::PortsExhausted,
        "Every port that sandboxes may be published on is taken.",
        "Widen docker.port_range_min to docker.port_range_max, or delete sandboxes.",
        &["no free port in"],
    ),
    row(
        Cause::PortTaken,
        "Another program took the port in the same moment.",
        "Try again; keep other programs out of docker.port_range_min to docker.port_range_max.",
        &[
            "port is already allocated",
            "ports are not available",
            "address already in use",
        ],
    ),
    row(
        Cause::NameConflict,
        "A container with this name exists already.",
        "Try again: each attempt draws another name.",
        &["is already in use by container"],
    ),
    row(
        Cause::NoNetwork,
        "The network that sandboxes are to join does not exist.",
        "Create it with `docker network create`, or change docker.network_mode.",
        &["could not find a network", "no such network"],
    ),
    row(
        Cause::SecurityProfile,
        "The configured seccomp or AppArmor profile cannot be used.",
        "Load the profile on the engine's host, or correct docker.seccomp_profile or \
         docker.apparmor_profile.",
        &["seccomp", "apparmor"],
    ),
    row(
        Cause::UnknownOciRuntime,
        "The engine has no OCI runtime of this name, or cannot run it.",
        "Install the runtime and register it with the engine, or correct [secure_runtime].",
        &[
            "unknown runtime specified",
            "unknown or invalid runtime name",
            "failed to start shim",
            "invalid runtime name",
            // gVisor of 2022 on a kernel of 2025.
            "cannot run with network enabled in root network namespace",
        ],
    ),
    row(
        Cause::NoGpu,
        "The engine has no driver for GPUs.",
        "Install the vendor's container toolkit on the engine's host, or leave out `gpu`.",
        &["could not select device driver", "nvidia-container-cli"],
    ),
    row(
        Cause::MountMissing,
        "A host directory or volume that is to be mounted does not exist.",
        "Create it on the engine's host, or correct docker.sandbox_binds.",
        &[
            "bind source path does not exist",
            "invalid mount config",
            "invalid volume specification",
            "error while mounting volume",
            "no such volume",
            "error mounting",
            "error while creating mount source path",
        ],
    ),
    row(
        Cause::LimitRefused,
        "The host cannot grant the requested limits.",
        "Ask for less in `resourceLimits`; docker.pids_limit and cgroup support of the kernel count, too.",
        &[
            "range of cpus is from",
            "minimum memory limit allowed",
            "your kernel does not support",
            "cgroup",
            "pids.max",
            "pids limit",
        ],
    ),
    row(
        Cause::NoMemory,
        "There is not enough memory to start a process.",
        "Raise `resourceLimits.memory`, or free memory on the engine's host.",
        &[
            "cannot allocate memory",
            "memory limit too low",
            "container init was oom-killed",
        ],
    ),
    row(
        Cause::EntrypointNotFound,
        "The image has no such command.",
        "Check `entrypoint` and the PATH of the image; a script needs its interpreter.",
        &["executable file not found", "no such file or directory"],
    ),
    row(
        Cause::EntrypointNotExecutable,
        "The command is not an executable file, or is for another processor.",
        "Check `entrypoint`, the file's mode, and that the image is for this host's platform.",
        &["permission denied", "is a directory"],
    ),
    row(
        Cause::ExecdMissing,
        "execd cannot be placed in the sandbox.",
        "Look at the server's log; OPENSANDBOX_EXECD_PATH must name an execd for this host.",
        &["execd cannot be provided"],
    ),
    row(
        Cause::ExecdSilent,
        "execd does not answer, so commands and files do not work yet.",
        "Look at the sandbox's log and limits; a very small `cpu` or `memory` slows the start.",
        &[],
    ),
    row(
        Cause::EntrypointEnded,
        "The entry point ended within seconds, and a sandbox lives only as long.",
        "Use one that keeps running, such as `tail -f /dev/null`, or look at its output.",
        &[],
    ),
    row(
        Cause::OutOfMemory,
        "The kernel killed it because the memory limit was reached (OOMKilled).",
        "Raise `resourceLimits.memory`, or let the program use less.",
        &[],
    ),
    row(
        Cause::Killed,
        "A signal killed it (SIGKILL), sent from the sandbox or from its host.",
        "Look at the sandbox's log, and whether the host ran out of memory.",
        &[],
    ),
    row(
        Cause::Terminated,
        "It was asked to end (SIGTERM), by a program in the sandbox or by `docker stop`.",
        "Create a new sandbox if this was not intended.",
        &[],
    ),
];

/// Exit status of execd when the entry point does not exist, as shells have it.
const NOT_FOUND: i64 = 127;
/// Exit status of execd when the entry point cannot be executed.
const NOT_EXECUTABLE: i64 = 126;
/// Exit status after SIGKILL.
const KILLED: i64 = 137;
/// Exit status after SIGTERM.
const TERMINATED: i64 = 143;

impl Cause {
    /// All causes.
    pub const ALL: [Self; 29] = [
        Self::SocketDenied,
        Self::EngineHung,
        Self::EngineDown,
        Self::DiskFull,
        Self::RateLimited,
        Self::WrongPlatform,
        Self::ImageNotFound,
        Self::RegistryDenied,
        Self::RegistryUnreachable,
        Self::RegistryUntrusted,
        Self::PullStalled,
        Self::PortsExhausted,
        Self::PortTaken,
        Self::NoNetwork,
        Self::NameConflict,
        Self::SecurityProfile,
        Self::MountMissing,
        Self::UnknownOciRuntime,
        Self::NoGpu,
        Self::LimitRefused,
        Self::NoMemory,
        Self::ExecdMissing,
        Self::ExecdSilent,
        Self::EntrypointNotFound,
        Self::EntrypointNotExecutable,
        Self::EntrypointEnded,
        Self::OutOfMemory,
        Self::Killed,
        Self::Terminated,
    ];

    /// Recognises the cause by a message of the engine or the kernel, without texts of a client.
    pub(crate) fn of_message(message: &str) -> Option<Self> {
        let message = without_program(&message.to_lowercase());
        if message.contains("network ") && message.contains("not found") {
            return Some(Self::NoNetwork);
        }
        let row = TABLE.iter().find(|row| row.matches(&message));
        row.map(|row| row.cause)
    }

    /// Recognises the cause of a failed build. A message about a line of the recipe has its words.
    pub(crate) fn of_build(message: &str) -> Option<Self> {
        const OF_RECIPE: [&str; 4] = [
            "the command '",
            "dockerfile parse error",
            "failed to parse",
            "process \"",
        ];
        let lower = message.to_lowercase();
        let is_of_recipe = OF_RECIPE.iter().any(|words| lower.starts_with(words));
        (!is_of_recipe).then(|| Self::of_message(message)).flatten()
    }

    pub(crate) fn of_pull(fault: PullFault) -> Option<Self> {
        match fault {
            PullFault::Denied => Some(Self::RegistryDenied),
            PullFault::Unknown => Some(Self::ImageNotFound),
            PullFault::Platform => Some(Self::WrongPlatform),
            PullFault::RateLimited => Some(Self::RateLimited),
            PullFault::Unreachable => Some(Self::RegistryUnreachable),
            PullFault::Untrusted => Some(Self::RegistryUntrusted),
            PullFault::DiskFull => Some(Self::DiskFull),
            PullFault::TimedOut => Some(Self::PullStalled),
            PullFault::Other => None,
        }
    }

    /// Every part of a message that reveals a cause.
    #[cfg(test)]
    pub(crate) fn patterns() -> impl Iterator<Item = &'static str> {
        TABLE.iter().flat_map(|row| row.patterns).copied()
    }

    /// Recognises why an entry point ended with this exit status.
    #[must_use]
    pub fn of_exit(code: i64, out_of_memory: bool) -> Option<Self> {
        match code {
            NOT_FOUND => Some(Self::EntrypointNotFound),
            NOT_EXECUTABLE => Some(Self::EntrypointNotExecutable),
            // The engine reports any process that ran out of memory; only a killed entry point says
            // that it was this one.
            KILLED if out_of_memory => Some(Self::OutOfMemory),
            KILLED => Some(Self::Killed),
            TERMINATED => Some(Self::Terminated),
            _ => None,
        }
    }

    /// Sentence about the cause.
    #[must_use]
    pub fn words(self) -> &'static str {
        self.row().words
    }

    /// Sentence about what to do.
    #[must_use]
    pub fn fix(self) -> &'static str {
        self.row().fix
    }

    fn row(self) -> &'static Row {
        let row = TABLE.iter().find(|row| row.cause == self);
        row.expect("a test checks that every cause has a row")
    }
}

/// Removes the name of the program that cannot be started, which the request chose.
fn without_program(message: &str) -> String {
    const START: [&str; 2] = ["exec: \"", "exec: \\\""];
    let found = START.iter().find_map(|start| {
        let at = message.find(start)? + start.len();
        Some((at, at + message[at..].find('"')?))
    });
    match found {
        Some((from, to)) => format!("{}{}", &message[..from], &message[to..]),
        None => message.to_owned(),
    }
}

/// Both sentences.
impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.words(), self.fix())
    }
}
