//! What tabs follow together: one follower for each topic, started by the first tab and ended with the
//! last.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::extract::ws::Utf8Bytes;
use osb_app::{browser, live::Topic};
use osb_service::Supervisor;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::{
    commands, events, logs, metrics, overview,
    published::{Published, Source},
};
use crate::{identity::Scope, sandbox::Service};

/// Most topics followed at once. Each holds a few hundred KiB, and a connection to the engine.
const FOLLOWERS: usize = 256;
/// Most of them for users of one tenant, so that others find room.
const OF_TENANT: usize = 64;

/// The followers of all tabs.
pub(super) struct Followers {
    service: Service,
    tasks: Supervisor,
    open: Mutex<HashMap<Key, Open>>,
    /// Number of the next run: unlike the numbers of an earlier process.
    next_run: AtomicU64,
}

/// What is followed: a topic and, if its content differs between tenants, the tenant.
type Key = (Topic, Option<Arc<str>>);

struct Open {
    follower: Arc<dyn Source>,
    /// Tenant of the user who opened it first.
    tenant: Option<Arc<str>>,
    tabs: usize,
    stop: CancellationToken,
}

/// A tab's part in a follower, until it is dropped.
pub(super) struct Subscription {
    followers: Arc<Followers>,
    key: Key,
    source: Arc<dyn Source>,
    /// Messages after the last snapshot.
    pub(super) messages: broadcast::Receiver<Utf8Bytes>,
}

impl Subscription {
    /// The whole content, after the tab fell behind.
    pub(super) fn start_over(&mut self) -> Utf8Bytes {
        let (snapshot, messages) = self.source.subscribe();
        self.messages = messages;
        snapshot
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.followers.leave(&self.key);
    }
}

impl Followers {
    pub(super) fn new(service: Service, tasks: Supervisor) -> Arc<Self> {
        let first = u64::try_from(browser::now_ms()).unwrap_or_default();
        Arc::new(Self {
            service,
            tasks,
            open: Mutex::default(),
            next_run: AtomicU64::new(first),
        })
    }

    /// Joins the follower of a topic, which it starts if it is the first; with the first message. `None`
    /// for a topic without a follower, or when there are too many. The caller has checked that the tab
    /// may see the sandbox of the topic, if it has one.
    pub(super) fn join(
        self: &Arc<Self>,
        topic: &Topic,
        scope: &Scope,
    ) -> Option<(Utf8Bytes, Subscription)> {
        let tenant = match topic {
            Topic::Overview => scope.tenant().map(Arc::from),
            _ => None,
        };
        let key = (topic.clone(), tenant);
        let mut open = self.open();
        let is_full = !has_room(&open, topic, scope);
        let follower = match open.get_mut(&key) {
            Some(follower) => follower,
            None if is_full => return None,
            None => {
                let follower = self.start(topic, scope)?;
                open.entry(key.clone()).or_insert(follower)
            }
        };
        follower.tabs += 1;
        let source = Arc::clone(&follower.follower);
        drop(open);
        let (snapshot, messages) = source.subscribe();
        let subscription = Subscription {
            followers: Arc::clone(self),
            key,
            source,
            messages,
        };
        Some((snapshot, subscription))
    }

    fn start(&self, topic: &Topic, scope: &Scope) -> Option<Open> {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let follower: Arc<dyn Source> = match topic {
            Topic::Logs(id) => {
                let run = self.next_run.fetch_add(1, Ordering::Relaxed);
                let log = Arc::new(Published::new(topic.clone(), logs::Log::new(run)));
                let follow = logs::follow(self.service.clone(), id.clone(), Arc::clone(&log));
                self.tasks.spawn_abortable("console-log", async move {
                    stopped.run_until_cancelled(follow).await;
                });
                log
            }
            Topic::Metrics(id) => {
                let samples = Arc::new(Published::new(topic.clone(), metrics::Recent::default()));
                let follow =
                    metrics::follow(self.service.clone(), id.clone(), Arc::clone(&samples));
                self.tasks.spawn_abortable("console-metrics", async move {
                    stopped.run_until_cancelled(follow).await;
                });
                samples
            }
            Topic::Commands(id) => {
                let recent = Arc::new(Published::new(topic.clone(), commands::Recent::default()));
                let follow =
                    commands::follow(self.service.clone(), id.clone(), Arc::clone(&recent));
                self.tasks.spawn_abortable("console-commands", async move {
                    stopped.run_until_cancelled(follow).await;
                });
                recent
            }
            Topic::Overview => {
                let first = overview::Numbers::default();
                let numbers = Arc::new(Published::new(topic.clone(), first));
                let follow = overview::follow(self.service.within(scope), Arc::clone(&numbers));
                self.tasks.spawn_abortable("console-overview", async move {
                    stopped.run_until_cancelled(follow).await;
                });
                numbers
            }
            Topic::Events => {
                let trail = self.service.audit_trail().watch_written();
                let first = events::Written(*trail.borrow());
                let written = Arc::new(Published::new(topic.clone(), first));
                let follow = events::follow(trail, Arc::clone(&written));
                self.tasks.spawn_abortable("console-events", async move {
                    stopped.run_until_cancelled(follow).await;
                });
                written
            }
            Topic::Sandboxes | Topic::Usage | Topic::Sandbox(_) => return None,
        };
        Some(Open {
            follower,
            tenant: scope.tenant().map(Arc::from),
            tabs: 0,
            stop,
        })
    }

    fn leave(&self, key: &Key) {
        let mut open = self.open();
        let Some(follower) = open.get_mut(key) else {
            return;
        };
        follower.tabs -= 1;
        if follower.tabs == 0 {
            follower.stop.cancel();
            open.remove(key);
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Key, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Topics that are followed.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.open().len()
    }
}

/// Whether users of a scope may follow one more topic. What all tabs of a tenant share always has room.
fn has_room(open: &HashMap<Key, Open>, topic: &Topic, scope: &Scope) -> bool {
    if matches!(topic, Topic::Overview | Topic::Events) {
        return true;
    }
    let is_own = |other: &&Open| other.tenant.as_deref() == scope.tenant();
    let is_within = scope.tenant().is_none() || open.values().filter(is_own).count() < OF_TENANT;
    is_within && open.len() < FOLLOWERS
}
