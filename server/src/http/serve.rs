//! Connections: accepted, bounded in time, closed in order.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use osb_service::{Supervisor, linger::LingeringStream, request_body::read_or_close};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpSocket, TcpStream},
    time::{Instant, timeout},
};
use tokio_rustls::server::TlsStream;
use tokio_util::{either::Either, sync::CancellationToken};
use tower::ServiceExt;
use tracing::{Instrument, debug, warn};

use super::{
    client::OverTls,
    connections::{Connections, Exchange, Sent, Slot, WriteTimeout},
    delivery::{Delivery, Stream},
    measure::Meter,
    tls::Tls,
};
use crate::trace;

/// SDKs keep idle connections for 30 s. Closing them first would cost a client its next request, so
/// the server waits that much longer than configured (contract: clients §3.13).
const GRACE_OVER_CLIENTS: Duration = Duration::from_secs(35);
/// Largest head of a request, in bytes: the longest address that the library takes, 64 KiB, and as
/// much for header lines. HTTP/1 also reads and writes bodies in pieces of up to this size.
const HEAD_MAX: usize = 128 * 1024;
/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 128;
/// Longest wait for a probe to be answered.
const PROBE_WAIT: Duration = Duration::from_secs(20);
/// Longest time until a connection has brought its first request. The library bounds the heads of
/// HTTP/1, but waits for ever to learn which version begins.
const FIRST_REQUEST: Duration = Duration::from_secs(60);
/// Silence after which the kernel, or HTTP/2, asks whether the client is still there.
const PROBE_AFTER: Duration = Duration::from_secs(60);
/// First byte of a TLS handshake.
const HANDSHAKE: u8 = 22;
/// Answer to a client that does not begin with TLS where it has to.
const NEEDS_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\
    content-length: 81\r\nconnection: close\r\n\r\n\
    {\"code\":\"GENERAL::TLS_REQUIRED\",\"message\":\"this port speaks HTTPS: use https://\"}";
/// Pause after the process ran out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Least time between two lines of the log about connections that cannot be accepted.
const SUMMARY_EVERY: Duration = Duration::from_secs(10);

/// How connections are treated.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Longest idle time of a connection, before the grace over clients is added.
    pub keep_alive: Duration,
    /// What requests under way get at shutdown.
    pub graceful: Duration,
    /// Connections held at once, streams and WebSockets included.
    pub connections: usize,
}

