//! The second way of requests to an address where nothing listens.

use crate::support::{Fixture, lines};
use http::{HeaderMap, HeaderName, HeaderValue};
use osb_forward::HeaderRules;

const REFUSAL: HeaderName = HeaderName::from_static("x-nothing-there");
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A proxy whose backend is at the end of the detour.
async fn fixture() -> Fixture {
    let rules = |way: &'static str| HeaderRules {
        set_request: HeaderMap::from_iter([(
            HeaderName::from_static("x-way"),
            HeaderValue::from_static(way),
        )]),
        location_prefix: Some(format!("/{way}")),
        ..HeaderRules::default()
    };
    let second = HeaderRules {
        location_strip: Some("/inner".to_owned()),
        ..rules("second")
    };
    Fixture::with_detour(rules("first"), second, REFUSAL).await
}

#[tokio::test]
async fn a_request_takes_the_detour_whole_and_once() {
    let fixture = fixture().await;
    let mut client = fixture
        .send("POST /p/a%2Fb?x HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody")
        .await;
    let mut backend = fixture.accept().await;
    let head = backend.head().await;
    assert!(head.starts_with("POST /a%2Fb?x HTTP/1.1\r\n"), "{head}");
    assert_eq!(lines(&head, "x-way"), ["second"]);
    assert_eq!(backend.read_to("body").await, "body");
    backend
        .write("HTTP/1.1 303 S\r\nlocation: /inner/x\r\ncontent-length: 2\r\n\r\nok")
        .await;
    let answer = client.read_to("\r\n\r\nok").await;
    assert_eq!(lines(&answer, "location"), ["/second/x"], "{answer}");

    // The connection is kept for what may be repeated.
    client.write("GET /p/2 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let head = backend.head().await;
    assert_eq!(lines(&head, "x-way"), ["second"]);
    backend.write(OK).await;
    client.read_to("\r\n\r\nok").await;
}

#[tokio::test]
async fn an_upgrade_takes_the_detour() {
    let fixture = fixture().await;
    let mut client = fixture
        .send("GET /p/s HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: echo/7\r\n\r\n")
        .await;
    let mut backend = fixture.accept().await;
    assert_eq!(lines(&backend.head().await, "upgrade"), ["echo/7"]);
    backend
        .write("HTTP/1.1 101 S\r\nconnection: upgrade\r\nupgrade: echo/7\r\n\r\nx")
        .await;
    client.read_to("\r\n\r\nx").await;
    client.write("ping").await;
    assert_eq!(backend.read_to("ping").await, "ping");
}

#[tokio::test]
async fn a_detour_on_which_nothing_listens_either_is_the_first_failure() {
    let nothing = "could not connect to the backend";
    for (status, header, is_refusal) in [
        ("502 B", "x-nothing-there: 1\r\n", true),
        ("502 B", "", false),
        ("200 O", "x-nothing-there: 1\r\n", false),
    ] {
        let fixture = fixture().await;
        let mut client = fixture
            .send("POST /p/ HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbody")
            .await;
        let mut backend = fixture.accept().await;
        backend.read_to("body").await;
        let answer = format!("HTTP/1.1 {status}\r\n{header}content-length: 2\r\n\r\nno");
        backend.write(&answer).await;
        let answer = client.rest().await;
        let end = if is_refusal { nothing } else { "no" };
        assert!(answer.ends_with(&format!("\r\n\r\n{end}")), "{answer}");
    }
    let fixture = fixture().await;
    let Fixture {
        proxy,
        backend,
        tasks: _tasks,
    } = fixture;
    drop(backend);
    let answer = reach(proxy).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.ends_with(nothing), "{answer}");
}

/// The answer to a request.
async fn reach(proxy: std::net::SocketAddr) -> String {
    let mut client = crate::support::Wire(tokio::net::TcpStream::connect(proxy).await.unwrap());
    client
        .write("GET /p/ HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .await;
    client.rest().await
}
