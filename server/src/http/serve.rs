//! Connections: accepted, bounded in time, closed in order.

use std::{io, net::SocketAddr, time::Duration};

use axum::{Router, extract::ConnectInfo};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use osb_service::Supervisor;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tower::ServiceExt;
use tracing::{debug, warn};

/// SDKs keep idle connections for 30 s. Closing them first would cost a client its next request, so
/// the server waits that much longer than configured (contract: clients §3.13).
const GRACE_OVER_CLIENTS: Duration = Duration::from_secs(35);
/// Pause after the process ran out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// How connections are treated.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Longest idle time of a connection, before the grace over clients is added.
    pub keep_alive: Duration,
    /// What requests under way get at shutdown.
    pub graceful: Duration,
}

/// Takes the port. A second server on it gets a clear error.
///
/// # Errors
/// When the address cannot be bound.
pub async fn bind(host: &str, port: u16, backlog: u32) -> io::Result<TcpListener> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in tokio::net::lookup_host((host, port)).await? {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        // Lets a restarted server take its port back at once; two listeners still exclude each other.
        socket.set_reuseaddr(true)?;
        match socket.bind(address).and_then(|()| socket.listen(backlog)) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Serves until the supervisor stops; then requests under way get their time.
pub async fn serve(listener: TcpListener, router: Router, timeouts: Timeouts, tasks: Supervisor) {
    let stop = tasks.stopping().clone();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (router, tasks_of_connection) = (router.clone(), tasks.clone());
                tasks.spawn("connection", async move {
                    connection(stream, peer, router, timeouts, &tasks_of_connection).await;
                });
            }
            Err(error) => {
                // Running out of descriptors is no reason to give up, nor to spin.
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    timeouts: Timeouts,
    tasks: &Supervisor,
) {
    // Small answers must not wait for more data.
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().oneshot(request.map(axum::body::Body::new))
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        // Also ends connections that idle between requests.
        .header_read_timeout(timeouts.keep_alive + GRACE_OVER_CLIENTS);
    server.http2().timer(TokioTimer::new());
    let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = tasks.stopping().cancelled() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(timeouts.graceful, connection).await {
                Ok(ended) => ended,
                Err(_) => return debug!(%peer, "connection cut at shutdown"),
            }
        }
    };
    if let Err(error) = ended {
        debug!(%peer, error, "connection ended");
    }
}
