//! Ways into a sandbox through the proxy.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use osb_runtime::{EGRESS_PORT, EXECD_PORT};
use osb_testkit::{CannedProgram, TestServer, running_at, wait_until};
use reqwest::{Method, RequestBuilder};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};

use super::{answer, entries, entry_of, of_request};

const INSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 62));
const UPGRADED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

#[tokio::test]
async fn ways_into_a_sandbox_are_recorded_and_what_goes_through_them_is_not() {
    let program = CannedProgram::start(INSIDE, UPGRADED).await.unwrap();
    let execd = (INSIDE, EXECD_PORT).into();
    let _execd = CannedProgram::start_at(execd, ANSWER).await.unwrap();
    let mut sandbox = running_at("a", INSIDE, Some("token-of-a"));
    sandbox.origin.tenant = Some(Arc::from("team"));
    sandbox.status.address.ports.execd = Some(EXECD_PORT);
    let server = TestServer::around([sandbox], "").await.unwrap();
    let port = program.address.port();
    let upgrade = |request: RequestBuilder| {
        let request = request.header("connection", "upgrade");
        request.header("upgrade", "x")
    };
    let path = format!("/v1/sandboxes/a/proxy/{port}/secret-path");
    let opened = upgrade(server.request(Method::GET, &path));
    let opened = entry_of(&server, "tunnel", opened).await;
    let tunnel = (
        &opened["action"],
        &opened["object"]["id"],
        &opened["changes"]["port"],
    );
    assert_eq!(tunnel, (&json!("tunnel.open"), &json!("a"), &json!(port)));
    assert_eq!(
        (&opened["actor"]["kind"], &opened["tenant"]),
        (&json!("configured_key"), &json!("team"))
    );
    let keyless = upgrade(server.bare(Method::GET, &path));
    let keyless = entry_of(&server, "keyless", keyless).await;
    assert_eq!(keyless["actor"]["kind"], "unknown");
    let command = format!("/v1/sandboxes/a/proxy/{EXECD_PORT}/command");
    for id in ["first", "second", "third"] {
        let request = server
            .request(Method::POST, &command)
            .header("x-request-id", id);
        answer(request.json(&json!({"command": "secret"}))).await;
        answer(server.request(Method::GET, &command)).await;
    }
    of_request(&server, "last").await;
    let entered = entries(&server, "action=sandbox.enter").await;
    let [entered] = &entered[..] else {
        panic!("{entered:?}");
    };
    assert_eq!(
        entered["requestId"], "first",
        "the others wait for the end of the hour"
    );
    let all = json!(entries(&server, "sandbox=a").await).to_string();
    assert!(!all.contains("secret") && !all.contains("token"), "{all}");
    server.stop().await;
}

const REFUSED: &str =
    "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";

#[tokio::test]
async fn a_client_without_a_key_cannot_fill_the_trail() {
    const PLAIN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 63));
    const TUNNEL: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 64));
    let plain = CannedProgram::start(PLAIN, ANSWER).await.unwrap();
    let tunnel = CannedProgram::start(TUNNEL, UPGRADED).await.unwrap();
    let sandboxes = [
        running_at("plain", PLAIN, Some("token")),
        running_at("tunnel", TUNNEL, Some("token")),
    ];
    let server = TestServer::around(sandboxes, "").await.unwrap();
    for number in 0..10 {
        let path = format!("/v1/sandboxes/invented-{number}");
        let denied = answer(server.bare(Method::DELETE, &path)).await;
        assert_eq!(denied.0, 401);
        for (id, program, status) in [("plain", &plain, 200), ("tunnel", &tunnel, 101)] {
            let path = format!("/v1/sandboxes/{id}/proxy/{}/", program.address.port());
            let request = server.bare(Method::GET, &path);
            let request = request.header("connection", "upgrade");
            let response = request.header("upgrade", "x").send().await.unwrap();
            assert_eq!(response.status(), status);
        }
    }
    of_request(&server, "last").await;
    let all = entries(&server, "").await;
    let seen: Vec<_> = all
        .iter()
        .filter(|it| it["actor"]["kind"] == "unknown")
        .map(|it| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&it["action"]), text(&it["object"]["id"]))
        })
        .collect();
    let expected = [("sandbox.delete", "invented-0"), ("tunnel.open", "tunnel")];
    let expected = expected.map(|(action, id)| (action.to_owned(), id.to_owned()));
    assert_eq!(
        seen, expected,
        "the others wait for the end of their windows"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_use_that_execd_refuses_is_no_success() {
    const AWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 65));
    let execd = (AWAY, EXECD_PORT).into();
    let _execd = CannedProgram::start_at(execd, REFUSED).await.unwrap();
    let mut sandbox = running_at("a", AWAY, Some("token-of-a"));
    sandbox.status.address.ports.execd = Some(EXECD_PORT);
    let server = TestServer::around([sandbox], "").await.unwrap();
    let command = format!("/v1/sandboxes/a/proxy/{EXECD_PORT}/command");
    let entered = entry_of(&server, "refused", server.bare(Method::POST, &command)).await;
    let seen = (&entered["action"], &entered["outcome"], &entered["status"]);
    let expected = (&json!("sandbox.enter"), &json!("denied"), &json!(401));
    assert_eq!(seen, expected);
    server.stop().await;
}

