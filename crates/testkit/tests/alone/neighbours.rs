//! Access from one sandbox to another through the server. Sandboxes have addresses of the loopback
//! network here, so that a test can listen and connect as either.

use std::net::{IpAddr, Ipv4Addr};

use futures::StreamExt;
use osb_testkit::{API_KEY, CannedProgram, TestServer, connect_from, exchange, running_at};
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest},
};

const VICTIM: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const NEIGHBOUR: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 4));
const TOKEN: &str = "token-of-the-victim";
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ninside";

async fn server(more: &str) -> (TestServer, CannedProgram) {
    let program = CannedProgram::start(VICTIM, ANSWER).await.unwrap();
    let sandboxes = [
        running_at("victim", VICTIM, Some(TOKEN)),
        running_at("neighbour", NEIGHBOUR, Some("token-of-the-neighbour")),
    ];
    let server = TestServer::around(sandboxes, more).await.unwrap();
    (server, program)
}

/// Requests the victim's program from this client address, and returns the reply.
async fn asks(
    server: &TestServer,
    program: &CannedProgram,
    source: IpAddr,
    headers: &str,
) -> String {
    let stream = connect_from(source, server.address).await.unwrap();
    let port = program.address.port();
    let request = format!(
        "GET /v1/sandboxes/victim/proxy/{port}/ HTTP/1.1\r\nHost: a\r\n{headers}\
         Connection: close\r\n\r\n"
    );
    exchange(stream, &request).await.unwrap()
}

#[tokio::test]
async fn a_neighbour_needs_a_key() {
    let (server, program) = server("trusted_proxies = ['127.0.0.9']").await;
    for (source, headers, inside) in [
        (ELSEWHERE, String::new(), true),
        (NEIGHBOUR, String::new(), false),
        (VICTIM, String::new(), false),
        (
            NEIGHBOUR,
            "X-Forwarded-For: 127.0.0.4\r\n".to_owned(),
            false,
        ),
        (
            NEIGHBOUR,
            "X-EXECD-ACCESS-TOKEN: token-of-the-neighbour\r\n".to_owned(),
            false,
        ),
        (
            NEIGHBOUR,
            format!("X-EXECD-ACCESS-TOKEN: {TOKEN}\r\n"),
            true,
        ),
        (
            NEIGHBOUR,
            format!("OPEN-SANDBOX-API-KEY: {API_KEY}\r\n"),
            true,
        ),
    ] {
        let answer = asks(&server, &program, source, &headers).await;
        let seen = (
            answer.starts_with("HTTP/1.1 200"),
            answer.contains("inside"),
        );
        assert_eq!(seen, (inside, inside), "{source} {headers:?}: {answer}");
        let refused = answer.starts_with("HTTP/1.1 401") && answer.contains("MISSING_API_KEY");
        assert_eq!(refused, !inside, "{source} {headers:?}: {answer}");
    }
    let wrong = asks(&server, &program, NEIGHBOUR, "OPEN-SANDBOX-API-KEY: no\r\n").await;
    assert!(wrong.starts_with("HTTP/1.1 401"), "{wrong}");
    server.stop().await;
}

#[tokio::test]
async fn a_neighbour_behind_a_trusted_proxy_needs_a_key_too() {
    let (server, program) = server("trusted_proxies = ['127.0.0.0/30', '127.0.0.9']").await;
    let proxy = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
    for (source, header, status) in [
        (proxy, "X-Forwarded-For: 127.0.0.4", 200),
        (proxy, "X-Forwarded-For: 127.0.0.4, 127.0.0.3", 401),
        (proxy, "Forwarded: for=127.0.0.3", 401),
        // The trusted network includes the sandboxes: addresses that they report are ignored.
        (NEIGHBOUR, "X-Forwarded-For: 127.0.0.4", 401),
    ] {
        let answer = asks(&server, &program, source, &format!("{header}\r\n")).await;
        let start = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&start), "{source} {header}: {answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_websocket_of_a_neighbour_is_closed() {
    let (server, program) = server("").await;
    let port = program.address.port();
    let url = format!("ws://{}/sandboxes/victim/proxy/{port}/", server.address);
    let stream = connect_from(NEIGHBOUR, server.address).await.unwrap();
    let (mut socket, _) = client_async(url.into_client_request().unwrap(), stream)
        .await
        .unwrap();
    let Some(Ok(Message::Close(Some(close)))) = socket.next().await else {
        panic!("the WebSocket is not closed");
    };
    assert_eq!(u16::from(close.code), 1008);
    assert_eq!(close.reason.as_str(), "missing API key");
    server.stop().await;
}

#[tokio::test]
async fn the_contract_s_open_proxy_can_be_enabled() {
    let (server, program) = server("[proxy]\nkeyless_from_sandboxes = true").await;
    let answer = asks(&server, &program, NEIGHBOUR, "").await;
    assert!(answer.ends_with("inside"), "{answer}");
    server.stop().await;
}
