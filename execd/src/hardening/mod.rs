//! Restrictions on every process of the user (contract: execd A9.4;
//! docs/adr/0006-hardening-between-fork-and-exec.md gives the reasons for this design).
//!
//! ```text
//!  fork ─▶ bounding set ─▶ no_new_privs ─▶ identity ─▶ other sets ─▶ files ─▶ system calls ─▶ exec
//!          └──────────────── in the child, with what was prepared before ─────────────┘
//! ```
//!
//! Commands, shell sessions, terminals and the entry point run under these restrictions. The
//! daemon's own work for clients does not, nor do the hooks of the sandbox's creator. Isolated
//! sessions have restrictions of their own.
//!
//! The daemon tries every layer once at its start, in a dedicated child. An unavailable layer is
//! reported in the log and in the capabilities, and skipped. An available layer is never skipped:
//! if it fails later, the process does not start.

mod capability;
mod landlock;
mod probe;
pub(crate) mod seccomp;
mod syscalls;
mod trust;

use std::{
    io,
    os::{fd::AsFd, unix::process::CommandExt},
    path::PathBuf,
    process::Command,
    sync::Arc,
};

use osb_protocol::execd::isolated::{Layer, LayerState};
use rustix::{
    io::Errno,
    thread::{CapabilitySet, capabilities, set_keep_capabilities, set_no_new_privs},
};
use tracing::{info, warn};

#[cfg(test)]
pub(crate) use self::trust::DistrustReason;
use self::{landlock::Policy, probe::Tried, seccomp::Filter};
use crate::{
    config::{IsolationConfig, capabilities_of, capability_names},
    env::Environment,
    identity::{Credentials, Identity, run_as},
};

/// Restrictions in force for the user's processes.
#[derive(Debug, Default)]
pub struct ProcessHardening {
    layers: Layers,
    steps: Option<Steps>,
    /// Places that isolated sessions may be allowed to write, under every name. Sessions do not use
    /// this hardening, but still have fewer rights than the daemon.
    session_writable: Vec<PathBuf>,
}

/// State of each layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layers {
    pub(crate) cap_drop: Layer,
    /// `None` without hardening: then only isolated sessions have a filter.
    pub(crate) seccomp: Option<Layer>,
    pub(crate) landlock: Layer,
    pub(crate) ebpf: Layer,
}

impl Default for Layers {
    fn default() -> Self {
        let off = || layer(LayerState::Disabled, "hardening.enabled is off");
        Self {
            cap_drop: off(),
            seccomp: None,
            landlock: off(),
            ebpf: layer(LayerState::Disabled, "ebpf.enabled is off"),
        }
    }
}

/// Steps of a child before it executes the user's program.
#[derive(Debug)]
struct Steps {
    keep: CapabilitySet,
    /// Whether to reduce the bounding set too.
    cut_bounding: bool,
    no_new_privs: bool,
    /// Whether the process can drop capabilities.
    drop: bool,
    files: Option<Policy>,
    calls: Option<Arc<Filter>>,
}

const ACTIVE: Layer = Layer {
    state: LayerState::Active,
    message: None,
};

fn layer(state: LayerState, message: impl Into<String>) -> Layer {
    Layer {
        state,
        message: Some(message.into()),
    }
}

impl ProcessHardening {
    /// Determines which configured layers are available, and logs those that are not. With
    /// hardening it starts a child and waits for it, so no other code may reap children yet.
    #[must_use]
    pub fn new(config: &IsolationConfig, environment: &Arc<Environment>) -> Self {
        for name in seccomp::unknown(&config.seccomp.deny) {
            warn!(
                name,
                "seccomp.deny: no system call of this architecture has this name"
            );
        }
        let mut hardening = if config.hardening.enabled {
            Self::enabled(config, environment)
        } else {
            Self::default()
        };
        if config.landlock.enabled && !config.hardening.enabled {
            warn!("landlock.enabled has no effect, because hardening.enabled is off");
        }
        if config.ebpf.enabled {
            // Auditing protects nothing, so its absence is harmless.
            let why = "this build cannot audit";
            hardening.layers.ebpf = layer(LayerState::Degraded, why);
        }
        hardening.layers.warn();
        let led_to = |path: &PathBuf| path.canonicalize().ok();
        let mut places = config.allowed_writable.clone();
        // A balanced session shares `/tmp` with the sandbox.
        places.push("/tmp".into());
        hardening.session_writable = places.iter().filter_map(led_to).collect();
        hardening.session_writable.extend(places);
        hardening
    }

