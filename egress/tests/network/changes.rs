//! What a change of the policy writes into the kernel, and what it leaves as it is.

use std::{fs, io::ErrorKind, net::Ipv4Addr, os::unix::fs::PermissionsExt};

use hickory_server::proto::op::ResponseCode;
use serde_json::Value;

use crate::{client::is_alive, world::World};

/// The names of the tests, each by a rule of its own.
const ALLOW_ABC: &str = r#"{"egress":[
    {"action":"allow","target":"a.example"},
    {"action":"allow","target":"b.example"},
    {"action":"allow","target":"c.example"}
]}"#;
const A: &str = "198.51.100.1";
const B: &str = "198.51.100.2";
const DENY_B: &str = r#"[{"action":"deny","target":"b.example"}]"#;

/// A sandbox in which the names `a` and `b` were resolved.
fn resolved(variables: &[(&str, &str)]) -> World {
    let world = World::with("dns+nft", ALLOW_ABC, variables);
    world.internet.name("a.example", &[A]);
    world.internet.name("b.example", &[B]);
    for name in ["a.example", "b.example"] {
        assert_eq!(world.resolve(name).code, ResponseCode::NoError, "{name}");
    }
    world
}

fn listed(world: &World, args: &[&str]) -> Vec<Value> {
    let (listed, text) = world.run("nft", &[&["-j", "-a", "list"], args].concat());
    assert!(listed, "{text}");
    let listing: Value = serde_json::from_str(&text).unwrap();
    listing["nftables"].as_array().unwrap().clone()
}

/// Elements of a set.
fn elements(world: &World, set: &str) -> Vec<Value> {
    let objects = listed(world, &["set", "inet", "opensandbox", set]);
    let own = objects.iter().find(|it| it["set"]["name"] == set).unwrap();
    own["set"]["elem"].as_array().cloned().unwrap_or_default()
}

/// Handles of all rules: the kernel never gives one a second time.
fn rules(world: &World) -> Vec<u64> {
    let objects = listed(world, &["table", "inet", "opensandbox"]);
    let handles = objects
        .iter()
        .filter_map(|it| it["rule"]["handle"].as_u64());
    let handles: Vec<u64> = handles.collect();
    assert!(handles.len() > 10, "{handles:?}");
    handles
}

/// The life that an address was given, and what is left of it, in seconds.
fn life(world: &World, address: &str) -> (u64, u64) {
    let elements = elements(world, "dyn_allow_v4");
    let own = elements.iter().find(|it| it["elem"]["val"] == address);
    let own = &own.unwrap_or_else(|| panic!("{elements:?}"))["elem"];
    (
        own["timeout"].as_u64().unwrap(),
        own["expires"].as_u64().unwrap(),
    )
}

