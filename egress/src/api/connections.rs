//! Connections to the API: a bounded number, each with time limits. The sandbox can reach it.

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, Uri},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use osb_service::Supervisor;
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tower::Service;
use tracing::{debug, warn};

use crate::{
    limits,
    places::{ConnectionPlaces, Place},
};

/// Pause after a failed accept, so that a lack of file descriptors does not cost all of a CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until the supervisor stops; connections then finish their current response.
pub async fn serve(listener: TcpListener, router: Router, tasks: Supervisor) {
    let places = ConnectionPlaces::new(limits::CONNECTIONS);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = tasks.stopping().cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(place) = place(&places, &stream, peer) else {
                    continue;
                };
                let (router, own) = (router.clone(), tasks.clone());
                tasks.spawn("connection", connection(stream, place, router, own));
            }
            Err(error) if is_client_abort(&error) => {}
            Err(error) => {
                warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_client_abort(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// Place for a new connection. `None` if it has ended already.
fn place(places: &ConnectionPlaces, stream: &TcpStream, peer: SocketAddr) -> Option<Arc<Place>> {
    let own = stream.local_addr().ok()?;
    let (place, loser) = places.take(own, peer);
    if let Some(loser) = loser {
        let limit = limits::CONNECTIONS;
        warn!(limit, peer = ?loser, "too many connections to the API, the least useful one is closed");
    }
    Some(Arc::new(place))
}

async fn connection(stream: TcpStream, place: Arc<Place>, router: Router, tasks: Supervisor) {
    let own = Arc::clone(&place);
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Arc::clone(&own));
        if let Some(clean) = without_empty_segments(request.uri()) {
            *request.uri_mut() = clean;
        }
        let mut router = router.clone();
        async move {
            // A change of the packet filter has a limit of its own, which is as long.
            let answer = timeout(limits::REQUEST + limits::FIREWALL, router.call(request)).await;
            answer
                .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
                .map_err(io::Error::other)
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits::REQUEST)
            .serve_connection(TokioIo::new(stream), service)
    );
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = place.lost() => return,
        () = tasks.stopping().cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "connection ended");
    }
}

/// The address without the empty segments that joining a base address with `/` and a path with `/`
/// makes. `None` if there are none.
fn without_empty_segments(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    if !path.contains("//") {
        return None;
    }
    let segments: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
    let query = uri.query().map(|it| format!("?{it}")).unwrap_or_default();
    format!("/{}{query}", segments.join("/")).parse().ok()
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn connections_without_a_request_do_not_keep_others_out() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = Supervisor::new();
        let router = Router::new().route("/", get(|| async { "here" }));
        tasks.spawn_abortable("api", serve(listener, router, tasks.clone()));
        let mut held = Vec::new();
        for _ in 0..limits::CONNECTIONS {
            held.push(TcpStream::connect(address).await.unwrap());
        }
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: sidecar\r\nConnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let read = held[0].read(&mut [0]).await.unwrap();
        assert_eq!(read, 0, "the oldest one was closed for it");
        tasks.stop();
    }

    #[test]
    fn empty_segments_are_left_out() {
        let clean = |text: &str| without_empty_segments(&text.parse().unwrap());
        assert_eq!(clean("/policy?a=//b"), None);
        assert_eq!(clean("//policy?a=b").unwrap(), "/policy?a=b");
        assert_eq!(clean("/a///b/").unwrap(), "/a/b");
    }
}
