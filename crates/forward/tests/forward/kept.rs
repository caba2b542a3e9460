//! Connections that earlier requests left: which requests use them, and what a backend that closes them
//! costs.

use crate::support::{Fixture, PATIENCE, Wire, lines};
use osb_forward::{HeaderRules, Limits};
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
/// Requests on one connection of a client.
const REQUESTS: usize = 2000;

/// When a backend closes a connection on which it has answered, without having announced it.
#[derive(Clone, Copy, Debug)]
enum Closes {
    /// Directly after the answer.
    AfterAnswer,
    /// When the next request arrives.
    AtNextRequest,
}

async fn fixture() -> Fixture {
    Fixture::new(HeaderRules::default()).await
}

/// Reads a request with its body.
async fn request(backend: &mut Wire) {
    let head = backend.head().await;
    if let [length] = lines(&head, "content-length")[..] {
        let mut body = vec![0; length.parse().unwrap()];
        backend.0.read_exact(&mut body).await.unwrap();
    }
}

/// Sends requests of these kinds in turns over one connection, each after the answer to the last, to a
/// backend that closes its connections. Returns those that were not answered by the backend.
async fn failures(kinds: &[&str], closes: Closes) -> Vec<String> {
    let Fixture {
        proxy,
        backend,
        tasks,
    } = fixture().await;
    let each = tasks.clone();
    tasks.spawn_abortable("backend", async move {
        while let Ok((stream, _)) = backend.accept().await {
            each.spawn_abortable("connection", async move {
                let mut wire = Wire(stream);
                request(&mut wire).await;
                wire.write(OK).await;
                if matches!(closes, Closes::AtNextRequest) {
                    let _ = wire.0.read_u8().await;
                }
            });
        }
    });
    let mut client = Wire(TcpStream::connect(proxy).await.unwrap());
    let mut failures = Vec::new();
    for number in 0..REQUESTS {
        let kind = kinds[number % kinds.len()];
        let (method, rest) = kind.split_once(' ').unwrap();
        let head = format!("{method} /p/{number} HTTP/1.1\r\nhost: a\r\n{rest}");
        client.write(&head).await;
        let answer = client.head().await;
        let [length] = lines(&answer, "content-length")[..] else {
            panic!("{kind}: {answer}");
        };
        let mut body = vec![0; length.parse().unwrap()];
        client.0.read_exact(&mut body).await.unwrap();
        if !answer.starts_with("HTTP/1.1 200 ") {
            failures.push(format!("{kind:?} {number}: {answer}"));
        }
    }
    tasks.stop();
    failures
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_lost_to_a_backend_that_closes_its_connections() {
    let posts = ["POST content-length: 4\r\n\r\nbody"];
    // Each but the first finds a connection that the one before it left.
    let kinds = [
        "GET \r\n",
        "POST content-length: 4\r\n\r\nbody",
        "GET \r\n",
        "POST content-length: 0\r\n\r\n",
        "PUT content-length: 4\r\n\r\nbody",
        "DELETE \r\n",
        "PATCH content-length: 4\r\n\r\nbody",
        "GET content-length: 4\r\n\r\nbody",
        "OPTIONS \r\n",
        "BREW \r\n",
    ];
    for closes in [Closes::AfterAnswer, Closes::AtNextRequest] {
        for kinds in [&posts[..], &kinds] {
            let failures = failures(kinds, closes).await;
            let first = failures.first();
            assert_eq!(first, None, "{closes:?}: {} failed", failures.len());
        }
    }
}

#[tokio::test]
async fn only_requests_that_may_be_repeated_use_a_kept_connection() {
    for (request, is_reused) in [
        ("GET /p/2 HTTP/1.1\r\nhost: a\r\n\r\n", true),
        ("HEAD /p/2 HTTP/1.1\r\nhost: a\r\n\r\n", true),
        ("OPTIONS /p/2 HTTP/1.1\r\nhost: a\r\n\r\n", true),
        ("POST /p/2 HTTP/1.1\r\nhost: a\r\n\r\n", false),
        ("DELETE /p/2 HTTP/1.1\r\nhost: a\r\n\r\n", false),
        (
            "GET /p/2 HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi",
            false,
        ),
    ] {
        let fixture = fixture().await;
        // Whatever its first request was, a connection is kept.
        let first = "POST /p/1 HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";
        let mut client = fixture.send(first).await;
        let mut kept = fixture.accept().await;
        kept.read_to("hi").await;
        kept.write(OK).await;
        client.read_to("\r\n\r\nok").await;
        client.write(request).await;
        let mut backend = match is_reused {
            true => kept,
            false => fixture.accept().await,
        };
        let head = backend.head().await;
        assert!(head.contains(" /2 "), "{request}: {head}");
    }
}

#[tokio::test]
async fn a_connection_that_the_backend_closed_is_replaced() {
    let fixture = fixture().await;
    let mut client = fixture.send("GET /p/1 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    backend.write(OK).await;
    client.read_to("\r\n\r\nok").await;
    backend.0.set_zero_linger().unwrap();
    drop(backend);
    client.write("GET /p/2 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut backend = fixture.accept().await;
    assert!(backend.head().await.starts_with("GET /2 "));
    backend.write(OK).await;
    client.read_to("\r\n\r\nok").await;
}

#[tokio::test]
async fn a_get_is_sent_again_when_a_kept_connection_breaks_before_the_response() {
    let fixture = fixture().await;
    let mut client = fixture.send("GET /p/1 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    backend.write(OK).await;
    client.read_to("\r\n\r\nok").await;
    let request = "GET /p/2 HTTP/1.1\r\nhost: a\r\nx-a: 1\r\n\r\n";
    client.write(request).await;
    // It takes the request, and is gone.
    backend.head().await;
    drop(backend);
    let mut backend = fixture.accept().await;
    let head = backend.head().await;
    assert!(head.starts_with("GET /2 "), "{head}");
    assert_eq!(lines(&head, "x-a"), ["1"]);
    backend.write(OK).await;
    client.read_to("\r\n\r\nok").await;
}

#[tokio::test]
async fn a_connection_too_many_is_reset_and_occupies_no_port() {
    let limits = Limits {
        keep_per_backend: 1,
        ..Limits::default()
    };
    let fixture = Fixture::with_limits(HeaderRules::default(), limits).await;
    let mut client = Wire(TcpStream::connect(fixture.proxy).await.unwrap());
    let mut backends = Vec::new();
    for _ in 0..2 {
        client
            .write("POST /p/ HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi")
            .await;
        let mut backend = fixture.accept().await;
        backend.read_to("hi").await;
        backend.write(OK).await;
        client.read_to("\r\n\r\nok").await;
        backends.push(backend);
    }
    let ended = timeout(PATIENCE, backends[1].0.read_u8()).await.unwrap();
    let kind = ended.map_err(|error| error.kind());
    assert_eq!(kind, Err(std::io::ErrorKind::ConnectionReset));
    client.write("GET /p/2 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let head = backends[0].head().await;
    assert!(head.starts_with("GET /2 "), "the other is kept: {head}");
}
