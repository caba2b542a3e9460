//! Capabilities of this sandbox (contract: execd A4.6), determined by a trial.

use std::path::Path;

use osb_protocol::execd::isolated::{
    Hardening, IsolationCapabilities, Layer, LayerState, RuntimeInitOrders,
};
use rustix::process::getpid;

use super::{
    Isolation,
    link::{Link, StartError},
    plan::{Mode, Overlay, Plan, Refusal},
};
use crate::{identity::Credentials, limits};

/// Directories of which most images have one. `/etc` is excluded: engines mount files in it, and a
/// user namespace cannot mount an overlay over a directory that contains mounts.
const PLACES: [&str; 4] = ["/usr", "/opt", "/home", "/srv"];

/// Availability of each session type, with the reason if it is unavailable.
#[derive(Clone, Debug)]
pub(super) struct Probed {
    pub(super) setpriv: Result<(), String>,
    pub(super) userns: Result<(), String>,
}

impl Probed {
    /// Whether any session type is available.
    pub(super) fn any(&self) -> bool {
        self.setpriv.is_ok() || self.userns.is_ok()
    }

    /// Reason why no session type is available.
    pub(super) fn why(&self) -> Option<String> {
        match (&self.setpriv, &self.userns) {
            (Err(setpriv), Err(userns)) if setpriv == userns => Some(setpriv.clone()),
            (Err(setpriv), Err(userns)) => Some(format!("setpriv: {setpriv}; userns: {userns}")),
            _ => None,
        }
    }
}

/// Tries both session types, once.
pub(super) async fn probe(isolation: &Isolation) -> &Probed {
    isolation
        .sessions
        .probed()
        .get_or_init(|| async {
            Probed {
                setpriv: attempt(isolation, false).await,
                userns: attempt(isolation, true).await,
            }
        })
        .await
}

async fn attempt(isolation: &Isolation, userns: bool) -> Result<(), String> {
    let own = Credentials::own();
    let config = isolation.sessions.config();
    let plan = Plan {
        overlays: PLACES
            .iter()
            .filter_map(|place| Path::new(place).canonicalize().ok())
            .find(|place| place.is_dir())
            .map(|place| Overlay {
                asked: place.clone(),
                path: place,
                mode: Mode::InMemory,
            })
            .into_iter()
            .collect(),
        binds: Vec::new(),
        own_tmp: true,
        share_net: true,
        upper_root: None,
        uid: own.uid,
        gid: own.gid,
        userns,
        outside: (own.uid, own.gid),
        deny: config.seccomp.deny.clone(),
        processes: limits::ISOLATED_PROCESSES,
    };
    match Link::start(&isolation.base, &plan).await {
        Ok(link) => {
            link.end().await;
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Capabilities in their wire format.
pub(super) async fn report(isolation: &Isolation) -> IsolationCapabilities {
    let probed = probe(isolation).await;
    let layer = |state, message: Option<&str>| Layer {
        state,
        message: message.map(str::to_owned),
    };
    let layers = isolation.base.processes.hardening().layers().clone();
    // Without hardening of commands, the sessions' filter is reported.
    let of_sessions = || {
        if probed.any() {
            layer(LayerState::Active, None)
        } else {
            layer(LayerState::Unsupported, Some("no sessions, no filter"))
        }
    };
    IsolationCapabilities {
        available: probed.any(),
        isolator: "execd".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        setpriv_available: probed.setpriv.is_ok(),
        userns_available: probed.userns.is_ok(),
        commit_supported: true,
        diff_supported: true,
        message: probed.why(),
        hardening: Hardening {
            init_mode: init_mode().to_owned(),
            signal_shield: false,
            cap_drop: layers.cap_drop,
            seccomp: layers.seccomp.unwrap_or_else(of_sessions),
            landlock: layers.landlock,
            ebpf: layers.ebpf,
        },
        runtime_init: Some(RuntimeInitOrders { version: 1 }),
    }
}

/// How orphans reach execd, if they do.
fn init_mode() -> &'static str {
    match rustix::process::child_subreaper() {
        _ if getpid().is_init() => "pid1",
        Ok(Some(_)) => "subreaper",
        _ => "none",
    }
}

/// Refusal category of an error.
pub(super) fn refusal(error: &StartError) -> Option<Refusal> {
    match error {
        StartError::Refused { why, .. } => Some(*why),
        StartError::Ended | StartError::System(_) => None,
    }
}
