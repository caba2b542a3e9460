//! Removes images from registries that nothing has used for a time, if the operator wants that: so that
//! the disk of the host does not fill up with them.
//!
//! When an image was last used follows from the history of sandboxes, from when it got its name, and from
//! what this process has seen of it. One that is removed too early is pulled again by the next create.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use osb_protocol::WireTime;
use osb_runtime::{DiskSpace, Images, UnusedImage};
use osb_service::ErrorChain;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{Error, RuntimeHealth, Service, lifecycle::now};

/// Pause between two rounds.
const PERIOD: Duration = Duration::from_secs(600);

/// When images are removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageGcLimits {
    /// Time that an image is kept after its last use.
    pub unused: Duration,
    /// Images are removed while the disk is fuller than that, in percent; 0: always.
    pub disk_percent: u8,
    /// Full names of images that stay. A `*` at the end stands for any text.
    pub keep: Vec<String>,
    /// Whether the cache of builds is removed as well.
    pub build_cache: bool,
}

/// What this process knows of the images that nothing uses.
#[derive(Debug)]
pub(super) struct UnusedImages {
    started: Instant,
    /// Since when, by id; `None` since before the first round.
    since: Mutex<Option<HashMap<String, Option<Instant>>>>,
    removed: AtomicU64,
    removed_bytes: AtomicU64,
}

impl Default for UnusedImages {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            since: Mutex::default(),
            removed: AtomicU64::default(),
            removed_bytes: AtomicU64::default(),
        }
    }
}

impl UnusedImages {
    /// Notes all that nothing uses now, and keeps those of them that this process has not seen in use for
    /// a time.
    fn retain(&self, images: &mut Vec<UnusedImage>, at: Instant, unused: Duration) {
        let mut known = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let first = known.as_ref().map(|_| at);
        let former = known.take().unwrap_or_default();
        let since = |image: &UnusedImage| former.get(&image.id).copied().unwrap_or(first);
        let noted: HashMap<_, _> = images.iter().map(|it| (it.id.clone(), since(it))).collect();
        images.retain(|image| {
            let since = noted.get(&image.id).copied().flatten();
            since.is_none_or(|since| at.duration_since(since) >= unused)
        });
        *known = Some(noted);
    }
}

impl Service {
    /// How many images were removed, and how large they were in bytes. `None` if the operator does not want
    /// any to be removed.
    pub(crate) fn removed_images(&self) -> Option<(u64, u64)> {
        self.inner.limits.image_gc.as_ref()?;
        let images = &self.inner.unused_images;
        Some((
            images.removed.load(Relaxed),
            images.removed_bytes.load(Relaxed),
        ))
    }

    /// Removes the images that nothing has used for as long as the operator has set, those first that were
    /// not used for the longest time.
    ///
    /// # Errors
    /// When the store or the runtime does not answer.
    pub async fn collect_images(&self) -> Result<(), Error> {
        let (Some(limits), Some(runtime)) =
            (&self.inner.limits.image_gc, self.inner.runtime.images())
        else {
            return Ok(());
        };
        self.require_hold("remove images")?;
        let mut images = runtime.list_unused().await?;
        let state = &self.inner.unused_images;
        state.retain(&mut images, Instant::now(), limits.unused);
        let due = self.due_images(runtime, limits, images).await?;
        for image in due {
            if !self.is_disk_full(limits.disk_percent).await {
                return Ok(());
            }
            // A create may have begun to use it, or a pool to name it.
            let kept = self.kept_images(runtime, limits);
            if image.names.iter().any(|name| kept.contains(name)) {
                continue;
            }
            let name = image
                .names
                .first()
                .map_or(image.id.as_str(), String::as_str);
            match runtime.remove_unused(&image).await {
                Ok(true) => {
                    state.removed.fetch_add(1, Relaxed);
                    state.removed_bytes.fetch_add(image.bytes, Relaxed);
                    info!(
                        image = name,
                        bytes = image.bytes,
                        "removed an image that nothing uses"
                    );
                }
                Ok(false) => debug!(
                    image = name,
                    "an image is in use by now, others need it, or it is gone already"
                ),
                Err(error) => {
                    warn!(image = name, error = %ErrorChain(&error), "an image that nothing uses stays");
                }
            }
        }
        if limits.build_cache && self.is_disk_full(limits.disk_percent).await {
            match runtime.prune_build_cache(limits.unused).await {
                Ok(0) => {}
                Ok(bytes) => info!(bytes, "removed what builds have kept and not used"),
                Err(error) => {
                    warn!(error = %ErrorChain(&error), "what builds have kept is not removed, will retry");
                }
            }
        }
        Ok(())
    }

