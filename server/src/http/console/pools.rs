//! Pools for the pages about them, over the service that the REST API calls too.

use std::sync::Arc;

use async_trait::async_trait;
use osb_app::{
    backend::{NewPool, PoolBackend},
    error::ConsoleError,
    view::{PoolDetail, PoolFailure, PoolNumbers, PoolRow},
};
use osb_protocol::{FieldError, lifecycle::PoolCapacity};

use super::{
    super::{audited::Noted, error::answer_to},
    ConsoleState,
    for_request::ForRequest,
    memory::Memory,
    refusal::refused,
    session::Admitted,
};
use crate::sandbox::{Error, PoolError, PoolOverview, Service};

/// [`PoolBackend`] for one request.
struct SandboxPools {
    service: Service,
    /// The act of the request.
    noted: Noted,
    /// What the request has read.
    memory: Memory,
}

impl ForRequest for Arc<dyn PoolBackend> {
    fn for_request(state: &ConsoleState, admitted: &Admitted, noted: Noted) -> Self {
        let service = state.domains.service.for_principal(admitted.principal());
        Arc::new(SandboxPools {
            service: service.noting(noted.0.clone()),
            noted,
            memory: Memory::of_request(),
        })
    }
}

impl SandboxPools {
    fn list(&self) -> Result<Vec<PoolRow>, ConsoleError> {
        let pools = self.service.pool_overviews().map_err(refused_pool)?;
        Ok(pools.into_iter().map(row).collect())
    }

    fn detail(&self, name: &str) -> Result<Option<PoolDetail>, ConsoleError> {
        let mut pool = match self.service.pool_overview(name) {
            Ok(pool) => pool,
            Err(Error::Pool(PoolError::NotFound(_))) => return Ok(None),
            Err(error) => return Err(refused_pool(error)),
        };
        let template = std::mem::take(&mut pool.template);
        Ok(Some(PoolDetail {
            entrypoint: template.entrypoint,
            resources: template.resources,
            variables: template.variables,
            revision: pool.revision.clone(),
            changed_at: pool.changed_at,
            wait_seconds: self.service.pool_acquisition().as_secs(),
            row: PoolRow {
                image: template.image,
                ..row(pool)
            },
        }))
    }

    /// Notes how an act ended. Forms are answered with a redirect in any case.
    fn settled<T>(&self, result: Result<T, Error>) -> Result<T, ConsoleError> {
        let codes = &self.service.vocabulary().codes;
        let failure = result.as_ref().err();
        self.noted
            .settle(failure.map(|error| answer_to(error, codes)));
        result.map_err(refused_pool)
    }
}

/// A pool as the list shows it.
fn row(pool: PoolOverview) -> PoolRow {
    let failure = pool.last_failure.map(|failure| PoolFailure {
        at: failure.at,
        reason: failure.reason,
    });
    let counts = pool.counts;
    PoolRow {
        name: pool.name,
        image: pool.template.image,
        capacity: pool.capacity,
        numbers: PoolNumbers {
            ready: counts.ready,
            warming: counts.warming,
            claimed: counts.claimed,
            draining: counts.draining,
        },
        is_failing: pool.is_failing,
        failure,
        created_at: pool.created_at,
    }
}

/// The domain's error as a page about pools shows it.
fn refused_pool(error: Error) -> ConsoleError {
    match error {
        Error::Pool(PoolError::Exists(_)) => ConsoleError::Invalid {
            problems: vec![FieldError::body(
                "value_error",
                ["name"],
                "is the name of another pool",
            )],
        },
        // It is about no field of the form.
        Error::Unsupported { .. } => ConsoleError::Refused {
            message: "The runtime of this server has no pools.".to_owned(),
        },
        other => refused(other),
    }
}

#[async_trait]
impl PoolBackend for SandboxPools {
    async fn pools(&self) -> Result<Vec<PoolRow>, ConsoleError> {
        let read = async { self.list() };
        self.memory.once("pools".to_owned(), read).await
    }

    async fn pool(&self, name: &str) -> Result<Option<PoolDetail>, ConsoleError> {
        let read = async { self.detail(name) };
        self.memory.once(format!("pool/{name}"), read).await
    }

    async fn create(&self, new: NewPool) -> Result<String, ConsoleError> {
        let NewPool {
            name,
            template,
            capacity,
        } = new;
        let created = match capacity {
            Ok(capacity) => self.service.create_pool(name, template, capacity).await,
            Err(mut problems) => {
                problems.extend(self.service.pool_problems(&name, &template));
                Err(Error::Invalid(problems))
            }
        };
        self.settled(created).map(|pool| pool.name)
    }

    async fn resize(
        &self,
        name: &str,
        capacity: Result<PoolCapacity, Vec<FieldError>>,
    ) -> Result<(), ConsoleError> {
        let changed = match capacity {
            Ok(capacity) => self.service.update_pool(name, capacity, None).await,
            Err(problems) => Err(Error::Invalid(problems)),
        };
        self.settled(changed).map(drop)
    }

    async fn delete(&self, name: &str) -> Result<(), ConsoleError> {
        self.settled(self.service.delete_pool(name).await)
    }
}
