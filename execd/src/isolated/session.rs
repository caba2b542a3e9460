//! Isolated session, from its start to its removal.
//!
//! ```text
//!           ┌────────────── commit, discard ──────────────┐
//!           ▼                                             │
//!   start ─▶ up ─┬─ deleted, idle too long, shutdown ─▶ removed
//!                └─ its init ended by itself ─────────▶ removed
//! ```
//!
//! A single task makes these transitions; a request to delete notifies it and waits. The shell's
//! state is kept here and not in the session's processes, so it survives them.

use std::{
    collections::HashMap,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use osb_protocol::execd::isolated::{IsolatedSession, IsolatedSessionEntry, IsolatedStatus};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    link::{Link, StartError},
    plan::{self, Mode, Plan},
    record::Background,
    request::{Kind, Overlay, SessionSpec},
    shell,
    upper::{Owner, Slot, Upper},
};
use crate::{
    base::Base,
    env::Variables,
    limits,
    view::{Part, View},
};

/// Isolated session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) created_at: Timestamp,
    pub(super) wanted: SessionSpec,
    /// Variables of its first run.
    pub(super) variables: Variables,
    /// Held by the current foreground run, and by operations that must not overlap one.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// Cancelled to end the session.
    pub(super) deleted: CancellationToken,
    /// Background runs by id.
    pub(super) runs: Mutex<HashMap<String, Arc<Background>>>,
    upper: Option<Upper>,
    deny: Vec<String>,
    upper_root: PathBuf,
    outside: (u32, u32),
    link: watch::Sender<LinkState>,
    removed: watch::Sender<bool>,
    /// Shell state after the last completed run.
    state: Mutex<Option<Arc<File>>>,
    activity: Mutex<Activity>,
    changed: Notify,
}

/// Whether the session's processes run.
#[derive(Clone, Debug)]
enum LinkState {
    Yes(Arc<Link>),
    /// New processes are about to replace them.
    Soon,
    No,
}

#[derive(Debug)]
struct Activity {
    /// Active and waiting runs of both types.
    busy: usize,
    since: Instant,
    last_run_at: Timestamp,
}

/// Guard that keeps a session from expiring.
#[derive(Debug)]
pub(super) struct Busy(Arc<Session>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut activity = self.0.activity();
        activity.busy -= 1;
        activity.since = Instant::now();
        activity.last_run_at = Timestamp::now();
        drop(activity);
        self.0.changed.notify_one();
    }
}

/// Context for the start of a session, besides the request.
#[derive(Debug)]
pub(super) struct StartContext {
    pub(super) variables: Variables,
    pub(super) deny: Vec<String>,
    pub(super) upper_root: PathBuf,
    pub(super) outside: (u32, u32),
}

impl Session {
    /// Starts a session. Removes its directories if that fails.
    pub(super) async fn start(
        base: &Base,
        wanted: SessionSpec,
        making: StartContext,
    ) -> Result<Arc<Self>, StartError> {
        let persistent = |kind: &Kind| matches!(kind, Kind::Overlay { persist: true });
        let upper = wanted
            .overlays
            .iter()
            .any(|overlay| persistent(&overlay.kind))
            .then(|| Upper::new(&making.upper_root))
            .transpose()?;
        let created_at = Timestamp::now();
        let session = Self {
            id: uuid::Uuid::new_v4().to_string(),
            created_at,
            wanted,
            variables: making.variables,
            turn: tokio::sync::Mutex::default(),
            deleted: CancellationToken::new(),
            runs: Mutex::default(),
            upper,
            deny: making.deny,
            upper_root: making.upper_root,
            outside: making.outside,
            link: watch::Sender::new(LinkState::Soon),
            removed: watch::Sender::new(false),
            state: Mutex::default(),
            activity: Mutex::new(Activity {
                busy: 0,
                since: Instant::now(),
                last_run_at: created_at,
            }),
            changed: Notify::new(),
        };
        match session.connect(base).await {
            Ok(()) => Ok(Arc::new(session)),
            Err(error) => {
                session.remove_upper();
                Err(error)
            }
        }
    }

    /// Creates the namespaces and the processes in them.
    async fn connect(&self, base: &Base) -> Result<(), StartError> {
        let owner = Owner {
            uid: self.wanted.uid,
            gid: self.wanted.gid,
            userns: self.wanted.userns,
        };
        for (overlay, slot) in self.slots() {
            slot.prepare(&overlay.real, owner)?;
        }
        let link = Link::start(base, &self.plan()).await?;
        self.link.send_replace(LinkState::Yes(Arc::new(link)));
        Ok(())
    }

