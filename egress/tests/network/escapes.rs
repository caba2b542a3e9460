//! Ways around the policy: what blocks each, with and without the packet filter.
//!
//! Every test tries one technique as root in the sandbox's network namespace. Capabilities are those
//! of the test, so that what only the missing capability blocks (raw sockets, packet marks) is
//! checked with `setpriv`.

use hickory_server::proto::{op::ResponseCode, rr::RecordType};

use crate::{
    client::{ask, ask_by_tcp},
    world::{GATEWAY, SOON, World},
};

const NOTHING: &str = "{}";

/// Sends an echo request, and succeeds if it is answered.
const PING: &str = "import socket, struct, sys\n\
    six = ':' in sys.argv[1]\n\
    packet = struct.pack('!BBHHH', 128 if six else 8, 0, 0, 7, 1)\n\
    if not six:\n\
    \x20packet = struct.pack('!BBHHH', 8, 0, 0xffff - 0x0808, 7, 1)\n\
    s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_RAW, 58 if six else 1)\n\
    s.settimeout(1)\n\
    s.connect((sys.argv[1], 0))\n\
    s.send(packet)\n\
    while True:\n\
    \x20answer = s.recv(100)\n\
    \x20if answer[0 if six else 20] in (0, 129): sys.exit(0)\n";

#[test]
fn addresses_known_from_elsewhere() {
    let closed = World::new("dns+nft", NOTHING);
    for address in [
        "198.51.100.1",
        "2001:db8::1",
        "169.254.169.254",
        "10.77.0.1",
        GATEWAY,
    ] {
        for port in [80, 443, 7000] {
            assert!(!closed.reaches(address, port), "{address} {port}");
            assert!(!closed.reaches_by_udp(address, port), "{address} {port}");
        }
    }
    // What mode `dns` does not block.
    let open = World::new("dns", NOTHING);
    assert!(open.reaches("198.51.100.1", 443));
    assert!(open.reaches_by_udp("198.51.100.1", 443));
}

#[test]
fn another_name_server() {
    for mode in ["dns", "dns+nft"] {
        let world = World::new(mode, NOTHING);
        world.internet.name("secret.test", &["198.51.100.1"]);
        let server = "192.0.2.53:53".parse().unwrap();
        let (udp, tcp) = world.inside(|| {
            (
                ask(server, "secret.test", RecordType::A, SOON).unwrap(),
                ask_by_tcp(server, "secret.test", RecordType::A).unwrap(),
            )
        });
        assert_eq!(udp.code, ResponseCode::NXDomain, "{mode}");
        assert_eq!(tcp.code, ResponseCode::NXDomain, "{mode}");
        assert_eq!(world.internet.asked("secret.test"), 0, "{mode}");
    }
}

#[test]
fn a_dot_within_a_label() {
    let policy = r#"{"egress":[{"action":"allow","target":"*.wild.example"}]}"#;
    // The labels `evil.wild` and `example`, and the label `a.b` below an allowed name.
    let (outside, below) = (r"evil\.wild.example", r"a\.b.wild.example");
    for mode in ["dns", "dns+nft"] {
        let world = World::new(mode, policy);
        for name in [outside, below] {
            world.internet.name(name, &["198.51.100.1"]);
        }
        assert_eq!(
            world.resolve(outside).code,
            ResponseCode::NXDomain,
            "{mode}"
        );
        assert_eq!(world.internet.asked(outside), 0, "{mode}");
        assert_eq!(world.resolve(below).addresses.len(), 1, "{mode}");
    }
}

#[test]
fn the_engines_resolver() {
    // It listens on a port that anyone in the namespace can find.
    let world = World::new("dns+nft", NOTHING);
    world.inside(|| {
        let resolver = std::net::UdpSocket::bind("127.0.0.11:0").unwrap();
        let port = resolver.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, client)) = resolver.recv_from(&mut buffer) {
                let _sent = resolver.send_to(&buffer[..length], client);
            }
        });
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        client
            .set_read_timeout(Some(std::time::Duration::from_millis(500)))
            .unwrap();
        client.connect(("127.0.0.11", port)).unwrap();
        let answered = client
            .send(b"query")
            .and_then(|_| client.recv(&mut [0; 512]));
        assert!(answered.is_err(), "{answered:?}");
    });
}

#[test]
fn dns_on_another_port() {
    let world = World::new("dns+nft", NOTHING);
    assert!(!world.reaches_by_udp("192.0.2.53", 5353));
    assert!(!world.reaches("192.0.2.53", 5353));
    assert!(World::new("dns", NOTHING).reaches_by_udp("192.0.2.53", 5353));
}

