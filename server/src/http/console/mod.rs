//! The console's host: everything under `/console`.
//!
//! | Path | What | Module |
//! |---|---|---|
//! | `/console/assets/<build>/…` | CSS, icons, wasm; public, cached without limit | [`assets`] |
//! | `/console/login`, `/console/logout` | the session | [`login`] |
//! | `/console/…` | pages, and the forms in them for browsers without script | [`pages`], [`forms`], [`access_forms`], [`network_forms`], [`snapshot_forms`], [`pool_forms`], [`template_forms`] |
//! | `/console/fn/…` | server functions of the hydrated pages | [`pages`] |
//! | `/console/sandboxes/{id}/logs/download` | a log as a file | [`log_file`] |
//! | `/console/sandboxes/{id}/diagnostics/download` | a report as a file | [`log_file`] |
//! | `/console/events/download` | the audit trail as a file | [`events`] |
//! | `/console/settings/bundle` | what a report about a problem needs | [`settings`] |
//! | `/console/live` | the tab's WebSocket | [`live`] |
//! | `/console/sandboxes/{id}/files/…` | files: downloads, images, uploads | [`files`] |
//! | `/console/terminal/{sandbox}` | a shell | [`terminal`] |
//! | `/console/tunnel/{sandbox}/{port}` | a port of a program | [`tunnel`] |
//! | `/console/preview/{sandbox}/{port}` | the way to a preview with an origin of its own | [`preview`] |
//! | `/console/run/{sandbox}` | a command with its output | [`run`] |
//! | `/console/output/{sandbox}` | the output of a command that began before | [`run`] |
//!
//! It has a session of its own and neither API key nor CORS. What keeps other pages out, from the
//! outside in: [`origin`] refuses writes and WebSockets that another origin began, [`session`] lets
//! in only who logged in and whose role allows the address, [`policy`] forbids the page to load or run what this server did not send.
//! Only the login and the static files are outside of the session, and what is rendered there has no
//! way to the domain ([`pages`]). [`compress`] compresses nothing that another site asked for.

mod access_forms;
mod accounts;
mod assets;
mod backend;
mod body;
mod bridge;
mod command_output;
mod compress;
mod daemons;
mod ended;
mod events;
mod execd;
mod files;
mod for_request;
mod forms;
mod health;
mod host_checks;
mod installation;
mod live;
mod log_file;
mod login;
mod memory;
mod network;
mod network_forms;
mod origin;
mod originals;
mod overview;
mod pages;
mod policy;
mod pool_forms;
mod pools;
mod ports;
mod preview;
mod refusal;
mod run;
pub(super) mod session;
mod settings;
mod snapshot_forms;
mod snapshots;
mod stages;
mod template_forms;
mod templates;
mod terminal;
#[cfg(test)]
mod tests;
mod tunnel;
mod users;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{Redirect, Response},
    routing::{any, get, post},
};
use osb_app::ui::AssetRoot;
use osb_service::Supervisor;
use osb_store::Store;
use tokio::sync::watch;
use tower_http::csrf::CsrfLayer;

pub use self::installation::Installation;
use self::{backend::Domains, execd::Execds, live::Hub};
use super::{
    audited,
    overload::{self, Capacities},
    proxy::Previews,
    throttle::Throttle,
};
use crate::{audit::AuditTrail, identity::Authenticator, sandbox, webhooks::Webhooks};

/// Parts of the console.
pub struct ConsoleParts {
    /// The domain.
    pub service: sandbox::Service,
    /// Keeps sessions.
    pub store: Arc<dyn Store>,
    /// Opens sessions.
    pub keys: Arc<Authenticator>,
    /// Subscriptions to events.
    pub webhooks: Webhooks,
    /// Configuration and store, where the process knows them.
    pub installation: Option<Arc<dyn Installation>>,
    /// Owns the console's tasks; its end closes every WebSocket.
    pub tasks: Supervisor,
    /// Room for requests of each kind.
    pub room: Capacities,
    /// Wrong keys, those sent to the API included.
    pub throttle: Arc<Throttle>,
    /// Previews with origins of their own, if there are.
    pub previews: Option<Previews>,
    /// Whether browsers reach the console over HTTPS: cookies are `Secure` then.
    pub https: bool,
}

