//! One session, from its start to its removal.
//!
//! ```text
//!           ┌────────────── commit, discard ──────────────┐
//!           ▼                                             │
//!   start ─▶ up ─┬─ deleted, idle too long, shutdown ─▶ removed
//!                └─ its init ended by itself ─────────▶ removed
//! ```
//!
//! One task owns these transitions; whoever deletes asks it and waits. The state of the shell is
//! here and not in the session's processes, so it survives whatever happens to them.

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
    background::Background,
    link::{Link, StartError},
    plan::{self, Mode, Plan},
    request::{Kind, SessionSpec},
    shell,
    upper::{Owner, Slot, Upper},
};
use crate::{
    base::Base,
    env::Variables,
    limits,
    view::{Part, View},
};

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) created_at: Timestamp,
    pub(super) wanted: SessionSpec,
    /// What its first run begins with.
    pub(super) variables: Variables,
    /// Held by the foreground run under way, and by whatever must not meet one.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// Cancelled when the session shall end.
    pub(super) deleted: CancellationToken,
    /// Runs in the background, by their ids.
    pub(super) runs: Mutex<HashMap<String, Arc<Background>>>,
    upper: Option<Upper>,
    deny: Vec<String>,
    upper_root: PathBuf,
    outside: (u32, u32),
    link: watch::Sender<LinkState>,
    removed: watch::Sender<bool>,
    /// What the shell was when the last run came to its end.
    state: Mutex<Option<Arc<File>>>,
    activity: Mutex<Activity>,
    changed: Notify,
}

/// Whether a session's processes are there.
#[derive(Clone, Debug)]
enum LinkState {
    Yes(Arc<Link>),
    /// They are exchanged for new ones.
    Soon,
    No,
}

#[derive(Debug)]
struct Activity {
    /// Runs under way or waiting, of both kinds.
    busy: usize,
    since: Instant,
    last_run_at: Timestamp,
}

/// Keeps a session from expiring while it exists.
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

/// What a session is made with, besides the request.
#[derive(Debug)]
pub(super) struct StartContext {
    pub(super) variables: Variables,
    pub(super) deny: Vec<String>,
    pub(super) upper_root: PathBuf,
    pub(super) outside: (u32, u32),
}

impl Session {
    /// Starts a session. Its directories are gone again when that fails.
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

    /// Makes the namespaces and what runs in them.
    async fn connect(&self, base: &Base) -> Result<(), StartError> {
        let owner = Owner {
            uid: self.wanted.uid,
            gid: self.wanted.gid,
            userns: self.wanted.userns,
        };
        for (path, slot) in self.slots() {
            slot.prepare(&path, owner)?;
        }
        let link = Link::start(base, &self.plan()).await?;
        self.link.send_replace(LinkState::Yes(Arc::new(link)));
        Ok(())
    }

    fn plan(&self) -> Plan {
        let wanted = &self.wanted;
        let mut slots = self.slots().into_iter();
        let overlays = wanted.overlays.iter().map(|overlay| plan::Overlay {
            path: overlay.path.clone(),
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
        // A nested one must come after the one that it lies in.
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

    /// The persistent overlays with their directories, in the order of the request.
    pub(super) fn slots(&self) -> Vec<(PathBuf, Slot)> {
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
            .map(|(index, overlay)| (overlay.path.clone(), upper.slot(index)))
            .collect()
    }

    /// Bytes of its directories on the disk.
    pub(super) fn upper_bytes(&self) -> u64 {
        self.upper.as_ref().map_or(0, Upper::bytes)
    }

    fn remove_upper(&self) {
        if let Some(Err(error)) = self.upper.as_ref().map(Upper::remove) {
            warn!(id = self.id, %error, "the directories of a session were not removed");
        }
    }

    /// Its init; waits while it is exchanged. `None` when the session is over.
    pub(super) async fn link(&self) -> Option<Arc<Link>> {
        let mut link = self.link.subscribe();
        let up = link.wait_for(|up| !matches!(up, LinkState::Soon)).await;
        match &*up.ok()? {
            LinkState::Yes(link) if !self.deleted.is_cancelled() => Some(Arc::clone(link)),
            _ => None,
        }
    }

    /// Ends all processes, does something that must not meet them, and starts new ones. The state
    /// of the shell stays. To be called with the turn held.
    ///
    /// # Errors
    /// When there are no new ones; then the session is over.
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

    /// What the next run begins with, unless it is the first.
    pub(super) fn state(&self) -> Option<Arc<File>> {
        self.state
            .lock()
            .expect("no holder of this lock panics")
            .clone()
    }

    /// Takes over what a run left, if it left all of it.
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

    /// Whether nothing runs in it that was asked for.
    pub(super) fn background_active(&self) -> bool {
        let runs = self.runs.lock().expect("no holder of this lock panics");
        runs.values().any(|run| run.is_running())
    }

    /// Time until it expires, if it does; all of it while it is busy.
    fn idle_remaining(&self) -> Option<Duration> {
        let timeout = self.wanted.idle?;
        let activity = self.activity();
        Some(match activity.busy {
            0 => timeout.saturating_sub(activity.since.elapsed()),
            _ => timeout,
        })
    }

    /// Waits until nobody has used it for too long; for ever when it does not expire.
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

    /// Waits until its processes ended by themselves.
    async fn died(&self) {
        let mut link = self.link.subscribe();
        loop {
            let up = link.borrow_and_update().clone();
            match up {
                LinkState::No => return,
                LinkState::Yes(link_now) => tokio::select! {
                    () = link_now.ended() => {
                        // Unless they were ended to be exchanged.
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

    /// The life of a session, from its start on. `forget` takes it out of the list.
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
        // What is being exchanged is waited for: it must not appear after the end.
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

    /// Ends it, and waits until nothing of it is left. Says whether that was in time.
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

    /// As clients are told of it.
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

    /// As a list tells of it.
    pub(super) fn entry(&self) -> IsolatedSessionEntry {
        // In statements of their own: both take the same lock, and a literal would hold on to it.
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

    /// What requests for files may name.
    pub(super) fn view(&self, writes: bool, follows: bool) -> View {
        let part = |overlay: &super::request::Overlay| Part {
            path: overlay.path.clone(),
            readonly: overlay.kind == Kind::ReadOnly,
        };
        View {
            overlays: self.wanted.overlays.iter().map(part).collect(),
            writes,
            follows,
        }
    }
}

/// Whether a shell told all of its state, and no more than anybody could use.
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
