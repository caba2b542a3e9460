//! Sandboxes whose every port needs their token.

use futures::StreamExt;
use osb_protocol::{Feature, FeatureSet};
use osb_runtime::{Observed, sim::Options};
use osb_testkit::{API_KEY, TestServer, running_at};
use reqwest::{Method, StatusCode};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_tungstenite::{connect_async, tungstenite::Message};

use super::support::{BOX, program, proxied};

const HEADER: &str = "OpenSandbox-Secure-Access";
const TOKEN: &str = "token-of-the-sandbox";

fn secured() -> Observed {
    let mut sandbox = running_at("a", BOX, Some("token-of-execd"));
    sandbox.origin.secure_access = Some(SecretString::from(TOKEN));
    sandbox
}

#[tokio::test]
async fn endpoints_lead_through_the_proxy_with_a_token_that_nothing_else_shows() {
    let (server, _sim) = TestServer::sim_with(Options {
        create_features: FeatureSet::EMPTY.with(Feature::SecureAccess),
        ..Options::default()
    })
    .await
    .unwrap();
    let mut body = TestServer::good_create();
    body["secureAccess"] = json!(true);
    let create = server.request(Method::POST, "/v1/sandboxes").json(&body);
    let created = create.send().await.unwrap();
    assert_eq!(created.status(), StatusCode::ACCEPTED);
    let created = created.text().await.unwrap();
    let id = serde_json::from_str::<Value>(&created).unwrap()["id"].clone();
    let id = id.as_str().unwrap();
    let get = async |path: &str| {
        let answer = server.request(Method::GET, path).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        answer.text().await.unwrap()
    };
    let mut tokens = Vec::new();
    for (prefix, port, query) in [
        ("/v1", 8080, ""),
        ("/v1", 44772, "?use_server_proxy=true"),
        ("", 44772, ""),
        ("", 18080, "?use_server_proxy=yes"),
    ] {
        let path = format!("{prefix}/sandboxes/{id}/endpoints/{port}{query}");
        let endpoint: Value = serde_json::from_str(&get(&path).await).unwrap();
        let want = format!("{}{prefix}/sandboxes/{id}/proxy/{port}", server.address);
        assert_eq!(endpoint["endpoint"], want);
        let headers = endpoint["headers"].as_object().unwrap();
        let has_execd = headers.contains_key("X-EXECD-ACCESS-TOKEN");
        assert_eq!(has_execd, port == 44772, "{headers:?}");
        tokens.push(headers[HEADER].as_str().unwrap().to_owned());
    }
    tokens.dedup();
    let [token] = tokens.as_slice() else {
        panic!("{tokens:?}");
    };
    assert!(token.len() >= 32, "{token}");
    let list = get("/v1/sandboxes").await;
    let one = get(&format!("/v1/sandboxes/{id}")).await;
    for shown in [created.as_str(), &list, &one] {
        assert!(!shown.contains(token), "{shown}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_request_without_the_token_is_refused() {
    let program = program().await;
    let server = TestServer::around([secured()], "").await.unwrap();
    let port = program.address.port();
    for (headers, status) in [
        (&[][..], 401),
        (&[(HEADER, "")][..], 401),
        (&[(HEADER, "token-of-the-sandboy")][..], 401),
        (&[("OPEN-SANDBOX-API-KEY", API_KEY)][..], 401),
        (&[("X-EXECD-ACCESS-TOKEN", "token-of-execd")][..], 401),
        (&[(HEADER, TOKEN)][..], 200),
        (&[(HEADER, TOKEN), ("OPEN-SANDBOX-API-KEY", "no")][..], 200),
    ] {
        let mut request = proxied(&server, "a", port);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{headers:?}");
        if status == 401 {
            let body: Value = answer.json().await.unwrap();
            assert_eq!(body["code"], "MISSING_OR_INVALID_SECURE_ACCESS");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_websocket_without_the_token_is_closed() {
    let program = program().await;
    let server = TestServer::around([secured()], "").await.unwrap();
    let port = program.address.port();
    let url = format!("ws://{}/sandboxes/a/proxy/{port}/", server.address);
    let (mut socket, _) = connect_async(url).await.unwrap();
    let Some(Ok(Message::Close(Some(close)))) = socket.next().await else {
        panic!("the WebSocket is not closed");
    };
    assert_eq!(u16::from(close.code), 1008);
    let want = "missing or invalid secure access token";
    assert_eq!(close.reason.as_str(), want);
    server.stop().await;
}

#[tokio::test]
async fn programs_do_not_see_the_token() {
    let program = TcpListener::bind((BOX, 0)).await.unwrap();
    let port = program.local_addr().unwrap().port();
    let server = TestServer::around([secured()], "").await.unwrap();
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
    let request = proxied(&server, "a", port).header(HEADER, TOKEN);
    let (head, answer) = tokio::join!(seen, request.send());
    assert_eq!(answer.unwrap().status(), StatusCode::NO_CONTENT);
    assert!(!head.contains(TOKEN), "{head}");
    server.stop().await;
}
