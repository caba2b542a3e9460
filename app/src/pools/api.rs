//! The server functions of pools. The session, the role and the origin of the request were checked
//! before they run.

use leptos::prelude::*;

use super::{CapacityForm, PoolForm};
use crate::{
    error::ConsoleError,
    view::{Answer, PoolDetail, PoolRow},
};

/// The list.
#[server(prefix = "/console/fn", endpoint = "pools/list")]
pub async fn list() -> Result<Vec<PoolRow>, ConsoleError> {
    crate::backend::pool_backend()?.pools().await
}

/// One pool. That there is none is an answer and no error: browsers log errors.
#[server(prefix = "/console/fn", endpoint = "pools/get")]
pub async fn read(name: String) -> Result<Option<PoolDetail>, ConsoleError> {
    crate::backend::pool_backend()?.pool(&name).await
}

/// Adds a pool. Answers with its name.
#[server(prefix = "/console/fn", endpoint = "pools/create")]
pub async fn create(form: PoolForm) -> Result<Answer<String>, ConsoleError> {
    Answer::of(form.submit(&*crate::backend::pool_backend()?).await)
}

/// Changes how many sandboxes a pool keeps.
#[server(prefix = "/console/fn", endpoint = "pools/resize")]
pub async fn resize(name: String, form: CapacityForm) -> Result<Answer<()>, ConsoleError> {
    Answer::of(form.submit(&name, &*crate::backend::pool_backend()?).await)
}

/// Removes a pool.
#[server(prefix = "/console/fn", endpoint = "pools/delete")]
pub async fn delete(name: String) -> Result<Answer<()>, ConsoleError> {
    Answer::of(crate::backend::pool_backend()?.delete(&name).await)
}
