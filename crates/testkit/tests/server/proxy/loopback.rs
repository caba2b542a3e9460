//! Programs that the sandbox's own address does not reach: the way through execd.

use std::net::{IpAddr, Ipv4Addr};

use osb_runtime::EXECD_PORT;
use osb_testkit::{TestServer, running_at};
use reqwest::{Method, RequestBuilder, Response};
use secrecy::SecretString;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// A port at which nothing listens.
const SILENT: u16 = 1;
const TOKEN: &str = "token-of-execd";

/// A sandbox that has an address of its own for each test, because execd always has the same port.
fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

/// Plays execd for one request: returns what it got, with a body of four bytes.
async fn played(execd: &TcpListener, answer: &str) -> String {
    let (mut stream, _) = execd.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"body") {
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    String::from_utf8(request).unwrap().to_ascii_lowercase()
}

async fn message(answer: Response) -> String {
    assert_eq!(answer.status(), 502, "{answer:?}");
    let body: Value = answer.json().await.unwrap();
    assert_eq!(body["code"], "BACKEND_CONNECTION_FAILED", "{body}");
    body["message"].as_str().unwrap().to_owned()
}

fn post(request: RequestBuilder) -> RequestBuilder {
    request
        .header("x-execd-access-token", "of-the-client")
        .body("body")
}

#[tokio::test]
async fn a_refused_request_goes_through_execd_once() {
    let at = address(61);
    let execd = TcpListener::bind((at, EXECD_PORT)).await.unwrap();
    let sandboxes = [running_at("a", at, Some(TOKEN))];
    let server = TestServer::around(sandboxes, "").await.unwrap();
    let path = format!("/v1/sandboxes/a/proxy/{SILENT}/x%2Fy?z");
    let request = post(server.request(Method::POST, &path));
    let answer = "HTTP/1.1 201 Created\r\nLocation: /proxy/1/next\r\nContent-Length: 0\r\n\r\n";
    let (seen, answer) = tokio::join!(played(&execd, answer), request.send());
    let answer = answer.unwrap();
    assert_eq!(answer.status(), 201);
    let location = format!("/v1/sandboxes/a/proxy/{SILENT}/next");
    assert_eq!(answer.headers()["location"], location.as_str());
    assert!(seen.starts_with("post /proxy/1/x%2fy?z "), "{seen}");
    let has = |line: &str| seen.lines().filter(|it| *it == line).count() == 1;
    assert!(has(&format!("x-execd-access-token: {TOKEN}")), "{seen}");
    assert!(has(&format!("host: {at}:{SILENT}")), "{seen}");
    assert!(!seen.contains("open-sandbox-api-key"), "{seen}");
    server.stop().await;
}

#[tokio::test]
async fn what_execd_does_not_find_either_is_reported_as_before() {
    let at = address(62);
    let execd = TcpListener::bind((at, EXECD_PORT)).await.unwrap();
    let sandboxes = [running_at("a", at, Some(TOKEN))];
    let server = TestServer::around(sandboxes, "").await.unwrap();
    let path = format!("/sandboxes/a/proxy/{SILENT}/");
    let send = || post(server.request(Method::POST, &path)).send();
    let answer = "HTTP/1.1 502 Bad Gateway\r\nX-Execd-No-Program: 1\r\nContent-Length: 0\r\n\r\n";
    let (_, answer) = tokio::join!(played(&execd, answer), send());
    let said = message(answer.unwrap()).await;
    assert!(said.ends_with(": nothing listens on that port"), "{said}");
    // A program's own answer is passed on.
    let answer = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nmine";
    let (_, answer) = tokio::join!(played(&execd, answer), send());
    let answer = answer.unwrap();
    assert_eq!(answer.status(), 502);
    assert_eq!(answer.text().await.unwrap(), "mine");
    drop(execd);
    let said = message(send().await.unwrap()).await;
    assert!(said.ends_with(": nothing listens on that port"), "{said}");
    server.stop().await;
}

#[tokio::test]
async fn only_a_key_or_a_token_of_the_sandbox_opens_the_way_through_execd() {
    let at = address(63);
    let execd = TcpListener::bind((at, EXECD_PORT)).await.unwrap();
    let mut secured = running_at("b", at, Some(TOKEN));
    secured.origin.secure_access = Some(SecretString::from("of-the-sandbox"));
    let sandboxes = [running_at("a", at, Some(TOKEN)), secured];
    let server = TestServer::around(sandboxes, "").await.unwrap();
    let request = |id: &str| {
        let path = format!("/sandboxes/{id}/proxy/{SILENT}/");
        server.bare(Method::POST, &path).body("body")
    };
    // Nothing accepts here, so a request that goes to execd would wait.
    let said = message(request("a").send().await.unwrap()).await;
    assert!(said.ends_with("needs an API key"), "{said}");
    let wrong = post(request("a")).send().await.unwrap();
    let said = message(wrong).await;
    assert!(said.ends_with("needs an API key"), "{said}");
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (id, name, token) in [
        ("a", "x-execd-access-token", TOKEN),
        ("b", "opensandbox-secure-access", "of-the-sandbox"),
    ] {
        let request = request(id).header(name, token);
        let (seen, answer) = tokio::join!(played(&execd, ok), request.send());
        assert_eq!(answer.unwrap().status(), 200, "{id}");
        let token = format!("x-execd-access-token: {TOKEN}");
        assert!(seen.lines().any(|line| line == token), "{id}: {seen}");
        assert!(!seen.contains("opensandbox-secure-access"), "{id}: {seen}");
    }
    server.stop().await;
}
