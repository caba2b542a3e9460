//! The documents for `nft`, and what is read from its listings.

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{ruleset::Edition, *};
use crate::{
    config::DohBlock,
    policy::{Action, Policy, Rule, overlay::Overlay},
};

fn around(doh: DohBlock) -> Surroundings {
    Surroundings {
        mark: 0xabcd,
        upstreams: vec!["192.0.2.53:53".parse().unwrap()],
        exempt: vec!["192.0.2.54".parse().unwrap()],
        doh,
        api_port: 18080,
    }
}

fn parsed(document: &str) -> Vec<Value> {
    let mut document: Value = serde_json::from_str(document).unwrap();
    serde_json::from_value(document["nftables"].take()).unwrap()
}

/// Commands that enforce a policy below the operator's rules.
fn enforcing(policy: &str, overlay: &Overlay, doh: DohBlock) -> Vec<Value> {
    let user = Policy::parse(policy.as_bytes()).unwrap();
    let effective = Effective::new(&user, overlay);
    let edition = Edition {
        generation: 7,
        fingerprint: "2001:db8::7".parse().unwrap(),
    };
    parsed(&ruleset::rules(&effective, &around(doh), edition, false))
}

/// Elements that the commands add to a set; null if they only empty it.
fn elements(commands: &[Value], set: &str) -> Value {
    let mut added = commands.iter().filter_map(|it| it.pointer("/add/element"));
    let own = added.find(|it| it["name"] == set);
    own.map_or(Value::Null, |it| it["elem"].clone())
}

/// Statements of the rules of a chain, in order.
fn rules_of<'a>(commands: &'a [Value], chain: &str) -> Vec<&'a Value> {
    let rules = commands.iter().filter_map(|it| it.pointer("/add/rule"));
    let own = rules.filter(|it| it["chain"] == chain);
    own.map(|it| &it["expr"]).collect()
}

/// Whether a rule compares something with this value.
fn compares_with(rule: &Value, value: &Value) -> bool {
    let mut statements = rule.as_array().unwrap().iter();
    statements.any(|it| it.pointer("/match/right") == Some(value))
}

/// Last statement of a rule.
fn verdict(rule: &Value) -> &Value {
    rule.as_array().unwrap().last().unwrap()
}

/// Values that anything in the commands compares the protocol with.
fn protocols(commands: &Value, found: &mut Vec<Value>) {
    let of_protocol = commands.pointer("/left/meta/key") == Some(&json!("l4proto"));
    if of_protocol {
        let right = &commands["right"];
        let set = right["set"].as_array();
        found.extend(set.map_or_else(|| vec![right.clone()], Clone::clone));
    }
    match commands {
        Value::Array(all) => all.iter().for_each(|it| protocols(it, found)),
        Value::Object(all) => all.values().for_each(|it| protocols(it, found)),
        _ => {}
    }
}

/// Policy of the chain that sees all packets.
fn chain_policy(commands: &[Value]) -> &Value {
    let mut chains = commands.iter().filter_map(|it| it.pointer("/add/chain"));
    &chains.find(|it| it["name"] == "egress").unwrap()["policy"]
}

#[test]
fn rules_are_in_the_order_of_their_precedence() {
    let policy = r#"{"egress":[
        {"action":"allow","target":"203.0.113.7"},
        {"action":"allow","target":"2001:db8::/32"},
        {"action":"deny","target":"10.1.2.3/8"}
    ]}"#;
    let operators = Overlay {
        deny: vec![Rule::new(Action::Deny, "192.0.2.0/24").unwrap()],
        allow: vec![Rule::new(Action::Allow, "fd00::1").unwrap()],
    };
    let commands = enforcing(policy, &operators, DohBlock::Off);
    for (set, want) in [
        ("allow_v4", json!(["203.0.113.7"])),
        (
            "allow_v6",
            json!([{"prefix": {"addr": "2001:db8::", "len": 32}}]),
        ),
        (
            "deny_v4",
            json!([{"prefix": {"addr": "10.0.0.0", "len": 8}}]),
        ),
        ("deny_v6", Value::Null),
        (
            "deny_always_v4",
            json!([{"prefix": {"addr": "192.0.2.0", "len": 24}}]),
        ),
        ("allow_always_v6", json!(["fd00::1"])),
        ("generation", json!([7])),
        ("fingerprint", json!(["2001:db8::7"])),
        ("stamp", json!([["ipv4", 7], ["ipv6", 7]])),
        ("dyn_allow_v4", Value::Null),
    ] {
        assert_eq!(elements(&commands, set), want, "{set}");
    }
    let rules = rules_of(&commands, "egress");
    let position = |part: &str| {
        let found = rules.iter().position(|it| it.to_string().contains(part));
        found.unwrap_or_else(|| panic!("no rule has {part}"))
    };
    let positions = [
        "\"rst\"",
        "\"saddr\"",
        "\"192.0.2.53\"",
        r#""lo"}},{"accept""#,
        "icmpv6",
        r#"[{"match":{"left":{"fib""#,
        "\"reply\"",
        "[1,58]",
        "\"@generation\"",
        "853",
        "\"192.0.2.54\"",
        "\"@deny_always_v4\"",
        "\"@allow_always_v4\"",
        "\"@deny_v4\"",
        "\"@dyn_allow_v4\"",
        "\"@allow_v4\"",
        "\"@kept_v4\"",
    ]
    .map(position);
    assert!(positions.is_sorted(), "{positions:?}");
}

