//! What is served at once (contract: lifecycle §1.2). Each kind of exchange has room of its own, so
//! that requests without a key cannot take the place of those with one:
//!
//! | Kind | Counted from, to |
//! |---|---|
//! | API | the key was checked, the answer or the end of a stream |
//! | console | the session was checked, the answer or the end of the WebSocket |
//! | sign-in ([`super::sign_in`]) | the head of a login, or of a WebSocket without a session, the answer |
//! | proxy with a key, and without one | the sandbox is known, the end of the body or the tunnel |
//!
//! `/health` has no bound, nor has any other answer that waits for neither client nor sandbox.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use osb_forward::Lease;
use osb_service::Supervisor;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tracing::warn;

use super::{
    client,
    connections::{Busy, Connection},
    error::ApiError,
    gate::{Bounds, Gate, LimitReached, Permit, Visitor},
    sign_in::{SignIn, SignIns},
    watchers::{WATCHERS_MAX, Watchers, Watching},
};
use crate::{descriptors::Room, identity::Principal};

/// Logs that are read or sent at once. Each takes up to 12 MiB: what the engine sends, its text, and a
/// copy without tokens.
const LOGS: usize = 8;
/// Most of them for one tenant, or for one principal without a tenant: clients that do not read keep theirs.
const LOGS_OF_ONE: usize = 6;
/// Least time between two lines of the log about shed requests.
const SUMMARY_EVERY: Duration = Duration::from_secs(10);

/// Configured bounds; 0 means that only file descriptors bound it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Exchanges of each kind.
    pub concurrency: usize,
    /// Proxied exchanges without a key of one client.
    pub keyless_per_client: usize,
    /// Proxied exchanges with one sandbox, with a key and without one each.
    pub per_sandbox: usize,
}

/// Room for each kind of exchange. Clones share it.
#[derive(Clone, Debug)]
pub struct Capacities(Arc<Kinds>);

#[derive(Debug)]
struct Kinds {
    api: Gate,
    console: Gate,
    sign_ins: SignIns,
    proxy_keyed: Gate,
    proxy_keyless: Gate,
    watchers: Watchers,
    log_readers: Watchers,
    logs: Arc<Semaphore>,
    shed: Notify,
}

/// A kind of exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Api,
    Console,
    ProxyKeyed,
    ProxyKeyless,
}

/// Room for one log in memory.
pub(super) struct LogRoom {
    _permit: OwnedSemaphorePermit,
    _place: Watching,
}

impl LogRoom {
    /// The bytes of a text, which keep the room until the last of them was written to the client.
    pub(super) fn hold(self, text: String) -> Bytes {
        Bytes::from_owner(HeldText { text, _room: self })
    }
}

struct HeldText {
    text: String,
    _room: LogRoom,
}

impl AsRef<[u8]> for HeldText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Capacities {
    /// Room as configured, as far as file descriptors allow. A task of `tasks` reports what is shed.
    #[must_use]
    pub fn new(limits: Limits, room: &Room, tasks: &Supervisor) -> Self {
        let bounded = |limit: usize| if limit == 0 { usize::MAX } else { limit };
        let total = bounded(limits.concurrency).min(room.exchanges_per_kind);
        let proxy = Bounds {
            total,
            per_client: usize::MAX,
            per_sandbox: bounded(limits.per_sandbox),
        };
        let kinds = Kinds {
            api: Gate::new("api", Bounds::total(total)),
            console: Gate::new("console", Bounds::total(total)),
            sign_ins: SignIns::new(total),
            proxy_keyed: Gate::new("proxy", proxy),
            proxy_keyless: Gate::new(
                "proxy without a key",
                Bounds {
                    per_client: bounded(limits.keyless_per_client),
                    ..proxy
                },
            ),
            watchers: Watchers::new(WATCHERS_MAX),
            log_readers: Watchers::new(LOGS_OF_ONE),
            logs: Arc::new(Semaphore::new(LOGS)),
            shed: Notify::new(),
        };
        let capacities = Self(Arc::new(kinds));
        let reporter = capacities.clone();
        tasks.spawn_abortable("shed requests", async move {
            loop {
                reporter.0.shed.notified().await;
                if let Some(shed) = reporter.summary() {
                    warn!(%shed, "requests were not served: a limit was reached");
                }
                tokio::time::sleep(SUMMARY_EVERY).await;
            }
        });
        capacities
    }

    /// Room for an exchange of this kind.
    pub(super) fn enter(&self, kind: Kind, visitor: Visitor) -> Result<Permit, LimitReached> {
        let entered = self.gate(kind).enter(visitor);
        if entered.is_err() {
            self.0.shed.notify_one();
        }
        entered
    }

    /// Room for one more stream of a principal; `None` when it has as many as it may.
    pub(super) fn watch(&self, principal: &str) -> Option<Watching> {
        self.0.watchers.enter(principal)
    }

    /// Room for a log in memory; `None` when there are as many as may be, or as may be for the principal.
    pub(super) fn log(&self, principal: &Principal) -> Option<LogRoom> {
        let subject = match principal.scope.tenant() {
            Some(tenant) => format!("tenant {tenant}"),
            None => principal.id.clone(),
        };
        let place = self.0.log_readers.enter(&subject)?;
        let permit = Arc::clone(&self.0.logs).try_acquire_owned().ok()?;
        Some(LogRoom {
            _permit: permit,
            _place: place,
        })
    }

    fn gate(&self, kind: Kind) -> &Gate {
        match kind {
            Kind::Api => &self.0.api,
            Kind::Console => &self.0.console,
            Kind::ProxyKeyed => &self.0.proxy_keyed,
            Kind::ProxyKeyless => &self.0.proxy_keyless,
        }
    }

