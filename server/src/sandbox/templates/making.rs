//! Makes the images of templates (contract: lifecycle §A3).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use osb_protocol::lifecycle::TemplatePhase;
use osb_runtime::{Cause, Recipe, RuntimeError, StoredTemplate};
use osb_service::ErrorChain;
use osb_store::{TemplateChange, TemplateRow};
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info, warn};

use super::{build_log::BuildLog, transition};
use crate::{
    sandbox::{Error, Service, TemplateError, explain},
    trace,
};

/// Templates that are made at once. Others wait in the order of their acceptance.
const PLACES: usize = 2;
/// Templates that are accepted and not made, at most. The context of a build waits in memory.
const MOST: usize = 8;
/// Of these, templates of one tenant: others find room whatever it does.
const MOST_OF_TENANT: usize = MOST / 2;
/// Longest time that a pull may take. The engine waits for a registry as long as anything arrives, and
/// meanwhile no other template has the place.
const PULL_TIME: Duration = Duration::from_secs(2 * 3600);
/// Why a template failed that was being made when the server stopped.
const STOPPED: &str = "The server stopped before the template was made.";

/// The templates that this process makes.
#[derive(Debug)]
pub(in crate::sandbox) struct Makings {
    places: Semaphore,
    under_way: Mutex<HashMap<String, UnderWay>>,
}

/// A template that a task works at, or will.
#[derive(Debug)]
struct UnderWay {
    tenant: Option<String>,
    log: Arc<BuildLog>,
    /// Ends the work.
    deleted: CancellationToken,
}

impl Default for Makings {
    fn default() -> Self {
        Self {
            places: Semaphore::new(PLACES),
            under_way: Mutex::default(),
        }
    }
}

impl Makings {
    /// Whether a task of this process works at a template, or will.
    pub(super) fn contains(&self, template: &str) -> bool {
        self.locked().contains_key(template)
    }

    /// What the build of a template has written, while a task works at it.
    pub(super) fn log(&self, template: &str) -> Option<String> {
        let log = self.locked().get(template).map(|it| Arc::clone(&it.log));
        log.map(|log| log.text())
    }