#[test]
fn only_answers_to_machines_that_began_a_connection_pass_unjudged() {
    let commands = enforcing("{}", &Overlay::default(), DohBlock::Off);
    let rules = rules_of(&commands, "egress");
    let with = |value: &str| {
        let value = json!(value);
        let found = rules.iter().filter(|it| compares_with(it, &value));
        found.copied().collect::<Vec<_>>()
    };
    let replies = with("reply");
    assert_eq!(replies.len(), 1, "{replies:?}");
    assert!(compares_with(replies[0], &json!(1)), "{replies:?}");
    // Resets on the loopback interface, and the kernel's error messages.
    let related = with("related");
    assert_eq!(related.len(), 2, "{related:?}");
    assert!(compares_with(related[0], &json!("rst")), "{related:?}");
    let messages = json!({"set": [1, 58]});
    assert!(compares_with(related[1], &messages), "{related:?}");
    for rule in rules_of(&commands, "arrive") {
        assert!(compares_with(rule, &json!("new")), "{rule}");
        assert!(compares_with(rule, &json!("lo")), "{rule}");
    }
}

#[test]
fn protocols_are_named_only_where_nft_needs_no_file_of_the_system() {
    let rules = r#"{"defaultAction": "deny", "egress": []}"#;
    let commands = enforcing(rules, &Overlay::default(), DohBlock::Off);
    let mut found = Vec::new();
    protocols(&Value::Array(commands), &mut found);
    assert!(found.len() > 4, "{found:?}");
    for protocol in found {
        let is_known = protocol.is_number() || protocol == "tcp" || protocol == "udp";
        assert!(is_known, "{protocol}");
    }
}