    fn enabled(config: &IsolationConfig, environment: &Arc<Environment>) -> Self {
        let wanted = capabilities_of(&config.hardening.keep_capabilities)
            .expect("the configuration was checked");
        let own = capabilities(None).map_or(CapabilitySet::empty(), |own| own.permitted);
        let keep = wanted & own;
        if keep != wanted {
            let missing = capability_names(wanted - keep);
            warn!(missing, "capabilities to keep that execd itself lacks");
        }
        let calls = Filter::new(&config.seccomp.deny);
        let (files, landlock) = if config.landlock.enabled {
            files(config, environment)
        } else {
            (None, layer(LayerState::Disabled, "landlock.enabled is off"))
        };
        let mut steps = Steps {
            keep,
            cut_bounding: true,
            no_new_privs: true,
            drop: true,
            files,
            calls: Some(Arc::new(calls)),
        };
        let mut tried = probe::probe(&steps);
        // Dropping may work if no capability has to be kept.
        if let Ok(Tried {
            drop: Err(error), ..
        }) = &tried
            && !keep.is_empty()
        {
            let names = capability_names(keep);
            warn!(names, %error, "no capabilities can be kept");
            steps.keep = CapabilitySet::empty();
            tried = probe::probe(&steps);
        }
        let (steps, mut layers) = steps.reduced(tried, landlock);
        if let Some(files) = steps.as_ref().and_then(|steps| steps.files.as_ref()) {
            environment.set_link_resolver(Arc::clone(files.links()));
        }
        layers.report_unknown_calls(&seccomp::unknown(&config.seccomp.deny));
        info!(?layers, "hardening is on");
        Self {
            layers,
            steps,
            ..Self::default()
        }
    }

    /// Whether the user's processes have fewer rights than the daemon.
    pub(crate) fn is_in_force(&self) -> bool {
        self.steps.is_some()
    }

