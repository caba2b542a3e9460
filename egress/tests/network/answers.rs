//! What looks like an answer and is none: a packet to a machine that began no connection, and a
//! packet that pretends to come from one that sent none.

use std::{
    fs,
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
};

use hickory_server::proto::op::ResponseCode;
use socket2::{Domain, Socket, Type};

use crate::{
    client::is_alive,
    world::{SOON, World, http},
};

/// Allows one machine, not [`MACHINE`].
const ALLOW_ONE: &str = r#"{"egress":[{"action":"allow","target":"2001:db8::2"},
    {"action":"allow","target":"198.51.100.2"}]}"#;
/// A machine that the policy refuses.
const MACHINE: &str = "2001:db8::1";
/// The sandbox.
const SANDBOX: &str = "fd99::2";

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// A socket with the address of another machine.
fn pretending(kind: Type, address: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::for_address(address), kind, None).unwrap();
    match address.is_ipv6() {
        true => socket.set_freebind_v6(true).unwrap(),
        false => socket.set_freebind_v4(true).unwrap(),
    }
    socket.bind(&address.into()).unwrap();
    socket
}

fn refused(sent: io::Result<usize>) -> bool {
    sent.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// Packets for [`MACHINE`] that left the sandbox. The exchange shows that earlier ones have arrived.
fn left(world: &World) -> u64 {
    assert!(world.reaches_by_udp("2001:db8::2", 7000));
    world.arrived()
}

#[test]
fn a_datagram_over_loopback_makes_no_other_machine_one_that_asked() {
    let world = World::new("dns+nft", ALLOW_ONE);
    world.count_arrivals(MACHINE);
    let machine = at(MACHINE, 7000);
    let sent = world.inside(|| {
        let own = UdpSocket::bind((SANDBOX, 0)).unwrap();
        let closed = UdpSocket::bind((SANDBOX, 0)).unwrap().local_addr().unwrap();
        let other = pretending(Type::DGRAM, machine);
        // The second one is answered by the kernel.
        let sent = [own.local_addr().unwrap(), closed].map(|to| other.send_to(b"x", &to.into()));
        let _refused = own.send_to(b"answer", machine);
        sent
    });
    assert_eq!(left(&world), 0);
    assert!(sent.into_iter().all(refused));
    world.policy("PATCH", r#"[{"target":"2001:db8::1","action":"allow"}]"#);
    assert!(world.reaches_by_udp(MACHINE, 7000));
    assert!(left(&world) > 0, "packets are counted");
}

#[test]
fn a_connection_over_loopback_makes_no_other_machine_one_that_asked() {
    let world = World::new("dns+nft", ALLOW_ONE);
    world.count_arrivals(MACHINE);
    let accepted = world.inside(|| {
        let listener = TcpListener::bind((SANDBOX, 0)).unwrap();
        let other = pretending(Type::STREAM, at(MACHINE, 7000));
        other.set_nonblocking(true).unwrap();
        let _under_way = other.connect(&listener.local_addr().unwrap().into());
        listener.set_nonblocking(true).unwrap();
        listener.accept().map(drop)
    });
    assert_eq!(left(&world), 0);
    assert_eq!(accepted.unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_machine_that_is_allowed_gets_nothing_to_pass_on_to_another() {
    let world = World::new("dns+nft", ALLOW_ONE);
    let sent = world.inside(|| {
        let other = pretending(Type::DGRAM, at(MACHINE, 7000));
        other.send_to(b"x", &at("2001:db8::2", 7000).into())
    });
    assert!(refused(sent));
}

#[test]
fn a_name_server_that_the_sandbox_asks_directly_answers_no_other_machine() {
    let variables = [
        ("OPENSANDBOX_EGRESS_NAMESERVER_EXEMPT", "2001:db8::2"),
        ("OPENSANDBOX_EGRESS_DNS_UPSTREAM", "[2001:db8::2]:53"),
    ];
    let world = World::with("dns+nft", "{}", &variables);
    let server = at("2001:db8::2", 53);
    let (own, sent) = world.inside(|| {
        let own = UdpSocket::bind((SANDBOX, 0)).unwrap();
        let other = pretending(Type::DGRAM, at(MACHINE, 7000));
        (
            own.send_to(b"x", server),
            other.send_to(b"x", &server.into()),
        )
    });
    own.unwrap();
    assert!(refused(sent));
}

#[test]
fn another_machine_has_no_ipv4_address_of_its_own_in_the_sandbox() {
    let world = World::new("dns+nft", "{}");
    world.inside(|| {
        let own = UdpSocket::bind("10.99.0.2:0").unwrap();
        let other = pretending(Type::DGRAM, at("198.51.100.1", 7000));
        let to = own.local_addr().unwrap().into();
        assert!(other.send_to(b"x", &to).is_err());
    });
}

#[test]
fn the_answer_of_an_upstream_cannot_be_forged() {
    // It listens for no queries, which does not matter here.
    let upstream = at(MACHINE, 7000);
    let variable = ("OPENSANDBOX_EGRESS_DNS_UPSTREAM", "[2001:db8::1]:7000");
    let world = World::with("dns+nft", "{}", &[variable]);
    let sent = world.inside(|| {
        let forger = pretending(Type::DGRAM, upstream);
        let ports = ports_of_the_sidecar();
        assert!(!ports.is_empty());
        let send = |port| forger.send_to(b"forged", &at(SANDBOX, port).into());
        ports.into_iter().map(send).collect::<Vec<_>>()
    });
    assert!(sent.into_iter().all(refused));
}

/// Ports of sockets that are connected to the upstream, as every process sees them.
fn ports_of_the_sidecar() -> Vec<u16> {
    const UPSTREAM: &str = "B80D0120000000000000000001000000:1B58";
    let sockets = fs::read_to_string("/proc/thread-self/net/udp6").unwrap();
    let connected = sockets.lines().filter(|line| line.contains(UPSTREAM));
    let port = |line: &str| {
        let own = line.split_whitespace().nth(1)?;
        u16::from_str_radix(own.rsplit_once(':')?.1, 16).ok()
    };
    connected.filter_map(port).collect()
}

#[test]
fn the_engines_resolver_answers_the_sidecar_and_no_process_in_its_place() {
    let policy = r#"{"egress":[{"action":"allow","target":"a.example"}]}"#;
    let mut world = World::without_sidecar();
    // The engine itself would listen at another port, and rewrite the packets.
    let resolver = world.inside(|| UdpSocket::bind("127.0.0.11:53").unwrap());
    let variable = ("OPENSANDBOX_EGRESS_DNS_UPSTREAM", "127.0.0.11");
    world.start("dns+nft", policy, &[variable]);
    let forged = world.inside(|| {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        resolver.send_to(b"forged", client.local_addr().unwrap())
    });
    assert!(refused(forged));
    thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, client)) = resolver.recv_from(&mut buffer) {
            let mut answer = buffer[..length].to_vec();
            // An answer without records.
            answer[2] |= 0x80;
            let _gone = resolver.send_to(&answer, client);
        }
    });
    assert_eq!(world.resolve("a.example").code, ResponseCode::NoError);
}