    /// Exchanges of each kind that are under way, and those that were ever shed.
    pub(super) fn counts(&self) -> [(&'static str, usize, u64); 4] {
        let kinds = &self.0;
        let gates = [
            &kinds.api,
            &kinds.console,
            &kinds.proxy_keyed,
            &kinds.proxy_keyless,
        ];
        gates.map(|gate| {
            let (active, shed) = gate.counts();
            (gate.name(), active, shed)
        })
    }

    /// How many exchanges of each kind were shed since the last summary, if any were.
    fn summary(&self) -> Option<String> {
        let kinds = &self.0;
        let gates = [
            &kinds.api,
            &kinds.console,
            &kinds.proxy_keyed,
            &kinds.proxy_keyless,
        ];
        let counts = gates.map(|gate| (gate.name(), gate.take_shed()));
        let sign_ins = ("sign-in", kinds.sign_ins.take_shed());
        let shed: Vec<String> = counts
            .iter()
            .chain([&sign_ins])
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{name}: {count}"))
            .collect();
        (!shed.is_empty()).then(|| shed.join(", "))
    }
}

/// Serves API requests that passed the check of their key, if there is room. A handler whose response
/// is a stream without an end keeps the [`Lease`] of the request.
pub(super) async fn api<Answer: Future<Output = Response>>(
    room: &Capacities,
    mut request: Request,
    answer: impl FnOnce(Request) -> Answer,
) -> Response {
    let visitor = Visitor {
        connection: busy(&request, true),
        ..Visitor::default()
    };
    match room.enter(Kind::Api, visitor) {
        Ok(permit) => {
            let lease = Lease::new(permit);
            request.extensions_mut().insert(lease.clone());
            let response = answer(request).await;
            drop(lease);
            response
        }
        Err(full) => ApiError::from(full).into_response(),
    }
}

/// Serves console requests that have a session, if there is room. A handler that goes on with a
/// WebSocket keeps the [`Lease`] of the request.
pub(super) async fn console(
    State(room): State<Capacities>,
    mut request: Request,
    next: Next,
) -> Response {
    let visitor = Visitor {
        connection: busy(&request, true),
        ..Visitor::default()
    };
    match room.enter(Kind::Console, visitor) {
        Ok(permit) => {
            let lease = Lease::new(permit);
            request.extensions_mut().insert(lease.clone());
            let response = next.run(request).await;
            drop(lease);
            response
        }
        Err(full) => ApiError::from(full).into_response(),
    }
}

/// Room for a client of the console without a session.
pub(super) fn sign_in(room: &Capacities, request: &Request) -> SignIn {
    let client = client::of(request.extensions()).group();
    let (sign_in, displaces) = room.0.sign_ins.begin(client, busy(request, false));
    if displaces {
        room.0.shed.notify_one();
    }
    sign_in
}

/// Keeps the connection of a request from being closed to make room.
pub(super) fn busy(request: &Request, keyed: bool) -> Option<Busy> {
    let connection = request.extensions().get::<Arc<Connection>>()?;
    Some(Busy::new(connection, keyed))
}

#[cfg(test)]
mod tests {
    use osb_protocol::identity::{PrincipalKind, Role};

    use super::*;
    use crate::identity::{Scope, Validity};

    #[tokio::test]
    async fn one_tenant_leaves_room_for_the_logs_of_others() {
        let limits = Limits {
            concurrency: 0,
            keyless_per_client: 0,
            per_sandbox: 0,
        };
        let tasks = Supervisor::new();
        let room = Capacities::new(limits, &Room::of_descriptors(20_000), &tasks);
        let of = |id: &str, tenant: Option<&str>| Principal {
            kind: PrincipalKind::ApiKey,
            id: id.to_owned(),
            name: id.to_owned(),
            role: Role::ReadOnly,
            scope: Scope::of(tenant),
            validity: Validity::default(),
        };
        let keys = ["k1", "k2"].map(|id| of(id, Some("a")));
        let taken: Vec<_> = keys.iter().cycle().map_while(|key| room.log(key)).collect();
        assert_eq!(taken.len(), LOGS_OF_ONE);
        let [other, admin] = [of("k3", Some("b")), of("k4", None)];
        let others = [&other, &admin].map(|principal| room.log(principal));
        assert!(others.iter().all(Option::is_some));
        assert!(room.log(&admin).is_none(), "all are taken");
        drop(taken);
        assert!(room.log(&keys[0]).is_some());
        tasks.stop();
    }

    #[tokio::test]
    async fn kinds_do_not_take_each_others_room_and_shedding_is_summed_up() {
        let limits = Limits {
            concurrency: 2,
            keyless_per_client: 0,
            per_sandbox: 0,
        };
        let tasks = Supervisor::new();
        let room = Capacities::new(limits, &Room::of_descriptors(20_000), &tasks);
        let kinds = [
            Kind::Api,
            Kind::Console,
            Kind::ProxyKeyed,
            Kind::ProxyKeyless,
        ];
        let mut held = Vec::new();
        for kind in kinds {
            for _ in 0..2 {
                held.push(room.enter(kind, Visitor::default()).unwrap());
            }
            let full = room.gate(kind).enter(Visitor::default());
            assert_eq!(full.unwrap_err(), LimitReached::Total, "{kind:?}");
        }
        let client = std::net::IpAddr::from([10, 0, 0, 1]);
        let sign_ins = [(); 3].map(|()| room.0.sign_ins.begin(client, None));
        assert_eq!(
            sign_ins.map(|(_, displaces)| displaces),
            [false, false, true]
        );
        let want = "api: 1, console: 1, proxy: 1, proxy without a key: 1, sign-in: 1";
        assert_eq!(room.summary().as_deref(), Some(want));
        assert_eq!(room.summary(), None);
    }
}
