//! HTTP server: connections, the guard of every route, and the routes.

mod guard;
mod routes;

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use osb_forward::MAX_HEADERS;
use osb_service::{Supervisor, linger::LingeringStream};
use rustix::net::sockopt;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tower::Service;
use tracing::{debug, warn};

pub use guard::Token;
pub use routes::router;

use crate::{limits, proxy};

/// Pause after a failed accept: without free file descriptors, immediate retries would only use
/// CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until the supervisor stops; connections then finish their current response.
pub async fn serve(listener: TcpListener, router: Router, tasks: Supervisor) {
    let slots = Arc::new(Semaphore::new(limits::CONNECTIONS));
    loop {
        let accepted = async {
            let acquired = Arc::clone(&slots).acquire_owned().await;
            let slot = acquired.expect("the semaphore is never closed");
            (listener.accept().await, slot)
        };
        let (accepted, slot) = tokio::select! {
            accepted = accepted => accepted,
            () = tasks.stopping().cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let router = router.clone();
                let connection = connection(stream, peer, slot, router, tasks.clone());
                tasks.spawn("connection", connection);
            }
            Err(error) if is_client_abort(&error) => {}
            Err(error) => {
                warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whether the client closed the connection before it was accepted.
fn is_client_abort(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// Serves one connection. A WebSocket or tunnel keeps its slot until it is closed.
async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    slot: OwnedSemaphorePermit,
    router: Router,
    tasks: Supervisor,
) {
    let own_port = stream.local_addr().map_or(0, |address| address.port());
    if let Err(error) = prepare(&stream) {
        debug!(%error, "connection is gone");
        return;
    }
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        if let Some(direct) = proxy::direct(request.uri(), own_port) {
            *request.uri_mut() = direct;
        }
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().call(request)
    });
    let stream = LingeringStream::new(stream, slot, &tasks);
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .max_headers(MAX_HEADERS)
            .header_read_timeout(limits::IDLE_CONNECTION)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
    );
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = tasks.stopping().cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // An early disconnect is no error (contract: execd §4.5).
        debug!(%error, "connection ended");
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    // Events are small, and a client waits for each.
    stream.set_nodelay(true)?;
    // Detects clients that vanished without closing the connection; their requests would wait for
    // ever.
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, limits::KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, limits::KEEPALIVE_PROBE)?;
    sockopt::set_tcp_keepcnt(stream, limits::KEEPALIVE_PROBES)?;
    Ok(())
}
