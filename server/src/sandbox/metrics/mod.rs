//! Resource use of sandboxes over time.
//!
//! One task samples all sandboxes each ten seconds, and those that a client watches each second. It
//! writes to the store each minute; what a sandbox used is kept after its end.

mod recent;
mod recording;
mod series;

pub use recent::{RECENT, RecentUse};

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use osb_protocol::{
    SandboxId, WireTime,
    lifecycle::{MetricsHistory, MetricsSample},
};
use osb_runtime::{Metering, Phase};
use osb_service::ErrorChain;
use tokio::sync::{Notify, broadcast, watch};
use tracing::warn;

use self::{
    recording::{COARSE_STEP, Covered, FINE_STEP, Recording},
    series::Sample,
};
use super::{Error, RuntimeHealth, Service, lifecycle::now};

/// Samples that a slow watcher may fall behind before it misses some.
const BEHIND: usize = 16;
/// Most rows that are written to the store at once: other writes wait meanwhile.
const ROWS: usize = 256;
/// Pause between samples of watched sandboxes.
const WATCHED_STEP: i64 = 1;

/// Length of the steps of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ten seconds, for an hour.
    TenSeconds,
    /// A minute, for a day.
    Minute,
}

impl Step {
    /// The step of this many seconds.
    #[must_use]
    pub fn of_seconds(seconds: usize) -> Option<Self> {
        match i64::try_from(seconds).ok()? {
            FINE_STEP => Some(Self::TenSeconds),
            COARSE_STEP => Some(Self::Minute),
            _ => None,
        }
    }

    fn seconds(self) -> i64 {
        match self {
            Self::TenSeconds => FINE_STEP,
            Self::Minute => COARSE_STEP,
        }
    }
}

/// Recordings and watchers of all sandboxes.
#[derive(Debug)]
pub(super) struct Metrics {
    recordings: Mutex<HashMap<SandboxId, Recording>>,
    watched: Mutex<HashMap<SandboxId, broadcast::Sender<MetricsSample>>>,
    /// A watcher came.
    watcher_came: Notify,
    /// When this process started: sandboxes from before may have a stored recording.
    started: WireTime,
    /// The ten seconds in which all sandboxes were sampled last.
    last_full: AtomicI64,
    /// The same, once their samples are recorded.
    sampled: watch::Sender<i64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            recordings: Mutex::default(),
            watched: Mutex::default(),
            watcher_came: Notify::new(),
            started: now(),
            last_full: AtomicI64::new(0),
            sampled: watch::Sender::new(0),
        }
    }
}

impl Metrics {
    fn recordings(&self) -> MutexGuard<'_, HashMap<SandboxId, Recording>> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        let locked = self.recordings.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<SandboxId, broadcast::Sender<MetricsSample>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a client watches a sandbox.
    fn has_watchers(&self) -> bool {
        !self.watched().is_empty()
    }

    /// The sandboxes that are watched. Others are forgotten, which ends the streams of those that no
    /// longer exist.
    fn watched_ids(&self, exists: impl Fn(&SandboxId) -> bool) -> HashSet<SandboxId> {
        let mut watched = self.watched();
        watched.retain(|id, samples| samples.receiver_count() > 0 && exists(id));
        watched.keys().cloned().collect()
    }
}

/// A sandbox to sample.
struct Target {
    id: SandboxId,
    /// When its container was started, in Unix microseconds, if that is known.
    started_us: Option<i64>,
    /// Whether an earlier process may have recorded it.
    is_old: bool,
}

/// Samples until the server stops.
pub(super) fn start(service: Service) {
    if !service.has_metrics() {
        return;
    }
    let tasks = service.inner.tasks.clone();
    tasks.clone().spawn("metrics", async move {
        let metrics = &service.inner.metrics;
        let (mut minute, mut hour) = (seconds(now()).div_euclid(COARSE_STEP), 0);
        loop {
            tokio::select! {
                () = tasks.stopping().cancelled() => break,
                () = tokio::time::sleep(until_next(metrics.has_watchers())) => {}
                () = metrics.watcher_came.notified() => continue,
            }
            if service.inner.store.is_used_by_another() {
                // The other server samples them. Streams end: clients ask again, and reach that one.
                metrics.watched().clear();
                continue;
            }
            service.sample().await;
            let this_minute = seconds(now()).div_euclid(COARSE_STEP);
            if this_minute != minute {
                minute = this_minute;
                service.store_metrics().await;
            }
            if minute.div_euclid(60) != hour {
                hour = minute.div_euclid(60);
                service.prune_metrics().await;
            }
        }
        if !service.inner.store.is_used_by_another() {
            service.store_metrics().await;
        }
    });
}

/// Whether sandboxes in this phase are sampled.
fn is_sampled(phase: Phase) -> bool {
    matches!(phase, Phase::Running | Phase::Paused)
}

