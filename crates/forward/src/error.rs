//! Why a request was not answered by the backend.

use std::io;

/// A request that got no response head from the backend. The text may be shown to the client: it
/// names neither the backend nor any header. The cause, which may, is in the source.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The request has no meaning behind a proxy.
    #[error("the request cannot be forwarded: {0}")]
    BadRequest(&'static str),
    /// The client broke off while it sent the body.
    #[error("the request body ended early")]
    RequestBody(#[source] hyper::Error),
    /// No connection to the backend, also when it took longer than
    /// [`Limits::connect`](crate::Limits::connect).
    #[error("could not connect to the backend")]
    Connect(#[source] io::Error),
    /// No socket is left to connect with.
    #[error("the proxy has no resources left to connect to the backend")]
    Exhausted(#[source] io::Error),
    /// Nothing moved for [`Limits::idle`](crate::Limits::idle).
    #[error("timed out waiting for {0}")]
    Timeout(Awaited),
    /// The backend hung up or did not speak HTTP.
    #[error("the backend closed the connection or sent invalid HTTP")]
    Response(#[source] hyper::Error),
    /// The backend's response has a transfer coding other than `chunked`.
    #[error("the backend used a transfer coding that cannot be passed on")]
    TransferCoding,
    /// The backend switched protocols without being asked.
    #[error("the backend switched protocols without being asked")]
    UnaskedUpgrade,
    /// The [`Lease`](crate::Lease) was withdrawn before the backend answered.
    #[error("the client may no longer make this request")]
    Withdrawn,
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

/// The party at fault, which decides the status and the log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The client.
    Client,
    /// The backend.
    Upstream,
    /// This process or its host.
    Us,
}

impl ForwardError {
    /// Whose fault it is.
    #[must_use]
    pub fn origin(&self) -> Origin {
        match self {
            Self::BadRequest(_) | Self::RequestBody(_) | Self::Withdrawn => Origin::Client,
            Self::Connect(_)
            | Self::Timeout(_)
            | Self::Response(_)
            | Self::TransferCoding
            | Self::UnaskedUpgrade => Origin::Upstream,
            Self::Exhausted(_) => Origin::Us,
        }
    }

    /// Sorts an error of connecting.
    pub(crate) fn from_connect(error: io::Error) -> Self {
        if is_exhaustion(&error) {
            Self::Exhausted(error)
        } else {
            Self::Connect(error)
        }
    }

    /// Sorts an error of an exchange. `body_failed` means that the request body, not the backend,
    /// ended it.
    pub(crate) fn from_exchange(error: hyper::Error, body_failed: bool) -> Self {
        if body_failed {
            Self::RequestBody(error)
        } else {
            Self::Response(error)
        }
    }
}

/// Whether an error says that we, not the backend, are out of something.
fn is_exhaustion(error: &io::Error) -> bool {
    /// Linux: too many open files, here or in the whole system; no buffers; no memory. No stable
    /// `ErrorKind` stands for the first two.
    const NOTHING_LEFT: [i32; 4] = [24, 23, 105, 12];
    // Every local port is in use.
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error
            .raw_os_error()
            .is_some_and(|code| NOTHING_LEFT.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_sockets_is_our_fault() {
        let exhausted = |code| is_exhaustion(&io::Error::from_raw_os_error(code));
        for (name, code) in [("EMFILE", 24), ("ENFILE", 23), ("EADDRNOTAVAIL", 99)] {
            assert!(exhausted(code), "{name}");
        }
        for (name, code) in [("ECONNREFUSED", 111), ("EHOSTUNREACH", 113)] {
            assert!(!exhausted(code), "{name}");
        }
        assert!(!is_exhaustion(&io::ErrorKind::TimedOut.into()));
    }
}
