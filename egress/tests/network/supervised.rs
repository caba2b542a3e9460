//! The sidecar under its supervisor, which holds the ports while there is no worker.

use std::{
    fs::{self, Permissions},
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::unix::fs::PermissionsExt,
};

use hickory_server::proto::{op::ResponseCode, rr::RecordType};

use crate::{
    client::ask_by_tcp,
    world::{SOON, World, wait_until},
};

const ALLOW: &str = r#"{"egress":[{"action":"allow","target":"a.example"}]}"#;

/// What a program in the sandbox gets when it wants the sidecar's ports.
fn wanted_ports(world: &World) -> [io::Result<()>; 4] {
    world.inside(|| {
        [
            TcpListener::bind("0.0.0.0:18080").map(drop),
            TcpListener::bind("127.0.0.1:18080").map(drop),
            TcpListener::bind("127.0.0.1:15353").map(drop),
            UdpSocket::bind("127.0.0.1:15353").map(drop),
        ]
    })
}

#[test]
fn no_program_gets_the_ports_while_there_is_no_worker() {
    let mut world = World::without_sidecar();
    let flags = ["--hold-sockets", "--backoff-min=1h", "--backoff-max=1h"];
    world.start_supervised(&flags, "dns+nft", ALLOW);
    world.kill_worker();
    for wanted in wanted_ports(&world) {
        assert_eq!(wanted.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
    // Without the flag they are free, so that the test shows something.
    world.stop();
    world.start_supervised(&flags[1..], "dns+nft", ALLOW);
    world.kill_worker();
    // The kernel may close a killed program's sockets a moment after its end is known.
    wait_until("the ports are free", || {
        wanted_ports(&world).iter().all(Result::is_ok)
    });
    world.stop();
}

#[test]
fn the_next_worker_answers_what_came_meanwhile() {
    let mut world = World::without_sidecar();
    let flags = ["--hold-sockets", "--backoff-min=200ms"];
    world.start_supervised(&flags, "dns+nft", ALLOW);
    world.internet.name("a.example", &["198.51.100.1"]);
    world.kill_worker();
    // Both wait in the kernel.
    let resolved = world.resolve("a.example");
    assert_eq!(resolved.code, ResponseCode::NoError);
    assert!(world.reaches("198.51.100.1", 443));
    world.kill_worker();
    let (status, _) = world.call("GET", "/policy", "").expect("it answers");
    assert_eq!(status, 200);
    world.stop();
}

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: sidecar\r\nConnection: close\r\n\r\n";

/// What the API says to a request.
fn answer(stream: &mut TcpStream) -> io::Result<String> {
    stream.set_read_timeout(Some(SOON))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn clients_from_before_the_rules_are_answered_and_are_no_destinations() {
    let mut world = World::without_sidecar();
    let folder = tempfile::tempdir().unwrap();
    let [program, gate] = ["wait", "gate"].map(|name| folder.path().join(name));
    let waits = format!(
        "#!/bin/sh\nuntil [ -e {} ]; do sleep 0.01; done\n",
        gate.display()
    );
    fs::write(&program, waits).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
    let clients = world.beside(move || {
        let api = SocketAddr::from(([10, 99, 0, 2], 18080));
        wait_until("the API's port is held", || TcpStream::connect(api).is_ok());
        let mut early = TcpStream::connect(api)?;
        let mut late = TcpStream::connect(api)?;
        early.write_all(REQUEST)?;
        fs::write(gate, "")?;
        // It answers once there are rules.
        let early = answer(&mut early)?;
        late.write_all(REQUEST)?;
        io::Result::Ok([early, answer(&mut late)?])
    });
    let first = format!("--pre-start={}", program.display());
    // Also where everything may leave, an answer leads to no destination.
    let policy = r#"{"defaultAction":"allow","egress":[]}"#;
    world.start_supervised(&["--hold-sockets", &first], "dns+nft", policy);
    for answer in clients.join().unwrap().unwrap() {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let (_, decisions) = world.call("GET", "/decisions", "").expect("it answers");
    assert!(!decisions.contains("10.99.0.1"), "{decisions}");
    world.stop();
}

#[test]
fn queries_over_tcp_cannot_use_up_the_file_descriptors_of_the_api() {
    /// File descriptors of the sidecar. Its sockets for queries and its own take fewer.
    const FILES: u32 = 400;
    const MANY: usize = 450;
    let world = World::new("dns+nft", ALLOW);
    world.internet.name("a.example", &["198.51.100.1"]);
    world.limit_files(FILES);
    let connect = || TcpStream::connect("127.0.0.1:15353").unwrap();
    let held: Vec<TcpStream> = world.inside(|| (0..MANY).map(|_| connect()).collect());
    for _ in 0..3 {
        let (status, _) = world
            .call_from_outside("GET", "/policy")
            .expect("it answers");
        assert_eq!(status, 200);
    }
    let server = "192.0.2.53:53".parse().unwrap();
    let asked = world.inside(|| ask_by_tcp(server, "a.example", RecordType::A));
    assert_eq!(asked.unwrap().addresses.len(), 1);
    world.policy("PATCH", r#"[{"action":"deny","target":"a.example"}]"#);
    wait_until("only the newest are left", || {
        held.iter().filter(is_open).count() <= 256
    });
    assert!(is_open(&held.last().unwrap()));
}

fn is_open(stream: &&TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = stream.peek(&mut [0]);
    read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[test]
fn the_sandbox_cannot_keep_the_server_out_of_the_api() {
    /// More than the sidecar serves.
    const MANY: usize = 400;
    let world = World::new("dns+nft", ALLOW);
    let connect = || TcpStream::connect("127.0.0.1:18080").unwrap();
    let held: Vec<TcpStream> = world.inside(|| (0..MANY).map(|_| connect()).collect());
    for _ in 0..3 {
        let (status, _) = world
            .call_from_outside("GET", "/policy")
            .expect("it answers");
        assert_eq!(status, 200);
    }
    let (status, _) = world.call("GET", "/policy", "").expect("it answers");
    assert_eq!(status, 200);
    wait_until("only the newest are left", || {
        held.iter().filter(is_open).count() <= 256
    });
    assert!(is_open(&held.last().unwrap()));
}
