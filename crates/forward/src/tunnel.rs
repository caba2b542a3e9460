//! Tunnels of opaque bytes after `101 Switching Protocols`.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Request, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use osb_service::Supervisor;
use tokio::time::timeout;
use tracing::debug;

use crate::{
    Lease,
    activity::{Activity, Watched},
    headers,
    lease::withdrawn,
    pool::Connection,
    websocket::{Frames, Side},
};

/// Buffer for each direction of a tunnel.
const BUFFER: usize = 16 * 1024;
/// Longest wait for the close of a WebSocket that is cut.
const PARTING: Duration = Duration::from_secs(1);

/// An upgrade that a client requested.
pub(crate) struct Upgrade {
    /// Value of `Upgrade`, for example `websocket`.
    pub(crate) protocol: HeaderValue,
    client: OnUpgrade,
    lease: Option<Lease>,
}

impl Upgrade {
    /// Returns the upgrade that a request asks for, if it can be granted. One that offers HTTP/2
    /// (`h2c`), even among others, cannot: requests inside such a tunnel would bypass the header rules.
    pub(crate) fn take(request: &mut Request<Body>) -> Option<Self> {
        if request.version() != Version::HTTP_11 {
            return None;
        }
        if headers::offers_http(request.headers()) {
            return None;
        }
        let protocol = headers::upgrade(request.headers())?;
        let client = request.extensions_mut().remove::<OnUpgrade>()?;
        let lease = request.extensions().get().cloned();
        Some(Self {
            protocol,
            client,
            lease,
        })
    }

    /// Carries bytes both ways, in a task of its own, until one side is done or broken, both are
    /// silent for too long or the supervisor stops. A side that finishes sending may still receive.
    pub(crate) fn connect(
        self,
        mut connection: Connection,
        backend: OnUpgrade,
        idle: Option<Duration>,
        tasks: &Supervisor,
    ) {
        tasks.spawn_abortable("tunnel", async move {
            let Self {
                protocol,
                client,
                lease,
            } = self;
            let driver = connection.take_driver();
            // Hands the backend's side over, or says why not through `backend`.
            let handing_over = async {
                if let Some(driver) = driver {
                    let _ = driver.await;
                }
            };
            let both = async { tokio::try_join!(client, backend) };
            let (both, ()) = tokio::join!(both, handing_over);
            let (client, backend) = match both {
                Ok(both) => both,
                Err(error) => {
                    debug!(
                        error = &error as &dyn std::error::Error,
                        "upgrade broke off"
                    );
                    return;
                }
            };
            let activity = Activity::now();
            let is_websocket = protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
            let watched = |upgraded, from, to| Watched {
                stream: TokioIo::new(upgraded),
                activity: activity.clone(),
                frames: is_websocket.then(|| Frames::of(from)),
                written: is_websocket.then(|| Frames::of(to)),
            };
            let mut client = watched(client, Side::Client, Side::Backend);
            let mut backend = watched(backend, Side::Backend, Side::Client);
            let copied =
                tokio::io::copy_bidirectional_with_sizes(&mut client, &mut backend, BUFFER, BUFFER);
            let copied = tokio::select! {
                copied = copied => copied,
                () = activity.silence(idle, lease.as_ref()) => return debug!("tunnel was silent for too long"),
                () = withdrawn(lease.as_ref()) => {
                    debug!("tunnel was cut: its client may no longer use it");
                    let parting = async { tokio::join!(client.part(), backend.part()) };
                    // A side that does not close is cut off.
                    let _ = timeout(PARTING, parting).await;
                    return;
                }
            };
            match copied {
                Ok((sent, received)) => debug!(sent, received, "tunnel ended"),
                Err(error) => {
                    debug!(error = &error as &dyn std::error::Error, "tunnel broke off");
                }
            }
        });
    }
}
