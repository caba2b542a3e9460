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

/// Templates that are made at once, of one tenant only one of them. Others wait in the order of their
/// acceptance.
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
    /// Of its tenant: the task that holds it works at its template.
    turn: Arc<Semaphore>,
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

    /// Notes that a template is being made.
    ///
    /// # Errors
    /// [`TemplateError::Busy`] and [`TemplateError::TenantBusy`] when others wait already.
    fn begin(self: Arc<Self>, row: &TemplateRow) -> Result<Making, TemplateError> {
        let log = Arc::<BuildLog>::default();
        let deleted = CancellationToken::new();
        let turn = {
            let mut under_way = self.locked();
            let own = under_way.values().filter(|it| it.tenant == row.tenant);
            let (count, turn) = (own.clone().count(), own.map(|it| &it.turn).next().cloned());
            if row.tenant.is_some() && count >= MOST_OF_TENANT {
                return Err(TemplateError::TenantBusy(count));
            }
            if under_way.len() >= MOST {
                return Err(TemplateError::Busy(under_way.len()));
            }
            let turn = turn.unwrap_or_else(|| {
                let places = if row.tenant.is_some() { 1 } else { PLACES };
                Arc::new(Semaphore::new(places))
            });
            let noted = UnderWay {
                tenant: row.tenant.clone(),
                turn: Arc::clone(&turn),
                log: Arc::clone(&log),
                deleted: deleted.clone(),
            };
            under_way.insert(row.id.clone(), noted);
            turn
        };
        Ok(Making {
            all: self,
            template: row.id.clone(),
            turn,
            log,
            deleted,
        })
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
    /// See [`UnderWay::turn`].
    turn: Arc<Semaphore>,
    log: Arc<BuildLog>,
    deleted: CancellationToken,
}

impl Making {
    /// Notes that a template is being made.
    ///
    /// # Errors
    /// [`TemplateError::Busy`] and [`TemplateError::TenantBusy`] when others wait already.
    pub(super) fn begin(service: &Service, row: &TemplateRow) -> Result<Self, TemplateError> {
        Arc::clone(&service.inner.makings).begin(row)
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
        // The turn comes first: a tenant does not keep a place while it waits for itself.
        let place = async {
            let turn = making.turn.acquire().await.ok()?;
            Some((turn, self.inner.makings.places.acquire().await.ok()?))
        };
        let place = tokio::select! {
            biased;
            () = making.deleted.cancelled() => return,
            () = stopping.cancelled() => return,
            place = place => place,
        };
        let Some(_place) = place else {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use osb_protocol::WireTime;

    use super::*;

    fn row(id: usize, tenant: Option<&str>) -> TemplateRow {
        let now = WireTime::from_unix_ms(0).unwrap();
        TemplateRow {
            id: id.to_string(),
            tenant: tenant.map(str::to_owned),
            owner: None,
            spec: "{}".to_owned(),
            metadata: BTreeMap::new(),
            phase: TemplatePhase::Pending,
            image: None,
            message: None,
            size_bytes: None,
            created_at: now,
            changed_at: now,
        }
    }

    #[test]
    fn one_template_of_a_tenant_is_made_at_a_time() {
        let all = Arc::<Makings>::default();
        let begin = |id, tenant| Arc::clone(&all).begin(&row(id, tenant)).unwrap();
        let (first, second) = (begin(1, Some("a")), begin(2, Some("a")));
        let (other, own) = (begin(3, Some("b")), [begin(4, None), begin(5, None)]);
        let turn = first.turn.try_acquire().unwrap();
        assert!(second.turn.try_acquire().is_err());
        assert!(other.turn.try_acquire().is_ok());
        // Those without a tenant are the operator's.
        let both = own.each_ref().map(|making| making.turn.try_acquire());
        assert!(both.iter().all(Result::is_ok), "{both:?}");
        drop(turn);
        drop(first);
        assert!(second.turn.try_acquire().is_ok());
    }

    #[test]
    fn what_waits_is_bounded_for_each_tenant_and_for_all() {
        let all = Arc::<Makings>::default();
        let begin = |id, tenant| Arc::clone(&all).begin(&row(id, tenant));
        let own: Vec<_> = (0..MOST_OF_TENANT).map(|id| begin(id, Some("a"))).collect();
        assert!(own.iter().all(Result::is_ok));
        assert!(matches!(
            begin(100, Some("a")).err(),
            Some(TemplateError::TenantBusy(MOST_OF_TENANT))
        ));
        let rest: Vec<_> = (MOST_OF_TENANT..MOST).map(|id| begin(id, None)).collect();
        assert!(rest.iter().all(Result::is_ok));
        assert!(matches!(
            begin(101, Some("b")).err(),
            Some(TemplateError::Busy(MOST))
        ));
        drop(own);
        assert!(begin(102, Some("a")).is_ok());
    }
}