/// State of the handlers. Clones share it.
#[derive(Clone)]
struct ConsoleState {
    domains: Domains,
    keys: Arc<Authenticator>,
    tasks: Supervisor,
    hub: Arc<Hub>,
    trail: AuditTrail,
    throttle: Arc<Throttle>,
    room: Capacities,
    /// Notified of every logout and every change of an account, so that open WebSockets check their
    /// sessions at once.
    logouts: Arc<watch::Sender<()>>,
    /// How often open WebSockets check their sessions otherwise.
    watch: Duration,
    execds: Execds,
    previews: Option<Previews>,
    assets: AssetRoot,
}

impl ConsoleState {
    fn new(
        domains: Domains,
        tasks: Supervisor,
        room: Capacities,
        throttle: Arc<Throttle>,
    ) -> Result<Self, osb_client::Error> {
        let (service, keys) = (domains.service.clone(), Arc::clone(&domains.keys));
        let hub = Hub::start(service.clone(), domains.clone(), &tasks);
        Ok(Self {
            trail: service.audit_trail().clone(),
            execds: Execds::new(service)?,
            domains,
            logouts: Arc::clone(keys.accounts().session_ends()),
            keys,
            tasks,
            hub,
            throttle,
            room,
            watch: session::WATCH,
            previews: None,
            assets: assets::root(),
        })
    }
}

/// Routes of the console. They begin with `/console`; the caller merges them outside of its own
/// authentication and CORS.
///
/// # Errors
/// When no HTTP client can be made to reach execd.
pub fn router(parts: ConsoleParts) -> Result<Router, osb_client::Error> {
    let ConsoleParts {
        service,
        store,
        keys,
        webhooks,
        installation,
        tasks,
        room,
        throttle,
        previews,
        https,
    } = parts;
    let domains = Domains {
        service,
        store: Arc::clone(&store),
        keys,
        webhooks: Some(webhooks),
        installation: installation.map(Into::into),
    };
    let mut state = ConsoleState::new(domains, tasks, room, throttle)?;
    if let Some(previews) = &previews {
        preview::follow_sessions(previews.clone(), &state, Arc::clone(&store));
    }
    state.previews = previews;
    Ok(routes(&state, store, https))
}

/// Records the acts of the console.
async fn record(State(state): State<ConsoleState>, request: Request, next: Next) -> Response {
    audited::console(&state.trail, request, next).await
}

fn routes(state: &ConsoleState, store: Arc<dyn Store>, https: bool) -> Router {
    // Bodies of files are passed on as they come.
    let uploads = files::uploads().route_layer(from_fn_with_state(state.clone(), record));
    let inside = pages::router(state)
        .merge(forms::router())
        .merge(access_forms::router())
        .merge(network_forms::router())
        .merge(snapshot_forms::router())
        .merge(pool_forms::router())
        .merge(template_forms::router())
        .merge(files::router())
        .route("/console/live", get(live::upgrade))
        .route("/console/terminal/{sandbox}", get(terminal::upgrade))
        .route("/console/tunnel/{sandbox}/{port}", get(tunnel::upgrade))
        .route("/console/preview/{sandbox}/{port}", get(preview::open))
        .route("/console/run/{sandbox}", get(run::upgrade))
        .route("/console/output/{sandbox}", get(run::follow))
        .route(
            "/console/sandboxes/{id}/logs/download",
            get(log_file::download),
        )
        .route(
            "/console/sandboxes/{id}/diagnostics/download",
            get(log_file::report),
        )
        .route("/console/events/download", get(events::download))
        .route("/console/settings/bundle", get(settings::bundle))
        .route("/console/fn/{*name}", any(pages::no_function))
        // Behind the session like the rest: what is no route may still be a page to a reader that
        // takes `.`, `..` and `%2e` out of addresses first.
        .route("/console/{*rest}", get(pages::not_found))
        .route_layer(from_fn(pages::function_status))
        .route_layer(from_fn_with_state(state.clone(), record))
        .route_layer(from_fn(body::read_whole))
        .merge(uploads)
        .route_layer(from_fn_with_state(state.room.clone(), overload::console))
        .route_layer(from_fn_with_state(state.clone(), session::admit));
    Router::new()
        .route("/console/", get(|| async { Redirect::to("/console") }))
        .route("/console/login", get(pages::render).post(login::log_in))
        .route("/console/logout", post(login::log_out))
        .merge(inside)
        .layer(session::layer(store, https))
        .layer(from_fn(origin::same_origin_upgrades))
        .layer(CsrfLayer::new())
        .layer(compress::layer())
        .layer(from_fn(compress::only_own))
        .with_state(state.clone())
        .merge(assets::router())
        .layer(from_fn_with_state(state.clone(), policy::headers))
}
