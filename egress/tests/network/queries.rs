//! DNS through the sidecar.

use std::{net::SocketAddr, time::Duration};

use hickory_server::proto::{op::ResponseCode, rr::RecordType};
use serde_json::Value;

use crate::{
    client::{ask, ask_by_tcp, is_alive},
    world::{RESOLVER, SOON, World, wait_until},
};

const ALLOW: &str = r#"{"egress":[
    {"action":"allow","target":"*.example"},
    {"action":"allow","target":"internal.corp"},
    {"action":"deny","target":"*.ads.test"}
]}"#;

/// Extended errors (RFC 8914).
const BLOCKED: u16 = 15;
const FILTERED: u16 = 17;

fn resolver() -> SocketAddr {
    SocketAddr::new(RESOLVER.parse().unwrap(), 53)
}

#[test]
fn every_name_server_is_the_proxy() {
    let world = World::new("dns+nft", ALLOW);
    world.internet.name("a.example", &["198.51.100.1"]);
    for server in [
        "192.0.2.53:53",
        "8.8.8.8:53",
        "127.0.0.11:53",
        "[2001:db8::53]:53",
    ] {
        let server = server.parse().unwrap();
        let (udp, tcp) = world.inside(|| {
            (
                ask(server, "a.example", RecordType::A, SOON),
                ask_by_tcp(server, "a.example", RecordType::A),
            )
        });
        for answer in [udp, tcp] {
            let answer = answer.unwrap_or_else(|error| panic!("{server}: {error}"));
            assert_eq!(answer.addresses.len(), 1, "{server}");
        }
    }
}