    fn plan(&self) -> Plan {
        let wanted = &self.wanted;
        let mut slots = self.slots().into_iter();
        let overlays = wanted.overlays.iter().map(|overlay| plan::Overlay {
            path: overlay.real.clone(),
            asked: overlay.path.clone(),
            mode: match overlay.kind {
                Kind::Writable => Mode::Writable,
                Kind::ReadOnly => Mode::ReadOnly,
                Kind::Overlay { persist: false } => Mode::InMemory,
                Kind::Overlay { persist: true } => {
                    let (_, slot) = slots.next().expect("every persistent overlay has one");
                    Mode::OnDisk {
                        upper: slot.upper,
                        work: slot.work,
                    }
                }
            },
        });
        let mut overlays: Vec<_> = overlays.collect();
        // A nested overlay must be mounted after its parent.
        overlays.sort_by_key(|overlay| overlay.path.components().count());
        Plan {
            overlays,
            binds: wanted.binds.clone(),
            own_tmp: wanted.strict,
            share_net: wanted.share_net,
            upper_root: Some(self.upper_root.clone()),
            uid: wanted.uid,
            gid: wanted.gid,
            userns: wanted.userns,
            outside: self.outside,
            deny: self.deny.clone(),
            processes: limits::ISOLATED_PROCESSES,
        }
    }

    /// Persistent overlays with their directories, in the order of the request.
    pub(super) fn slots(&self) -> Vec<(Overlay, Slot)> {
        let Some(upper) = &self.upper else {
            return Vec::new();
        };
        let persistent = self
            .wanted
            .overlays
            .iter()
            .filter(|overlay| overlay.kind == Kind::Overlay { persist: true });
        persistent
            .enumerate()
            .map(|(index, overlay)| (overlay.clone(), upper.slot(index)))
            .collect()
    }

    /// Disk usage of its directories in bytes.
    pub(super) fn upper_bytes(&self) -> u64 {
        self.upper.as_ref().map_or(0, Upper::bytes)
    }

    fn remove_upper(&self) {
        if let Some(Err(error)) = self.upper.as_ref().map(Upper::remove) {
            warn!(id = self.id, %error, "the directories of a session were not removed");
        }
    }

    /// Connection to its init; waits during a replacement. `None` when the session has ended.
    pub(super) async fn link(&self) -> Option<Arc<Link>> {
        let mut link = self.link.subscribe();
        let up = link.wait_for(|up| !matches!(up, LinkState::Soon)).await;
        match &*up.ok()? {
            LinkState::Yes(link) if !self.deleted.is_cancelled() => Some(Arc::clone(link)),
            _ => None,
        }
    }

    /// Ends all processes, runs an operation that must not overlap them, and starts new ones. Keeps
    /// the shell's state. The caller must hold the turn.
    ///
    /// # Errors
    /// When no new processes start; the session has then ended.
    pub(super) async fn between<T>(
        &self,
        base: &Base,
        work: impl AsyncFnOnce() -> T,
    ) -> Result<T, StartError> {
        let before = self.link.send_replace(LinkState::Soon);
        if let LinkState::Yes(link) = before
            && !link.end().await
        {
            self.link.send_replace(LinkState::No);
            return Err(StartError::Ended);
        }
        let done = work().await;
        match self.connect(base).await {
            Ok(()) => Ok(done),
            Err(error) => {
                self.link.send_replace(LinkState::No);
                Err(error)
            }
        }
    }

    /// State to restore for the next run, unless it is the first.
    pub(super) fn state(&self) -> Option<Arc<File>> {
        self.state
            .lock()
            .expect("no holder of this lock panics")
            .clone()
    }

    /// Saves the state that a run left, if it is complete.
    pub(super) fn adopt(&self, state: File) {
        match is_complete(&state) {
            Ok(true) => {
                let mut current = self.state.lock().expect("no holder of this lock panics");
                *current = Some(Arc::new(state));
            }
            Ok(false) => {}
            Err(error) => warn!(id = self.id, %error, "the state of a shell is lost"),
        }
    }

