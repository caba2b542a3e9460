//! The edge of the server on the wire: malformed requests, and what a hostile sandbox sends through
//! the proxy.

use std::net::{IpAddr, Ipv4Addr};

use osb_testkit::{API_KEY, CannedProgram, TestServer, exchange, running_at};
use reqwest::Method;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Address of the sandbox.
const BOX: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

#[tokio::test]
async fn a_request_without_one_valid_host_is_refused() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    for (version, hosts, status) in [
        ("1.1", "", 400),
        ("1.1", "Host: a\r\nHost: a\r\n", 400),
        ("1.1", "Host: a b\r\n", 400),
        ("1.1", "Host: user@a\r\n", 400),
        ("1.1", "Host: a/b\r\n", 400),
        ("1.1", "Host: a:8080\r\n", 200),
        ("1.1", "Host: [::1]:8080\r\n", 200),
        ("1.0", "", 200),
    ] {
        let request = format!("GET /health HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n");
        let answer = exchange(TcpStream::connect(server.address).await.unwrap(), &request)
            .await
            .unwrap();
        let start = format!("HTTP/{version} {status}");
        assert!(answer.starts_with(&start), "{hosts:?}: {answer}");
        assert!(answer.contains("x-request-id"), "{hosts:?}: {answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn half_a_websocket_handshake_is_answered_like_any_request() {
    let answer = "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 4\r\n\r\nours";
    let program = CannedProgram::start(BOX, answer).await.unwrap();
    let server = TestServer::around([running_at("a", BOX, None)], "");
    let server = server.await.unwrap();
    let asks = async |id: &str, headers: &str| {
        let port = program.address.port();
        let request = format!(
            "GET /sandboxes/{id}/proxy/{port}/ HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\
             Upgrade: websocket\r\n{headers}\r\n"
        );
        let stream = TcpStream::connect(server.address).await.unwrap();
        exchange(stream, &request).await.unwrap()
    };
    let whole = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for half in [
        "Sec-WebSocket-Version: 13\r\n",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    ] {
        let close = format!("{half}Connection: close\r\n");
        let missing = asks("none", &close).await;
        assert!(missing.starts_with("HTTP/1.1 404"), "{missing}");
        assert!(missing.contains("DOCKER::SANDBOX_NOT_FOUND"), "{missing}");
        let answered = asks("a", &close).await;
        assert!(answered.starts_with("HTTP/1.1 426"), "{answered}");
        assert!(answered.ends_with("ours"), "{answered}");
    }
    let closed = asks("none", whole).await;
    assert!(closed.starts_with("HTTP/1.1 101"), "{closed}");
    server.stop().await;
}

#[tokio::test]
async fn origin_wide_headers_do_not_pass_the_proxy() {
    let dropped = [
        "Accept-CH: Sec-CH-UA",
        "Alt-Svc: h3=\":443\"",
        "Clear-Site-Data: \"*\"",
        "Critical-CH: Sec-CH-UA",
        "Expect-CT: max-age=1",
        "NEL: {}",
        "Public-Key-Pins: pin-sha256=\"a\"",
        "Public-Key-Pins-Report-Only: pin-sha256=\"a\"",
        "Refresh: 0;url=/console/sandboxes",
        "Report-To: {}",
        "Reporting-Endpoints: a=\"https://a.example\"",
        "Sec-Session-Registration: (ES256);path=\"/\"",
        "Server: inside",
        "Service-Worker-Allowed: /",
        "Set-Cookie: wide=1; Path=/; domain=example.org",
        "Set-Cookie: osb_console=x",
        "Set-Login: logged-out",
        "Strict-Transport-Security: max-age=1",
        "Use-As-Dictionary: match=\"/console/*\"",
        "WWW-Authenticate: Basic realm=\"OpenSandbox\"",
    ];
    let kept = ["Set-Cookie: own=1; Path=/", "X-Own: 1", "ETag: \"a\""];
    let lines: String = dropped
        .iter()
        .chain(&kept)
        .map(|line| format!("{line}\r\n"))
        .collect();
    let answer = format!("HTTP/1.1 401 No\r\n{lines}Content-Length: 0\r\n\r\n");
    let program = CannedProgram::start(BOX, answer).await.unwrap();
    let server = TestServer::around([running_at("a", BOX, None)], "")
        .await
        .unwrap();
    let path = format!("/sandboxes/a/proxy/{}/", program.address.port());
    let answer = server.bare(Method::GET, &path).send().await.unwrap();
    assert_eq!(answer.status(), 401);
    let headers = answer.headers();
    for line in dropped
        .iter()
        .filter(|line| !line.starts_with("Set-Cookie"))
    {
        let name = line.split(':').next().unwrap();
        assert!(headers.get(name).is_none(), "{line}");
    }
    let cookies: Vec<_> = headers.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["own=1; Path=/"]);
    assert_eq!(
        (&headers["x-own"], &headers["etag"]),
        (&"1".parse().unwrap(), &"\"a\"".parse().unwrap())
    );
    server.stop().await;
}

/// Sends a browser's request with these headers and returns the status.
async fn browses(server: &TestServer, line: &str, headers: &str) -> String {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
    exchange(stream, &request).await.unwrap()
}

