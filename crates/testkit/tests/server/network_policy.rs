//! Network policies over the simulated runtime: what a create makes of them, and the routes to the
//! sidecar. Sandboxes have addresses of the loopback network here, so that a test can be a sidecar.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use osb_protocol::{Feature, FeatureSet, SandboxId};
use osb_runtime::{
    Address, EGRESS_PORT, EXECD_PORT, Ports,
    sim::{Options, SimRuntime},
};
use osb_testkit::{API_KEY, CannedProgram, TestServer, connect_from, exchange, wait_until};
use reqwest::{Method, RequestBuilder, StatusCode};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

const TOKEN: &str = "OPENSANDBOX-EGRESS-AUTH";
/// What execd answers to a ping.
const PONG: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
/// What a sidecar answers.
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\
                  Connection: close\r\n\r\n{\"status\":\"ok\"}";

/// The address of one test's sandboxes. Tests run side by side, and the sidecar's port is fixed.
fn address(test: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 18, test).into()
}

fn able() -> Options {
    Options {
        create_features: FeatureSet::EMPTY
            .with(Feature::NetworkPolicy)
            .with(Feature::SecureAccess),
        sidecar: true,
        ..Options::default()
    }
}

/// A server whose sandboxes have this address, with an execd there.
async fn server_at(ip: IpAddr) -> (TestServer, Arc<SimRuntime>, CannedProgram) {
    let (server, sim) = TestServer::sim_with(able()).await.unwrap();
    sim.set_address(Address {
        ip: Some(ip),
        ports: Ports {
            execd: Some(40001),
            http: Some(40002),
        },
        ..Address::default()
    });
    let execd = CannedProgram::start_at((ip, EXECD_PORT).into(), PONG).await;
    (server, sim, execd.unwrap())
}