#[test]
fn dns_over_tls_and_quic_even_under_default_allow() {
    let world = World::new("dns+nft", r#"{"defaultAction":"allow"}"#);
    assert!(world.reaches("198.51.100.1", 443));
    assert!(!world.reaches("198.51.100.1", 853));
    assert!(!world.reaches_by_udp("198.51.100.1", 853));
    assert!(!world.reaches("2001:db8::1", 853));
}

#[test]
fn dns_over_https_when_it_is_blocked() {
    let on = ("OPENSANDBOX_EGRESS_BLOCK_DOH_443", "true");
    let list = (
        "OPENSANDBOX_EGRESS_DOH_BLOCKLIST",
        "198.51.100.0/31, 2001:db8::1",
    );
    let some = World::with("dns+nft", r#"{"defaultAction":"allow"}"#, &[on, list]);
    assert!(!some.reaches("198.51.100.1", 443));
    assert!(!some.reaches_by_udp("198.51.100.1", 443), "HTTP/3");
    assert!(!some.reaches("2001:db8::1", 443));
    assert!(some.reaches("198.51.100.1", 80));
    assert!(some.reaches("198.51.100.2", 443));
    let all = World::with("dns+nft", r#"{"defaultAction":"allow"}"#, &[on]);
    assert!(!all.reaches("198.51.100.2", 443));
    assert!(all.reaches("198.51.100.2", 80));
}

#[test]
fn icmp() {
    let world = World::new("dns+nft", NOTHING);
    let ping = |world: &World, address: &str| world.run("python3", &["-c", PING, address]).0;
    for address in ["198.51.100.1", "2001:db8::1", GATEWAY] {
        assert!(!ping(&world, address), "{address}");
    }
    world.policy("PATCH", r#"[{"target":"198.51.100.1","action":"allow"}]"#);
    assert!(ping(&world, "198.51.100.1"));
}

#[test]
fn marks_and_raw_packets_without_the_capability() {
    let world = World::new("dns+nft", NOTHING);
    let program = "import socket, sys\n\
        try:\n s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, 36, 1)\n\
        except PermissionError: pass\n\
        else: sys.exit('marked')\n\
        try: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)\n\
        except PermissionError: pass\n\
        else: sys.exit('raw')\n\
        try: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
        except PermissionError: pass\n\
        else: sys.exit('packet')\n";
    let without = "-net_admin,-net_raw";
    let args = [
        "--bounding-set",
        without,
        "--inh-caps",
        without,
        "python3",
        "-c",
        program,
    ];
    let (succeeded, text) = world.run("setpriv", &args);
    assert!(succeeded, "{text}");
}

#[test]
fn a_guessed_mark_even_with_the_capability() {
    // Queries with a mark, for a name that the policy refuses: with the sidecar's own they would pass
    // its proxy by. Everything but a refusal by the proxy counts as an answer.
    const QUERIES: &str = "import socket, struct, sys\n\
        name = b''.join(bytes([len(it)]) + it for it in b'secret.test'.split(b'.')) + b'\\0'\n\
        query = struct.pack('!6H', 7, 0x100, 1, 0, 0, 0) + name + struct.pack('!2H', 1, 1)\n\
        for mark in sys.argv[1:]:\n\
        \x20s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)\n\
        \x20s.setsockopt(socket.SOL_SOCKET, 36, struct.pack('=I', int(mark, 0)))\n\
        \x20s.connect(('192.0.2.53', 53))\n\
        \x20try: s.send(query); answer = s.recv(512)\n\
        \x20except OSError: continue\n\
        \x20if answer[3] & 15 != 3: sys.exit('answered with ' + mark)\n";
    let world = World::new("dns+nft", NOTHING);
    world.internet.name("secret.test", &["198.51.100.1"]);
    let guesses = [
        "1",
        "2",
        "0x1",
        "0x15353",
        "15353",
        "18080",
        "0x7fffffff",
        "0xffffffff",
    ];
    let (succeeded, text) = world.run("python3", &[&["-c", QUERIES], &guesses[..]].concat());
    assert!(succeeded, "{text}");
    assert_eq!(world.internet.asked("secret.test"), 0);
    // With the mark it would be asked, so that the queries above show something.
    let (_, rules) = world.run("nft", &["list", "chain", "inet", "opensandbox", "resolve"]);
    let mut words = rules.split_whitespace();
    words.find(|word| *word == "mark").expect("a rule has it");
    let mark = words.next().expect("it follows");
    let (succeeded, text) = world.run("python3", &["-c", QUERIES, mark]);
    assert!(!succeeded && text.contains("answered"), "{text}");
    assert_eq!(world.internet.asked("secret.test"), 1);
}

#[test]
fn the_sidecars_own_way_to_its_upstreams_is_dns_only() {
    // The mark admits to the name server's port, not to other services of that machine.
    let world = World::new("dns+nft", NOTHING);
    let (_, rules) = world.run("nft", &["list", "chain", "inet", "opensandbox", "egress"]);
    let marked: Vec<&str> = rules
        .lines()
        .filter(|line| line.contains("meta mark"))
        .collect();
    let [upstream, api] = marked.as_slice() else {
        panic!("{rules}");
    };
    assert!(
        upstream.contains("192.0.2.53") && upstream.contains("dport 53"),
        "{rules}"
    );
    assert!(api.contains("tcp sport 18080"), "{rules}");
}

#[test]
fn the_policy_without_the_token() {
    let world = World::new("dns+nft", NOTHING);
    let program = "import urllib.request, sys\n\
        try: urllib.request.urlopen(urllib.request.Request('http://127.0.0.1:18080/policy',\n\
        \x20method='PUT', data=b'{\"defaultAction\":\"allow\"}'))\n\
        except urllib.error.HTTPError as error: sys.exit(0 if error.code == 401 else str(error))\n\
        sys.exit('changed')\n";
    let (succeeded, text) = world.run("python3", &["-c", program]);
    assert!(succeeded, "{text}");
    assert!(!world.reaches("198.51.100.1", 443));
}