/// What every connection to a listener needs.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Answers requests.
    pub router: Router,
    /// How connections are treated.
    pub bounds: Bounds,
    /// TLS, if the listener has it.
    pub tls: Option<Tls>,
    /// Counts requests.
    pub meter: Meter,
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
pub async fn serve(listener: TcpListener, serving: Serving, tasks: Supervisor) {
    let stop = tasks.stopping().clone();
    let connections = Connections::new(serving.bounds.connections);
    let mut failures = AcceptFailures::default();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let slot = tokio::select! {
                    () = stop.cancelled() => return,
                    slot = connections.room() => slot,
                };
                let (serving, tasks_of_connection) = (serving.clone(), tasks.clone());
                tasks.spawn("connection", async move {
                    connection(stream, peer, slot, serving, &tasks_of_connection).await;
                });
            }
            Err(error) => {
                // Running out of descriptors is no reason to give up, nor to spin.
                if let Some(failures) = failures.count(Instant::now()) {
                    warn!(%error, failures, "cannot accept connections");
                }
                connections.evict();
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Failures to accept a connection. While there are no descriptors they come many times a second, and
/// the log gets a line now and then.
#[derive(Debug, Default)]
struct AcceptFailures {
    unreported: u64,
    reported: Option<Instant>,
}

impl AcceptFailures {
    /// Counts one more. Returns how many there were since the last line when another is due.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.unreported += 1;
        let is_due = self
            .reported
            .is_none_or(|reported| now.duration_since(reported) >= SUMMARY_EVERY);
        if !is_due {
            return None;
        }
        self.reported = Some(now);
        Some(std::mem::take(&mut self.unreported))
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    slot: Slot,
    serving: Serving,
    tasks: &Supervisor,
) {
    let Serving {
        router,
        bounds,
        tls,
        meter,
    } = serving;
    let _counted = meter.connection();
    // Both are refinements; a connection works without them.
    let _ = stream.set_nodelay(true);
    let probes = TcpKeepalive::new()
        .with_time(PROBE_AFTER)
        .with_interval(PROBE_AFTER);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&probes);
    let begun = CancellationToken::new();
    let has_begun = begun.clone();
    let own = Arc::clone(&slot.connection);
    // It has its place until it is closed, also after an upgrade.
    let stream = LingeringStream::new(stream, slot, tasks).cut_by(own.eviction());
    let (delivery, stream) = Delivery::over(stream, tasks);
    let is_tls = tls.is_some();
    let stream = tokio::select! {
        biased;
        stream = secure(tls, stream) => stream,
        () = own.evicted() => return debug!(%peer, "connection closed to make room"),
        () = tasks.stopping().cancelled() => return,
    };
    let stream = match stream {
        Ok(stream) => stream,
        Err(error) => return debug!(%peer, %error, "no TLS on the connection"),
    };
    let of_requests = Arc::clone(&own);
    let service = hyper::service::service_fn(move |mut request: http::Request<Incoming>| {
        begun.cancel();
        let exchange = Exchange::begin(&of_requests);
        let mut measured = meter.begin(&request);
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(Arc::clone(&of_requests));
        request.extensions_mut().insert(delivery.clone());
        if is_tls {
            request.extensions_mut().insert(OverTls);
        }
        let router = router.clone();
        let span = trace::request(&request, measured.route());
        let of_answer = span.clone();
        let served = async move {
            let answer = async |request| {
                let Ok(response) = router.oneshot(request).await;
                response
            };
            // No request stands behind a body that nothing read.
            let response = read_or_close(request.map(Body::new), Body::new, answer).await;
            measured.answered(response.status());
            trace::answered(&of_answer, response.status());
            Ok::<_, Infallible>(response.map(|body| Sent::new(body, exchange, measured)))
        };
        served.instrument(span)
    });
    let idle = bounds.keep_alive + GRACE_OVER_CLIENTS;
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .max_headers(osb_forward::MAX_HEADERS)
        // Also ends connections that idle between requests.
        .header_read_timeout(idle)
        .max_buf_size(HEAD_MAX);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(HEAD_MAX).unwrap_or(u32::MAX))
        .keep_alive_interval(PROBE_AFTER)
        .keep_alive_timeout(PROBE_WAIT);
    let stream = TokioIo::new(WriteTimeout::new(stream));
    let connection = server.serve_connection_with_upgrades(stream, service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = own.evicted() => return debug!(%peer, "connection closed to make room"),
        // HTTP/2 answers probes, but has no limit of its own on idling.
        () = own.idle(idle) => {
            connection.as_mut().graceful_shutdown();
            match timeout(bounds.graceful, connection).await {
                Ok(ended) => ended,
                Err(_) => return debug!(%peer, "idle connection cut"),
            }
        }
        // A client that connects and asks for nothing must not hold a descriptor for ever.
        () = unless(&has_begun, FIRST_REQUEST) => return debug!(%peer, "connection without request"),
        () = tasks.stopping().cancelled() => {
            connection.as_mut().graceful_shutdown();
            match timeout(bounds.graceful, connection).await {
                Ok(ended) => ended,
                Err(_) => return debug!(%peer, "connection cut at shutdown"),
            }
        }
    };
    if let Err(error) = ended {
        debug!(%peer, error, "connection ended");
    }
}

/// A connection, with TLS or without.
type Secured = Either<Stream, Box<TlsStream<Stream>>>;

/// Begins TLS, if the listener has it. A client that speaks plain HTTP gets an answer in HTTP.
async fn secure(tls: Option<Tls>, mut stream: Stream) -> io::Result<Secured> {
    let Some(tls) = tls else {
        return Ok(Either::Left(stream));
    };
    if timeout(FIRST_REQUEST, stream.first_byte()).await?? != HANDSHAKE {
        timeout(FIRST_REQUEST, stream.write_all(NEEDS_TLS)).await??;
        return Err(io::Error::other("the client did not begin with TLS"));
    }
    let stream = tls.accept(stream).await?;
    Ok(Either::Right(Box::new(stream)))
}

