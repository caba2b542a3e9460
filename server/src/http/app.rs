//! The state of the routes.

use std::{ops::Deref, sync::Arc};

use osb_forward::Forwarder;
use osb_service::Supervisor;
use osb_store::Store;

use super::{measure::Meter, overload::Capacities, throttle::Throttle};
use crate::{identity::Authenticator, sandbox::Service, webhooks::Webhooks};

/// What handlers share.
#[derive(Debug)]
pub struct AppParts {
    /// The domain, for what is done for no principal. Handlers behind authentication take
    /// `Caller`, whose domain has the principal's scope.
    pub unscoped: Service,
    /// Who may call.
    pub keys: Arc<Authenticator>,
    /// Where console sessions are.
    pub store: Arc<dyn Store>,
    /// Id of the store.
    pub instance_id: String,
    /// Connections to sandboxes.
    pub forwarder: Forwarder,
    /// Configured public address, without a trailing slash.
    pub eip: Option<String>,
    /// Whether sandboxes may use the proxy without a key.
    pub keyless_from_sandboxes: bool,
    /// Room for requests of each kind.
    pub room: Capacities,
    /// Counts requests.
    pub meter: Meter,
    /// Whether `/metrics` needs no key.
    pub metrics_are_open: bool,
    /// Owns tasks of requests.
    pub tasks: Supervisor,
    /// Wrong keys, those sent to the console included.
    pub throttle: Arc<Throttle>,
    /// Receivers of events.
    pub webhooks: Webhooks,
}

/// The state of the routes. Every layer of every route clones it for each request, so a clone is one
/// reference count.
#[derive(Clone, Debug)]
pub struct AppState(Arc<AppParts>);

impl From<AppParts> for AppState {
    fn from(parts: AppParts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for AppState {
    type Target = AppParts;

    fn deref(&self) -> &AppParts {
        &self.0
    }
}
