//! Policies take effect on real connections.

use std::io::ErrorKind;

use hickory_server::proto::{op::ResponseCode, rr::RecordType};
use serde_json::Value;

use crate::{client::is_alive, world::World};

const ALLOW_A: &str = r#"{"egress":[{"action":"allow","target":"a.example"}]}"#;

#[test]
fn an_allowed_name_opens_its_addresses_and_nothing_else() {
    let world = World::new("dns+nft", ALLOW_A);
    world
        .internet
        .name("a.example", &["198.51.100.1", "2001:db8::1"]);
    world.internet.name("b.example", &["198.51.100.2"]);
    assert!(
        !world.reaches("198.51.100.1", 443),
        "nothing was resolved yet"
    );
    let resolved = world.resolve("a.example");
    assert_eq!(resolved.code, ResponseCode::NoError);
    assert!(world.reaches("198.51.100.1", 443));
    assert!(world.reaches("198.51.100.1", 7000));
    assert!(world.reaches_by_udp("198.51.100.1", 7000));
    assert!(
        !world.reaches("2001:db8::1", 443),
        "its IPv6 address was not asked for"
    );
    world.resolve_kind("a.example", RecordType::AAAA);
    assert!(world.reaches("2001:db8::1", 443));
    let denied = world.resolve("b.example");
    assert_eq!(
        (denied.code, denied.addresses),
        (ResponseCode::NXDomain, vec![])
    );
    let reason = denied.reason.unwrap();
    assert!(reason.contains("no rule that allows b.example"), "{reason}");
    assert!(!world.reaches("198.51.100.2", 443));
    assert_eq!(
        world.internet.asked("b.example"),
        0,
        "no name server is asked"
    );
}

#[test]
fn a_refused_connection_fails_at_once() {
    let world = World::new("dns+nft", "{}");
    assert_eq!(
        world.refused("198.51.100.1", 443),
        ErrorKind::ConnectionRefused
    );
    assert_eq!(
        world.refused("2001:db8::1", 443),
        ErrorKind::ConnectionRefused
    );
    assert!(!world.reaches_by_udp("198.51.100.1", 7000));
}

#[test]
fn networks_are_enforced_and_refusals_win() {
    let world = World::new(
        "dns+nft",
        r#"{"egress":[
            {"action":"allow","target":"198.51.100.0/24"},
            {"action":"deny","target":"198.51.100.2"},
            {"action":"allow","target":"2001:db8::/64"},
            {"action":"deny","target":"2001:db8::2"}
        ]}"#,
    );
    assert!(world.reaches("198.51.100.1", 443));
    assert!(!world.reaches("198.51.100.2", 443));
    assert!(!world.reaches("203.0.113.1", 443));
    assert!(world.reaches("2001:db8::1", 443));
    assert!(!world.reaches("2001:db8::2", 443));
}

#[test]
fn default_allow_refuses_what_is_listed() {
    let world = World::new(
        "dns+nft",
        r#"{"defaultAction":"allow","egress":[
            {"action":"deny","target":"10.0.0.0/8"},
            {"action":"deny","target":"169.254.0.0/16"},
            {"action":"deny","target":"b.example"}
        ]}"#,
    );
    world.internet.name("a.example", &["198.51.100.1"]);
    world.internet.name("b.example", &["198.51.100.2"]);
    assert!(world.reaches("198.51.100.1", 443));
    assert!(!world.reaches("10.77.0.1", 443));
    assert!(!world.reaches("169.254.169.254", 80));
    assert_eq!(world.resolve("a.example").code, ResponseCode::NoError);
    let denied = world.resolve("b.example");
    assert_eq!(denied.code, ResponseCode::NXDomain);
    assert!(denied.reason.unwrap().ends_with("deny b.example"));
}