    /// Ends the work at a template that is marked as deleted. Returns whether a task worked at it: then
    /// that task removes the template.
    pub(super) fn cancel(&self, template: &str) -> bool {
        let under_way = self.locked();
        let found = under_way.get(template);
        found.inspect(|it| it.deleted.cancel()).is_some()
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<String, UnderWay>> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A template that is being made, until dropped.
pub(super) struct Making {
    all: Arc<Makings>,
    template: String,
    log: Arc<BuildLog>,
    deleted: CancellationToken,
}

impl Making {
    /// Notes that a template is being made.
    ///
    /// # Errors
    /// [`TemplateError::Busy`] and [`TemplateError::TenantBusy`] when others wait already.
    pub(super) fn begin(service: &Service, row: &TemplateRow) -> Result<Self, TemplateError> {
        let all = Arc::clone(&service.inner.makings);
        let log = Arc::<BuildLog>::default();
        let deleted = CancellationToken::new();
        {
            let mut under_way = all.locked();
            if row.tenant.is_some() {
                let own = under_way.values().filter(|it| it.tenant == row.tenant);
                let own = own.count();
                if own >= MOST_OF_TENANT {
                    return Err(TemplateError::TenantBusy(own));
                }
            }
            if under_way.len() >= MOST {
                return Err(TemplateError::Busy(under_way.len()));
            }
            let noted = UnderWay {
                tenant: row.tenant.clone(),
                log: Arc::clone(&log),
                deleted: deleted.clone(),
            };
            under_way.insert(row.id.clone(), noted);
        }
        Ok(Self {
            all,
            template: row.id.clone(),
            log,
            deleted,
        })
    }

    /// Ends the work. Returns whether the template was deleted meanwhile: then the caller removes it. A
    /// later deletion finds no work, and removes the template itself.
    fn end(self) -> bool {
        self.all.locked().remove(&self.template);
        self.deleted.is_cancelled()
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.all.locked().remove(&self.template);
    }
}

/// How the work at a template ended.
enum End {
    Made(StoredTemplate),
    /// With a message for clients.
    Failed(String),
    /// What the runtime has decides, when it answers again.
    Unknown(RuntimeError),
}

impl Service {
    /// Starts the task that makes an accepted template.
    pub(super) fn start_making(&self, row: TemplateRow, recipe: Recipe, making: Making) {
        let service = self.clone();
        let span = trace::step("make a template");
        let work = async move {
            service.make_template(&row, recipe, &making).await;
            if making.end() {
                service.remove_unmade(&row.id).await;
            }
        };
        drop(self.inner.tasks.spawn("template", work.instrument(span)));
    }

    /// Makes a template and stores how that ended, unless it is deleted meanwhile. One that waits when
    /// the server stops, or whose end is not known or cannot be stored, is recovered.
    async fn make_template(&self, row: &TemplateRow, recipe: Recipe, making: &Making) {
        let stopping = self.inner.tasks.stopping();
        let place = tokio::select! {
            biased;
            () = making.deleted.cancelled() => return,
            () = stopping.cancelled() => return,
            place = self.inner.makings.places.acquire() => place,
        };
        let Ok(_place) = place else {
            return;
        };
        match self.begin_building(row).await {
            Ok(true) => {}
            // It was deleted.
            Ok(false) => return,
            Err(error) => {
                warn!(template = row.id, error = %ErrorChain(&error), "a template is not made");
                return;
            }
        }
        let end = tokio::select! {
            biased;
            // A build may take many minutes more. The runtime ends it when its request is dropped.
            () = making.deleted.cancelled() => return,
            () = stopping.cancelled() => End::Failed(STOPPED.to_owned()),
            end = self.run_making(row, &recipe, &making.log) => end,
        };
        let log = match recipe {
            Recipe::Build(_) => Some(making.log.text()),
            Recipe::Image(_) => None,
        };
        let change = match end {
            End::Made(stored) => TemplateChange {
                image: Some(stored.image),
                size_bytes: stored.size_bytes,
                log,
                ..transition(TemplatePhase::Succeeded)
            },
            End::Failed(message) => TemplateChange {
                message: Some(message),
                log,
                ..transition(TemplatePhase::Failed)
            },
            End::Unknown(error) => {
                warn!(
                    template = row.id, error = %ErrorChain(&error),
                    "whether the template was made is not known; it will be recovered"
                );
                return;
            }
        };
        if let Err(error) = self.end_making(row, &change).await {
            warn!(
                template = row.id, error = %ErrorChain(&error),
                "how a template ended is not stored; it will be recovered"
            );
        }
    }

    /// Returns whether the template may be made: not if it was deleted.
    async fn begin_building(&self, row: &TemplateRow) -> Result<bool, Error> {
        self.require_hold("make a template")?;
        let change = transition(TemplatePhase::Building);
        let store = &self.inner.store;
        Ok(store.change_template(&row.id, row.phase, &change).await?)
    }

    async fn run_making(&self, row: &TemplateRow, recipe: &Recipe, log: &BuildLog) -> End {
        let templates = match self.templates() {
            Ok(templates) => templates,
            Err(error) => return End::Failed(error.to_string()),
        };
        let write = |piece: &str| log.write(piece);
        let making = templates.make(&row.id, recipe, &write);
        let making = making.instrument(trace::step("runtime: make a template"));
        let (what, limit) = match recipe {
            Recipe::Image(_) => ("pull", PULL_TIME),
            Recipe::Build(_) => ("build", self.inner.limits.templates.build_time),
        };
        let Ok(made) = timeout(limit, making).await else {
            let seconds = limit.as_secs();
            return End::Failed(format!(
                "The {what} did not finish within {seconds} seconds."
            ));
        };
        match made {
            Ok(stored) => End::Made(stored),
            Err(error @ RuntimeError::Unavailable { .. }) => End::Unknown(error),
            Err(error) => {
                warn!(
                    template = row.id, error = %ErrorChain(&error),
                    "the template could not be made"
                );
                End::Failed(explain(error.to_string(), Cause::of(&error)))
            }
        }
    }

    /// Stores how the work at a template ended. If its row is gone, its image goes.
    async fn end_making(&self, row: &TemplateRow, change: &TemplateChange) -> Result<(), Error> {
        let store = &self.inner.store;
        let id = &row.id;
        let from = TemplatePhase::Building;
        if store.change_template(id, from, change).await? {
            info!(template = id, phase = %change.phase, "template made");
            return Ok(());
        }
        match store.template(id).await?.map(|row| row.phase) {
            None => Ok(self.templates()?.remove(id).await?),
            // A newer phase stays. One that is marked as deleted is removed after the work.
            Some(_) => Ok(()),
        }
    }

    /// Removes a template that was deleted while a task worked at it, with an image that was complete
    /// already. What cannot be removed now is recovered.
    async fn remove_unmade(&self, id: &str) {
        let removed = async {
            self.require_hold("delete a template")?;
            self.remove_marked_template(id).await
        };
        match removed.await {
            Ok(()) => info!(template = id, "template deleted while it was made"),
            Err(error) => warn!(
                template = id, error = %ErrorChain(&error),
                "a deleted template stays; it will be recovered"
            ),
        }
    }
}