#[test]
fn a_change_of_names_writes_no_rules_and_keeps_what_still_holds() {
    let world = resolved(&[]);
    let mut to_a = world.connected(A, 443);
    let mut to_b = world.connected(B, 443);
    let (before, generation) = (rules(&world), elements(&world, "generation"));
    let (timeout, left) = life(&world, A);
    world.policy("PATCH", DENY_B);
    assert!(!is_alive(&mut to_b));
    assert_eq!(world.refused(B, 443), ErrorKind::ConnectionRefused);
    assert!(is_alive(&mut to_a));
    assert!(world.reaches(A, 443));
    assert_eq!(rules(&world), before);
    assert_ne!(
        elements(&world, "generation"),
        generation,
        "all are judged again"
    );
    let (same, less) = life(&world, A);
    assert_eq!(same, timeout, "it was not written again");
    assert!(less <= left, "{less} after {left}");
    assert_eq!(elements(&world, "kept_v4"), [A]);
    // Rules for networks are written, but the addresses stay as they are.
    world.policy("PATCH", r#"[{"action":"allow","target":"203.0.113.0/24"}]"#);
    assert_ne!(rules(&world), before);
    assert!(world.reaches("203.0.113.1", 443));
    assert!(is_alive(&mut to_a));
    assert_eq!(life(&world, A).0, timeout);
    world.policy("PATCH", &format!(r#"[{{"action":"deny","target":"{A}"}}]"#));
    assert!(!is_alive(&mut to_a));
    assert_eq!(elements(&world, "dyn_allow_v4"), [0; 0]);
    assert_eq!(elements(&world, "kept_v4"), [0; 0]);
}

#[test]
fn a_change_with_thousands_of_open_addresses_writes_what_differs() {
    const NAMES: u8 = 100;
    const EACH: u8 = 40;
    let world = World::new(
        "dns+nft",
        r#"{"egress":[
            {"action":"allow","target":"a.example"},{"action":"allow","target":"*.many.example"}
        ]}"#,
    );
    world.internet.name("a.example", &[A]);
    world.resolve("a.example");
    for name in 0..NAMES {
        let machine = (name == 7).then(|| B.to_owned());
        let addresses = (1..EACH).map(|last| format!("101.{name}.0.{last}"));
        let addresses: Vec<String> = machine.into_iter().chain(addresses).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let name = format!("n{name}.many.example");
        world.internet.name(&name, &addresses);
        assert_eq!(
            world.resolve(&name).addresses.len(),
            addresses.len(),
            "{name}"
        );
    }
    let all = 1 + usize::from(NAMES) * usize::from(EACH - 1) + 1;
    assert_eq!(elements(&world, "dyn_allow_v4").len(), all);
    let mut to_a = world.connected(A, 443);
    let mut to_b = world.connected(B, 443);
    let before = rules(&world);
    world.policy("PATCH", r#"[{"action":"deny","target":"n7.many.example"}]"#);
    assert!(!is_alive(&mut to_b));
    assert_eq!(world.refused(B, 443), ErrorKind::ConnectionRefused);
    assert!(is_alive(&mut to_a));
    let closed = usize::from(EACH);
    assert_eq!(elements(&world, "dyn_allow_v4").len(), all - closed);
    assert_eq!(elements(&world, "kept_v4").len(), all - closed);
    // A name that opens nothing changes no address.
    world.policy("PATCH", r#"[{"action":"allow","target":"c.example"}]"#);
    assert_eq!(elements(&world, "dyn_allow_v4").len(), all - closed);
    assert!(is_alive(&mut to_a));
    // Nearly everything closes.
    world.policy("PATCH", r#"[{"action":"deny","target":"*.many.example"}]"#);
    assert_eq!(elements(&world, "dyn_allow_v4").len(), 1);
    assert_eq!(elements(&world, "kept_v4"), [A]);
    assert!(is_alive(&mut to_a));
    assert!(world.reaches(A, 443));
    assert_eq!(rules(&world), before);
}

#[test]
fn what_an_earlier_process_opened_is_closed_without_new_rules() {
    let mut world = resolved(&[]);
    world.kill();
    world.start("dns+nft", ALLOW_ABC, &[]);
    world.resolve("a.example");
    let mut to_a = world.connected(A, 443);
    let mut to_b = world.connected(B, 443);
    let before = rules(&world);
    world.policy("DELETE", r#"["c.example"]"#);
    assert!(!is_alive(&mut to_b), "it is not known why it was open");
    assert_eq!(world.refused(B, 443), ErrorKind::ConnectionRefused);
    assert!(is_alive(&mut to_a), "its name was resolved since");
    assert!(world.reaches(A, 443));
    assert_eq!(rules(&world), before);
}

#[test]
fn a_transaction_that_the_kernel_refuses_halfway_is_followed_by_a_whole_one() {
    /// Elements that the set can have.
    const FULL: u32 = 65_535 + 8_192;
    let world = resolved(&[]);
    let mut to_a = world.connected(A, 443);
    let mut to_b = world.connected(B, 443);
    // Another program fills the set to which the change has to add, after what it removes.
    let first = u32::from(Ipv4Addr::new(100, 64, 0, 0));
    let foreign = (first..first + FULL).map(|it| Ipv4Addr::from(it).to_string());
    let foreign = foreign.collect::<Vec<_>>().join(",");
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("foreign");
    let text = format!("add element inet opensandbox kept_v4 {{ {foreign} }}\n");
    fs::write(&path, text).unwrap();
    let (added, text) = world.run("nft", &["-f", path.to_str().unwrap()]);
    assert!(added, "{text}");
    world.policy("PATCH", DENY_B);
    world.logged(&["the packet filter is not as it was left"]);
    assert!(!is_alive(&mut to_b));
    assert_eq!(world.refused(B, 443), ErrorKind::ConnectionRefused);
    assert!(is_alive(&mut to_a));
    assert!(world.reaches(A, 443));
    assert_eq!(elements(&world, "kept_v4"), [A], "what is foreign is gone");
}

#[test]
fn a_change_that_fails_leaves_the_old_policy_and_the_next_one_writes_everything() {
    // The program `nft` that refuses everything while there is a file.
    let place = tempfile::tempdir().unwrap();
    let (program, broken) = (place.path().join("nft"), place.path().join("broken"));
    let script = format!(
        "#!/bin/sh\ntest -e {} && exit 1\nexec /usr/sbin/nft \"$@\"\n",
        broken.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", place.path().display());
    let world = resolved(&[("PATH", &path)]);
    let mut to_a = world.connected(A, 443);
    let mut to_b = world.connected(B, 443);
    let policy = world.policy("GET", "");
    let deny_b = format!(r#"[{{"action":"deny","target":"{B}"}}]"#);
    let fail = |body: &str| {
        let (status, text) = world.call("PATCH", "/policy", body).unwrap();
        assert_eq!(status, 500, "{text}");
        assert_eq!(world.policy("GET", ""), policy);
    };

    // Its address is closed by netlink; the rules that refuse it fail.
    fs::write(&broken, "").unwrap();
    fail(&deny_b);
    assert!(is_alive(&mut to_a));
    assert!(is_alive(&mut to_b), "the old policy admits it");
    assert!(world.reaches(A, 443));
    assert_eq!(world.refused(B, 443), ErrorKind::ConnectionRefused);
    world.resolve("b.example");
    assert!(world.reaches(B, 443), "the old policy is in force");

    // Even if there is nothing left to enforce it, a change is not answered as made.
    let (deleted, text) = world.run("nft", &["delete", "table", "inet", "opensandbox"]);
    assert!(deleted, "{text}");
    fail(DENY_B);
    fs::remove_file(&broken).unwrap();
    world.policy("PATCH", DENY_B);
    assert!(!is_alive(&mut to_b));
    assert_eq!(world.refused(B, 443), ErrorKind::ConnectionRefused);
    assert!(!world.reaches("198.51.100.3", 443));
    assert!(is_alive(&mut to_a));
    assert!(world.reaches(A, 443));
    // By netlink again.
    let before = rules(&world);
    world.policy("DELETE", r#"["a.example"]"#);
    assert!(!is_alive(&mut to_a));
    assert_eq!(rules(&world), before);
}