#[tokio::test]
async fn a_foreign_page_cannot_use_a_server_without_a_key() {
    let program = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ninside";
    let program = CannedProgram::start(BOX, program).await.unwrap();
    let sandbox = running_at("a", BOX, None);
    let more = "eip = 'https://box.example.org/x'";
    let server = TestServer::keyless([sandbox], more).await.unwrap();
    let port = server.address.port();
    let proxied = format!("/v1/sandboxes/a/proxy/{}/", program.address.port());
    let own = format!("Host: localhost:{port}\r\n");
    let origin = |origin: &str| format!("{own}Origin: {origin}\r\n");
    let preflight = format!(
        "{}Access-Control-Request-Method: DELETE\r\n",
        origin("https://evil.example")
    );
    for (line, headers, status) in [
        ("GET /v1/sandboxes", own.clone(), 200),
        ("GET /v1/sandboxes", "Host: 127.0.0.1\r\n".to_owned(), 200),
        (
            "GET /v1/sandboxes",
            "Host: box.example.org\r\n".to_owned(),
            200,
        ),
        (
            "GET /v1/sandboxes",
            origin(&format!("http://localhost:{port}")),
            200,
        ),
        // A page that sends requests by script, or submits a form.
        ("GET /v1/sandboxes", origin("https://evil.example"), 403),
        (
            "DELETE /v1/sandboxes/a",
            origin("https://evil.example"),
            403,
        ),
        ("DELETE /v1/sandboxes/a", origin("http://localhost:1"), 403),
        ("DELETE /v1/sandboxes/a", origin("null"), 403),
        ("OPTIONS /v1/sandboxes/a", preflight, 403),
        // A foreign host name that resolves to this server.
        (
            "GET /v1/sandboxes",
            "Host: evil.example\r\n".to_owned(),
            421,
        ),
        (
            "GET /console/sandboxes",
            "Host: evil.example\r\n".to_owned(),
            421,
        ),
        ("GET http://evil.example/v1/sandboxes", own.clone(), 421),
        (
            &format!("GET {proxied}"),
            "Host: evil.example\r\n".to_owned(),
            421,
        ),
        // Pages that the proxy serves have an opaque origin.
        (&format!("GET {proxied}"), origin("null"), 200),
    ] {
        let answer = browses(&server, line, &headers).await;
        let start = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&start), "{line} {headers:?}: {answer}");
        let opened = answer.contains("access-control-allow-origin");
        let foreign = status != 200 && opened;
        assert!(!foreign, "{line} {headers:?}: {answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_foreign_page_gets_no_token_added() {
    let execd = TcpListener::bind((BOX, osb_runtime::EXECD_PORT))
        .await
        .unwrap();
    let server = TestServer::keyless([running_at("a", BOX, Some("secret-token"))], "")
        .await
        .unwrap();
    for (origin, token) in [("", true), ("Origin: https://evil.example\r\n", false)] {
        let headers = format!("Host: localhost\r\n{origin}");
        let seen = async {
            let (mut stream, _) = execd.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
            }
            let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            String::from_utf8(head).unwrap()
        };
        let line = format!("GET /v1/sandboxes/a/proxy/{}/x", osb_runtime::EXECD_PORT);
        let (head, _) = tokio::join!(seen, browses(&server, &line, &headers));
        assert_eq!(head.contains("secret-token"), token, "{origin:?}: {head}");
    }
    server.stop().await;
}

#[tokio::test]
async fn many_wrong_keys_are_throttled_and_the_right_one_is_not() {
    let server = TestServer::around([], "trusted_proxies = ['127.0.0.0/8']")
        .await
        .unwrap();
    let ask = async |key: &str, client: &str| {
        let request = server.bare(Method::GET, "/v1/sandboxes");
        let request = request.header("OPEN-SANDBOX-API-KEY", key);
        let answer = request
            .header("X-Forwarded-For", client)
            .send()
            .await
            .unwrap();
        (
            answer.status().as_u16(),
            answer.headers().contains_key("retry-after"),
        )
    };
    let mut last = (401, false);
    for _ in 0..200 {
        last = ask("wrong", "192.0.2.1").await;
    }
    assert_eq!(last, (429, true));
    assert_eq!(ask(API_KEY, "192.0.2.1").await.0, 200);
    assert_eq!(ask("wrong", "192.0.2.2").await.0, 401);
    assert_eq!(
        ask("", "192.0.2.1").await.0,
        401,
        "a missing key does not count as a wrong one"
    );
    server.stop().await;
}

#[tokio::test]
async fn logins_are_throttled_by_client_and_the_right_key_is_not() {
    let server = TestServer::around([], "trusted_proxies = ['127.0.0.0/8']")
        .await
        .unwrap();
    let log_in = async |key: &str, client: &str| {
        let request = server
            .bare(Method::POST, "/console/login")
            .header("Sec-Fetch-Site", "same-origin")
            .header("Content-Type", "application/x-www-form-urlencoded")
            .header("X-Forwarded-For", client)
            .body(format!("key={key}"));
        let answer = request.send().await.unwrap();
        let location = answer.headers().get("location").unwrap();
        location.to_str().unwrap().to_owned()
    };
    let mut last = String::new();
    for _ in 0..20 {
        last = log_in("wrong", "192.0.2.1").await;
    }
    assert!(last.contains("failed=slow"), "{last}");
    let other = log_in("wrong", "192.0.2.2").await;
    assert!(other.contains("failed=key"), "{other}");
    let right = log_in(API_KEY, "192.0.2.1").await;
    assert_eq!(right, "/console/sandboxes");
    server.stop().await;
}
