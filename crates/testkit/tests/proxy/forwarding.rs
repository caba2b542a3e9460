//! Addresses of the proxy, and what a program learns about its client.

use osb_testkit::{API_KEY, TestServer, running_at};
use reqwest::Method;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::support::{BOX, proxied};

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