/// Waits so long, or for ever once that has happened.
async fn unless(happened: &CancellationToken, time: Duration) {
    if timeout(time, happened.cancelled()).await.is_ok() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Empty};
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

    use super::*;
    use crate::http::tls::tests::Authority;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    #[test]
    fn failures_to_accept_are_summed_up() {
        let mut failures = AcceptFailures::default();
        let start = Instant::now();
        assert_eq!(failures.count(start), Some(1), "the first at once");
        for _ in 0..200 {
            assert_eq!(failures.count(start + SUMMARY_EVERY / 2), None);
        }
        assert_eq!(failures.count(start + SUMMARY_EVERY), Some(201));
        assert_eq!(failures.count(start + SUMMARY_EVERY), None);
    }

    async fn connected() -> TcpStream {
        let router = Router::new().fallback(|| async { "here" });
        TcpStream::connect(served(router, 16).await).await.unwrap()
    }

    /// A server with room for so many connections.
    async fn served(router: Router, connections: usize) -> SocketAddr {
        served_with(router, connections, None).await
    }

    async fn served_with(router: Router, connections: usize, tls: Option<Tls>) -> SocketAddr {
        let listener = bind("127.0.0.1", 0, 16).await.unwrap();
        let address = listener.local_addr().unwrap();
        let bounds = Bounds {
            keep_alive: Duration::from_secs(30),
            graceful: Duration::from_secs(1),
            connections,
        };
        let tasks = Supervisor::new();
        let serving = Serving {
            router,
            bounds,
            tls,
            meter: Meter::default(),
        };
        tasks.spawn("server", serve(listener, serving, tasks.clone()));
        address
    }

    async fn answer(client: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> String {
        client.write_all(REQUEST).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"here") {
            assert_ne!(client.read_buf(&mut answer).await.unwrap(), 0);
        }
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn a_connection_that_asks_for_nothing_is_closed() {
        for begin in ["", "P", "PRI * HTTP/2.0\r\n", "GET / HT"] {
            let mut client = connected().await;
            client.write_all(begin.as_bytes()).await.unwrap();
            // Most likely the server has it then. Otherwise this takes a minute.
            tokio::time::sleep(Duration::from_millis(300)).await;
            tokio::time::pause();
            tokio::time::advance(FIRST_REQUEST + Duration::from_secs(1)).await;
            tokio::time::resume();
            let mut rest = Vec::new();
            let rest = client.read_to_end(&mut rest);
            let ended = timeout(2 * FIRST_REQUEST, rest).await;
            assert!(ended.is_ok(), "{begin:?} is waited for");
        }
    }

    #[tokio::test]
    async fn an_answer_to_half_a_request_says_that_the_connection_closes() {
        let mut client = connected().await;
        let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf";
        client.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }

    #[tokio::test]
    async fn an_answer_reaches_a_client_that_sends_all_of_a_body_that_nothing_reads() {
        // More than the sockets hold, so that the server has to take it.
        const BODY: usize = 16 << 20;
        let mut client = connected().await;
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {BODY}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(&vec![0; BODY]).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("here"), "{answer}");
    }

    #[tokio::test]
    async fn connections_that_linger_give_way_to_others() {
        let router = Router::new().fallback(|| async { "here" });
        let address = served(router, 1).await;
        let mut lingers = TcpStream::connect(address).await.unwrap();
        let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1048576\r\n\r\n";
        lingers.write_all(head.as_bytes()).await.unwrap();
        let mut answered = String::new();
        lingers.read_to_string(&mut answered).await.unwrap();
        assert!(answered.ends_with("here"), "{answered}");
        // Its client is neither silent nor done, so without the other it would linger for longer.
        let sends = async {
            while lingers.write_all(&[0; 1024]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let mut other = TcpStream::connect(address).await.unwrap();
        let both = async { tokio::join!(answer(&mut other), sends) };
        let (answer, ()) = timeout(Duration::from_secs(5), both).await.unwrap();
        assert!(answer.ends_with("here"), "{answer}");
    }

    #[tokio::test]
    async fn the_longest_idle_gives_way_to_another() {
        let router = Router::new().fallback(|| async { "here" });
        let address = served(router, 4).await;
        let mut idle = Vec::new();
        for _ in 0..4 {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        // One that has asked counts from then.
        answer(&mut idle[0]).await;
        for _ in 0..2 {
            answer(&mut TcpStream::connect(address).await.unwrap()).await;
        }
        assert_eq!(idle[1].read(&mut [0]).await.unwrap(), 0);
        answer(&mut idle[0]).await;
    }

    #[tokio::test]
    async fn a_connection_keeps_its_place_after_an_upgrade() {
        let upgrade = async |request: axum::extract::Request| {
            let upgraded = hyper::upgrade::on(request);
            Supervisor::new().spawn("tunnel", async move {
                let mut upgraded = TokioIo::new(upgraded.await.unwrap());
                upgraded.read_to_end(&mut Vec::new()).await.unwrap();
            });
            let headers = [("connection", "upgrade"), ("upgrade", "echo")];
            (http::StatusCode::SWITCHING_PROTOCOLS, headers)
        };
        let router = Router::new().route("/tunnel", axum::routing::get(upgrade));
        let address = served(router.fallback(|| async { "here" }), 1).await;
        let mut tunnel = TcpStream::connect(address).await.unwrap();
        let request =
            "GET /tunnel HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
        tunnel.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            assert_ne!(tunnel.read_buf(&mut head).await.unwrap(), 0);
        }
        let mut other = TcpStream::connect(address).await.unwrap();
        let waits = timeout(Duration::from_millis(200), answer(&mut other)).await;
        assert!(waits.is_err(), "two connections where one may be");
        drop(tunnel);
        let mut text = Vec::new();
        while !text.ends_with(b"here") {
            assert_ne!(other.read_buf(&mut text).await.unwrap(), 0);
        }
    }

    /// Whether the request came over TLS, in the form that [`answer`] waits for.
    async fn report(request: axum::extract::Request) -> &'static str {
        match request.extensions().get::<OverTls>() {
            Some(OverTls) => "TLS here",
            None => "here",
        }
    }

    #[tokio::test]
    async fn tls_serves_both_versions_of_http() {
        let authority = Authority::new();
        let tls = Tls::load(authority.files()).await.unwrap();
        let address = served_with(Router::new().fallback(report), 16, Some(tls)).await;
        let name = || ServerName::try_from("localhost").unwrap();
        let tcp = async || TcpStream::connect(address).await.unwrap();
        // A client that offers no version gets HTTP/1.1.
        let connector = authority.connector();
        let mut client = connector.connect(name(), tcp().await).await.unwrap();
        assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        client.shutdown().await.unwrap();
        let mut bare = authority.connector().config().as_ref().clone();
        bare.alpn_protocols.clear();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(bare));
        let mut client = connector.connect(name(), tcp().await).await.unwrap();
        for _ in 0..2 {
            assert!(answer(&mut client).await.ends_with("TLS here"));
        }
        let client = authority.connector().connect(name(), tcp().await);
        let client = TokioIo::new(client.await.unwrap());
        let client = hyper::client::conn::http2::handshake(TokioExecutor::new(), client);
        let (mut sender, connection) = client.await.unwrap();
        let driven = Supervisor::new();
        driven.spawn("client", connection);
        let request = http::Request::get("https://localhost/").body(Empty::<bytes::Bytes>::new());
        let answer = sender.send_request(request.unwrap()).await.unwrap();
        assert_eq!(answer.version(), http::Version::HTTP_2);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "TLS here");
    }

    #[tokio::test]
    async fn plain_http_on_a_port_with_tls_gets_a_reason() {
        let authority = Authority::new();
        let tls = Tls::load(authority.files()).await.unwrap();
        let address = served_with(Router::new().fallback(report), 16, Some(tls)).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(REQUEST).await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
        assert!(
            head.contains(&format!("content-length: {}\r\n", body.len())),
            "{text}"
        );
        assert!(body.contains("https://"), "{body}");
    }

    #[tokio::test]
    async fn a_connection_that_asked_may_be_idle() {
        let mut client = connected().await;
        assert!(answer(&mut client).await.starts_with("HTTP/1.1 200 OK"));
        tokio::time::pause();
        tokio::time::advance(FIRST_REQUEST + Duration::from_secs(1)).await;
        tokio::time::resume();
        assert!(answer(&mut client).await.starts_with("HTTP/1.1 200 OK"));
    }
}
