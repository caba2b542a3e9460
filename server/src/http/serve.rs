//! Connections: accepted, bounded in time, closed in order.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, extract::ConnectInfo};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use osb_service::Supervisor;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tower::ServiceExt;
use tracing::{debug, warn};

/// SDKs keep idle connections for 30 s. Closing them first would cost a client its next request, so
/// the server waits that much longer than configured (contract: clients §3.13).
const GRACE_OVER_CLIENTS: Duration = Duration::from_secs(35);
/// Connections held at once, streams and WebSockets included; each costs a descriptor or two.
const CONNECTIONS: usize = 16_384;
/// Longest silence before the first byte of a connection.
const FIRST_BYTE: Duration = Duration::from_secs(60);
/// Silence after which the kernel, or HTTP/2, asks whether the client is still there.
const PROBE_AFTER: Duration = Duration::from_secs(60);
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
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // Above the bound new connections wait in the kernel's queue.
        let Ok(room) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (router, tasks_of_connection) = (router.clone(), tasks.clone());
                tasks.spawn("connection", async move {
                    connection(stream, peer, router, timeouts, &tasks_of_connection).await;
                    drop(room);
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
    // Both are refinements; a connection works without them.
    let _ = stream.set_nodelay(true);
    let probes = TcpKeepalive::new()
        .with_time(PROBE_AFTER)
        .with_interval(PROBE_AFTER);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&probes);
    // Whoever connects and says nothing must not hold a descriptor for ever.
    if !matches!(timeout(FIRST_BYTE, stream.readable()).await, Ok(Ok(()))) {
        return;
    }
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
    server
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PROBE_AFTER);
    let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = tasks.stopping().cancelled() => {
            connection.as_mut().graceful_shutdown();
            match timeout(timeouts.graceful, connection).await {
                Ok(ended) => ended,
                Err(_) => return debug!(%peer, "connection cut at shutdown"),
            }
        }
    };
    if let Err(error) = ended {
        debug!(%peer, error, "connection ended");
    }
}
