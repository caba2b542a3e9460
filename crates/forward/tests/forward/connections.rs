//! Connections to the backend: reused, replaced, and turned into tunnels.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use crate::support::{Fixture, PATIENCE, Wire, lines};
use axum::body::Body;
use futures::{SinkExt, StreamExt, task::AtomicWaker};
use osb_forward::{Forwarder, HeaderRules, Lease, Limits, Target};
use osb_service::Supervisor;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_tungstenite::tungstenite::{
    Message,
    client::IntoClientRequest,
    handshake::server::{Request, Response},
};
use tokio_util::sync::CancellationToken;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const UPGRADE: &str = "GET /p/s?t=%2F HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\n\
                       upgrade: echo/7\r\norigin: http://o\r\n\r\n";

async fn fixture() -> Fixture {
    Fixture::new(HeaderRules::default()).await
}

#[tokio::test]
async fn a_connection_serves_many_requests() {
    let fixture = fixture().await;
    let mut client = fixture.send("GET /p/0 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut backend = fixture.accept().await;
    for number in 1..20 {
        backend.head().await;
        backend.write(OK).await;
        client.read_to("\r\n\r\nok").await;
        client
            .write(&format!("GET /p/{number} HTTP/1.1\r\nhost: a\r\n\r\n"))
            .await;
        // On the same connection: the backend accepts no other.
    }
    assert!(backend.head().await.starts_with("GET /19 "));
}

/// How often a future woke its task while it was polled, which makes a runtime wake another thread.
#[derive(Default)]
struct OwnWakes {
    task: AtomicWaker,
    is_polling: AtomicBool,
    count: AtomicUsize,
}

impl Wake for OwnWakes {
    fn wake(self: Arc<Self>) {
        if self.is_polling.load(Ordering::SeqCst) {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
        self.task.wake();
    }
}

async fn own_wakes<T>(future: impl Future<Output = T>) -> (T, usize) {
    let wakes = Arc::new(OwnWakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut future = std::pin::pin!(future);
    let done = std::future::poll_fn(|cx| {
        wakes.task.register(cx.waker());
        wakes.is_polling.store(true, Ordering::SeqCst);
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        wakes.is_polling.store(false, Ordering::SeqCst);
        polled
    })
    .await;
    (done, wakes.count.load(Ordering::SeqCst))
}

#[tokio::test]
async fn an_exchange_on_a_kept_connection_does_not_wake_itself() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let backend = listener.local_addr().unwrap();
    let forwarder = Forwarder::new(Limits::default(), &Supervisor::new());
    let rules = HeaderRules::default();
    let mut kept: Option<Wire> = None;
    for number in 0..10 {
        let request = http::Request::get("http://a/").body(Body::empty()).unwrap();
        let target = Target {
            authority: backend.to_string().parse().unwrap(),
            path_and_query: "/x".parse().unwrap(),
        };
        let exchange = async {
            let response = forwarder.forward(request, target, &rules).await.unwrap();
            axum::body::to_bytes(response.into_body(), 10)
                .await
                .unwrap()
        };
        let answer = async {
            let mut wire = match kept.take() {
                Some(wire) => wire,
                None => Wire(listener.accept().await.unwrap().0),
            };
            wire.head().await;
            wire.write(OK).await;
            wire
        };
        let ((body, wakes), wire) = tokio::join!(own_wakes(exchange), answer);
        assert_eq!(body, "ok");
        kept = Some(wire);
        if number > 0 {
            assert_eq!(wakes, 0, "request {number}");
        }
    }
}

#[tokio::test]
async fn a_new_connection_that_breaks_is_not_tried_again() {
    let fixture = fixture().await;
    let mut client = fixture.send("GET /p/1 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    drop(backend);
    let answer = client.head().await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn a_refused_connection_is_tried_again() {
    const PAUSES: [Duration; 10] = [Duration::from_millis(300); 10];
    let limits = Limits {
        refused: &PAUSES,
        ..Limits::default()
    };
    let fixture = Fixture::with_limits(HeaderRules::default(), limits).await;
    let address = fixture.backend.local_addr().unwrap();
    let Fixture {
        proxy,
        backend,
        tasks: _tasks,
    } = fixture;
    drop(backend);
    let mut client = Wire(TcpStream::connect(proxy).await.unwrap());
    client
        .write("POST /p/1 HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody")
        .await;
    // Long enough for the first attempt to be refused.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let listener = TcpListener::bind(address).await.unwrap();
    let (backend, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let mut backend = Wire(backend);
    assert!(backend.head().await.starts_with("POST /1 "));
    assert_eq!(backend.read_to("body").await, "body");
    backend.write(OK).await;
    client.read_to("\r\n\r\nok").await;
}

#[tokio::test]
async fn a_connection_that_is_not_used_is_closed() {
    let limits = Limits {
        keep: Duration::from_millis(50),
        ..Limits::default()
    };
    let fixture = Fixture::with_limits(HeaderRules::default(), limits).await;
    let mut client = fixture.send("GET /p/1 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    backend.write(OK).await;
    client.read_to("\r\n\r\nok").await;
    assert_eq!(backend.rest().await, "");
}

const WEBSOCKET: &str = "GET /p/s HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\n\
                         upgrade: WebSocket\r\n\r\n";
const SWITCHING: &str =
    "HTTP/1.1 101 Switching\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n";

/// A client and a backend with a WebSocket between them.
async fn websocket() -> (Fixture, Wire, Wire) {
    let fixture = fixture().await;
    let (client, backend) = switched(&fixture).await;
    (fixture, client, backend)
}

/// Opens a WebSocket between a client and a backend.
async fn switched(fixture: &Fixture) -> (Wire, Wire) {
    let mut client = fixture.send(WEBSOCKET).await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    backend.write(SWITCHING).await;
    client.head().await;
    (client, backend)
}

#[tokio::test]
async fn the_other_side_of_a_websocket_that_vanishes_gets_a_close_frame() {
    for resets in [false, true] {
        let (_fixture, mut client, backend) = websocket().await;
        let mut backend = backend;
        backend.0.write_all(b"\x81\x02hi").await.unwrap();
        client.read_to("hi").await;
        if resets {
            backend.0.set_zero_linger().unwrap();
        }
        drop(backend);
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, client.0.read_to_end(&mut rest))
            .await
            .unwrap();
        assert_eq!(rest, b"\x88\x02\x03\xf3", "1011, reset: {resets}");

        let (_fixture, client, mut backend) = websocket().await;
        let mut client = client;
        client.0.write_all(b"\x81\x82\0\0\0\0hi").await.unwrap();
        backend.read_to("hi").await;
        if resets {
            client.0.set_zero_linger().unwrap();
        }
        drop(client);
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, backend.0.read_to_end(&mut rest))
            .await
            .unwrap();
        assert_eq!(rest, b"\x88\x82\0\0\0\0\x03\xe9", "1001, reset: {resets}");
    }
}

#[tokio::test]
async fn a_close_frame_is_followed_by_no_other() {
    let (_fixture, mut client, mut backend) = websocket().await;
    backend.0.write_all(b"\x88\x02\x10\xe1").await.unwrap();
    drop(backend);
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, client.0.read_to_end(&mut rest))
        .await
        .unwrap();
    assert_eq!(rest, b"\x88\x02\x10\xe1");
}

#[tokio::test]
async fn websocket_frames_and_subprotocols_pass() {
    let fixture = fixture().await;
    let request = {
        let mut request = format!("ws://{}/p/chat?x=1", fixture.proxy)
            .into_client_request()
            .unwrap();
        request
            .headers_mut()
            .insert("sec-websocket-protocol", "v2, v1".parse().unwrap());
        request
            .headers_mut()
            .insert("origin", "http://o".parse().unwrap());
        request
    };
    let serve = async {
        let (stream, _) = fixture.backend.accept().await.unwrap();
        #[expect(
            clippy::result_large_err,
            reason = "the callback's type is tungstenite's"
        )]
        let choose = |request: &Request, mut response: Response| {
            assert_eq!(request.uri(), "/chat?x=1");
            assert_eq!(request.headers()["origin"], "http://o");
            assert_eq!(request.headers()["sec-websocket-protocol"], "v2, v1");
            response
                .headers_mut()
                .insert("sec-websocket-protocol", "v1".parse().unwrap());
            Ok(response)
        };
        let mut socket = tokio_tungstenite::accept_hdr_async(stream, choose)
            .await
            .unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() || message.is_binary() {
                socket.send(message).await.unwrap();
            }
        }
    };
    let talk = async {
        let (mut socket, response) = tokio_tungstenite::connect_async(request).await.unwrap();
        assert_eq!(response.headers()["sec-websocket-protocol"], "v1");
        for message in [Message::text("hello"), Message::binary(vec![0; 300_000])] {
            socket.send(message.clone()).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), message);
        }
        socket.close(None).await.unwrap();
        assert!(socket.next().await.unwrap().unwrap().is_close());
    };
    timeout(PATIENCE, async { tokio::join!(serve, talk) })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_tunnel_carries_any_protocol_from_the_first_byte() {
    let fixture = fixture().await;
    let mut client = fixture.send(UPGRADE).await;
    let mut backend = fixture.accept().await;
    let head = backend.head().await;
    assert!(head.starts_with("GET /s?t=%2F HTTP/1.1\r\n"), "{head}");
    assert_eq!(lines(&head, "connection"), ["upgrade"]);
    assert_eq!(lines(&head, "upgrade"), ["echo/7"]);
    assert_eq!(lines(&head, "origin"), ["http://o"]);
    // The first bytes come with the head, and must not be lost.
    backend
        .write("HTTP/1.1 101 Switching\r\nconnection: Upgrade\r\nupgrade: echo/7\r\nx-a: 1\r\n\r\nwelcome")
        .await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 101 Switching\r\n"), "{head}");
    assert_eq!(lines(&head, "upgrade"), ["echo/7"]);
    assert_eq!(lines(&head, "x-a"), ["1"]);
    assert_eq!(client.read_to("welcome").await, "welcome");
    client.write("ping").await;
    assert_eq!(backend.read_to("ping").await, "ping");
    drop(client);
    assert_eq!(backend.rest().await, "");
}

