//! Addresses of the proxy, and what a program learns about its client.

use std::net::SocketAddr;

use osb_testkit::{API_KEY, CannedProgram, TestServer, connect_from, exchange, running_at};
use reqwest::Method;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::support::{BOX, proxied};

#[tokio::test]
async fn only_a_number_makes_it_an_address_that_needs_no_key() {
    let server = TestServer::around([running_at("a", BOX, None)], "")
        .await
        .unwrap();
    for (port, key, status, code) in [
        ("65536", "", 400, "DOCKER::INVALID_PORT"),
        ("0", "", 400, "DOCKER::INVALID_PORT"),
        ("99999999999999999999", "", 400, "DOCKER::INVALID_PORT"),
        ("8080x", "", 401, "MISSING_API_KEY"),
        ("x", "wrong", 401, "INVALID_API_KEY"),
        ("8080x", API_KEY, 422, "SANDBOX::INVALID_PARAMETER"),
    ] {
        let path = format!("/v1/sandboxes/a/proxy/{port}/x");
        let request = server.bare(Method::GET, &path);
        let request = request.header("OPEN-SANDBOX-API-KEY", key);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{port} {key}");
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["code"], code, "{port} {key}");
    }
    server.stop().await;
}

#[tokio::test]
async fn endpoints_tell_what_is_out_of_range_from_what_is_no_number() {
    let server = TestServer::around([running_at("a", BOX, None)], "")
        .await
        .unwrap();
    for (path, status, code) in [
        ("65536", 400, "DOCKER::INVALID_PORT"),
        ("99999999999999999999", 400, "DOCKER::INVALID_PORT"),
        ("80x", 422, "SANDBOX::INVALID_PARAMETER"),
        ("80?expires=1", 400, "SANDBOX::API_NOT_SUPPORTED"),
        (
            "80?expires=99999999999999999999",
            400,
            "SANDBOX::API_NOT_SUPPORTED",
        ),
        ("80?expires=", 422, "SANDBOX::INVALID_PARAMETER"),
        ("80?expires=x", 422, "SANDBOX::INVALID_PARAMETER"),
        (
            "80?expires=1&use_server_proxy=on",
            400,
            "SANDBOX::INVALID_PARAMETER",
        ),
        (
            "80?use_server_proxy=maybe",
            422,
            "SANDBOX::INVALID_PARAMETER",
        ),
    ] {
        // None of these looks the sandbox up.
        let path = format!("/v1/sandboxes/none/endpoints/{path}");
        let answer = server.request(Method::GET, &path).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{path}");
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["code"], code, "{path}: {body}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_program_learns_what_a_trusted_proxy_reports() {
    let program = TcpListener::bind((BOX, 0)).await.unwrap();
    let port = program.local_addr().unwrap().port();
    for (trusted, address, scheme) in [
        ("trusted_proxies = ['127.0.0.1']", "192.0.2.7", "https"),
        ("", "127.0.0.1", "http"),
    ] {
        let sandboxes = [running_at("a", BOX, None)];
        let server = TestServer::around(sandboxes, trusted).await.unwrap();
        let seen = async {
            let (mut stream, _) = program.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
            }
            let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            String::from_utf8(head).unwrap()
        };
        let request = proxied(&server, "a", port)
            .header("X-Forwarded-For", "6.6.6.6, 192.0.2.7")
            .header("X-Forwarded-Proto", "https")
            .header("X-Forwarded-Port", "1")
            .header("X-Real-IP", "6.6.6.6")
            .header("Forwarded", "for=6.6.6.6");
        let (head, answer) = tokio::join!(seen, request.send());
        assert_eq!(answer.unwrap().status(), 204);
        for line in [
            format!("x-forwarded-for: {address}"),
            format!("x-forwarded-proto: {scheme}"),
            format!("x-forwarded-host: {}", server.address),
        ] {
            let count = head.lines().filter(|seen| **seen == line).count();
            assert_eq!(count, 1, "{line}: {head}");
        }
        assert!(!head.contains("6.6.6.6"), "{head}");
        assert!(!head.contains("x-forwarded-port"), "{head}");
        server.stop().await;
    }
}

/// Answers one request with a head, and returns the request's head.
async fn served(program: &TcpListener, answer: &str) -> String {
    let (mut stream, _) = program.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    String::from_utf8(head).unwrap().to_ascii_lowercase()
}

#[tokio::test]
async fn headers_for_this_server_only_do_not_reach_a_program() {
    let program = TcpListener::bind((BOX, 0)).await.unwrap();
    let port = program.local_addr().unwrap().port();
    let sandboxes = [running_at("a", BOX, Some("token-of-execd"))];
    let server = TestServer::around(sandboxes, "").await.unwrap();
    let mut request = proxied(&server, "a", port);
    for (name, value) in [
        ("Authorization", "Bearer s3cret"),
        ("Cookie", "session=s3cret"),
        ("OPEN-SANDBOX-API-KEY", API_KEY),
        ("OpenSandbox-Secure-Access", "s3cret"),
        ("OpenSandbox-Access-Renew", "skip"),
        ("X-EXECD-ACCESS-TOKEN", "token-of-execd"),
        ("Proxy-Authorization", "s3cret"),
        ("X-Hop", "s3cret"),
        ("Connection", "X-Hop"),
    ] {
        request = request.header(name, value);
    }
    // The egress daemon checks this one, so clients send it through the proxy.
    let request = request.header("OPENSANDBOX-EGRESS-AUTH", "kept");
    let answer = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
    let (head, answer) = tokio::join!(served(&program, answer), request.send());
    assert_eq!(answer.unwrap().status(), 204);
    for name in [
        "authorization",
        "cookie",
        "open-sandbox-api-key",
        "opensandbox-secure-access",
        "opensandbox-access-renew",
        "x-execd-access-token",
        "proxy-authorization",
        "x-hop",
    ] {
        let name = format!("{name}:");
        assert!(!head.lines().any(|it| it.starts_with(&name)), "{head}");
    }
    assert!(head.contains("opensandbox-egress-auth: kept"), "{head}");
    server.stop().await;
}

