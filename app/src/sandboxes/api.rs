//! The server function of the list. The session and the origin of the request were checked before
//! it runs.

use leptos::prelude::*;

use super::ListQuery;
use crate::{error::ConsoleError, view::SandboxList};

/// One page of the list.
#[server(prefix = "/console/fn", endpoint = "sandboxes/list")]
pub async fn list(query: ListQuery) -> Result<SandboxList, ConsoleError> {
    let backend = crate::backend::backend()?;
    let warning = backend.trouble();
    Ok(SandboxList {
        warning,
        ..query.select(backend.sandboxes())
    })
}
