//! What a key opened ends with the key: streams and tunnels through the proxy, too.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use osb_server::identity::Accounts;
use osb_service::Supervisor;
use osb_testkit::{TestServer, connect_from, patience, running_at, store_in};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// Address of the sandbox.
const INSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 71));
const STREAM: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nping\r\n";
const TUNNEL: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nping";

/// A program in a sandbox that answers each connection and then keeps it open.
async fn program(answer: &'static str, tasks: &Supervisor) -> SocketAddr {
    let listener = TcpListener::bind((INSIDE, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let each = tasks.clone();
    tasks.spawn_abortable("program", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            each.spawn_abortable("exchange", async move {
                let mut head = vec![0; 4096];
                let _ = stream.read(&mut head).await;
                let _ = stream.write_all(answer.as_bytes()).await;
                std::future::pending().await
            });
        }
    });
    address
}

/// A connection whose proxied answer has begun.
async fn open(server: &TestServer, key: &str, program: SocketAddr, more: &str) -> TcpStream {
    let source = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut stream = connect_from(source, server.address).await.unwrap();
    let port = program.port();
    let request = format!(
        "GET /v1/sandboxes/a/proxy/{port}/ HTTP/1.1\r\nHost: a\r\n\
         OPEN-SANDBOX-API-KEY: {key}\r\n{more}\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    let begins = async {
        while !seen.windows(4).any(|window| window == b"ping") {
            assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0, "{seen:?}");
        }
    };
    timeout(patience(), begins).await.expect("an answer");
    stream
}

async fn ended(mut stream: TcpStream) {
    let mut rest = Vec::new();
    // A reset is an end, too.
    let _ = timeout(patience(), stream.read_to_end(&mut rest))
        .await
        .expect("the connection ends");
}

/// Whether nothing has come, the end included.
fn is_open(stream: &TcpStream) -> bool {
    matches!(
        stream.try_read(&mut [0; 16]),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock
    )
}

async fn new_key(server: &TestServer, name: &str) -> (String, String) {
    let new = json!({"name": name, "role": "operator"});
    let made = server.request(Method::POST, "/v1/api-keys").json(&new);
    let made: Value = made.send().await.unwrap().json().await.unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&made["apiKey"]["id"]), text(&made["secret"]))
}

const UPGRADE: &str = "Connection: upgrade\r\nUpgrade: echo\r\n";

#[tokio::test]
async fn a_revoked_key_ends_its_streams_and_tunnels_and_no_others() {
    let tasks = Supervisor::new();
    let (stream, tunnel) = (program(STREAM, &tasks).await, program(TUNNEL, &tasks).await);
    let server = TestServer::around([running_at("a", INSIDE, None)], "").await;
    let server = server.unwrap();
    let (id, key) = new_key(&server, "one").await;
    let (_, other) = new_key(&server, "other").await;
    let own = [
        open(&server, &key, stream, "").await,
        open(&server, &key, tunnel, UPGRADE).await,
    ];
    let others = [
        open(&server, &other, stream, "").await,
        open(&server, &other, tunnel, UPGRADE).await,
    ];
    let path = format!("/v1/api-keys/{id}");
    let revoked = server.request(Method::DELETE, &path).send().await.unwrap();
    assert_eq!(revoked.status(), 204);
    for stream in own {
        ended(stream).await;
    }
    assert!(others.iter().all(is_open));
    server.stop().await;
    tasks.stop();
}

/// As `opensandbox-server key revoke` works beside a server.
#[tokio::test]
async fn a_key_that_another_process_revokes_ends_its_tunnels() {
    let tasks = Supervisor::new();
    let tunnel = program(TUNNEL, &tasks).await;
    let folder = tempfile::tempdir().unwrap();
    let sandbox = running_at("a", INSIDE, None);
    let sim = osb_runtime::sim::SimRuntime::with([sandbox]);
    let server = TestServer::over(std::sync::Arc::new(sim), folder.path(), "").await;
    let server = server.unwrap();
    let (id, key) = new_key(&server, "one").await;
    let own = open(&server, &key, tunnel, UPGRADE).await;
    let location = store_in(folder.path()).await.unwrap();
    let store = osb_store::open_shared(&location).await.unwrap().unwrap();
    let beside = Accounts::open(std::sync::Arc::clone(&store)).await.unwrap();
    beside.revoke_key(&id).await.unwrap();
    ended(own).await;
    store.close().await;
    server.stop().await;
    tasks.stop();
}

#[tokio::test]
async fn the_first_stored_key_ends_what_was_open_to_every_client() {
    let tasks = Supervisor::new();
    let tunnel = program(TUNNEL, &tasks).await;
    let server = TestServer::keyless([running_at("a", INSIDE, None)], "").await;
    let server = server.unwrap();
    let open = open(&server, "", tunnel, UPGRADE).await;
    let new = json!({"name": "first", "role": "service_admin"});
    let made = server.bare(Method::POST, "/v1/api-keys").json(&new);
    assert_eq!(made.send().await.unwrap().status(), 201);
    ended(open).await;
    server.stop().await;
    tasks.stop();
}
