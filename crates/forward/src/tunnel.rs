//! After `101 Switching Protocols`: bytes, whatever they mean.

use axum::body::Body;
use http::{HeaderValue, Request, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use osb_service::Supervisor;
use tracing::debug;

use crate::headers;

/// Buffer for each direction of a tunnel.
const BUFFER: usize = 16 * 1024;

/// A client's wish to leave HTTP.
pub(crate) struct Upgrade {
    /// Value of `Upgrade`, for example `websocket`.
    pub(crate) protocol: HeaderValue,
    client: OnUpgrade,
}

impl Upgrade {
    /// The wish of a request, if it has one that can be granted. HTTP/2 by upgrade (`h2c`) is
    /// none: requests inside such a tunnel would escape the header rules.
    pub(crate) fn take(request: &mut Request<Body>) -> Option<Self> {
        if request.version() != Version::HTTP_11 {
            return None;
        }
        let protocol = headers::upgrade(request.headers())?;
        if protocol.as_bytes().eq_ignore_ascii_case(b"h2c") {
            return None;
        }
        let client = request.extensions_mut().remove::<OnUpgrade>()?;
        Some(Self { protocol, client })
    }

    /// Carries bytes both ways, in a task of its own, until one side is done or broken or the
    /// supervisor stops. A side that finishes sending may still receive.
    pub(crate) fn connect(self, backend: OnUpgrade, tasks: &Supervisor) {
        tasks.spawn_abortable("tunnel", async move {
            let (client, backend) = match tokio::try_join!(self.client, backend) {
                Ok(both) => both,
                Err(error) => {
                    debug!(
                        error = &error as &dyn std::error::Error,
                        "upgrade broke off"
                    );
                    return;
                }
            };
            let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
            let copied =
                tokio::io::copy_bidirectional_with_sizes(&mut client, &mut backend, BUFFER, BUFFER);
            match copied.await {
                Ok((sent, received)) => debug!(sent, received, "tunnel ended"),
                Err(error) => {
                    debug!(error = &error as &dyn std::error::Error, "tunnel broke off");
                }
            }
        });
    }
}