#[tokio::test]
async fn every_answer_has_one_date_and_one_request_id() {
    const OWN: &str = "Thu, 01 Jan 2032 00:00:00 GMT";
    let program = TcpListener::bind((BOX, 0)).await.unwrap();
    let port = program.local_addr().unwrap().port();
    let sandboxes = [running_at("a", BOX, None)];
    let server = TestServer::around(sandboxes, "").await.unwrap();
    let raw = async |path: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nX-Request-ID: mine\r\nConnection: close\r\n\r\n"
        );
        let stream = connect_from([127, 0, 0, 1].into(), server.address);
        let answer = exchange(stream.await.unwrap(), &request).await.unwrap();
        let (head, _) = answer.split_once("\r\n\r\n").unwrap();
        let values = |name: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            let found = lines.filter(|(it, _)| it.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(values("x-request-id"), ["mine"], "{path}: {head}");
        assert_eq!(values("open-sandbox-origin"), [""; 0], "{path}: {head}");
        assert_eq!(values("server"), [""; 0], "{path}: {head}");
        let dates = values("date");
        assert_eq!(dates.len(), 1, "{path}: {head}");
        dates
    };
    for path in ["/version", "/health", "/v1/sandboxes", "/nothing"] {
        let date = raw(path).await.remove(0);
        assert!(date.ends_with(" GMT") && date != OWN, "{path}: {date}");
    }
    let path = format!("/v1/sandboxes/a/proxy/{port}/x");
    let own = format!(
        "HTTP/1.1 200 OK\r\nDate: {OWN}\r\nServer: inside\r\nX-Request-ID: its\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let (_, dates) = tokio::join!(served(&program, &own), raw(&path));
    assert_eq!(dates, [OWN], "the program's is kept");
    let none = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (_, dates) = tokio::join!(served(&program, none), raw(&path));
    assert_ne!(dates, [OWN]);
    server.stop().await;
}

#[tokio::test]
async fn a_refusal_of_a_program_is_passed_on_unchanged() {
    for (last, status, kind, body) in [
        (18, "401 Unauthorized", "text/plain", "unauthorized\n"),
        (19, "403 Forbidden", "application/json", "{\"code\": \"X\"}"),
    ] {
        // The port of an egress daemon.
        let egress = SocketAddr::from(([127, 0, 0, last], 18080));
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        let program = CannedProgram::start_at(egress, answer).await.unwrap();
        let sandboxes = [running_at("a", egress.ip(), None)];
        let server = TestServer::around(sandboxes, "").await.unwrap();
        let answer = proxied(&server, "a", egress.port()).send().await.unwrap();
        assert!(status.starts_with(answer.status().as_str()), "{status}");
        assert_eq!(answer.headers()["content-type"], kind);
        assert_eq!(answer.text().await.unwrap(), body);
        drop(program);
        server.stop().await;
    }
}

#[tokio::test]
async fn a_program_that_fails_has_a_code_of_its_own() {
    for (answer, code) in [
        (Some(""), "BACKEND_RESPONSE_FAILED"),
        (Some("nonsense\r\n\r\n"), "BACKEND_RESPONSE_FAILED"),
        (
            Some("HTTP/1.1 200 OK\r\nContent-Le"),
            "BACKEND_RESPONSE_FAILED",
        ),
        (None, "BACKEND_CONNECTION_FAILED"),
    ] {
        let program = CannedProgram::start(BOX, answer.unwrap_or_default());
        let program = program.await.unwrap();
        let port = match answer {
            Some(_) => program.address.port(),
            // Nothing listens there: the port of a listener that is closed.
            None => {
                let closed = TcpListener::bind((BOX, 0)).await.unwrap();
                closed.local_addr().unwrap().port()
            }
        };
        let server = TestServer::around([running_at("a", BOX, None)], "").await;
        let server = server.unwrap();
        let refused = proxied(&server, "a", port).send().await.unwrap();
        assert_eq!(refused.status(), 502, "{answer:?}");
        let body: Value = refused.json().await.unwrap();
        assert_eq!(body["code"], code, "{answer:?}: {body}");
        let message = body["message"].as_str().unwrap();
        assert!(!message.contains("127.0.0.5"), "{message}");
        let is_connection = code == "BACKEND_CONNECTION_FAILED";
        let wire_text = "Could not connect to the backend sandbox";
        assert_eq!(message.starts_with(wire_text), is_connection, "{message}");
        server.stop().await;
    }
}

#[tokio::test]
async fn an_encoded_body_is_passed_on_as_it_is() {
    // Not what its header says: a proxy that decodes it fails.
    let answer = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\
                  Connection: close\r\n\r\ninside";
    let program = CannedProgram::start(BOX, answer).await.unwrap();
    let sandboxes = [running_at("a", BOX, None)];
    let server = TestServer::around(sandboxes, "").await.unwrap();
    let request = format!(
        "GET /sandboxes/a/proxy/{}/ HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\
         Connection: close\r\n\r\n",
        program.address.port()
    );
    let stream = connect_from([127, 0, 0, 1].into(), server.address);
    let answer = exchange(stream.await.unwrap(), &request).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("content-encoding: gzip"), "{answer}");
    assert!(answer.ends_with("\r\n\r\ninside"), "{answer}");
    server.stop().await;
}
