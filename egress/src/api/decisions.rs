//! `/decisions`: the destinations of the sandbox, and what was decided about each. Beyond the
//! contract.

use std::net::IpAddr;

use axum::{
    extract::{Query, State, rejection::QueryRejection},
    http::StatusCode,
};
use osb_service::ErrorChain;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use super::{
    Api,
    answer::{Object, Refusal},
};
use crate::{decisions::Shown, firewall::Record, policy::Action};

/// Parameters of the list.
#[derive(Debug, Deserialize)]
pub(super) struct Since {
    /// Only names whose decision changed after this number.
    #[serde(default)]
    since: u64,
}

/// Body of the answer.
#[derive(Debug, Serialize)]
pub(super) struct Decisions {
    /// Names, in the order of their last query.
    names: Vec<Shown>,
    /// Value of `since` for later changes of names.
    next: u64,
    /// Destinations of connections and packets; always all. Empty in mode `dns`.
    destinations: Vec<Destination>,
}

/// A destination that the packet filter saw within the last hour.
#[derive(Debug, Serialize)]
struct Destination {
    action: Action,
    address: IpAddr,
    protocol: String,
    port: u16,
    count: u64,
    /// Allowed names that led to the address, as far as they are remembered.
    names: Vec<String>,
}

impl Destination {
    fn new(record: Record, names: Vec<String>) -> Self {
        Self {
            action: record.action,
            address: record.address,
            protocol: record.protocol,
            port: record.port,
            count: record.packets,
            names,
        }
    }
}

/// `GET /decisions`.
pub(super) async fn list(
    State(api): State<Api>,
    since: Result<Query<Since>, QueryRejection>,
) -> Result<Object<Decisions>, Refusal> {
    let bad = |error: QueryRejection| Refusal::new(StatusCode::BAD_REQUEST, error.body_text());
    let Query(Since { since }) = since.map_err(bad)?;
    let destinations = match api.enforcer.firewall().cloned() {
        None => Vec::new(),
        Some(firewall) => {
            let failed = |text: String| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, text);
            let lister = firewall.clone();
            let listed = spawn_blocking(move || lister.records()).await;
            let listed = listed.map_err(|error| failed(error.to_string()))?;
            let listed = listed.map_err(|error| failed(ErrorChain(&error).to_string()))?;
            let names = firewall.names(listed.iter().map(|record| record.address));
            let named = listed.into_iter().zip(names);
            named
                .map(|(record, names)| Destination::new(record, names))
                .collect()
        }
    };
    let (names, next) = api.decisions.since(since);
    Ok(Object(Decisions {
        names,
        next,
        destinations,
    }))
}