#[test]
fn a_change_takes_effect_and_keeps_what_still_holds() {
    let world = World::new(
        "dns+nft",
        r#"{"egress":[{"action":"allow","target":"a.example"},{"action":"allow","target":"b.example"}]}"#,
    );
    world.internet.name("a.example", &["198.51.100.1"]);
    world.internet.name("b.example", &["198.51.100.2"]);
    world.resolve("a.example");
    world.resolve("b.example");
    let mut to_a = world.connected("198.51.100.1", 443);
    let mut to_b = world.connected("198.51.100.2", 443);
    // Only names change: netlink replaces the elements of the sets.
    world.policy("DELETE", r#"["b.example"]"#);
    assert!(
        !is_alive(&mut to_b),
        "the connection to what is no longer allowed ends"
    );
    assert!(!world.reaches("198.51.100.2", 443));
    assert!(is_alive(&mut to_a), "the other one goes on");
    assert!(world.reaches("198.51.100.1", 443), "without another query");
    // Networks change: by a whole ruleset.
    world.policy("PATCH", r#"[{"action":"allow","target":"203.0.113.0/24"}]"#);
    assert!(world.reaches("203.0.113.1", 443));
    assert!(is_alive(&mut to_a));
    assert!(world.reaches("198.51.100.1", 443));
    world.policy("PATCH", r#"[{"action":"deny","target":"198.51.100.1"}]"#);
    assert!(!is_alive(&mut to_a));
    assert!(!world.reaches("198.51.100.1", 443));
    world.policy("PUT", "");
    assert!(!world.reaches("203.0.113.1", 443));
    world.policy("PUT", r#"{"defaultAction":"allow"}"#);
    assert!(world.reaches("203.0.113.1", 443));
    assert!(world.reaches("198.51.100.2", 443));
}

#[test]
fn a_rule_that_is_patched_in_decides_before_older_ones() {
    let world = World::new(
        "dns+nft",
        r#"{"egress":[{"action":"deny","target":"*.example"}]}"#,
    );
    world.internet.name("www.a.example", &["198.51.100.1"]);
    assert_eq!(world.resolve("www.a.example").code, ResponseCode::NXDomain);
    world.policy("PATCH", r#"[{"action":"allow","target":"www.a.example"}]"#);
    assert_eq!(world.resolve("www.a.example").code, ResponseCode::NoError);
    assert!(world.reaches("198.51.100.1", 443));
    world.policy("PATCH", r#"[{"action":"deny","target":"*.a.example"}]"#);
    assert_eq!(world.resolve("www.a.example").code, ResponseCode::NXDomain);
    assert!(!world.reaches("198.51.100.1", 443));
}

#[test]
fn mode_dns_restricts_names_only() {
    let world = World::new("dns", ALLOW_A);
    world.internet.name("a.example", &["198.51.100.1"]);
    assert_eq!(world.resolve("a.example").code, ResponseCode::NoError);
    assert_eq!(world.resolve("b.example").code, ResponseCode::NXDomain);
    assert!(
        world.reaches("198.51.100.2", 443),
        "addresses are open, as the contract has it"
    );
    let text = world.policy("GET", "");
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(shown["enforcementMode"], "dns");
}

#[test]
fn a_death_of_the_sidecar_opens_nothing_and_a_new_one_goes_on() {
    for is_killed in [true, false] {
        let mut world = World::new("dns+nft", ALLOW_A);
        world.internet.name("a.example", &["198.51.100.1"]);
        world.resolve("a.example");
        let mut to_a = world.connected("198.51.100.1", 443);
        match is_killed {
            true => world.kill(),
            false => world.stop(),
        }
        assert!(
            !world.reaches("198.51.100.2", 443),
            "closed without the sidecar"
        );
        assert!(is_alive(&mut to_a), "connections go on");
        assert!(
            world.reaches("198.51.100.1", 443),
            "so do addresses that were resolved"
        );
        let server = "192.0.2.53:53".parse().unwrap();
        let limit = std::time::Duration::from_millis(300);
        let asked = world.inside(|| crate::client::ask(server, "b.example", RecordType::A, limit));
        assert!(asked.is_err(), "queries do not pass: {asked:?}");
        world.start("dns+nft", ALLOW_A, &[]);
        assert!(is_alive(&mut to_a));
        assert!(world.reaches("198.51.100.1", 443));
        assert!(!world.reaches("198.51.100.2", 443));
        world.policy("PUT", "{}");
        assert!(
            !world.reaches("198.51.100.1", 443),
            "an address of unknown origin goes"
        );
        assert!(!is_alive(&mut to_a));
    }
}

#[test]
fn connections_outlive_a_restart_if_the_policy_is_the_same() {
    let mut world = World::new("dns+nft", ALLOW_A);
    world.internet.name("a.example", &["198.51.100.1"]);
    world.resolve("a.example");
    let mut to_a = world.connected("198.51.100.1", 443);
    let expire = |world: &World| {
        let set = ["flush", "set", "inet", "opensandbox", "dyn_allow_v4"];
        assert!(world.run("nft", &set).0);
    };
    expire(&world);
    assert!(
        !world.reaches("198.51.100.1", 443),
        "its address has expired"
    );
    assert!(is_alive(&mut to_a));
    world.kill();
    world.start("dns+nft", ALLOW_A, &[]);
    assert!(is_alive(&mut to_a), "the same policy admits it");
    assert!(!world.reaches("198.51.100.1", 443));
    // The kernel also knows a policy that came over the API, by netlink and by nft.
    for patch in [
        r#"[{"action":"allow","target":"b.example"}]"#,
        r#"[{"action":"allow","target":"203.0.113.0/24"}]"#,
    ] {
        world.resolve("a.example");
        world.policy("PATCH", patch);
        assert!(is_alive(&mut to_a));
    }
    world.kill();
    world.start("dns+nft", ALLOW_A, &[]);
    assert!(!is_alive(&mut to_a), "it was admitted by another policy");
    assert!(
        !world.reaches("198.51.100.1", 443),
        "addresses that another policy opened are closed"
    );
    world.resolve("a.example");
    assert!(world.reaches("198.51.100.1", 443));
}

#[test]
fn another_mode_replaces_all_rules() {
    let mut world = World::new("dns+nft", ALLOW_A);
    world.internet.name("a.example", &["198.51.100.1"]);
    assert!(!world.reaches("198.51.100.2", 443));
    world.kill();
    world.start("dns", ALLOW_A, &[]);
    let (_, rules) = world.run("nft", &["list", "ruleset"]);
    assert!(!rules.contains("chain egress"), "{rules}");
    assert!(rules.contains("chain resolve"), "{rules}");
    assert!(
        world.reaches("198.51.100.2", 443),
        "mode dns restricts names"
    );
    assert_eq!(world.resolve("b.example").code, ResponseCode::NXDomain);
    world.kill();
    world.start("dns+nft", ALLOW_A, &[]);
    assert!(!world.reaches("198.51.100.2", 443));
    world.resolve("a.example");
    assert!(world.reaches("198.51.100.1", 443));
}

#[test]
fn a_policy_is_kept_in_its_file() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("policy.json").display().to_string();
    let variables = [("OPENSANDBOX_EGRESS_POLICY_FILE", path.as_str())];
    let mut world = World::with("dns+nft", ALLOW_A, &variables);
    world.policy("PATCH", r#"[{"action":"allow","target":"198.51.100.2"}]"#);
    world.policy("DELETE", r#"["a.example"]"#);
    world.kill();
    world.start("dns+nft", ALLOW_A, &variables);
    assert!(world.reaches("198.51.100.2", 443));
    assert_eq!(
        world.resolve("a.example").code,
        ResponseCode::NXDomain,
        "what was revoked stays so"
    );
}

#[test]
fn a_name_that_does_not_exist_is_listed_as_such() {
    for mode in ["dns", "dns+nft"] {
        let world = World::new(mode, r#"{"defaultAction":"allow"}"#);
        world.internet.name("known.example", &["198.51.100.1"]);
        world.internet.alias("alias.example", "nowhere.example");
        world
            .internet
            .fail("broken.example", ResponseCode::ServFail);
        for name in ["known", "alias", "broken", "missing", "late"] {
            world.resolve(&format!("{name}.example"));
        }
        world.resolve_kind("known.example", RecordType::TXT);
        world.internet.name("late.example", &["198.51.100.1"]);
        world.resolve("late.example");
        let (_, text) = world.call("GET", "/decisions", "").unwrap();
        let listed: Value = serde_json::from_str(&text).unwrap();
        let names = listed["names"].as_array().unwrap().iter();
        let missing: Vec<_> = names
            .filter(|it| it.get("nonexistent").is_some())
            .map(|it| (it["name"].as_str(), it["nonexistent"].as_bool()))
            .collect();
        assert_eq!(missing, [(Some("missing.example"), Some(true))], "{mode}");
    }
}

#[test]
fn what_was_decided_is_listed() {
    let world = World::new("dns+nft", ALLOW_A);
    world.internet.name("a.example", &["198.51.100.1"]);
    world.resolve("a.example");
    world.resolve("b.example");
    world.resolve("b.example");
    assert!(world.reaches("198.51.100.1", 443));
    assert!(!world.reaches("198.51.100.2", 80));
    assert!(!world.reaches("2001:db8::2", 80));
    let (status, text) = world.call("GET", "/decisions", "").unwrap();
    assert_eq!(status, 200, "{text}");
    let listed: Value = serde_json::from_str(&text).unwrap();
    let names: Vec<_> = listed["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            (
                it["name"].as_str().unwrap(),
                it["action"].as_str().unwrap(),
                it["count"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(names, [("a.example", "allow", 1), ("b.example", "deny", 2)]);
    let has = |action: &str, address: &str, port: u64, names: &[&str]| {
        listed["destinations"].as_array().unwrap().iter().any(|it| {
            it["action"] == action
                && it["address"] == address
                && it["port"] == port
                && it["protocol"] == "tcp"
                && it["names"] == serde_json::json!(names)
        })
    };
    assert!(has("allow", "198.51.100.1", 443, &["a.example"]), "{text}");
    assert!(has("deny", "198.51.100.2", 80, &[]), "{text}");
    assert!(has("deny", "2001:db8::2", 80, &[]), "{text}");
}