    fn activity(&self) -> std::sync::MutexGuard<'_, Activity> {
        self.activity.lock().expect("no holder of this lock panics")
    }

    /// Keeps the session from expiring until the result is dropped.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.activity().busy += 1;
        self.changed.notify_one();
        Busy(Arc::clone(self))
    }

    /// Whether a background run is active.
    pub(super) fn background_active(&self) -> bool {
        let runs = self.runs.lock().expect("no holder of this lock panics");
        runs.values().any(|run| run.is_running())
    }

    /// Time until it expires, if it does; the full timeout while it is busy.
    fn idle_remaining(&self) -> Option<Duration> {
        let timeout = self.wanted.idle?;
        let activity = self.activity();
        Some(match activity.busy {
            0 => timeout.saturating_sub(activity.since.elapsed()),
            _ => timeout,
        })
    }

    /// Waits until the session has been unused for its timeout; for ever without a timeout.
    async fn idle(&self) {
        let Some(timeout) = self.wanted.idle else {
            return std::future::pending().await;
        };
        loop {
            let (busy, due) = {
                let activity = self.activity();
                (activity.busy > 0, activity.since.checked_add(timeout))
            };
            let deadline = async {
                match due.filter(|_| !busy) {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = deadline => return,
                () = self.changed.notified() => {}
            }
        }
    }

    /// Waits until its processes have ended on their own.
    async fn died(&self) {
        let mut link = self.link.subscribe();
        loop {
            let up = link.borrow_and_update().clone();
            match up {
                LinkState::No => return,
                LinkState::Yes(link_now) => tokio::select! {
                    () = link_now.ended() => {
                        // A planned replacement does not count.
                        if matches!(&*self.link.borrow(), LinkState::Yes(same) if Arc::ptr_eq(same, &link_now)) {
                            return;
                        }
                    }
                    _changed = link.changed() => continue,
                },
                LinkState::Soon => {}
            }
            let _changed = link.changed().await;
        }
    }

    /// Supervises the session from its start. `forget` removes it from the list.
    pub(super) async fn run_to_end(
        self: Arc<Self>,
        stopping: CancellationToken,
        forget: impl FnOnce(bool),
    ) {
        let by_itself = tokio::select! {
            () = self.deleted.cancelled() => false,
            () = stopping.cancelled() => false,
            () = self.idle() => {
                info!(id = self.id, "isolated session expired");
                false
            }
            () = self.died() => {
                warn!(id = self.id, "isolated session ended by itself");
                true
            }
        };
        self.deleted.cancel();
        // Waits for a replacement in progress: its processes must not start after the end.
        let up = {
            let mut link = self.link.subscribe();
            let up = link.wait_for(|up| !matches!(up, LinkState::Soon)).await;
            up.map_or(LinkState::No, |up| up.clone())
        };
        if let LinkState::Yes(link) = up {
            while !link.end().await {
                warn!(id = self.id, "an isolated session does not end");
            }
        }
        self.link.send_replace(LinkState::No);
        let this = Arc::clone(&self);
        let removed = tokio::task::spawn_blocking(move || this.remove_upper()).await;
        if let Err(error) = removed {
            warn!(id = self.id, %error, "removing a session's directories failed");
        }
        forget(by_itself);
        info!(id = self.id, "isolated session removed");
        self.removed.send_replace(true);
    }

    /// Ends the session and waits until no process is left. Returns whether that happened in time.
    pub(super) async fn end(&self) -> bool {
        self.deleted.cancel();
        let mut changes = self.removed.subscribe();
        let removed = changes.wait_for(|removed| *removed);
        tokio::time::timeout(limits::ISOLATED_END, removed)
            .await
            .is_ok()
    }

    fn status(&self) -> IsolatedStatus {
        if self.deleted.is_cancelled() {
            return IsolatedStatus::Destroyed;
        }
        match &*self.link.borrow() {
            LinkState::Yes(_) | LinkState::Soon => IsolatedStatus::Active,
            LinkState::No => IsolatedStatus::Dead,
        }
    }

    /// Session in its wire format.
    pub(super) fn to_wire(&self) -> IsolatedSession {
        let IsolatedSessionEntry {
            status,
            created_at,
            last_run_at,
            idle_remaining_seconds,
            ..
        } = self.entry();
        IsolatedSession {
            status,
            created_at,
            last_run_at,
            idle_remaining_seconds,
            made: self.wanted.echo.clone(),
        }
    }

    /// Entry for the list of sessions.
    pub(super) fn entry(&self) -> IsolatedSessionEntry {
        // Separate statements: both take the same lock, and a struct literal would hold it.
        let last_run_at = self.activity().last_run_at;
        let left = self.idle_remaining();
        IsolatedSessionEntry {
            session_id: self.id.clone(),
            status: self.status(),
            created_at: self.created_at,
            last_run_at,
            idle_remaining_seconds: left.map(|left| left.as_secs()),
        }
    }

    /// Paths that file requests may name.
    pub(super) fn view(&self, writes: bool, follows: bool) -> View {
        let part = |overlay: &Overlay| Part {
            path: overlay.path.clone(),
            real: overlay.real.clone(),
            readonly: overlay.kind == Kind::ReadOnly,
        };
        View {
            overlays: self.wanted.overlays.iter().map(part).collect(),
            writes,
            follows,
        }
    }
}

/// Whether a shell reported its complete state, within the size limit.
fn is_complete(state: &File) -> io::Result<bool> {
    let len = state.metadata()?.len();
    let mut end = [0; shell::COMPLETE.len()];
    let Some(at) = len
        .checked_sub(end.len() as u64)
        .filter(|_| len <= limits::ISOLATED_STATE)
    else {
        return Ok(false);
    };
    state.read_exact_at(&mut end, at)?;
    Ok(end == shell::COMPLETE.as_bytes())
}
