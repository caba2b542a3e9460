//! The daemon's proxy to servers in the sandbox (contract: execd §12).

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::support::Daemon;

#[tokio::test]
async fn requests_reach_the_loopback_without_our_secrets() {
    let daemon = Daemon::start(&["--port", "0", "--access-token", "secret"], |_| {})
        .with_header("x-execd-access-token", "secret")
        .with_header("open-sandbox-api-key", "secret-of-the-platform")
        .with_header("x-of-the-user", "kept");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let path = format!("/proxy/{port}/a%2Fb?x=%20");
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream
            .write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno")
            .await
            .unwrap();
        String::from_utf8(head).unwrap().to_ascii_lowercase()
    };
    let (head, answer) = tokio::join!(serve, daemon.get(&path));
    assert!(head.starts_with("get /a%2fb?x=%20 http/1.1\r\n"), "{head}");
    assert!(!head.contains("secret"), "{head}");
    assert!(!head.contains("open-sandbox-api-key"), "{head}");
    assert!(head.contains("x-of-the-user: kept"), "{head}");
    assert_eq!((answer.status.as_u16(), answer.text()), (403, "no"));
    drop(listener);
    let gone = daemon.get(&path).await;
    assert_eq!((gone.status.as_u16(), gone.text()), (502, "Bad Gateway"));
    assert_eq!(gone.headers["x-execd-no-program"], "1");
    for bad in [
        "/proxy",
        "/proxy/",
        "/proxy/0/x",
        "/proxy/x/y",
        "/proxy/65536",
    ] {
        assert_eq!(daemon.get(bad).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn the_daemon_reaches_itself() {
    let daemon = Daemon::start(&["--port", "0"], |_| {});
    let path = format!("/proxy/{}/command", daemon.port());
    let answer = daemon
        .post(&path, json!({ "command": "echo through" }))
        .await;
    assert!(answer.text().contains("through"));
}

#[tokio::test]
async fn a_server_on_either_loopback_address_is_reached() {
    let daemon = Daemon::start(&["--port", "0"], |_| {});
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let path = format!("/proxy/{port}/x");
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream
                .write_all(
                    b"HTTP/1.1 502 Mine\r\nx-execd-no-program: 1\r\ncontent-length: 4\r\n\r\nmine",
                )
                .await
                .unwrap();
        };
        let ((), answer) = tokio::join!(serve, daemon.get(&path));
        let seen = (answer.status.as_u16(), answer.text());
        assert_eq!(seen, (502, "mine"), "{address}");
        let is_ours = answer.headers.contains_key("x-execd-no-program");
        assert!(!is_ours, "only execd says that it found no program");
    }
}

#[tokio::test]
async fn a_redirect_of_a_server_leads_to_the_server() {
    let daemon = Daemon::start(&["--port", "0"], |_| {});
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for (location, expected) in [
        ("/login?next=%2F", format!("/proxy/{port}/login?next=%2F")),
        ("/", format!("/proxy/{port}/")),
        ("login", "login".to_owned()),
        ("//other.example/x", "//other.example/x".to_owned()),
        ("http://other.example/", "http://other.example/".to_owned()),
    ] {
        let serve = async || {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let answer = format!(
                "HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\
                 connection: close\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        // As clients get the endpoint of execd itself, a prefix of execd's own may stand in front.
        for front in [String::new(), format!("/proxy/{}", daemon.port())] {
            let path = format!("{front}/proxy/{port}/a/b");
            let ((), answer) = tokio::join!(serve(), daemon.get(&path));
            assert_eq!(answer.status, 302, "{location}");
            assert_eq!(answer.headers["location"], expected.as_str());
        }
    }
}
