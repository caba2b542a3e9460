//! Bodies pass as they come, and broken peers are distinguished from slow ones.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::support::{Fixture, PATIENCE, Wire, lines};
use osb_forward::{CountSilence, HeaderRules, Lease, Limits, Silence};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout},
};

async fn fixture() -> Fixture {
    Fixture::new(HeaderRules::default()).await
}

#[tokio::test]
async fn a_chunked_upload_is_streamed() {
    let fixture = fixture().await;
    let mut client = fixture
        .send("POST /p/up HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        .await;
    let mut backend = fixture.accept().await;
    let head = backend.head().await;
    assert_eq!(lines(&head, "transfer-encoding"), ["chunked"]);
    assert_eq!(backend.read_to("first\r\n").await, "5\r\nfirst\r\n");
    // Only now the client sends more: nothing waited for the whole.
    client.write("6\r\nsecond\r\n0\r\n\r\n").await;
    assert_eq!(
        backend.read_to("0\r\n\r\n").await,
        "6\r\nsecond\r\n0\r\n\r\n"
    );
    backend
        .write("HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok")
        .await;
    assert!(
        client
            .read_to("\r\n\r\nok")
            .await
            .starts_with("HTTP/1.1 201 ")
    );
}

#[tokio::test]
async fn bodies_of_any_method_pass() {
    for (method, framing, body) in [
        ("GET", "content-length: 4", "body"),
        (
            "GET",
            "transfer-encoding: chunked",
            "4\r\nbody\r\n0\r\n\r\n",
        ),
        ("DELETE", "content-length: 4", "body"),
        (
            "OPTIONS",
            "transfer-encoding: chunked",
            "4\r\nbody\r\n0\r\n\r\n",
        ),
        ("BREW", "content-length: 4", "body"),
    ] {
        let fixture = fixture().await;
        let mut client = fixture
            .send(&format!(
                "{method} /p/ HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n{body}"
            ))
            .await;
        let mut backend = fixture.accept().await;
        let head = backend.head().await;
        assert!(
            head.starts_with(&format!("{method} / HTTP/1.1\r\n")),
            "{head}"
        );
        assert!(head.contains(framing), "{head}");
        assert_eq!(backend.read_to(body).await, body);
        backend.write("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert!(client.head().await.starts_with("HTTP/1.1 204 "));
    }
}

#[tokio::test]
async fn events_are_not_held_back() {
    let fixture = fixture().await;
    let mut client = fixture
        .send("GET /p/events HTTP/1.1\r\nhost: a\r\n\r\n")
        .await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    backend
        .write("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        .await;
    let head = client.head().await;
    assert_eq!(lines(&head, "transfer-encoding"), ["chunked"]);
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        backend.write(event).await;
        client.read_to(&format!("{event}\r\n")).await;
    }
    drop(backend);
    client.read_to("0\r\n\r\n").await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_head_frees_the_backend() {
    let fixture = fixture().await;
    let client = fixture.send("GET /p/ HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    drop(client);
    assert_eq!(backend.rest().await, "");
}

#[tokio::test]
async fn a_client_that_leaves_during_the_body_frees_the_backend() {
    let fixture = fixture().await;
    let mut client = fixture.send("GET /p/ HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    backend
        .write("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nsome")
        .await;
    client.read_to("some").await;
    drop(client);
    assert_eq!(backend.rest().await, "");
}

#[tokio::test]
async fn a_backend_that_breaks_off_breaks_the_response() {
    let fixture = fixture().await;
    let mut client = fixture.send("GET /p/ HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    backend
        .write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsome\r\n")
        .await;
    client.read_to("some\r\n").await;
    drop(backend);
    // Neither a last chunk nor an error page: a cut, which every client can tell from an end.
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn nonsense_from_the_backend_is_an_error_of_the_backend() {
    for nonsense in ["\0\u{1}garbage\r\n\r\n", "HTTP/9.9 200 OK\r\n\r\n", ""] {
        let fixture = fixture().await;
        let mut client = fixture
            .send("GET /p/ HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            .await;
        let mut backend = fixture.accept().await;
        backend.head().await;
        backend.write(nonsense).await;
        drop(backend);
        let response = client.rest().await;
        assert!(
            response.starts_with("HTTP/1.1 502 "),
            "{nonsense:?}: {response}"
        );
        let text = "the backend closed the connection or sent invalid HTTP";
        assert!(response.ends_with(text), "{nonsense:?}: {response}");
    }
}

#[tokio::test]
async fn an_absent_backend_is_a_connect_error_that_does_not_name_it() {
    let Fixture {
        proxy,
        backend,
        tasks,
    } = fixture().await;
    let address = backend.local_addr().unwrap();
    drop(backend);
    let response = {
        let mut client = Wire(tokio::net::TcpStream::connect(proxy).await.unwrap());
        client
            .write("GET /p/ HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            .await;
        client.rest().await
    };
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
    assert!(
        response.ends_with("could not connect to the backend"),
        "{response}"
    );
    assert!(
        !response.contains(&address.port().to_string()),
        "{response}"
    );
    tasks.stop();
}

fn impatient() -> Limits {
    Limits {
        connect: Duration::from_millis(50),
        idle: Some(Duration::from_secs(1)),
        ..Limits::default()
    }
}

#[tokio::test]
async fn a_silent_backend_times_out() {
    let fixture = Fixture::with_limits(HeaderRules::default(), impatient()).await;
    let mut client = fixture
        .send("GET /p/ HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    let response = client.rest().await;
    assert!(response.starts_with("HTTP/1.1 504 "), "{response}");
    assert!(
        response.ends_with("timed out waiting for the backend to answer"),
        "{response}"
    );
    assert_eq!(backend.rest().await, "", "the backend is let go");
}

#[tokio::test]
async fn a_stalled_upload_times_out() {
    let fixture = Fixture::with_limits(HeaderRules::default(), impatient()).await;
    let mut client = fixture
        .send("POST /p/ HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\nconnection: close\r\n\r\nhalf")
        .await;
    let mut backend = fixture.accept().await;
    backend.read_to("half").await;
    let response = client.rest().await;
    assert!(response.starts_with("HTTP/1.1 504 "), "{response}");
    assert!(
        response.ends_with("timed out waiting for the request body"),
        "{response}"
    );
}

#[tokio::test]
async fn a_backend_that_falls_silent_breaks_the_response() {
    let fixture = Fixture::with_limits(HeaderRules::default(), impatient()).await;
    let mut client = fixture.send("GET /p/ HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    backend
        .write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
        .await;
    client.read_to("half").await;
    assert_eq!(client.rest().await, "");
    assert_eq!(backend.rest().await, "", "the backend is let go");
}

#[tokio::test]
async fn a_long_upload_is_not_silence() {
    let limits = Limits {
        idle: Some(Duration::from_secs(3)),
        ..impatient()
    };
    let fixture = Fixture::with_limits(HeaderRules::default(), limits).await;
    let mut client = fixture
        .send("POST /p/ HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n")
        .await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    // The upload takes several times the limit, but something moves all the time.
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    for _ in 0..10 {
        tick.tick().await;
        client.write("x").await;
        backend.read_to("x").await;
    }
    backend
        .write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        .await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_client_may_send_everything_before_it_reads() {
    /// More than the sockets and the proxy hold.
    const BODY: usize = 32 << 20;
    let fixture = fixture().await;
    let head = format!("POST /p/ HTTP/1.1\r\nhost: a\r\ncontent-length: {BODY}\r\n\r\n");
    let mut client = fixture.send(&head).await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {BODY}\r\n\r\n");
    backend.write(&head).await;
    // It answers at once, and needs all of the upload nevertheless.
    let (mut taken, mut given) = backend.0.into_split();
    let takes = async {
        let mut upload = Vec::with_capacity(BODY);
        (&mut taken)
            .take(BODY as u64)
            .read_to_end(&mut upload)
            .await
            .unwrap();
        upload.len()
    };
    let gives = async { given.write_all(&vec![b'x'; BODY]).await };
    let talks = async {
        client.0.write_all(&vec![b'y'; BODY]).await.unwrap();
        client.head().await;
        let mut answer = vec![0; BODY];
        client.0.read_exact(&mut answer).await.unwrap();
    };
    let all = async { tokio::join!(takes, gives, talks) };
    let (upload, given, ()) = timeout(PATIENCE * 3, all)
        .await
        .expect("both directions move");
    assert_eq!(upload, BODY);
    given.unwrap();
}

/// A backend that can be frozen.
#[derive(Default)]
struct Freezer {
    frozen: AtomicBool,
    thawed: std::sync::Mutex<Option<Instant>>,
}

impl Freezer {
    fn thaw(&self) {
        *self.thawed.lock().unwrap() = Some(Instant::now());
        self.frozen.store(false, Ordering::Relaxed);
    }
}

struct Frozen(Arc<Freezer>);

impl CountSilence for Frozen {
    fn silence(&self) -> Silence {
        match (
            self.0.frozen.load(Ordering::Relaxed),
            *self.0.thawed.lock().unwrap(),
        ) {
            (true, _) => Silence::Excused,
            (false, Some(at)) => Silence::CountsFrom(at),
            (false, None) => Silence::Counts,
        }
    }
}

/// A proxy to a backend that can be frozen, with limits on silence of ten minutes.
async fn freezable() -> (Fixture, Arc<Freezer>) {
    let limits = Limits {
        idle: Some(Duration::from_secs(600)),
        tunnel_idle: Some(Duration::from_secs(600)),
        ..Limits::default()
    };
    let freezer = Arc::new(Freezer::default());
    let lease = Lease::with_silence(Frozen(Arc::clone(&freezer)));
    let rules = HeaderRules::default();
    let fixture = Fixture::with_lease(rules, limits, Some(lease)).await;
    (fixture, freezer)
}

/// Lets time pass in which nothing happens.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
    // What is due acts now.
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::test]
async fn the_silence_of_a_frozen_backend_does_not_count() {
    let upgrade = "GET /p/ HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    let switching = "HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    let get = "GET /p/ HTTP/1.1\r\nhost: a\r\n\r\n";
    let begin = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n";
    for (request, before, after) in [
        (get, "", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate"),
        (get, begin, "late"),
        (upgrade, switching, "late"),
    ] {
        let (fixture, freezer) = freezable().await;
        let mut client = fixture.send(request).await;
        let mut backend = fixture.accept().await;
        backend.head().await;
        backend.write(before).await;
        if !before.is_empty() {
            client.head().await;
        }
        pass(Duration::from_secs(500)).await;
        freezer.frozen.store(true, Ordering::Relaxed);
        for _ in 0..5 {
            pass(Duration::from_secs(500)).await;
        }
        freezer.thaw();
        pass(Duration::from_secs(500)).await;
        backend.write(after).await;
        client.read_to("late").await;
    }
}

#[tokio::test]
async fn the_silence_of_a_thawed_backend_counts() {
    let (fixture, freezer) = freezable().await;
    let mut client = fixture.send("GET /p/ HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    freezer.frozen.store(true, Ordering::Relaxed);
    pass(Duration::from_secs(900)).await;
    freezer.thaw();
    pass(Duration::from_secs(601)).await;
    let answer = client.head().await;
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
}
