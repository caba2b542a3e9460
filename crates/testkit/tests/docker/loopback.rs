//! Programs that listen on the loopback interface of their sandbox only, through the server's proxy.

use futures::{SinkExt, StreamExt};
use osb_testkit::{API_KEY, TestServer, wait_until};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio_tungstenite::{
    connect_async,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderName},
};

use super::{
    stage::{answer, body, create, delete, docker, ready},
    warm::{set, warm, with_policy},
};

/// Listens at 127.0.0.1 on one port and at `::1` on another. It answers with the path, with the number of
/// posts and the length of the last one's body, by a redirect, or as a WebSocket that echoes.
const PROGRAM: &str = r#"
import base64, hashlib, http.server, socket, socketserver, threading

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    posts = 0

    def answer(self, text, status=200, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Handler.posts += 1
        self.answer(f"{Handler.posts} {len(body)}")

    def do_GET(self):
        if self.path == "/leads":
            return self.answer("", 302, Location="/led")
        key = self.headers.get("Sec-WebSocket-Key")
        if key is None:
            return self.answer(self.path)
        salted = key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(salted.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "websocket")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        length = self.rfile.read(2)[1] & 127
        mask = self.rfile.read(4)
        text = bytes(it ^ mask[at % 4] for at, it in enumerate(self.rfile.read(length)))
        self.wfile.write(bytes([0x81, length]) + text)
        self.rfile.read(1)
        self.close_connection = True

class Server(socketserver.ThreadingTCPServer):
    def __init__(self, family, *address):
        self.address_family = family
        super().__init__(address, Handler)

threading.Thread(target=lambda: Server(socket.AF_INET, "127.0.0.1", 8001).serve_forever()).start()
Server(socket.AF_INET6, "::1", 8002).serve_forever()
"#;

/// A sandbox, and what its clients send with each request.
struct Reached<'a> {
    server: &'a TestServer,
    id: String,
    headers: Vec<(String, String)>,
}

/// A request with these headers.
fn with(request: RequestBuilder, headers: &[(String, String)]) -> RequestBuilder {
    let headers = headers.iter();
    headers.fold(request, |request, (name, value)| {
        request.header(name, value)
    })
}

impl Reached<'_> {
    fn path(&self, port: u16, path: &str) -> String {
        format!("/v1/sandboxes/{}/proxy/{port}{path}", self.id)
    }

    async fn send(&self, request: RequestBuilder) -> (u16, String) {
        let answer = with(request, &self.headers).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn get(&self, port: u16, path: &str) -> (u16, String) {
        let path = self.path(port, path);
        self.send(self.server.request(Method::GET, &path)).await
    }

    /// What a WebSocket sends back.
    async fn echoed(&self, port: u16) -> Message {
        let url = format!("ws://{}{}", self.server.address, self.path(port, "/ws"));
        let mut request = url.into_client_request().unwrap();
        let key = ("OPEN-SANDBOX-API-KEY".to_owned(), API_KEY.to_owned());
        for (name, value) in self.headers.iter().chain([&key]) {
            let name: HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let (mut socket, _) = connect_async(request).await.unwrap();
        socket.send(Message::text("ping")).await.unwrap();
        socket.next().await.unwrap().unwrap()
    }

    /// Checks everything that a program at this port answers.
    async fn check(&self, kind: &str, port: u16) {
        let look = || self.get(port, "/a%2Fb?x=%20");
        let seen = wait_until("the program", look, |seen| seen.0 == 200).await;
        assert_eq!(seen.1, "/a%2Fb?x=%20", "{kind}");
        let posts = self.posts(port).await;
        for number in 1..=3 {
            let path = self.path(port, "/");
            let post = self.server.request(Method::POST, &path);
            let body = "x".repeat(300_000);
            let seen = self.send(post.body(body)).await;
            assert_eq!(seen, (200, format!("{} 300000", posts + number)), "{kind}");
        }
        assert_eq!(self.echoed(port).await, Message::text("ping"), "{kind}");
        let leads = self.server.request(Method::GET, &self.path(port, "/leads"));
        let answer = with(leads, &self.headers).send().await.unwrap();
        assert_eq!(answer.status(), 302, "{kind}");
        assert_eq!(
            answer.headers()["location"],
            *self.path(port, "/led"),
            "{kind}"
        );
    }

    /// How many posts the program has counted with this one.
    async fn posts(&self, port: u16) -> usize {
        let path = self.path(port, "/");
        let post = self.server.request(Method::POST, &path);
        let (status, text) = self.send(post.body("x")).await;
        assert_eq!(status, 200, "{text}");
        text.split(' ').next().unwrap().parse().unwrap()
    }
}

/// The headers of a sandbox's endpoint.
async fn headers_of(server: &TestServer, id: &str, port: u16) -> Vec<(String, String)> {
    let path = format!("/v1/sandboxes/{id}/endpoints/{port}");
    let (status, endpoint) = answer(server.request(Method::GET, &path)).await;
    assert_eq!(status, 200, "{endpoint}");
    let headers = endpoint["headers"].as_object().cloned().unwrap_or_default();
    let text = |value: Value| value.as_str().unwrap().to_owned();
    let headers = headers.into_iter();
    headers.map(|(name, value)| (name, text(value))).collect()
}

/// Where a redirect of the program leads behind its published endpoint.
async fn published(server: &TestServer, id: &str) -> String {
    let path = format!("/v1/sandboxes/{id}/endpoints/8001");
    let (_, endpoint) = answer(server.request(Method::GET, &path)).await;
    let url = format!("http://{}/leads", endpoint["endpoint"].as_str().unwrap());
    let headers = headers_of(server, id, 8001).await;
    let request = with(reqwest::Client::new().get(url), &headers);
    request.send().await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_on_the_loopback_interface_are_reached() {
    let mut stage = set();
    stage.engine.up().unwrap();
    let tune = |config: &mut osb_runtime::docker::DockerConfig| {
        warm(config);
        config.egress.as_mut().unwrap().warm = 0;
    };
    let server = stage.server_tuned(tune).await;
    ready(&server).await;
    let mut secured = body();
    secured["secureAccess"] = json!(true);
    for (kind, mut body) in [
        ("plain", body()),
        ("policy", with_policy()),
        ("secure access", secured),
    ] {
        body["entrypoint"] = json!(["python3", "-c", PROGRAM]);
        let id = create(&server, &body).await;
        let headers = match kind {
            "secure access" => headers_of(&server, &id, 8001).await,
            _ => Vec::new(),
        };
        let container = stage.container_of(&id);
        let reached = Reached {
            server: &server,
            id,
            headers,
        };
        reached.check(kind, 8001).await;
        // Not every engine gives its containers an address of IPv6, not even on loopback.
        let has_ipv6 = !docker(&["exec", &container, "cat", "/proc/net/if_inet6"]).is_empty();
        if has_ipv6 {
            reached.check(kind, 8002).await;
        }
        let (status, text) = reached.get(8003, "/").await;
        assert_eq!(status, 502, "{kind}: {text}");
        assert!(text.contains("nothing listens on that port\""), "{text}");

        if kind != "secure access" {
            let led = published(&server, &reached.id).await;
            assert_eq!(led, "/led", "{kind}: of its endpoint");
        }
        // Without a key only the sandbox's own token opens what is not open to its network.
        let path = reached.path(8001, "/");
        let keyless = reached.send(server.bare(Method::GET, &path)).await;
        let opens = kind == "secure access";
        assert_eq!(
            keyless.0,
            if opens { 200 } else { 502 },
            "{kind}: {keyless:?}"
        );
        delete(&server, &reached.id).await;
    }
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
}