#[tokio::test]
async fn a_refused_upgrade_is_an_ordinary_response() {
    let fixture = fixture().await;
    let mut client = fixture.send(UPGRADE).await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    backend
        .write("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno")
        .await;
    assert!(
        client
            .read_to("\r\n\r\nno")
            .await
            .starts_with("HTTP/1.1 403 ")
    );
}

#[tokio::test]
async fn a_client_is_never_switched_unasked() {
    let fixture = fixture().await;
    let mut client = fixture
        .send("GET /p/ HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .await;
    let mut backend = fixture.accept().await;
    let head = backend.head().await;
    assert!(lines(&head, "upgrade").is_empty(), "{head}");
    backend
        .write("HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
        .await;
    assert!(client.rest().await.starts_with("HTTP/1.1 502 "));
}

#[tokio::test]
async fn http2_by_upgrade_stays_http1() {
    let fixture = fixture().await;
    let _client = fixture
        .send(
            "GET /p/ HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n\
             http2-settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
        )
        .await;
    let head = fixture.accept().await.head().await;
    for gone in ["upgrade", "connection", "http2-settings"] {
        assert!(lines(&head, gone).is_empty(), "{gone} in {head}");
    }
}

#[tokio::test]
async fn a_tunnel_ends_when_both_sides_are_silent_for_too_long() {
    let limits = Limits {
        tunnel_idle: Some(Duration::from_secs(600)),
        ..Limits::default()
    };
    let fixture = Fixture::with_limits(HeaderRules::default(), limits).await;
    let mut client = fixture.send(UPGRADE).await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    backend
        .write("HTTP/1.1 101 Switching\r\nconnection: Upgrade\r\nupgrade: echo/7\r\n\r\nx")
        .await;
    client.read_to("\r\n\r\nx").await;
    for _ in 0..3 {
        // The clock moves by itself once everybody waits; what moves in between counts for both.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(400)).await;
        tokio::time::resume();
        client.write("ping").await;
        assert_eq!(backend.read_to("ping").await, "ping");
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(601)).await;
    tokio::time::resume();
    assert_eq!(client.rest().await, "");
    assert_eq!(backend.rest().await, "");
}

#[tokio::test]
async fn tunnels_end_when_the_process_stops() {
    let fixture = fixture().await;
    let mut client = fixture.send(UPGRADE).await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    backend
        .write("HTTP/1.1 101 Switching\r\nconnection: Upgrade\r\nupgrade: echo/7\r\n\r\nx")
        .await;
    client.read_to("\r\n\r\nx").await;
    fixture.tasks.stop();
    assert_eq!(client.rest().await, "");
    assert_eq!(backend.rest().await, "");
}

/// A proxy whose exchanges end with the token.
async fn withdrawable() -> (Fixture, CancellationToken) {
    let token = CancellationToken::new();
    let lease = Lease::new(()).until(token.clone());
    let fixture = Fixture::with_lease(HeaderRules::default(), Limits::default(), Some(lease));
    (fixture.await, token)
}

#[tokio::test]
async fn a_tunnel_ends_when_its_lease_is_withdrawn() {
    let (fixture, token) = withdrawable().await;
    let mut client = fixture.send(UPGRADE).await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    backend
        .write("HTTP/1.1 101 S\r\nconnection: upgrade\r\nupgrade: echo/7\r\n\r\n")
        .await;
    client.head().await;
    client.write("ping").await;
    backend.read_to("ping").await;
    token.cancel();
    assert_eq!(
        (client.rest().await, backend.rest().await),
        (String::new(), String::new())
    );
}

/// A WebSocket through a proxy whose exchanges end with the token.
async fn withdrawable_websocket() -> (Fixture, CancellationToken, Wire, Wire) {
    let (fixture, token) = withdrawable().await;
    let (client, backend) = switched(&fixture).await;
    (fixture, token, client, backend)
}

#[tokio::test]
async fn a_websocket_whose_lease_is_withdrawn_is_closed_between_frames() {
    let (_fixture, token, mut client, mut backend) = withdrawable_websocket().await;
    backend.0.write_all(b"\x81\x02hi").await.unwrap();
    client.read_to("hi").await;
    client.0.write_all(b"\x81\x82\0\0\0\0ho").await.unwrap();
    backend.read_to("ho").await;
    token.cancel();
    let closed = client.rest_bytes().await;
    assert_eq!(closed, b"\x88\x16\x03\xf0access was withdrawn", "1008");
    let closed = backend.rest_bytes().await;
    assert_eq!(closed, b"\x88\x82\0\0\0\0\x03\xe9", "1001");
}

#[tokio::test]
async fn a_close_frame_arrives_beside_what_the_client_still_sends() {
    let (_fixture, token, client, backend) = withdrawable_websocket().await;
    let (mut reading, mut sending) = tokio::io::split(client.0);
    let flood = async {
        let frame = [&b"\x82\xfe\x10\0\0\0\0\0"[..], &[0; 4096]].concat();
        while sending.write_all(&frame).await.is_ok() {}
    };
    let read = async {
        token.cancel();
        let mut rest = Vec::new();
        let _ = reading.read_to_end(&mut rest).await;
        rest
    };
    let both = async {
        tokio::select! {
            rest = read => rest,
            () = flood => panic!("the connection was reset before its end was read"),
        }
    };
    let rest = timeout(PATIENCE, both).await.unwrap();
    assert_eq!(rest, b"\x88\x16\x03\xf0access was withdrawn");
    drop(backend);
}

#[tokio::test]
async fn nothing_follows_half_a_frame_when_the_lease_is_withdrawn() {
    let (_fixture, token, mut client, mut backend) = withdrawable_websocket().await;
    backend.0.write_all(b"\x81\x04ha").await.unwrap();
    client.read_to("ha").await;
    token.cancel();
    assert_eq!(client.rest_bytes().await, b"");
    let closed = backend.rest_bytes().await;
    assert_eq!(closed, b"\x88\x82\0\0\0\0\x03\xe9");
}

#[tokio::test]
async fn a_response_breaks_off_when_its_lease_is_withdrawn() {
    let (fixture, token) = withdrawable().await;
    let mut client = fixture.send("GET /p/1 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    backend
        .write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nping\r\n")
        .await;
    client.read_to("ping\r\n").await;
    token.cancel();
    assert_eq!(client.rest().await, "", "no last chunk");
    backend.rest().await;
}

#[tokio::test]
async fn a_request_is_given_up_when_its_lease_is_withdrawn() {
    let (fixture, token) = withdrawable().await;
    let mut client = fixture.send("GET /p/1 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    token.cancel();
    let answer = client.head().await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    backend.rest().await;
}

#[tokio::test]
async fn an_offer_of_http_among_others_is_not_passed_on() {
    let fixture = fixture().await;
    for offer in ["h2c", "x, h2c", "h2c, x"] {
        let request = format!(
            "GET /p/1 HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, HTTP2-Settings\r\n\
             upgrade: {offer}\r\nhttp2-settings: AAAA\r\n\r\n"
        );
        let mut client = fixture.send(&request).await;
        let mut backend = fixture.accept().await;
        let head = backend.head().await.to_ascii_lowercase();
        assert!(!head.contains("upgrade"), "{offer}: {head}");
        backend
            .write("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok")
            .await;
        client.read_to("\r\n\r\nok").await;
    }
}
