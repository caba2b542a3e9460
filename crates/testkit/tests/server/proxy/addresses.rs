//! Addresses of endpoints through the proxy, and of requests that only look like proxied ones.

use osb_testkit::{CannedProgram, TestServer, connect_from, exchange, running_at};
use reqwest::Method;
use serde_json::Value;

use super::support::{BOX, program};

#[tokio::test]
async fn endpoints_through_the_proxy_have_the_public_address() {
    for (eip, own_path) in [
        ("", None),
        ("eip = ' '", None),
        ("eip = 'https://gate.example:8443/base/'", Some("/base")),
        ("eip = 'gate.example:8443'", Some("")),
    ] {
        let mut sandbox = running_at("a", BOX, None);
        sandbox.status.address.ports.http = Some(40_001);
        let server = TestServer::around([sandbox], eip).await.unwrap();
        for prefix in ["", "/v1"] {
            let path = format!("{prefix}/sandboxes/a/endpoints/8080?use_server_proxy=1");
            let answer = server.request(Method::GET, &path).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{eip} {path}");
            let endpoint: Value = answer.json().await.unwrap();
            let base = match own_path {
                Some(path) => format!("gate.example:8443{path}"),
                None => format!("{}{prefix}", server.address),
            };
            let want = format!("{base}/sandboxes/a/proxy/8080");
            assert_eq!(endpoint["endpoint"], want, "{eip} {path}");
            let headers = endpoint["headers"].as_object();
            assert!(headers.is_none_or(serde_json::Map::is_empty), "{endpoint}");
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn redirects_of_a_program_lead_to_the_public_address() {
    let redirect = "HTTP/1.1 302 Found\r\nLocation: /next?a\r\nContent-Length: 0\r\n\
                    Connection: close\r\n\r\n";
    let program = CannedProgram::start(BOX, redirect).await.unwrap();
    let port = program.address.port();
    for (eip, prefix, base) in [
        ("", "", ""),
        ("", "/v1", "/v1"),
        ("eip = 'https://gate.example/base/'", "/v1", "/base"),
        ("eip = 'gate.example'", "/v1", ""),
    ] {
        let sandboxes = [running_at("a", BOX, None)];
        let server = TestServer::around(sandboxes, eip).await.unwrap();
        let request = format!(
            "GET {prefix}/sandboxes/a/proxy/{port}/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        );
        let stream = connect_from([127, 0, 0, 1].into(), server.address);
        let answer = exchange(stream.await.unwrap(), &request).await.unwrap();
        let want = format!("location: {base}/sandboxes/a/proxy/{port}/next?a");
        assert!(answer.lines().any(|line| line == want), "{want}: {answer}");
        server.stop().await;
    }
}

#[tokio::test]
async fn what_only_looks_like_a_proxied_address_needs_the_key() {
    let program = program().await;
    let port = program.address.port();
    let sandboxes = [running_at("a", BOX, None)];
    let server = TestServer::around(sandboxes, "").await.unwrap();
    let status = async |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let stream = connect_from([127, 0, 0, 1].into(), server.address);
        let answer = exchange(stream.await.unwrap(), &request).await.unwrap();
        let (_, rest) = answer.split_once(' ').unwrap();
        (rest[..3].to_owned(), answer)
    };
    for path in [
        format!("/sandboxes/a/proxy/{port}"),
        format!("/v1/sandboxes/a/proxy/{port}/"),
        // Nothing is resolved: the program gets these as they are, and no other route does.
        format!("/sandboxes/a/proxy/{port}/../../../sandboxes"),
        format!("/v1/sandboxes/a/proxy/{port}/%2e%2e/%2e%2e/b"),
    ] {
        let (status, answer) = status(&path).await;
        assert_eq!(status, "200", "{path}: {answer}");
        assert!(answer.ends_with("inside"), "{path}: {answer}");
    }
    for path in [
        format!("/proxy/sandboxes/a/{port}/x"),
        format!("/x/sandboxes/a/proxy/{port}/x"),
        format!("/v1/v1/sandboxes/a/proxy/{port}/x"),
        format!("/v2/sandboxes/a/proxy/{port}/x"),
        format!("//sandboxes/a/proxy/{port}/x"),
        format!("/v1/sandboxes/a/b/proxy/{port}/x"),
        format!("/v1/sandboxes/a/Proxy/{port}/x"),
        format!("/v1/sandboxes/a/proxy/{port}x/x"),
        format!("/v1/sandboxes/a/proxy/+{port}/x"),
        format!("/v1/sandboxes/a/proxy//{port}"),
        "/v1/sandboxes/a/proxy/../proxy/80/x".to_owned(),
        "/v1/sandboxes/a/proxy".to_owned(),
        "/v1/sandboxes/a/proxies/80".to_owned(),
    ] {
        let (status, answer) = status(&path).await;
        assert_eq!(status, "401", "{path}: {answer}");
        assert!(answer.contains("MISSING_API_KEY"), "{path}: {answer}");
    }
    server.stop().await;
}
