//! The server functions of the overview. The session and the origin of the request were checked
//! before they run.

use leptos::prelude::*;

use crate::{
    error::ConsoleError,
    view::{Overview, TestSandbox},
};

/// Everything that the overview shows.
#[server(prefix = "/console/fn", endpoint = "overview/get")]
pub async fn read_overview() -> Result<Overview, ConsoleError> {
    Ok(crate::backend::backend()?.overview().await)
}

/// Creates a sandbox that tests this installation. It expires after a minute.
#[server(prefix = "/console/fn", endpoint = "overview/test")]
pub async fn start_trial() -> Result<TestSandbox, ConsoleError> {
    crate::create::start_trial(&*crate::backend::backend()?).await
}