    /// Active layers that may explain why a process did not start.
    pub(crate) fn hint(&self, error: &io::Error) -> Option<&'static str> {
        let steps = self.steps.as_ref()?;
        let rights_hold = steps.drop && !steps.keep.contains(CapabilitySet::DAC_OVERRIDE);
        match Errno::from_io_error(error)? {
            Errno::ACCESS => match (steps.files.is_some(), rights_hold) {
                (true, true) => Some(
                    "hardening is active: commands may execute only files that [landlock] allows \
                     (landlock.extra_readable adds paths), and file permissions apply to root too",
                ),
                (true, false) => Some(
                    "hardening is active: commands may execute only files that [landlock] allows \
                     (landlock.extra_readable adds paths)",
                ),
                (false, true) => Some(
                    "hardening is active: commands lack the capability DAC_OVERRIDE, so file \
                     permissions apply to root too",
                ),
                (false, false) => None,
            },
            Errno::PERM => match (steps.drop, steps.calls.is_some()) {
                (true, true) => Some(
                    "hardening is active: commands have only the capabilities of \
                     hardening.keep_capabilities, and the system calls of seccomp.deny are denied",
                ),
                (true, false) => Some(
                    "hardening is active: commands have only the capabilities of \
                     hardening.keep_capabilities",
                ),
                (false, true) => {
                    Some("hardening is active: the system calls of seccomp.deny are denied")
                }
                (false, false) => None,
            },
            _ => None,
        }
    }

    /// Places where processes with fewer rights than the daemon may write files of its user:
    /// isolated sessions, and with hardening all others.
    fn within_reach(&self) -> Vec<PathBuf> {
        let mut places = self.session_writable.clone();
        match self.steps.as_ref().map(|steps| &steps.files) {
            Some(Some(files)) => places.extend(files.links().writable()),
            Some(None) => places.push("/".into()),
            None => {}
        }
        places
    }

    /// State of each layer.
    pub(crate) fn layers(&self) -> &Layers {
        &self.layers
    }

    /// Applies the restrictions to a command of the user, and its identity if one is given.
    ///
    /// # Errors
    /// When the kernel has no room for the Landlock rules.
    pub(crate) fn prepare(
        &self,
        command: &mut Command,
        identity: Option<&Credentials>,
    ) -> io::Result<()> {
        match (&self.steps, identity) {
            (Some(steps), identity) => steps.prepare(command, identity),
            (None, Some(identity)) => {
                run_as(command, identity);
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }
}

/// Landlock policy, if the kernel supports Landlock.
fn files(config: &IsolationConfig, environment: &Arc<Environment>) -> (Option<Policy>, Layer) {
    let writable: Vec<PathBuf> = config
        .allowed_writable
        .iter()
        .chain(&config.landlock.extra_writable)
        .cloned()
        .collect();
    let policy = landlock::version().and_then(|version| {
        let readable = &config.landlock.extra_readable;
        let policy = Policy::new(version, readable, writable, Arc::clone(environment))?;
        Ok((version, policy))
    });
    match policy {
        Ok((version, policy)) if version >= landlock::COMPLETE => (Some(policy), ACTIVE),
        Ok((version, policy)) => {
            let why = format!(
                "the kernel has version {version} of Landlock, which does not restrict truncation"
            );
            (Some(policy), layer(LayerState::Degraded, why))
        }
        Err(error) => {
            use nix::libc::{ENOSYS, EOPNOTSUPP};
            let (state, why) = match error.raw_os_error() {
                Some(ENOSYS) => (LayerState::Unsupported, "the kernel has no Landlock".into()),
                Some(EOPNOTSUPP) => {
                    let why = "Landlock is disabled in the kernel";
                    (LayerState::Unsupported, why.to_owned())
                }
                _ => (LayerState::Degraded, format!("Landlock: {error}")),
            };
            (None, layer(state, why))
        }
    }
}

impl Steps {
    /// Keeps the steps that worked in the trial, and reports the state of each layer.
    fn reduced(mut self, tried: io::Result<Tried>, landlock: Layer) -> (Option<Self>, Layers) {
        let degraded = |why: String| layer(LayerState::Degraded, why);
        let report = |cap_drop, seccomp, landlock| Layers {
            cap_drop,
            seccomp: Some(seccomp),
            landlock,
            ..Layers::default()
        };
        let tried = match tried {
            Ok(tried) => tried,
            Err(error) => {
                let lost = || degraded(format!("the layers cannot be tried: {error}"));
                let landlock = match self.files {
                    Some(_) => lost(),
                    None => landlock,
                };
                return (None, report(lost(), lost(), landlock));
            }
        };
        self.cut_bounding = tried.cut_bounding.is_ok();
        self.no_new_privs = tried.no_new_privs.is_ok();
        self.drop = tried.drop.is_ok();
        let cap_drop = match (tried.drop, tried.no_new_privs, tried.cut_bounding) {
            (Ok(()), Ok(()), Ok(())) => ACTIVE,
            (Err(error), ..) => degraded(format!("capabilities cannot be given up: {error}")),
            (_, Err(error), _) => degraded(format!(
                "programs can bring capabilities back, since no_new_privs cannot be set: {error}"
            )),
            (_, _, Err(error)) => degraded(format!(
                "the bounding set cannot be cut, which takes the capability SETPCAP: {error}. The \
                 other sets are, and no program brings anything back"
            )),
        };
        let seccomp = match tried.calls {
            Ok(()) => ACTIVE,
            Err(error) => {
                self.calls = None;
                degraded(format!("the filter of system calls is refused: {error}"))
            }
        };
        let landlock = match tried.files {
            Err(error) if self.files.is_some() => {
                self.files = None;
                degraded(format!("Landlock is refused: {error}"))
            }
            _ => landlock,
        };
        (Some(self), report(cap_drop, seccomp, landlock))
    }

    fn prepare(&self, command: &mut Command, identity: Option<&Credentials>) -> io::Result<()> {
        let rules = self.files.as_ref().map(Policy::rules).transpose()?;
        let identity = identity.map(Identity::of);
        let calls = self.calls.clone();
        let (keep, cut_bounding) = (self.keep, self.cut_bounding);
        let (no_new_privs, drop) = (self.no_new_privs, self.drop);
        let stand = move || -> io::Result<()> {
            // Needs a capability that the next steps drop.
            if cut_bounding {
                capability::cut_bounding(keep)?;
            }
            if no_new_privs {
                set_no_new_privs(true)?;
            }
            if let Some(identity) = &identity {
                // Without this, leaving root's identity clears the capabilities.
                if !keep.is_empty() {
                    set_keep_capabilities(true)?;
                }
                identity.assume()?;
            }
            if drop {
                capability::reduce_to(keep)?;
            }
            if let Some(rules) = &rules {
                landlock::restrict(rules.as_fd())?;
            }
            // Last: the filter may refuse calls that the earlier steps need.
            calls.as_ref().map_or(Ok(()), |calls| calls.install())
        };
        #[expect(
            unsafe_code,
            reason = "rights can only be given up between fork and exec"
        )]
        // SAFETY: the closure makes raw system calls on memory prepared before the fork; it neither
        // allocates nor takes a lock. The child has a single thread after the fork, so per-thread
        // attributes apply to the whole process.
        unsafe {
            command.pre_exec(stand);
        }
        Ok(())
    }
}

impl Layers {
    /// Reports denied calls that this kernel does not know, because the filter then refuses less
    /// than the operator asked for.
    fn report_unknown_calls(&mut self, names: &[&str]) {
        if let Some(seccomp) = &mut self.seccomp
            && seccomp.state == LayerState::Active
            && !names.is_empty()
        {
            let names = names.join(", ");
            let why = format!("no system call here has these names of seccomp.deny: {names}");
            *seccomp = layer(LayerState::Degraded, why);
        }
    }