#[test]
fn the_default_decides_last_and_packets_without_a_rule_are_dropped() {
    for (policy, last) in [("{}", "refuse"), (r#"{"defaultAction":"allow"}"#, "admit")] {
        let commands = enforcing(policy, &Overlay::default(), DohBlock::Off);
        assert_eq!(chain_policy(&commands), "drop");
        let rules = rules_of(&commands, "egress");
        assert_eq!(*rules[rules.len() - 1], json!([{"goto": {"target": last}}]));
        let dot: Vec<_> = rules
            .iter()
            .filter(|it| compares_with(it, &json!(853)))
            .collect();
        assert_eq!(dot.len(), 1, "{policy}");
        assert_eq!(*verdict(dot[0]), json!({"goto": {"target": "refuse"}}));
        assert!(compares_with(dot[0], &json!({"set": ["tcp", "udp"]})));
    }
}

#[test]
fn dns_over_https_is_refused_everywhere_or_to_the_listed_networks() {
    let rules = |doh: DohBlock| {
        let commands = enforcing("{}", &Overlay::default(), doh);
        let all = rules_of(&commands, "egress");
        let of_https = all.iter().filter(|it| compares_with(it, &json!(443)));
        of_https.count()
    };
    assert_eq!(rules(DohBlock::Off), 0);
    assert_eq!(rules(DohBlock::Everywhere), 1);
    let networks = ["198.51.100.0/31", "2001:db8::1/128"].map(|it| it.parse::<IpNet>().unwrap());
    let listed = DohBlock::Networks(networks.to_vec());
    assert_eq!(rules(listed.clone()), 2);
    let commands = enforcing("{}", &Overlay::default(), listed);
    assert_eq!(
        elements(&commands, "doh_block_v4"),
        json!([{"prefix": {"addr": "198.51.100.0", "len": 31}}])
    );
    assert_eq!(elements(&commands, "doh_block_v6"), json!(["2001:db8::1"]));
}

#[test]
fn queries_are_redirected_unless_the_sidecar_or_an_exempt_server_is_concerned() {
    let around = around(DohBlock::Off);
    let only = parsed(&ruleset::redirection(&around));
    let enforced = enforcing("{}", &Overlay::default(), DohBlock::Off);
    for commands in [&only, &enforced] {
        let rules = rules_of(commands, "resolve");
        assert_eq!(rules.len(), 3, "{rules:?}");
        assert!(compares_with(rules[0], &json!("192.0.2.54")));
        assert!(compares_with(rules[1], &json!(0xabcd)));
        for rule in &rules[..2] {
            assert_eq!(*verdict(rule), json!({"return": null}));
        }
        assert_eq!(*verdict(rules[2]), json!({"redirect": {"port": 15353}}));
    }
    assert!(rules_of(&only, "egress").is_empty(), "nothing is filtered");
    let table = json!({"family": "inet", "name": "opensandbox"});
    let begin = [
        json!({"add": {"table": &table}}),
        json!({"delete": {"table": &table}}),
        json!({"add": {"table": &table}}),
    ];
    assert_eq!(only[..3], begin, "rules of another mode go");
}

#[test]
fn the_same_policy_is_recognised_and_another_is_not() {
    let edition = |policy: &str, overlay: &Overlay, doh| {
        let user = Policy::parse(policy.as_bytes()).unwrap();
        Edition::new(&Effective::new(&user, overlay), &around(doh))
    };
    let none = Overlay::default();
    let operators = Overlay {
        deny: vec![Rule::new(Action::Deny, "b.example").unwrap()],
        allow: Vec::new(),
    };
    let [one, two, reversed] = [
        r#"{"egress":[{"action":"allow","target":"a.example"}]}"#,
        r#"{"egress":[{"action":"allow","target":"a.example"},{"action":"deny","target":"b.example"}]}"#,
        r#"{"egress":[{"action":"deny","target":"b.example"},{"action":"allow","target":"a.example"}]}"#,
    ];
    let first = edition(one, &none, DohBlock::Off);
    let again = edition(one, &none, DohBlock::Off);
    assert_eq!(first.fingerprint, again.fingerprint);
    let others = [
        edition("{}", &none, DohBlock::Off),
        edition(r#"{"defaultAction":"allow"}"#, &none, DohBlock::Off),
        edition(two, &none, DohBlock::Off),
        edition(reversed, &none, DohBlock::Off),
        edition(one, &operators, DohBlock::Off),
        edition(one, &none, DohBlock::Everywhere),
    ];
    let all = others.iter().chain([&first]).map(|it| it.fingerprint);
    let different: std::collections::HashSet<_> = all.collect();
    assert_eq!(different.len(), others.len() + 1);
}

#[test]
fn an_edition_is_read_from_a_listing() {
    let listing = |generation: &str| {
        format!(
            r#"{{"nftables": [{{"metainfo": {{"version": "1.0.6"}}}},
            {{"set": {{"name": "fingerprint", "table": "opensandbox", "elem": ["2001:db8::7"]}}}},
            {{"set": {{"name": "generation", "table": "opensandbox", "elem": {generation}}}}}]}}"#
        )
    };
    let found = Listing::of(&listing("[4294967295]")).edition().unwrap();
    assert_eq!(found.generation, u32::MAX);
    assert_eq!(found.fingerprint.to_string(), "2001:db8::7");
    for incomplete in ["[]", "[1, 2]", "[4294967296]", "null", "[\"x\"]"] {
        let found = Listing::of(&listing(incomplete)).edition();
        assert_eq!(found, None, "{incomplete}");
    }
    assert_eq!(Listing::of("no JSON").edition(), None);
}