/// Time until the next sample. Samples are aligned to their steps.
fn until_next(watched: bool) -> Duration {
    let step = match watched {
        true => WATCHED_STEP,
        false => FINE_STEP,
    };
    let step_us = step * 1_000_000;
    let rest = step_us - now().unix_us().rem_euclid(step_us);
    Duration::from_micros(u64::try_from(rest).unwrap_or_default())
}

fn seconds(at: WireTime) -> i64 {
    at.unix_ms().div_euclid(1000)
}

impl Service {
    /// Whether resource use is recorded.
    #[must_use]
    pub fn has_metrics(&self) -> bool {
        self.inner.limits.metrics && self.inner.runtime.metering().is_some()
    }

    /// The recorded use of a sandbox, also of one that is gone.
    ///
    /// # Errors
    /// [`Error::NotFound`] when nothing is known of it; when the store fails.
    pub async fn metrics(&self, id: &SandboxId, step: Step) -> Result<MetricsHistory, Error> {
        self.require_within(id).await?;
        let present = {
            let recordings = self.inner.metrics.recordings();
            let recording = recordings.get(id);
            recording.map(|recording| recording.samples(step.seconds()))
        };
        let (start, samples) = match present {
            Some(samples) => samples,
            None => {
                let stored = self.inner.store.metrics(id).await?;
                if stored.is_empty() {
                    self.known(id)?;
                }
                Recording::restore(&stored).samples(step.seconds())
            }
        };
        Ok(history(id, step, start, &samples))
    }

    /// Cores and bytes of memory that these sandboxes used together when they were sampled last.
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    pub(super) fn used_now(&self, ids: &[SandboxId]) -> (f64, f64) {
        let recordings = self.inner.metrics.recordings();
        let latest = ids
            .iter()
            .filter_map(|id| Some(recordings.get(id)?.latest()));
        latest.fold((0.0, 0.0), |(cores, memory), sample| {
            let used = sample.memory_bytes.unwrap_or_default() as f64;
            (cores + sample.cpu_cores.unwrap_or_default(), memory + used)
        })
    }

