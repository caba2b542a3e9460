//! Floods of requests without a key, and requests with a key during them.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use osb_testkit::{
    API_KEY, TestServer, collect_with, connect_from, exchange, patience, running_at, scaled,
    wait_until,
};
use reqwest::{Method, StatusCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};

const BOX: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const TOKEN: &str = "token-of-the-box";

/// Returns the address of a client in the loopback network.
fn client(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 1, number))
}

/// Opens connections that each have sent this text.
async fn flood(server: SocketAddr, source: IpAddr, count: usize, request: &str) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = connect_from(source, server).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        streams.push(stream);
    }
    streams
}

/// Builds a login request whose form never ends.
fn endless_login() -> String {
    "POST /console/login HTTP/1.1\r\nHost: a\r\nSec-Fetch-Site: same-origin\r\n\
     Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nkey="
        .to_owned()
}

/// Builds the frames of an HTTP/2 client that starts this many logins and finishes none.
fn endless_streams(count: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let frame = |bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        bytes.extend_from_slice(&length[1..]);
        bytes.extend_from_slice(&[kind, flags]);
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(payload);
    };
    frame(&mut bytes, 4, 0, 0, &[]);
    // POST and http by their index, path and authority as literals.
    let mut head = vec![0x83, 0x86];
    for (index, value) in [(4, "/console/login"), (1, "a")] {
        head.push(index);
        head.push(u8::try_from(value.len()).unwrap());
        head.extend_from_slice(value.as_bytes());
    }
    for number in 0..count {
        frame(&mut bytes, 1, 4, 2 * number + 1, &head);
    }
    bytes
}

/// Checks `/health`, a list and a read of a sandbox, with requests like those of an SDK.
async fn keyed_requests_are_served(server: &TestServer) {
    for (request, status) in [
        (server.bare(Method::GET, "/health"), 200),
        (server.request(Method::GET, "/v1/sandboxes"), 200),
        (server.request(Method::GET, "/v1/sandboxes/none"), 404),
    ] {
        let answer = timeout(patience(), request.send()).await.unwrap().unwrap();
        assert_eq!(answer.status(), status);
    }
}