#[test]
fn the_api_answers_on_the_loopback_interface() {
    let world = World::new("dns+nft", "{}");
    for address in ["127.0.0.1", "::1", "10.99.0.2", SANDBOX] {
        let answer = world.inside(|| http(at(address, 18080), "GET", "/healthz", ""));
        assert_eq!(answer.expect(address).0, 200);
    }
    let answer = world.call_from_outside("GET", "/healthz");
    assert_eq!(answer.expect("it answers").0, 200);
}

#[test]
fn a_connection_from_before_the_rules_is_judged_although_the_other_machine_goes_on() {
    let mut world = World::without_sidecar();
    let machines: [IpAddr; 2] = ["198.51.100.1", "198.51.100.2"].map(|it| it.parse().unwrap());
    // Each is connected, then speaks first, and repeats what it gets.
    let mut connections = machines.map(|machine| {
        let listener = world.outside(|| TcpListener::bind((machine, 0)).unwrap());
        let to = listener.local_addr().unwrap();
        let stream = world.inside(|| TcpStream::connect(to).unwrap());
        let peer = listener.accept().unwrap().0;
        (stream, peer)
    });
    world.start("dns+nft", ALLOW_ONE, &[]);
    let alive = connections.each_mut().map(|(stream, peer)| {
        peer.write_all(b"more").unwrap();
        let mut peer = peer.try_clone().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 4];
            peer.read_exact(&mut buffer)?;
            peer.write_all(&buffer)
        });
        stream.set_read_timeout(Some(SOON)).unwrap();
        let read = stream.read_exact(&mut [0; 4]);
        read.is_ok() && is_alive(stream)
    });
    assert_eq!(alive, [false, true]);
}
