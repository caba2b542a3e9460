//! Pools as the console sees them.

use std::sync::Arc;

use async_trait::async_trait;
use leptos::prelude::use_context;
use osb_protocol::{FieldError, lifecycle::PoolCapacity};
use serde_json::Value;

use crate::{
    error::ConsoleError,
    view::{PoolDetail, PoolRow},
};

/// A pool to add.
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// What its sandboxes are made from, as a `PodTemplateSpec`.
    pub template: Value,
    /// How many sandboxes it keeps, or what of the form cannot be read: then nothing is added, and the
    /// other rules that are broken are reported too.
    pub capacity: Result<PoolCapacity, Vec<FieldError>>,
}

/// What the pages about pools ask the server for.
#[async_trait]
pub trait PoolBackend: Send + Sync {
    /// The pools, by name.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`] when the runtime has none.
    async fn pools(&self) -> Result<Vec<PoolRow>, ConsoleError>;

    /// One pool; `None` if there is none of this name.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`] when the runtime has none.
    async fn pool(&self, name: &str) -> Result<Option<PoolDetail>, ConsoleError>;

    /// Adds a pool, which fills up by itself. Returns its name.
    ///
    /// # Errors
    /// [`ConsoleError::Invalid`] and [`ConsoleError::Refused`].
    async fn create(&self, new: NewPool) -> Result<String, ConsoleError>;

    /// Changes how many sandboxes a pool keeps. `capacity` may be what cannot be read.
    ///
    /// # Errors
    /// [`ConsoleError::Invalid`] and [`ConsoleError::Refused`].
    async fn resize(
        &self,
        name: &str,
        capacity: Result<PoolCapacity, Vec<FieldError>>,
    ) -> Result<(), ConsoleError>;

    /// Removes a pool with what waits in it. Claimed sandboxes stay.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`].
    async fn delete(&self, name: &str) -> Result<(), ConsoleError>;
}

/// The pools for this request.
///
/// # Errors
/// [`ConsoleError::SignedOut`]: the server provides none without an open session.
pub fn pool_backend() -> Result<Arc<dyn PoolBackend>, ConsoleError> {
    use_context::<Arc<dyn PoolBackend>>().ok_or(ConsoleError::SignedOut)
}
