//! Why a request was not answered by the backend.

use hyper_util::client::legacy;

/// A request that got no response head from the backend. The text may be shown to the client: it
/// names neither the backend nor any header. The cause, which may, is in the source.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The request has no meaning behind a proxy.
    #[error("the request cannot be forwarded: {0}")]
    BadRequest(&'static str),
    /// The client broke off while it sent the body.
    #[error("the request body ended early")]
    RequestBody(#[source] legacy::Error),
    /// No connection to the backend, also when it took longer than
    /// [`Limits::connect`](crate::Limits::connect).
    #[error("could not connect to the backend")]
    Connect(#[source] legacy::Error),
    /// Nothing moved for [`Limits::idle`](crate::Limits::idle).
    #[error("timed out waiting for {0}")]
    Timeout(Awaited),
    /// The backend hung up or did not speak HTTP.
    #[error("the backend closed the connection or sent invalid HTTP")]
    Response(#[source] legacy::Error),
    /// The backend switched protocols although nobody asked it to.
    #[error("the backend switched protocols without being asked")]
    UnaskedUpgrade,
}

/// What did not come in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// More of the request body: either the client stopped sending or the backend stopped reading.
    RequestBody,
    /// The response head.
    ResponseHead,
}

impl std::fmt::Display for Awaited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::RequestBody => "the request body",
            Self::ResponseHead => "the backend to answer",
        })
    }
}

/// Whose fault an error is: what it counts as and how loudly it is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Whoever sent the request.
    Client,
    /// The backend.
    Upstream,
}

impl ForwardError {
    /// Whose fault it is.
    #[must_use]
    pub fn origin(&self) -> Origin {
        match self {
            Self::BadRequest(_) | Self::RequestBody(_) => Origin::Client,
            Self::Connect(_) | Self::Timeout(_) | Self::Response(_) | Self::UnaskedUpgrade => {
                Origin::Upstream
            }
        }
    }

    /// Sorts an error of the HTTP client. `body_failed` tells that the request body, not the
    /// backend, ended the exchange.
    pub(crate) fn from_client(error: legacy::Error, body_failed: bool) -> Self {
        if body_failed {
            Self::RequestBody(error)
        } else if error.is_connect() {
            Self::Connect(error)
        } else {
            Self::Response(error)
        }
    }
}