    /// Those that were last used long enough ago, in the order of that.
    async fn due_images(
        &self,
        runtime: &dyn Images,
        limits: &ImageGcLimits,
        images: Vec<UnusedImage>,
    ) -> Result<Vec<UnusedImage>, Error> {
        let mut uses: HashMap<String, WireTime> = HashMap::new();
        for (image, at) in self.inner.store.image_uses().await? {
            let last = uses.entry(runtime.full_name(&image)).or_insert(at);
            *last = at.max(*last);
        }
        let seconds = i64::try_from(limits.unused.as_secs()).unwrap_or(i64::MAX);
        let before = now().plus_seconds(-seconds);
        let has_run = self.inner.unused_images.started.elapsed() >= limits.unused;
        let last_use = |image: &UnusedImage| {
            let uses = image
                .names
                .iter()
                .filter_map(|name| uses.get(name).copied());
            uses.chain(image.named_at).max()
        };
        let due = images
            .into_iter()
            .filter_map(|image| match last_use(&image) {
                Some(at) => before
                    .is_some_and(|before| at < before)
                    .then_some((Some(at), image)),
                None => has_run.then_some((None, image)),
            });
        let mut due: Vec<_> = due.collect();
        due.sort_by_key(|(at, _)| *at);
        Ok(due.into_iter().map(|(_, image)| image).collect())
    }

    /// Which images stay although nothing uses them.
    fn kept_images(&self, runtime: &dyn Images, limits: &ImageGcLimits) -> Kept {
        let (records, _) = self.inner.registry.snapshot();
        let of_sandboxes = records.iter().map(|it| it.facts.origin.source.to_string());
        let of_pools = self.inner.pools.images();
        let mut kept = Kept::default();
        for name in of_sandboxes.chain(of_pools) {
            kept.names.insert(runtime.full_name(&name));
        }
        for entry in &limits.keep {
            match entry.strip_suffix('*') {
                Some(start) => kept.starts.push(start.to_owned()),
                None => drop(kept.names.insert(runtime.full_name(entry))),
            }
        }
        kept
    }

    /// Whether the disk is fuller than this. One whose size is not known is not.
    async fn is_disk_full(&self, percent: u8) -> bool {
        if percent == 0 {
            return true;
        }
        let host = self.host().await;
        let disk = host.and_then(|host| host.disk);
        disk.is_some_and(|disk| is_fuller(disk, percent))
    }
}

/// Images that stay.
#[derive(Debug, Default)]
struct Kept {
    names: HashSet<String>,
    /// Beginnings of names.
    starts: Vec<String>,
}

impl Kept {
    fn contains(&self, name: &str) -> bool {
        self.names.contains(name) || self.starts.iter().any(|start| name.starts_with(start))
    }
}

fn is_fuller(disk: DiskSpace, percent: u8) -> bool {
    let used = u128::from(disk.total.saturating_sub(disk.free));
    used * 100 > u128::from(disk.total) * u128::from(percent)
}

pub(super) fn start(service: Service) {
    let Some(limits) = service.inner.limits.image_gc.clone() else {
        return;
    };
    if service.inner.runtime.images().is_none() {
        let runtime = service.inner.runtime.kind();
        warn!(
            runtime,
            "image_gc has no effect: the runtime lists no images"
        );
        return;
    }
    let tasks = service.inner.tasks.clone();
    tasks.spawn_abortable("remove unused images", async move {
        let mut health = service.inner.registry.watch_health();
        let mut is_unknown = false;
        loop {
            let up = |health: &RuntimeHealth| *health == RuntimeHealth::Up;
            if health.wait_for(up).await.is_err() {
                return;
            }
            if limits.disk_percent > 0 {
                let host = service.host().await;
                let unknown = host.is_some_and(|host| host.disk.is_none());
                if unknown && !std::mem::replace(&mut is_unknown, unknown) {
                    warn!(
                        "images are not removed, because this server does not see the disk of the engine: set image_gc.disk_percent to 0 to remove them however full it is"
                    );
                }
            }
            if let Err(error) = service.collect_images().await {
                warn!(error = %ErrorChain(&error), "unused images are not removed, will retry");
            }
            tokio::time::sleep(PERIOD).await;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str) -> UnusedImage {
        UnusedImage {
            id: id.to_owned(),
            names: Vec::new(),
            bytes: 1,
            named_at: None,
        }
    }

    #[test]
    fn one_that_was_in_use_is_kept_for_a_time() {
        let (state, begun) = (UnusedImages::default(), Instant::now());
        let round = |ids: &[&str], seconds: u64| {
            let mut images: Vec<_> = ids.iter().map(|id| image(id)).collect();
            let at = begun + Duration::from_secs(seconds);
            state.retain(&mut images, at, Duration::from_secs(60));
            images.into_iter().map(|it| it.id).collect::<Vec<_>>()
        };
        assert_eq!(round(&["a"], 0), ["a"], "unused since before the start");
        assert_eq!(round(&["a", "b"], 10), ["a"], "b was in use");
        assert_eq!(round(&["b"], 20), [""; 0], "a is in use");
        assert_eq!(round(&["a", "b"], 69), [""; 0]);
        assert_eq!(round(&["a", "b"], 70), ["b"]);
        assert_eq!(round(&["a", "b"], 129), ["a", "b"]);
    }

    #[test]
    fn a_disk_is_fuller_than_a_part_of_it() {
        let disk = |free| DiskSpace { total: 200, free };
        assert!(is_fuller(disk(39), 80) && !is_fuller(disk(40), 80));
        assert!(!is_fuller(DiskSpace { total: 0, free: 0 }, 80));
    }
}