    fn warn(&self) {
        let layers = [
            ("cap_drop", Some(&self.cap_drop)),
            ("seccomp", self.seccomp.as_ref()),
            ("landlock", Some(&self.landlock)),
            ("ebpf", Some(&self.ebpf)),
        ];
        for (name, layer) in layers {
            if let Some(Layer { state, message }) = layer
                && matches!(state, LayerState::Degraded | LayerState::Unsupported)
            {
                let why = message.as_deref().unwrap_or_default();
                warn!(
                    layer = name,
                    why, "a layer of the hardening is incomplete or missing"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> Steps {
        Steps {
            keep: CapabilitySet::empty(),
            cut_bounding: true,
            no_new_privs: true,
            drop: true,
            files: None,
            calls: Some(Arc::new(Filter::new(&[]))),
        }
    }

    fn reduced(tried: io::Result<Tried>) -> (Option<Steps>, [LayerState; 3]) {
        let steps = steps();
        let off = layer(LayerState::Disabled, "off");
        let (steps, layers) = steps.reduced(tried, off);
        let seccomp = layers.seccomp.unwrap();
        let all = [layers.cap_drop, seccomp, layers.landlock];
        for layer in &all {
            assert_eq!(layer.message.is_none(), layer.state == LayerState::Active);
        }
        (steps, all.map(|layer| layer.state))
    }

    #[test]
    fn only_failed_layers_are_skipped() {
        use LayerState::{Active, Degraded, Disabled};
        let refused = || Err(Errno::PERM.into());
        let given_up = |cut_bounding, no_new_privs, drop, calls| {
            Ok(Tried {
                cut_bounding,
                no_new_privs,
                drop,
                files: Ok(()),
                calls,
            })
        };
        let tried = |cut_bounding, calls| given_up(cut_bounding, Ok(()), Ok(()), calls);
        let (steps, layers) = reduced(tried(Ok(()), Ok(())));
        let steps = steps.unwrap();
        assert!(steps.cut_bounding && steps.calls.is_some());
        assert_eq!(layers, [Active, Active, Disabled]);

        let (steps, layers) = reduced(tried(refused(), Ok(())));
        let steps = steps.unwrap();
        assert!(!steps.cut_bounding && steps.calls.is_some());
        assert_eq!(layers, [Degraded, Active, Disabled]);

        let (steps, layers) = reduced(tried(Ok(()), refused()));
        let steps = steps.unwrap();
        assert!(steps.cut_bounding && steps.calls.is_none());
        assert_eq!(layers, [Active, Degraded, Disabled]);

        let (steps, layers) = reduced(given_up(Ok(()), Ok(()), refused(), Ok(())));
        let steps = steps.unwrap();
        assert!(!steps.drop && steps.no_new_privs && steps.cut_bounding && steps.calls.is_some());
        assert_eq!(layers, [Degraded, Active, Disabled]);

        let (steps, layers) = reduced(given_up(Ok(()), refused(), Ok(()), Ok(())));
        let steps = steps.unwrap();
        assert!(steps.drop && !steps.no_new_privs && steps.calls.is_some());
        assert_eq!(layers, [Degraded, Active, Disabled]);

        let (steps, layers) = reduced(Err(Errno::PERM.into()));
        assert!(steps.is_none());
        assert_eq!(layers, [Degraded, Degraded, Disabled]);
    }

    #[test]
    fn a_hint_names_only_active_layers() {
        let hint = |errno: Errno, steps| {
            let hardening = ProcessHardening {
                steps: Some(steps),
                ..ProcessHardening::default()
            };
            hardening.hint(&errno.into()).unwrap_or_default()
        };
        let keeps = |keep| Steps { keep, ..steps() };
        let undropped = || Steps {
            drop: false,
            ..steps()
        };
        let unfiltered = |steps| Steps {
            calls: None,
            ..steps
        };
        let of_files = "file permissions";
        assert!(hint(Errno::ACCESS, steps()).contains(of_files));
        assert!(hint(Errno::ACCESS, keeps(CapabilitySet::NET_RAW)).contains(of_files));
        assert_eq!(hint(Errno::ACCESS, keeps(CapabilitySet::DAC_OVERRIDE)), "");
        assert_eq!(hint(Errno::ACCESS, undropped()), "");

        let in_force = |steps| {
            let hint = hint(Errno::PERM, steps);
            ["keep_capabilities", "seccomp.deny"].map(|name| hint.contains(name))
        };
        assert_eq!(in_force(steps()), [true, true]);
        assert_eq!(in_force(unfiltered(steps())), [true, false]);
        assert_eq!(in_force(undropped()), [false, true]);
        assert_eq!(in_force(unfiltered(undropped())), [false, false]);
        assert_eq!(hint(Errno::NOENT, steps()), "");
    }
}