    /// Receives a sample of a sandbox each second, until the receiver is dropped.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn watch_metrics(
        &self,
        id: &SandboxId,
    ) -> Result<broadcast::Receiver<MetricsSample>, Error> {
        self.get(id)?;
        let metrics = &self.inner.metrics;
        let receiver = {
            let mut watched = metrics.watched();
            let samples = watched.entry(id.clone());
            let samples = samples.or_insert_with(|| broadcast::Sender::new(BEHIND));
            samples.subscribe()
        };
        metrics.watcher_came.notify_one();
        Ok(receiver)
    }

    /// Samples the sandboxes whose turn it is.
    async fn sample(&self) {
        let metrics = &self.inner.metrics;
        let Some(metering) = self.inner.runtime.metering() else {
            return;
        };
        // Without the engine a sandbox that is read as ended may not have ended.
        let registry = &self.inner.registry;
        if registry.health() != RuntimeHealth::Up {
            return;
        }
        let watched = metrics.watched_ids(|id| registry.get(id).is_some());
        let slot = seconds(now()).div_euclid(FINE_STEP);
        let is_full = metrics.last_full.swap(slot, Ordering::Relaxed) != slot;
        let mut targets = self.targets(|id| is_full || watched.contains(id));
        if targets.is_empty() {
            if is_full {
                // The last ones may have ended: clients show nothing of them any more.
                metrics.sampled.send_replace(slot);
            }
            return;
        }
        let failed = self.load_recordings(&targets).await;
        targets.retain(|target| !failed.contains(&target.id));
        let ids: Vec<SandboxId> = targets.iter().map(|target| target.id.clone()).collect();
        let usages = read(metering, &ids).await;
        let at = now();
        let mut recordings = metrics.recordings();
        let watchers = metrics.watched();
        for (target, usage) in targets.iter().zip(usages) {
            let Some(usage) = usage else {
                continue;
            };
            let recording = recordings.entry(target.id.clone());
            let recording = recording.or_insert_with(Recording::new);
            let sample = recording.add(at.unix_us(), usage, target.started_us);
            if let Some(watchers) = watchers.get(&target.id) {
                // The last one may have gone.
                let _ = watchers.send(on_wire(at, &sample));
            }
        }
        drop((recordings, watchers));
        if is_full {
            metrics.sampled.send_replace(slot);
        }
    }

    fn targets(&self, wanted: impl Fn(&SandboxId) -> bool) -> Vec<Target> {
        let started = self.inner.metrics.started;
        let (records, _) = self.inner.registry.snapshot();
        let targets = records.iter().filter_map(|record| {
            let facts = &record.facts;
            let (phase, since) = facts.phase?;
            (is_sampled(phase) && wanted(&facts.origin.id)).then(|| Target {
                id: facts.origin.id.clone(),
                started_us: (phase == Phase::Running).then(|| since.unix_us()),
                is_old: facts.origin.created_at < started,
            })
        });
        targets.collect()
    }

    /// Restores what an earlier process recorded. Returns the sandboxes of which it could not be read:
    /// a new recording would replace what is stored, so they are sampled when it can.
    async fn load_recordings(&self, targets: &[Target]) -> HashSet<SandboxId> {
        let mut unknown: VecDeque<&SandboxId> = {
            let recordings = self.inner.metrics.recordings();
            let unknown = targets.iter().filter(|target| {
                let is_known = recordings.contains_key(&target.id);
                target.is_old && !is_known
            });
            unknown.map(|target| &target.id).collect()
        };
        while let Some(id) = unknown.pop_front() {
            match self.inner.store.metrics(id).await {
                Ok(stored) => {
                    let mut recording = Recording::restore(&stored);
                    recording.settle(now().unix_us());
                    let mut recordings = self.inner.metrics.recordings();
                    recordings.insert(id.clone(), recording);
                }
                Err(error) => {
                    warn!(sandbox = %id, error = %ErrorChain(&error), "its earlier metrics are not restored yet");
                    unknown.push_front(id);
                    break;
                }
            }
        }
        unknown.into_iter().cloned().collect()
    }

    /// Deletes what is stored of sandboxes that ended long enough ago.
    async fn prune_metrics(&self) {
        let before = seconds(now()) - self.inner.limits.history_seconds;
        let (records, _) = self.inner.registry.snapshot();
        let alive = records.iter().map(|record| record.facts.origin.id.clone());
        let alive: Vec<SandboxId> = alive.collect();
        if let Err(error) = self.inner.store.prune_metrics(before, &alive).await {
            warn!(error = %ErrorChain(&error), "old metrics stay");
        }
    }

    /// Writes what is not stored yet, and forgets the sandboxes that are gone.
    async fn store_metrics(&self) {
        let at = now();
        let mut rows = Vec::new();
        let covered: Vec<(SandboxId, bool, Covered)> = {
            let mut recordings = self.inner.metrics.recordings();
            let each = recordings.iter_mut().map(|(id, recording)| {
                recording.settle(at.unix_us());
                let has_ended = self.inner.registry.get(id).is_none();
                let covered = recording.stretches(id, seconds(at), has_ended, &mut rows);
                (id.clone(), has_ended, covered)
            });
            each.collect()
        };
        // Neighbours in the index are written together, which saves a sixth of what SQLite writes.
        rows.sort_unstable_by(|a, b| a.id.as_str().cmp(b.id.as_str()));
        for part in rows.chunks(ROWS) {
            if let Err(error) = self.inner.store.put_metrics(part).await {
                // They stay in memory and are written next time.
                warn!(error = %ErrorChain(&error), "metrics are not stored");
                return;
            }
        }
        let mut recordings = self.inner.metrics.recordings();
        for (id, has_ended, covered) in covered {
            if has_ended {
                recordings.remove(&id);
            } else if let Some(recording) = recordings.get_mut(&id) {
                recording.set_stored(covered);
            }
        }
    }
}

/// Reads the use of sandboxes; a back end that gives too few numbers has none for the rest.
async fn read(metering: &dyn Metering, ids: &[SandboxId]) -> Vec<Option<osb_runtime::Usage>> {
    let mut usages = metering.read_usage(ids).await;
    usages.resize(ids.len(), None);
    usages
}

fn history(id: &SandboxId, step: Step, start: i64, samples: &[Sample]) -> MetricsHistory {
    let start = WireTime::from_unix_ms(start * 1000).filter(|_| !samples.is_empty());
    let whole = |number: fn(&Sample) -> Option<u64>| samples.iter().map(number).collect();
    MetricsHistory {
        sandbox_id: id.clone(),
        step_seconds: u32::try_from(step.seconds()).unwrap_or_default(),
        start,
        cpu_cores: samples.iter().map(|sample| sample.cpu_cores).collect(),
        memory_bytes: whole(|sample| sample.memory_bytes),
        processes: whole(|sample| sample.processes),
        network_received_bytes_per_second: whole(|sample| sample.received),
        network_sent_bytes_per_second: whole(|sample| sample.sent),
        disk_read_bytes_per_second: whole(|sample| sample.read),
        disk_written_bytes_per_second: whole(|sample| sample.written),
    }
}

fn on_wire(at: WireTime, sample: &Sample) -> MetricsSample {
    MetricsSample {
        at,
        cpu_cores: sample.cpu_cores,
        memory_bytes: sample.memory_bytes,
        processes: sample.processes,
        network_received_bytes_per_second: sample.received,
        network_sent_bytes_per_second: sample.sent,
        disk_read_bytes_per_second: sample.read,
        disk_written_bytes_per_second: sample.written,
    }
}