async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// Creates a sandbox with changes to a good request; its id.
async fn made(server: &TestServer, change: impl FnOnce(&mut Value)) -> String {
    let mut body = TestServer::good_create();
    change(&mut body);
    let request = server.request(Method::POST, "/v1/sandboxes").json(&body);
    let (status, answer) = answer(request).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

fn with_policy(body: &mut Value) {
    body["networkPolicy"] = json!({"egress": [{"action": "allow", "target": "a.example"}]});
}

/// The token of a sandbox's sidecar.
fn token_of(sim: &SimRuntime, id: &str) -> String {
    let spec = sim.spec(&SandboxId::from(id)).unwrap();
    spec.origin.egress_token.unwrap().expose_secret().to_owned()
}

/// Answers one request as the sidecar, and returns its head in lower case and its body.
async fn served(sidecar: &TcpListener, answer: &str) -> (String, Vec<u8>) {
    let (mut stream, _) = sidecar.accept().await.unwrap();
    let mut request = Vec::new();
    let end = loop {
        if let Some(end) = request.windows(4).position(|it| it == b"\r\n\r\n") {
            break end + 4;
        }
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
    };
    let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |text| text.trim().parse().unwrap());
    while request.len() < end + length {
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    (head, request.split_off(end))
}

#[tokio::test]
async fn the_routes_lead_to_the_sidecar_with_its_own_token() {
    let ip = address(1);
    let (server, sim, _execd) = server_at(ip).await;
    let id = made(&server, with_policy).await;
    let token = token_of(&sim, &id);
    let sidecar = TcpListener::bind((ip, EGRESS_PORT)).await.unwrap();
    let rule = r#"[ {"target" : "b.example","action":"allow"} ]"#;
    for (prefix, method, body) in [
        ("/v1", Method::GET, ""),
        ("", Method::PUT, r#"{ "defaultAction":null, "egress":[] }"#),
        ("/v1", Method::PATCH, rule),
        ("/v1", Method::DELETE, r#"["b.example" , ""]"#),
    ] {
        let path = format!("{prefix}/sandboxes/{id}/networkpolicy?x=%20&x&y=1");
        let mut request = server
            .request(method.clone(), &path)
            .header(TOKEN, "mine")
            .header("X-EXECD-ACCESS-TOKEN", "mine");
        if method != Method::GET {
            request = request
                .header("content-type", "application/json")
                .body(body);
        }
        let (seen, answer) = tokio::join!(served(&sidecar, OK), answer(request));
        assert_eq!(
            answer,
            (StatusCode::OK, json!({"status": "ok"})),
            "{method}"
        );
        let (head, seen_body) = seen;
        let line = format!(
            "{} /policy?x=%20&x&y=1 http/1.1\r\n",
            method.as_str().to_lowercase()
        );
        assert!(head.starts_with(&line), "{head}");
        assert_eq!(String::from_utf8(seen_body).unwrap(), body, "{method}");
        let sent = format!("opensandbox-egress-auth: {token}\r\n");
        assert_eq!(
            head.matches("opensandbox-egress-auth:").count(),
            1,
            "{head}"
        );
        assert!(head.contains(&sent), "{head}");
        assert!(!head.contains("mine") && !head.contains(API_KEY), "{head}");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_sidecars_answer_is_passed_on_as_it_is() {
    let ip = address(2);
    let (server, _sim, _execd) = server_at(ip).await;
    let id = made(&server, with_policy).await;
    let sidecar = TcpListener::bind((ip, EGRESS_PORT)).await.unwrap();
    let refusal = "HTTP/1.1 413 Payload Too Large\r\nContent-Type: text/plain\r\nContent-Length: 14\r\n\
                   Set-Cookie: osb_console=x\r\nConnection: close\r\n\r\ntoo many rules";
    let path = format!("/v1/sandboxes/{id}/networkpolicy");
    let request = server.request(Method::PUT, &path).json(&json!({}));
    let (_, answer) = tokio::join!(served(&sidecar, refusal), request.send());
    let answer = answer.unwrap();
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(answer.headers()["content-type"], "text/plain");
    assert!(!answer.headers().contains_key("set-cookie"));
    assert_eq!(answer.text().await.unwrap(), "too many rules");
    // It is gone.
    drop(sidecar);
    let (status, body) = self::answer(server.request(Method::GET, &path)).await;
    let seen = (status.as_u16(), &body["code"]);
    assert_eq!(seen, (502, &json!("BACKEND_CONNECTION_FAILED")), "{body}");
    server.stop().await;
}

#[tokio::test]
async fn malformed_bodies_do_not_reach_the_sidecar() {
    // Nothing listens there.
    let (server, _sim, _execd) = server_at(address(3)).await;
    let id = made(&server, with_policy).await;
    let path = format!("/v1/sandboxes/{id}/networkpolicy");
    let send = async |method: Method, kind: &str, body: String| {
        let request = server.request(method, &path).header("content-type", kind);
        answer(request.body(body)).await
    };
    let json_type = "application/json";
    for (method, body, place) in [
        (Method::PUT, "{", json!(["body"])),
        (Method::PUT, "", json!(["body"])),
        (Method::PUT, "[]", json!(["body"])),
        (
            Method::PUT,
            r#"{"defaultAction": "permit"}"#,
            json!(["body", "defaultAction"]),
        ),
        (
            Method::PUT,
            r#"{"egress": [{"target": "a.example"}, {"target": ""}]}"#,
            json!(["body", "egress", 1, "target"]),
        ),
        (Method::PATCH, "[]", json!(["body"])),
        (Method::PATCH, "{}", json!(["body"])),
        (
            Method::PATCH,
            r#"[{"action": "drop", "target": "a.example"}]"#,
            json!(["body", 0, "action"]),
        ),
        (Method::DELETE, "[]", json!(["body"])),
        (Method::DELETE, r#"["a.example", 1]"#, json!(["body", 1])),
    ] {
        let (status, answer) = send(method.clone(), json_type, body.to_owned()).await;
        let seen = (status.as_u16(), &answer["code"]);
        let invalid = json!("SANDBOX::INVALID_PARAMETER");
        assert_eq!(seen, (422, &invalid), "{method} {body}: {answer}");
        let mut details = answer["detail"].as_array().unwrap().iter();
        let is_named = details.any(|detail| detail["loc"] == place);
        assert!(is_named, "{method} {body}: {answer}");
    }
    let (status, answer) = send(Method::PUT, "text/plain", "{}".to_owned()).await;
    assert_eq!(status, 422, "{answer}");
    let huge = format!("[{}\"a\"]", " ".repeat(1 << 20));
    let (status, answer) = send(Method::DELETE, json_type, huge).await;
    let seen = (status.as_u16(), &answer["code"]);
    assert_eq!(seen, (413, &json!("GENERAL::BODY_TOO_LARGE")), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn a_sandbox_without_a_policy_has_no_sidecar_to_ask() {
    let (server, sim, _execd) = server_at(address(4)).await;
    let id = made(&server, |_| ()).await;
    let spec = sim.spec(&SandboxId::from(id.as_str())).unwrap();
    assert!(spec.network_policy.is_none() && spec.origin.egress_token.is_none());
    let get = async |id: &str| {
        let path = format!("/v1/sandboxes/{id}/networkpolicy");
        answer(server.request(Method::GET, &path)).await
    };
    let (status, body) = get(&id).await;
    let seen = (status.as_u16(), &body["code"]);
    assert_eq!(seen, (502, &json!("BACKEND_CONNECTION_FAILED")), "{body}");
    let message = body["message"].as_str().unwrap();
    let wire = "Could not connect to the backend sandbox";
    assert!(
        message.starts_with(wire) && message.contains("no network policy"),
        "{message}"
    );
    let (status, body) = get("none").await;
    let seen = (status.as_u16(), &body["code"]);
    assert_eq!(seen, (404, &json!("DOCKER::SANDBOX_NOT_FOUND")), "{body}");
    let path = format!("/v1/sandboxes/{id}/endpoints/18080");
    let (status, endpoint) =
        answer(server.request(Method::GET, &format!("{path}?use_server_proxy=1"))).await;
    assert_eq!(status, 200, "{endpoint}");
    assert_eq!(endpoint["headers"].get(TOKEN), None, "{endpoint}");
    server.stop().await;
}

#[tokio::test]
async fn the_token_of_the_sidecar_is_in_its_endpoint_only() {
    let (server, sim, _execd) = server_at(address(5)).await;
    let id = made(&server, with_policy).await;
    let token = token_of(&sim, &id);
    let reader = json!({"name": "r", "role": "read_only"});
    let request = server.request(Method::POST, "/v1/api-keys").json(&reader);
    let (_, reader) = answer(request).await;
    let reader = reader["secret"].as_str().unwrap();
    for (port, key, has_token) in [
        (18080, API_KEY, true),
        (18080, reader, false),
        (44772, API_KEY, false),
        (8000, API_KEY, false),
    ] {
        let path = format!("/v1/sandboxes/{id}/endpoints/{port}?use_server_proxy=true");
        let (status, endpoint) = answer(server.request_as(key, Method::GET, &path)).await;
        assert_eq!(status, StatusCode::OK, "{endpoint}");
        let seen = endpoint["headers"].get(TOKEN).and_then(Value::as_str);
        assert_eq!(
            seen,
            has_token.then_some(token.as_str()),
            "{port}: {endpoint}"
        );
    }
    for path in ["/v1/sandboxes".to_owned(), format!("/v1/sandboxes/{id}")] {
        let (status, shown) = answer(server.request(Method::GET, &path)).await;
        assert_eq!(status, 200);
        assert!(!shown.to_string().contains(&token), "{shown}");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_proxy_forwards_the_token_and_never_adds_it() {
    let ip = address(6);
    let (server, sim, _execd) = server_at(ip).await;
    let id = made(&server, with_policy).await;
    let token = token_of(&sim, &id);
    let sidecar = TcpListener::bind((ip, EGRESS_PORT)).await.unwrap();
    let path = format!("/v1/sandboxes/{id}/proxy/18080/policy");
    for given in [None, Some("wrong"), Some(token.as_str())] {
        let mut request = server.request(Method::GET, &path);
        if let Some(given) = given {
            request = request.header(TOKEN, given);
        }
        let ((head, _), answer) = tokio::join!(served(&sidecar, OK), request.send());
        assert_eq!(answer.unwrap().status(), StatusCode::OK);
        let line = head
            .lines()
            .find_map(|line| line.strip_prefix("opensandbox-egress-auth: "));
        assert_eq!(line, given, "{head}");
    }
    // It counts as a key of this sandbox, also for a neighbour, which this client is by its address.
    for (given, inside) in [("wrong", false), (token.as_str(), true)] {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\n{TOKEN}: {given}\r\nConnection: close\r\n\r\n"
        );
        let stream = connect_from(ip, server.address).await.unwrap();
        let asked = exchange(stream, &request);
        let seen = match inside {
            true => tokio::join!(served(&sidecar, OK), asked).1.unwrap(),
            false => asked.await.unwrap(),
        };
        let status = if inside {
            "HTTP/1.1 200"
        } else {
            "HTTP/1.1 401"
        };
        assert!(seen.starts_with(status), "{given}: {seen}");
    }
    server.stop().await;
}

#[tokio::test]
async fn secure_access_counts_for_the_policy_as_for_every_port() {
    let ip = address(7);
    let (server, _sim, _execd) = server_at(ip).await;
    let id = made(&server, |body| {
        with_policy(body);
        body["secureAccess"] = json!(true);
    })
    .await;
    let path = format!("/v1/sandboxes/{id}/networkpolicy");
    let (status, body) = answer(server.request(Method::GET, &path)).await;
    let seen = (status.as_u16(), &body["code"]);
    assert_eq!(
        seen,
        (401, &json!("MISSING_OR_INVALID_SECURE_ACCESS")),
        "{body}"
    );
    let endpoint = format!("/v1/sandboxes/{id}/endpoints/18080");
    let (_, endpoint) = answer(server.request(Method::GET, &endpoint)).await;
    let secret = endpoint["headers"]["OpenSandbox-Secure-Access"].as_str();
    let sidecar = TcpListener::bind((ip, EGRESS_PORT)).await.unwrap();
    let request = server.request(Method::GET, &path);
    let request = request.header("OpenSandbox-Secure-Access", secret.unwrap());
    let ((head, _), answer) = tokio::join!(served(&sidecar, OK), request.send());
    assert_eq!(answer.unwrap().status(), StatusCode::OK);
    assert!(!head.contains("opensandbox-secure-access"), "{head}");
    server.stop().await;
}

/// An answer of a sidecar with this body.
fn json_answer(body: &Value) -> String {
    let body = body.to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
    format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn decisions_and_a_proposal_come_from_the_sidecar() {
    let ip = address(8);
    let (server, sim, _execd) = server_at(ip).await;
    let id = made(&server, with_policy).await;
    let token = token_of(&sim, &id);
    let sidecar = TcpListener::bind((ip, EGRESS_PORT)).await.unwrap();
    let time = "2026-11-26T01:33:15.503823946Z";
    let name = |action: &str, name: &str| {
        json!({"action": action, "name": name, "rule": "default", "count": 1, "first": time,
               "last": time, "number": 1})
    };
    let mut missing = name("allow", "missing.example");
    missing["nonexistent"] = json!(true);
    let decisions = json!({
        // Older sidecars do not say whether a name exists.
        "names": [name("allow", "a.example"), name("deny", "b.example"), missing],
        "next": 2,
        // Older sidecars do not name what led to an address.
        "destinations": [{"action": "allow", "address": "198.51.100.1", "protocol": "tcp",
                          "port": 443, "count": 1}],
    });
    let text = json_answer(&decisions);
    let base = format!("/v1/sandboxes/{id}/networkpolicy");
    let ask = async |path: &str| {
        let request = server.request(Method::GET, &format!("{base}/{path}"));
        let ((head, _), seen) = tokio::join!(served(&sidecar, &text), answer(request));
        assert_eq!(seen.0, StatusCode::OK, "{}", seen.1);
        let sent = format!("opensandbox-egress-auth: {token}\r\n");
        assert!(head.contains(&sent), "{head}");
        let line = head.lines().next().unwrap_or_default().to_owned();
        (line, seen.1)
    };
    let (line, seen) = ask("decisions?since=%31&x=y").await;
    assert_eq!(line, "get /decisions?since=1 http/1.1");
    assert_eq!(seen, decisions);
    let (line, seen) = ask("proposal").await;
    assert_eq!(line, "get /decisions?since=0 http/1.1");
    let allow = |target: &str| json!({"action": "allow", "target": target});
    let rules = json!([allow("a.example"), allow("198.51.100.1")]);
    assert_eq!(
        seen["policy"],
        json!({"defaultAction": "deny", "egress": rules})
    );
    assert_eq!(seen["reasons"][1]["covers"], json!(["tcp/443"]));
    assert_eq!(seen["nonexistent"], json!(["missing.example"]));
    let (_, seen) = ask("proposal?denied=true").await;
    assert_eq!(seen["policy"]["egress"][1], allow("b.example"));
    for (path, name) in [
        ("decisions?since=x", "since"),
        ("decisions?since=-1", "since"),
        ("proposal?denied=maybe", "denied"),
    ] {
        let request = server.request(Method::GET, &format!("{base}/{path}"));
        let (status, body) = answer(request).await;
        assert_eq!(status, 422, "{path}: {body}");
        assert_eq!(body["detail"][0]["loc"], json!(["query", name]), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_sidecar_without_decisions_is_said_to_have_none() {
    let ip = address(9);
    let (server, _sim, _execd) = server_at(ip).await;
    let id = made(&server, with_policy).await;
    let sidecar = TcpListener::bind((ip, EGRESS_PORT)).await.unwrap();
    let absent = "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 18\r\n\
                  Connection: close\r\n\r\n404 page not found";
    let text = json_answer(&json!("nothing"));
    for (path, sent, status, code) in [
        ("decisions", absent, 501, "SANDBOX::API_NOT_SUPPORTED"),
        ("proposal", absent, 501, "SANDBOX::API_NOT_SUPPORTED"),
        ("proposal", text.as_str(), 502, "BACKEND_RESPONSE_FAILED"),
    ] {
        let path = format!("/v1/sandboxes/{id}/networkpolicy/{path}");
        let request = server.request(Method::GET, &path);
        let (_, (seen, body)) = tokio::join!(served(&sidecar, sent), answer(request));
        assert_eq!(
            (seen.as_u16(), &body["code"]),
            (status, &json!(code)),
            "{body}"
        );
    }
    // Without a policy there is no sidecar to ask.
    let id = made(&server, |_| ()).await;
    for path in ["decisions", "proposal"] {
        let path = format!("/v1/sandboxes/{id}/networkpolicy/{path}");
        let (status, body) = answer(server.request(Method::GET, &path)).await;
        let seen = (status.as_u16(), &body["code"]);
        assert_eq!(seen, (502, &json!("BACKEND_CONNECTION_FAILED")), "{body}");
    }
    server.stop().await;
}

/// Starts a server whose sandboxes have the default policy.
async fn server_with_default(options: Options) -> (TestServer, Arc<SimRuntime>, tempfile::TempDir) {
    let sim = Arc::new(SimRuntime::with_options(options));
    let folder = tempfile::tempdir().unwrap();
    let more = "[egress]\nimage = 'a'\nmode = 'dns+nft'\ndefault_policy = 'public'\n\
                default_allow = ['10.1.0.0/16']\n";
    let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), more);
    let server = server.await.unwrap();
    let look = || async { server.service.available().is_ok() };
    wait_until("the runtime", look, |up| *up).await;
    (server, sim, folder)
}

#[tokio::test]
async fn the_default_policy_is_that_of_every_create_without_one() {
    let (server, sim, _folder) = server_with_default(able()).await;
    let rules = |id: &str| {
        let spec = sim.spec(&SandboxId::from(id)).unwrap();
        assert!(spec.origin.egress_token.is_some());
        spec.network_policy.unwrap().rules
    };
    let default = rules(&made(&server, |_| ()).await);
    let policy: Value = serde_json::from_str(&default).unwrap();
    assert_eq!(policy["defaultAction"], "allow");
    let allowed = json!({"action": "allow", "target": "10.1.0.0/16"});
    assert_eq!(policy["egress"][0], allowed);
    let own = rules(&made(&server, with_policy).await);
    assert!(
        own.contains("a.example") && !own.contains("10.1.0.0"),
        "{own}"
    );
    server.stop().await;
    // Where it cannot be enforced, nothing starts.
    let (server, sim, _folder) = server_with_default(Options::default()).await;
    let request = server.request(Method::POST, "/v1/sandboxes");
    let (status, body) = answer(request.json(&TestServer::good_create())).await;
    assert_eq!(status, 400, "{body}");
    assert_eq!(body["detail"][0]["loc"], json!(["body", "networkPolicy"]));
    let message = body["message"].as_str().unwrap();
    assert!(message.contains("egress.default_policy"), "{message}");
    assert!(sim.sandboxes().is_empty());
    server.stop().await;
}