#[tokio::test]
async fn unfinished_logins_do_not_block_other_requests() {
    let server = TestServer::around([], "limit_concurrency = 16")
        .await
        .unwrap();
    let mut held = Vec::new();
    for number in 0..4 {
        held.extend(flood(server.address, client(number), 40, &endless_login()).await);
    }
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&endless_streams(190)).await.unwrap();
        held.push(stream);
    }
    keyed_requests_are_served(&server).await;
    // The server waits for a bounded number of logins; newer ones displace older ones.
    let mut waiting: Vec<&mut TcpStream> = held.iter_mut().take(160).collect();
    let mut displaced = 0;
    let all_displaced = async {
        while displaced < 160 - 16 {
            let mut still = Vec::new();
            for stream in waiting.drain(..) {
                let mut head = [0; 12];
                let read = timeout(Duration::from_millis(1), stream.peek(&mut head));
                match read.await {
                    Ok(Ok(12)) if head == *b"HTTP/1.1 503" => displaced += 1,
                    _ => still.push(stream),
                }
            }
            waiting = still;
        }
    };
    let in_time = timeout(patience(), all_displaced).await;
    assert!(in_time.is_ok(), "{displaced} were displaced");
    // The operator signs in from the address of an attacker.
    let stream = connect_from(client(0), server.address).await.unwrap();
    let form = format!("key={API_KEY}");
    let login = format!(
        "POST /console/login HTTP/1.1\r\nHost: a\r\nSec-Fetch-Site: same-origin\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{form}",
        form.len()
    );
    let answer = exchange(stream, &login).await.unwrap();
    assert!(answer.contains("location: /console/sandboxes"), "{answer}");
    keyed_requests_are_served(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn a_login_without_its_form_times_out() {
    let server = TestServer::around([], "").await.unwrap();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(endless_login().as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let ended = timeout(patience(), stream.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "the server still waits for the form");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    let large = "key=".to_owned() + &"x".repeat(64 * 1024);
    let login = server
        .bare(Method::POST, "/console/login")
        .header("Sec-Fetch-Site", "same-origin")
        .body(large);
    assert_eq!(
        login.send().await.unwrap().status(),
        StatusCode::PAYLOAD_TOO_LARGE
    );
    server.stop().await;
}

/// Starts a program that accepts connections and never replies.
async fn mute() -> TcpListener {
    TcpListener::bind((BOX, 0)).await.unwrap()
}

fn proxied(program: &TcpListener, headers: &str) -> String {
    let port = program.local_addr().unwrap().port();
    format!("GET /v1/sandboxes/a/proxy/{port}/ HTTP/1.1\r\nHost: a\r\n{headers}\r\n")
}

#[tokio::test]
async fn keyless_requests_do_not_block_keyed_ones_in_the_proxy() {
    let program = mute().await;
    let more = "limit_concurrency = 16\nlimit_keyless_per_client = 4\n\
                [proxy]\nlimit_per_sandbox = 6\n";
    let sandbox = running_at("a", BOX, Some(TOKEN));
    let server = TestServer::around([sandbox], more).await.unwrap();
    let keyless = proxied(&program, "");
    let first = flood(server.address, client(1), 4, &keyless).await;
    let mut backends = Vec::new();
    for _ in 0..4 {
        backends.push(
            timeout(patience(), program.accept())
                .await
                .unwrap()
                .unwrap(),
        );
    }
    let ask = async |source, headers: &str| {
        let request = proxied(&program, &format!("{headers}Connection: close\r\n"));
        exchange(
            connect_from(source, server.address).await.unwrap(),
            &request,
        )
        .await
        .unwrap()
    };
    let full = ask(client(1), "").await;
    assert!(full.starts_with("HTTP/1.1 429"), "{full}");
    let _second = flood(server.address, client(2), 2, &keyless).await;
    for _ in 0..2 {
        backends.push(
            timeout(patience(), program.accept())
                .await
                .unwrap()
                .unwrap(),
        );
    }
    let full = ask(client(3), "").await;
    assert!(full.starts_with("HTTP/1.1 503"), "{full}");
    assert!(full.contains("proxy.limit_per_sandbox"), "{full}");
    keyed_requests_are_served(&server).await;
    // Each key has its own limit, also from the same address to the same sandbox.
    for key in [
        format!("OPEN-SANDBOX-API-KEY: {API_KEY}\r\n"),
        format!("X-EXECD-ACCESS-TOKEN: {TOKEN}\r\n"),
    ] {
        let answered = async {
            let (mut backend, _) = program.accept().await.unwrap();
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            backend.write_all(answer).await.unwrap();
            backend
        };
        let both = async { tokio::join!(ask(client(1), &key), answered) };
        let (answer, _backend) = timeout(patience(), both).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    // Every end of an exchange frees its place.
    drop((first, backends));
    let ask_again = || ask(client(1), "Upgrade: none\r\n");
    let retried = async {
        let served = async {
            loop {
                let (mut backend, _) = program.accept().await.unwrap();
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                // An earlier connection breaks.
                let _ = backend.write_all(answer).await;
            }
        };
        tokio::select! {
            () = served => {}
            _ = wait_until("room", ask_again, |answer| answer.starts_with("HTTP/1.1 200")) => {}
        }
    };
    timeout(patience(), retried).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn tunnels_count_while_they_are_open() {
    let program = mute().await;
    let more = "limit_keyless_per_client = 1";
    let server = TestServer::around([running_at("a", BOX, None)], more)
        .await
        .unwrap();
    let upgrade = proxied(&program, "Connection: Upgrade\r\nUpgrade: echo\r\n");
    let mut tunnel = flood(server.address, client(1), 1, &upgrade)
        .await
        .remove(0);
    let (mut backend, _) = timeout(patience(), program.accept())
        .await
        .unwrap()
        .unwrap();
    let switch =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    backend.write_all(switch).await.unwrap();
    let mut head = [0; 12];
    timeout(patience(), tunnel.read_exact(&mut head))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&head, b"HTTP/1.1 101");
    let ask = async || {
        let request = proxied(&program, "Connection: close\r\n");
        let stream = connect_from(client(1), server.address).await.unwrap();
        exchange(stream, &request).await.unwrap()
    };
    let full = ask().await;
    assert!(full.starts_with("HTTP/1.1 429"), "{full}");
    drop((tunnel, backend, program));
    let free = |answer: &String| answer.starts_with("HTTP/1.1 502");
    let program_is_gone = async || ask_closed(&server).await;
    wait_until("room", program_is_gone, free).await;
    server.stop().await;
}

/// Requests a port without a listener, and returns the reply.
async fn ask_closed(server: &TestServer) -> String {
    let stream = connect_from(client(1), server.address).await.unwrap();
    let request = "GET /sandboxes/a/proxy/9/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    exchange(stream, request).await.unwrap()
}

#[tokio::test]
async fn a_silent_tunnel_is_closed() {
    let program = mute().await;
    let idle = scaled(Duration::from_secs(1)).as_secs();
    let more = format!("[proxy]\ntunnel_idle_timeout = {idle}");
    let server = TestServer::around([running_at("a", BOX, None)], &more)
        .await
        .unwrap();
    let upgrade = proxied(&program, "Connection: Upgrade\r\nUpgrade: echo\r\n");
    let mut tunnel = flood(server.address, client(1), 1, &upgrade)
        .await
        .remove(0);
    let (mut backend, _) = timeout(patience(), program.accept())
        .await
        .unwrap()
        .unwrap();
    let switch =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    backend.write_all(switch).await.unwrap();
    let mut answer = Vec::new();
    let ended = timeout(patience(), tunnel.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "the tunnel is still open");
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{answer:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_program_that_is_silent_for_too_long_is_a_504() {
    let program = mute().await;
    let idle = scaled(Duration::from_secs(1)).as_secs();
    let more = format!("[proxy]\nidle_timeout = {idle}");
    let server = TestServer::around([running_at("a", BOX, None)], &more)
        .await
        .unwrap();
    let stream = connect_from(client(1), server.address).await.unwrap();
    let request = proxied(&program, "Connection: close\r\n");
    let answered = timeout(patience(), exchange(stream, &request)).await;
    let answer = answered.expect("the program is waited for").unwrap();
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert!(answer.contains("BACKEND_TIMEOUT"), "{answer}");
    server.stop().await;
}

/// The warnings that the tasks of this thread log.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<u8>>>);

impl Warnings {
    fn collect(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        collect_with(subscriber)
    }

    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Adds up the shed requests of all lines.
    fn shed(&self) -> usize {
        let count = |line: &String| {
            let (_, count) = line.split_once("proxy without a key: ")?;
            count.split([',', ' ']).next()?.parse::<usize>().ok()
        };
        self.lines().iter().filter_map(count).sum()
    }
}

impl io::Write for Warnings {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn shed_requests_are_counted_in_few_lines_of_the_log() {
    const SHED: usize = 50;
    let warnings = Warnings::default();
    let _collecting = warnings.collect();
    let program = mute().await;
    let server = TestServer::around([running_at("a", BOX, None)], "limit_concurrency = 1")
        .await
        .unwrap();
    let _held = flood(server.address, client(1), 1, &proxied(&program, "")).await;
    let _backend = timeout(patience(), program.accept())
        .await
        .unwrap()
        .unwrap();
    let begun = Instant::now();
    let request = proxied(&program, "Connection: close\r\n");
    for _ in 0..SHED {
        let stream = connect_from(client(1), server.address).await.unwrap();
        let full = exchange(stream, &request).await.unwrap();
        assert!(full.starts_with("HTTP/1.1 503"), "{full}");
    }
    wait_until("the count", async || warnings.shed(), |shed| *shed == SHED).await;
    // One line at once, then one every ten seconds.
    let most = 2 + begun.elapsed().as_secs() / 10;
    let lines = warnings.lines();
    assert!(lines.len() as u64 <= most, "{lines:#?}");
    server.stop().await;
}

/// As many connections as the descriptors of a test allow. Which connections give way beyond the
/// server's own limit is tested with fewer descriptors in `end2end/contract/test_restart.py`.
#[tokio::test]
async fn keyed_requests_are_served_beside_thousands_of_connections() {
    let server = TestServer::around([], "").await.unwrap();
    let most = osb_server::descriptors::Room::of_process().connections;
    let mut idle = Vec::new();
    for number in 0..most.min(5_000) {
        let begin = if number % 2 == 0 { "" } else { "GET / HT" };
        let source = client(u8::try_from(number % 200).unwrap());
        idle.extend(flood(server.address, source, 1, begin).await);
    }
    let _bodies = flood(server.address, client(201), 100, &endless_login()).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&endless_streams(190)).await.unwrap();
    keyed_requests_are_served(&server).await;
    server.stop().await;
}