#[test]
fn aliases_lead_to_addresses_unless_a_rule_refuses_them() {
    let world = World::new("dns+nft", ALLOW);
    world.internet.alias("www.example", "edge.cdn.test");
    world.internet.name("edge.cdn.test", &["198.51.100.1"]);
    world.internet.alias("bad.example", "x.ads.test");
    world.internet.name("x.ads.test", &["198.51.100.2"]);
    assert_eq!(world.resolve("www.example").addresses.len(), 1);
    assert!(world.reaches("198.51.100.1", 443));
    let mut connection = world.connected("198.51.100.1", 443);
    world.policy("PATCH", r#"[{"action":"deny","target":"*.cdn.test"}]"#);
    assert!(
        !world.reaches("198.51.100.1", 443),
        "a rule that refuses the alias closes it"
    );
    assert!(!is_alive(&mut connection));
    let blocked = world.resolve("bad.example");
    assert_eq!(blocked.code, ResponseCode::NXDomain);
    assert!(blocked.reason.unwrap().contains("alias of x.ads.test"));
    assert!(!world.reaches("198.51.100.2", 443));
}

#[test]
fn a_change_during_a_query_counts_for_the_name_and_its_aliases() {
    let world = World::new("dns+nft", ALLOW);
    world.internet.alias("www.example", "edge.cdn.test");
    world.internet.name("edge.cdn.test", &["198.51.100.1"]);
    world.internet.name("plain.example", &["198.51.100.2"]);
    world.internet.name("open.example", &["198.51.100.3"]);
    let refused = (ResponseCode::NXDomain, Some(BLOCKED));
    let empty = (ResponseCode::NoError, Some(FILTERED));
    for (name, target, address, expected) in [
        ("www.example", "*.cdn.test", "198.51.100.1", refused),
        ("plain.example", "plain.example", "198.51.100.2", refused),
        // The name stays allowed.
        ("open.example", "198.51.100.3", "198.51.100.3", empty),
    ] {
        let gate = world.internet.hold(name);
        let answer = std::thread::scope(|scope| {
            let asked = scope.spawn(|| world.resolve(name));
            wait_until("it is asked", || world.internet.asked(name) == 1);
            let patch = format!(r#"[{{"action":"deny","target":"{target}"}}]"#);
            world.policy("PATCH", &patch);
            gate.open();
            asked.join().unwrap()
        });
        assert_eq!((answer.code, answer.error), expected, "{name}");
        assert!(answer.addresses.is_empty(), "{name}");
        assert!(!world.reaches(address, 443), "{name}");
    }
}

#[test]
fn an_allowed_name_cannot_open_what_is_near() {
    let world = World::new("dns+nft", ALLOW);
    world.internet.name("meta.example", &["169.254.169.254"]);
    world.internet.name("lan.example", &["10.77.0.1"]);
    world
        .internet
        .name("mixed.example", &["10.77.0.1", "198.51.100.1"]);
    world.internet.name("internal.corp", &["10.77.0.1"]);
    for name in ["meta.example", "lan.example"] {
        let empty = world.resolve(name);
        let seen = (empty.code, empty.addresses.len(), empty.error);
        assert_eq!(seen, (ResponseCode::NoError, 0, Some(FILTERED)), "{name}");
        assert!(empty.reason.unwrap().contains("near the sandbox"), "{name}");
    }
    assert_eq!(world.resolve("mixed.example").addresses.len(), 1);
    assert!(!world.reaches("169.254.169.254", 80));
    assert!(!world.reaches("10.77.0.1", 443));
    assert_eq!(
        world.resolve("internal.corp").addresses.len(),
        1,
        "a rule names this host"
    );
    assert!(world.reaches("10.77.0.1", 443));
}

/// An error of one type is one of the whole name for musl, so that a name must not have it because of a
/// refused address.
#[test]
fn an_allowed_name_exists_for_every_type_and_a_refused_one_for_none() {
    let world = World::new("dns+nft", ALLOW);
    let name = |name: &str, addresses: &[&str]| world.internet.name(name, addresses);
    name("v4.example", &["198.51.100.1", "fd00::1"]);
    name("v6.example", &["10.77.0.1", "2001:db8::1"]);
    name("none.example", &["10.77.0.1", "fd00::1"]);
    name("x.ads.test", &["198.51.100.2"]);
    world.internet.alias("alias.example", "none.example");
    let near = "10.77.0.1".parse().unwrap();
    world.internet.service("service.example", &[near]);
    let kinds = [RecordType::A, RecordType::AAAA];
    for (name, counts) in [
        ("v4.example", [1, 0]),
        ("v6.example", [0, 1]),
        ("none.example", [0, 0]),
        ("alias.example", [0, 0]),
    ] {
        for (kind, count) in kinds.into_iter().zip(counts) {
            let by_udp = world.resolve_kind(name, kind);
            let by_tcp = world.inside(|| ask_by_tcp(resolver(), name, kind)).unwrap();
            for answer in [by_udp, by_tcp] {
                assert_eq!(answer.code, ResponseCode::NoError, "{name} {kind}");
                assert!(answer.is_recursive, "{name} {kind}");
                assert_eq!(answer.addresses.len(), count, "{name} {kind}");
                let error = (count == 0).then_some(FILTERED);
                assert_eq!(answer.error, error, "{name} {kind}");
                assert_eq!(answer.ttl.is_some(), count > 0, "nothing else is in it");
            }
        }
    }
    for kind in [RecordType::TXT, RecordType::MX] {
        let none = world.resolve_kind("none.example", kind);
        assert_eq!((none.code, none.error), (ResponseCode::NoError, None));
    }
    // A service record says more than addresses.
    let service = world.resolve_kind("service.example", RecordType::HTTPS);
    assert_eq!((service.code, service.error), (ResponseCode::NoError, None));
    assert_eq!(service.ttl, Some(60), "{service:?}");
    for kind in [kinds.as_slice(), &[RecordType::HTTPS, RecordType::TXT]].concat() {
        let refused = world.resolve_kind("x.ads.test", kind);
        let seen = (refused.code, refused.error);
        assert_eq!(seen, (ResponseCode::NXDomain, Some(BLOCKED)), "{kind}");
    }
    let (_, text) = world.call("GET", "/decisions", "").unwrap();
    let decisions: Value = serde_json::from_str(&text).unwrap();
    for decision in decisions["names"].as_array().unwrap() {
        let is_allowed = decision["name"] != "x.ads.test";
        let action = if is_allowed { "allow" } else { "deny" };
        assert_eq!(decision["action"], action, "{decision}");
    }
    for address in ["10.77.0.1", "fd00::1", "198.51.100.2"] {
        assert!(!world.reaches(address, 443), "{address}");
    }
}

#[test]
fn lifetimes_are_not_longer_than_the_address_is_open() {
    let world = World::new("dns+nft", ALLOW);
    world
        .internet
        .name_for("long.example", 86_400, &["198.51.100.1"]);
    world
        .internet
        .name_for("short.example", 5, &["198.51.100.2"]);
    assert_eq!(world.resolve("long.example").ttl, Some(300));
    assert_eq!(world.resolve("short.example").ttl, Some(5));
    assert!((340..=360).contains(&life(&world, "198.51.100.1")));
    assert!((45..=65).contains(&life(&world, "198.51.100.2")));
}

/// Seconds for which the packet filter lets an address through.
fn life(world: &World, address: &str) -> u64 {
    let set = ["-j", "list", "set", "inet", "opensandbox", "dyn_allow_v4"];
    let (_, text) = world.run("nft", &set);
    let listing: Value = serde_json::from_str(&text).unwrap();
    let elements = listing["nftables"][1]["set"]["elem"].as_array().unwrap();
    let own = elements.iter().find(|it| it["elem"]["val"] == address);
    own.expect("it is there")["elem"]["expires"]
        .as_u64()
        .unwrap()
}

#[test]
fn an_address_is_renewed_when_it_is_resolved_again() {
    let world = World::new("dns+nft", ALLOW);
    world.internet.name_for("a.example", 5, &["198.51.100.1"]);
    world.resolve("a.example");
    world.internet.name_for("b.example", 200, &["198.51.100.1"]);
    world.resolve("b.example");
    assert!((240..=260).contains(&life(&world, "198.51.100.1")));
    // It is not shortened by a shorter answer, also not for a name that did not lead to it yet.
    world.resolve("a.example");
    assert!((240..=260).contains(&life(&world, "198.51.100.1")));
    world.internet.name_for("c.example", 5, &["198.51.100.1"]);
    world.resolve("c.example");
    assert!((240..=260).contains(&life(&world, "198.51.100.1")));
}

#[test]
fn long_answers_are_complete_over_tcp() {
    let world = World::new("dns+nft", ALLOW);
    world.internet.text("big.example", 6000);
    let cut = world.resolve_kind("big.example", RecordType::TXT);
    assert!(cut.is_cut);
    let whole = world
        .inside(|| ask_by_tcp(resolver(), "big.example", RecordType::TXT))
        .unwrap();
    assert_eq!((whole.text, whole.is_cut), (6000, false));
}

#[test]
fn answers_without_a_result_are_passed_on_and_failures_are_failures() {
    let world = World::new("dns+nft", ALLOW);
    assert_eq!(
        world.resolve("unknown.example").code,
        ResponseCode::NXDomain
    );
    world.internet.name("v4.example", &["198.51.100.1"]);
    let empty = world.resolve_kind("v4.example", RecordType::AAAA);
    assert_eq!(
        (empty.code, empty.addresses),
        (ResponseCode::NoError, vec![])
    );
    world
        .internet
        .fail("broken.example", ResponseCode::ServFail);
    assert_eq!(world.resolve("broken.example").code, ResponseCode::ServFail);
    world.internet.silence("silent.example");
    assert_eq!(world.resolve("silent.example").code, ResponseCode::ServFail);
}

#[test]
fn a_dead_upstream_is_left_out() {
    let upstreams = [
        ("OPENSANDBOX_EGRESS_DNS_UPSTREAM", "192.0.2.99,192.0.2.53"),
        ("OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE_INTERVAL_SEC", "1"),
    ];
    let world = World::with("dns+nft", ALLOW, &upstreams);
    world.internet.name("a.example", &["198.51.100.1"]);
    assert_eq!(
        world.resolve("a.example").addresses.len(),
        1,
        "the second one is asked, too"
    );
    let begin = std::time::Instant::now();
    while !world
        .log()
        .contains("[dns] upstream probe 192.0.2.99:53 failed")
    {
        assert!(begin.elapsed() < SOON, "{}", world.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(world.resolve("a.example").addresses.len(), 1);
}

#[test]
fn a_closed_upstream_is_not_waited_for() {
    let upstreams = [
        ("OPENSANDBOX_EGRESS_DNS_UPSTREAM", "198.51.100.1:54"),
        ("OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT", "120"),
    ];
    let world = World::with("dns+nft", ALLOW, &upstreams);
    assert_eq!(world.resolve("a.example").code, ResponseCode::ServFail);
    let line = world.logged(&["egress.outbound", "\"a.example\""]);
    let error = line["error"].as_str().unwrap().to_lowercase();
    assert!(error.contains("refused"), "{error}");
}

#[test]
fn an_exempt_name_server_is_asked_directly() {
    let exempt = [
        ("OPENSANDBOX_EGRESS_NAMESERVER_EXEMPT", "192.0.2.53"),
        ("OPENSANDBOX_EGRESS_DNS_UPSTREAM", "198.51.100.3"),
    ];
    let world = World::with("dns+nft", "{}", &exempt);
    world.internet.name("a.test", &["198.51.100.1"]);
    let direct = world
        .inside(|| ask(resolver(), "a.test", RecordType::A, SOON))
        .unwrap();
    assert_eq!(direct.addresses.len(), 1);
    assert!(!world.reaches(RESOLVER, 443), "only its DNS port is open");
    let other = "8.8.8.8:53".parse().unwrap();
    let redirected = world
        .inside(|| ask(other, "a.test", RecordType::A, SOON))
        .unwrap();
    assert_eq!(redirected.code, ResponseCode::NXDomain);
}

#[test]
fn many_new_names_at_once_are_all_open_when_they_are_answered() {
    const NAMES: u16 = 400;
    let world = World::new(
        "dns+nft",
        r#"{"egress":[{"action":"allow","target":"*.example"}]}"#,
    );
    for n in 0..NAMES {
        let [high, low] = n.to_be_bytes();
        let address = format!("100.0.{high}.{low}");
        world.internet.name(&format!("n{n}.example"), &[&address]);
    }
    world.inside(|| {
        std::thread::scope(|scope| {
            for first in 0..8 {
                scope.spawn(move || {
                    for n in (first..NAMES).step_by(8) {
                        let name = format!("n{n}.example");
                        let answer = ask(resolver(), &name, RecordType::A, SOON).unwrap();
                        assert_eq!(answer.addresses.len(), 1, "{name}");
                    }
                });
            }
        });
    });
    let (_, set) = world.run(
        "nft",
        &["-j", "list", "set", "inet", "opensandbox", "dyn_allow_v4"],
    );
    assert_eq!(set.matches("\"100.0.").count(), usize::from(NAMES));
}