#[tokio::test]
async fn a_change_of_the_policy_through_the_proxy_is_recorded() {
    let ip = IpAddr::from([127, 0, 0, 68]);
    let sidecar = (ip, EGRESS_PORT).into();
    let _sidecar = CannedProgram::start_at(sidecar, ANSWER).await.unwrap();
    let mut sandbox = running_at("a", ip, Some("token-of-a"));
    sandbox.origin.egress_token = Some("sesame".into());
    let server = TestServer::around([sandbox], "").await.unwrap();
    let policy = format!("/v1/sandboxes/a/proxy/{EGRESS_PORT}/policy");
    for (method, action) in [
        (Method::PATCH, "network_policy.patch"),
        (Method::PUT, "network_policy.replace"),
        (Method::DELETE, "network_policy.delete"),
    ] {
        let changed = entry_of(&server, action, server.request(method, &policy)).await;
        assert_eq!(changed["action"], action);
        assert_eq!(changed["changes"]["port"], EGRESS_PORT);
    }
    server.stop().await;
}

/// Headers that ask for an upgrade hide no use of execd.
#[tokio::test]
async fn a_use_of_execd_that_asks_for_an_upgrade_in_vain_is_recorded() {
    for (last, answered, outcome) in [(66, ANSWER, "succeeded"), (67, REFUSED, "denied")] {
        let ip = IpAddr::from([127, 0, 0, last]);
        let _execd = CannedProgram::start_at((ip, EXECD_PORT).into(), answered)
            .await
            .unwrap();
        let mut sandbox = running_at("a", ip, Some("token-of-a"));
        sandbox.status.address.ports.execd = Some(EXECD_PORT);
        let server = TestServer::around([sandbox], "").await.unwrap();
        let command = format!("/v1/sandboxes/a/proxy/{EXECD_PORT}/command");
        let request = server.request(Method::POST, &command);
        let request = request.header("connection", "upgrade");
        let entered = entry_of(&server, "in-vain", request.header("upgrade", "x")).await;
        let seen = (&entered["action"], &entered["outcome"]);
        assert_eq!(seen, (&json!("sandbox.enter"), &json!(outcome)));
        server.stop().await;
    }
}

#[tokio::test]
async fn a_use_that_gets_no_answer_of_execd_is_recorded() {
    const AWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 68));
    let mut sandbox = running_at("a", AWAY, Some("token-of-a"));
    sandbox.status.address.ports.execd = Some(EXECD_PORT);
    let server = TestServer::around([sandbox], "").await.unwrap();
    let command = format!("/v1/sandboxes/a/proxy/{EXECD_PORT}/command");
    let failed = entry_of(&server, "away", server.request(Method::POST, &command)).await;
    let seen = (&failed["outcome"], &failed["status"], &failed["code"]);
    let expected = (
        &json!("failed"),
        &json!(502),
        &json!("BACKEND_CONNECTION_FAILED"),
    );
    assert_eq!(seen, expected);
    let execd = TcpListener::bind((AWAY, EXECD_PORT)).await.unwrap();
    let request = format!(
        "POST {command} HTTP/1.1\r\nHost: test\r\nX-Request-Id: gone\r\nContent-Length: 0\r\n\r\n"
    );
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    let _command = execd.accept().await.unwrap();
    // A reset shows at once.
    client.set_zero_linger().unwrap();
    drop(client);
    let look = || entries(&server, "action=sandbox.enter");
    let found = wait_until("both entries", look, |found: &Vec<Value>| found.len() == 2).await;
    let seen = (
        &found[1]["requestId"],
        &found[1]["outcome"],
        &found[1]["code"],
    );
    assert_eq!(
        seen,
        (&json!("gone"), &json!("failed"), &json!("UNANSWERED"))
    );
    server.stop().await;
}

#[tokio::test]
async fn ways_in_that_are_denied_name_the_sandbox() {
    const SECURED: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 69));
    let mut sandbox = running_at("a", SECURED, Some("token-of-a"));
    sandbox.origin.tenant = Some(Arc::from("team"));
    sandbox.origin.secure_access = Some(SecretString::from("token"));
    let server = TestServer::around([sandbox], "").await.unwrap();
    let upgrade = |request: RequestBuilder| {
        let request = request.header("connection", "upgrade");
        request.header("upgrade", "x")
    };
    let path = |port: &str| format!("/v1/sandboxes/a/proxy/{port}/x");
    let request = |method, port: &str| server.request(method, &path(port));
    for (id, action, request) in [
        ("read", "access.denied", request(Method::GET, "80")),
        ("tunnel", "tunnel.open", upgrade(request(Method::GET, "80"))),
        ("enter", "sandbox.enter", request(Method::POST, "44772")),
    ] {
        let denied = entry_of(&server, id, request).await;
        let seen = (&denied["action"], &denied["outcome"], &denied["status"]);
        assert_eq!(
            seen,
            (&json!(action), &json!("denied"), &json!(401)),
            "{id}"
        );
        assert_eq!(
            denied["object"],
            json!({"kind": "sandbox", "id": "a"}),
            "{id}"
        );
        let seen = (&denied["tenant"], &denied["actor"]["kind"], &denied["code"]);
        let code = json!("MISSING_OR_INVALID_SECURE_ACCESS");
        assert_eq!(
            seen,
            (&json!("team"), &json!("configured_key"), &code),
            "{id}"
        );
        assert!(denied["changes"]["port"].is_u64(), "{id}: {denied}");
    }
    // A path that is none of a port needs a key.
    let denied = server.bare(Method::POST, &path("+80"));
    let denied = entry_of(&server, "no-port", denied).await;
    let seen = (&denied["action"], &denied["code"], &denied["actor"]["kind"]);
    let code = json!("MISSING_API_KEY");
    assert_eq!(seen, (&json!("access.denied"), &code, &json!("unknown")));
    server.stop().await;
}