#[tokio::test(start_paused = true)]
async fn a_packet_filter_that_hangs_fails_the_answer() {
    // A thread that never answers: its requests stay in the queue.
    let (requests, _queue) = mpsc::channel(1);
    let firewall = Firewall {
        requests,
        shared: Arc::default(),
    };
    for _ in 0..2 {
        let answer = Answer {
            name: "a.example".into(),
            aliases: Arc::default(),
            addresses: vec!["192.0.2.1".parse().unwrap()],
            ttl: 60,
        };
        let error = firewall.learn(answer).await.unwrap_err();
        assert!(error.to_string().contains("within 5 s"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_late_is_known_to_the_thread_as_unwanted() {
    let (requests, mut queue) = mpsc::channel(1);
    let firewall = Firewall {
        requests,
        shared: Arc::default(),
    };
    let policy = || Arc::new(Effective::new(&Policy::default(), &Overlay::default()));
    let error = firewall.apply(policy()).await.unwrap_err();
    assert!(matches!(error, FirewallError::Late(_)), "{error}");
    let Ok(Request::Apply(_, done)) = queue.try_recv() else {
        panic!("it waits for the thread");
    };
    assert!(done.is_closed());
    assert!(done.send(Ok(())).is_err(), "the thread takes it back");
    // One that was made in time is no failure.
    let made = async {
        let Some(Request::Apply(_, done)) = queue.recv().await else {
            panic!("it waits for the thread");
        };
        done.send(Ok(())).unwrap();
    };
    let (applied, ()) = tokio::join!(firewall.apply(policy()), made);
    applied.unwrap();
}

#[test]
fn an_upstream_that_is_exempt_is_open_to_the_sandbox_at_the_port_for_queries_only() {
    let mut around = around(DohBlock::Off);
    around.upstreams = vec![
        "192.0.2.54:53".parse().unwrap(),
        "192.0.2.54:853".parse().unwrap(),
    ];
    let policy = Effective::new(&Policy::default(), &Overlay::default());
    let edition = Edition::new(&policy, &around);
    let commands = parsed(&ruleset::rules(&policy, &around, edition, false));
    let rules = rules_of(&commands, "egress");
    let has_mark = |port: u16| {
        let mut own = rules.iter().filter(|it| {
            compares_with(it, &json!("192.0.2.54")) && *verdict(it) == json!({"accept": null})
        });
        let rule = own.find(|it| compares_with(it, &json!(port))).unwrap();
        compares_with(rule, &json!(around.mark))
    };
    assert!(!has_mark(53));
    assert!(has_mark(853));
}

#[test]
fn records_are_read_from_a_listing() {
    let listing = r#"{"nftables": [
        {"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
        {"table": {"family": "inet", "name": "opensandbox", "handle": 1}},
        {"set": {"family": "inet", "name": "refused_v4", "table": "opensandbox",
            "type": ["ipv4_addr", "inet_proto", "inet_service"], "size": 4096, "elem": [
            {"elem": {"val": {"concat": ["198.51.100.2", "udp", 53000]}, "expires": 3599,
                "counter": {"packets": 3, "bytes": 29}}}]}},
        {"set": {"family": "inet", "name": "admitted_v6", "table": "opensandbox", "elem": [
            {"elem": {"val": {"concat": ["2001:db8::1", "tcp", 443]},
                "counter": {"packets": 1, "bytes": 53}}}]}},
        {"set": {"family": "inet", "name": "admitted_v4", "table": "opensandbox"}},
        {"set": {"family": "inet", "name": "dyn_allow_v4", "table": "opensandbox", "elem": [
            {"elem": {"val": "198.51.100.1", "timeout": 120, "expires": 119}}]}}
    ]}"#;
    let record = |action, address: &str, protocol: &str, port, packets| Record {
        action,
        address: address.parse().unwrap(),
        protocol: protocol.to_owned(),
        port,
        packets,
    };
    assert_eq!(
        Listing::of(listing).records(),
        [
            record(Action::Deny, "198.51.100.2", "udp", 53000, 3),
            record(Action::Allow, "2001:db8::1", "tcp", 443, 1),
        ]
    );
    assert_eq!(Listing::of("no JSON").records(), []);
}

#[test]
fn addresses_of_an_earlier_process_are_read_from_a_listing() {
    let listing = r#"{"nftables": [
        {"set": {"name": "dyn_allow_v4", "elem": [
            {"elem": {"val": "198.51.100.1", "timeout": 120, "expires": 119}}]}},
        {"set": {"name": "dyn_allow_v6", "elem": [
            {"elem": {"val": "2001:db8::1", "timeout": 60, "expires": 0}}, "2001:db8::2"]}},
        {"set": {"name": "kept_v4"}},
        {"set": {"name": "kept_v6", "elem": ["2001:db8::1", "none"]}},
        {"set": {"name": "allow_v4", "elem": ["203.0.113.1"]}}
    ]}"#;
    let listing = Listing::of(listing);
    let life = |address: &str, seconds| (address.parse().unwrap(), Duration::from_secs(seconds));
    let learned: Vec<(IpAddr, Duration)> = listing.learned();
    assert_eq!(learned, [life("198.51.100.1", 120), life("2001:db8::1", 1)]);
    assert_eq!(listing.kept(), ["2001:db8::1".parse::<IpAddr>().unwrap()]);
}

#[test]
fn learned_addresses_are_only_closed_for_a_policy_of_which_nothing_is_known() {
    let commands = |is_new| {
        let policy = Effective::new(&Policy::default(), &Overlay::default());
        let edition = Edition::new(&policy, &around(DohBlock::Off));
        parsed(&ruleset::rules(
            &policy,
            &around(DohBlock::Off),
            edition,
            is_new,
        ))
    };
    for set in ["dyn_allow_v4", "dyn_allow_v6", "kept_v4", "kept_v6"] {
        let flush = json!({"flush": {"set": {
            "family": "inet", "table": "opensandbox", "name": set,
        }}});
        assert!(commands(true).contains(&flush), "{set}");
        assert!(!commands(false).contains(&flush), "{set}");
    }
}
