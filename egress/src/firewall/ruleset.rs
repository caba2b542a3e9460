//! The rules of the packet filter as one document for `nft`, which applies it in one transaction
//! (contract: egress §2).
//!
//! ```text
//!  input ───▶ arrive (filter)   marks connections that machines outside begin
//!  output ──▶ resolve (nat, before Docker's own)   port 53 ──▶ the sidecar's DNS proxy
//!         └─▶ egress (filter)
//!               over loopback from an address of another machine ─────────────────────────▶ drop
//!               sidecar to its upstreams, its API, loopback, neighbours ──────────────────▶ accept
//!               from an address of another machine ───────────────────────────────────────▶ drop
//!               answers to connections from outside, error messages of the kernel ────────▶ accept
//!               connection that this policy admitted ─────────────────────────────────────▶ accept
//!               DNS over TLS, QUIC or HTTPS ──────────────────────────────────────────────▶ refuse
//!               networks of the operator, networks of the user, addresses of allowed names
//!               connection to an address whose names are still allowed
//!               default
//!  admit   marks the connection with the policy's generation
//!  refuse  records the destination, and rejects the packet, so that the client fails at once
//! ```
//!
//! A connection carries the generation of the policy that admitted it. A change of the policy makes
//! a new generation, so that the next packet of every connection is judged again: connections to
//! what is no longer allowed end.
//!
//! Sets with learned addresses are created here, and emptied for a policy of which nothing is known.
//! Otherwise they stay as they are, so that an address stays reachable when the rules are applied
//! again.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use osb_service::build_info;
use serde_json::{Value, json};

use super::expression::{
    Family, ct, destination, destination_in, destination_is, differs, equals, is_in, meta, network,
    source_is, to_port,
};
use crate::{
    config::DohBlock,
    limits,
    policy::{Action, Effective, Networks},
};

/// Table of all objects.
pub(crate) const TABLE: &str = "opensandbox";
/// Generation of the policy: a set with one mark.
pub(crate) const GENERATION: &str = "generation";
/// The same mark as a map, because a rule can only assign a constant or a map's value.
pub(crate) const STAMP: &str = "stamp";
/// Fingerprint of the policy: a set with one element. Its type is the kernel's only one of 128 bits.
pub(crate) const FINGERPRINT: &str = "fingerprint";

/// Priority of the redirection: before the engine's own (−100), which hides its resolver behind an
/// address of the loopback interface.
const RESOLVE_PRIORITY: i32 = -110;
/// Destinations that a set of records holds.
const RECORDS: usize = 4096;
/// Seconds after which a record is forgotten.
const RECORD_LIFE: u64 = 3600;
/// DNS over TLS and over QUIC.
const DOT: u16 = 853;
const HTTPS: u16 = 443;
/// Resolver of the container engine on networks that users define.
const ENGINE_RESOLVER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11));
const DNS: u16 = 53;
/// Numbers of protocols. By themselves nft knows few of their names; the others are in a file of the
/// system, which the image of the sidecar does not have.
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Mark of connections that a machine outside began. No generation equals it.
const FROM_OUTSIDE: u32 = 1;

/// Names of sets without their family.
pub(crate) mod sets {
    pub(crate) const DENY_ALWAYS: &str = "deny_always";
    pub(crate) const ALLOW_ALWAYS: &str = "allow_always";
    pub(crate) const DENY: &str = "deny";
    pub(crate) const ALLOW: &str = "allow";
    pub(crate) const DOH: &str = "doh_block";
    /// Addresses of allowed names, each with its own life.
    pub(crate) const LEARNED: &str = "dyn_allow";
    /// Addresses whose connections go on although the address was not resolved lately.
    pub(crate) const KEPT: &str = "kept";
    /// Destinations that were refused.
    pub(crate) const REFUSED: &str = "refused";
    /// Destinations to which connections were opened.
    pub(crate) const ADMITTED: &str = "admitted";
}

/// What the rules depend on besides the policy.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Mark of the sidecar's packets to its upstreams and to clients of its API. Random: other
    /// processes do not know it.
    pub mark: u32,
    /// Name servers that the sidecar asks.
    pub upstreams: Vec<SocketAddr>,
    /// Name servers that the sandbox may ask directly.
    pub exempt: Vec<IpAddr>,
    /// Whether DNS over HTTPS is refused.
    pub doh: DohBlock,
    /// Port of the sidecar's API.
    pub api_port: u16,
}

/// Whether the sandbox may ask an upstream itself: an exempt name server, at the port for queries only.
/// The sidecar's own packets to others have a mark.
#[must_use]
pub fn is_asked_directly(upstream: SocketAddr, exempt: &[IpAddr]) -> bool {
    upstream.port() == DNS && exempt.contains(&upstream.ip().to_canonical())
}

/// Identifies a policy in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edition {
    /// Mark of the connections that it admitted. Random, so that it almost never equals an earlier
    /// one; neither zero, which connections have at first, nor [`FROM_OUTSIDE`].
    pub(crate) generation: u32,
    /// Equal for policies that admit the same. A later process of the sidecar recognises its policy
    /// by it.
    pub(crate) fingerprint: Ipv6Addr,
}

impl Edition {
    /// A new generation of a policy.
    pub(crate) fn new(policy: &Effective, around: &Surroundings) -> Self {
        let half = |salt: u64| {
            // Its result is the same in each process of this build.
            let mut hasher = DefaultHasher::new();
            (salt, build_info::VERSION).hash(&mut hasher);
            for rule in policy.rules() {
                rule.to_string().hash(&mut hasher);
            }
            policy.default_action().hash(&mut hasher);
            (&around.exempt, &around.doh).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        Self {
            generation: rand::random_range(FROM_OUTSIDE + 1..=u32::MAX),
            fingerprint: Ipv6Addr::from_bits((half(0) << 64) | half(1)),
        }
    }
}

/// Rules that only redirect DNS queries: all that mode `dns` enforces. The table is made anew in the
/// same transaction, so that no rule of another mode stays.
pub(crate) fn redirection(around: &Surroundings) -> String {
    let mut document = Document::default();
    let table = || json!({"family": "inet", "name": TABLE});
    // Only a table that exists can be deleted.
    document.add("table", table());
    document
        .commands
        .push(json!({"delete": {"table": table()}}));
    document.add("table", table());
    document.redirection(around);
    document.finish()
}

/// The table and its sets, which [`rules`] use. Sets that are there already stay as they are.
///
/// This is a transaction of its own: `nft` gives a set other flags when a rule of the same
/// transaction adds to it, and would then refuse to create the set a second time.
pub(crate) fn tables() -> String {
    let mut document = Document::default();
    document.add("table", json!({"family": "inet", "name": TABLE}));
    document.sets();
    document.finish()
}

/// All rules for a policy. `is_new` also closes all learned addresses, in the same transaction.
pub(crate) fn rules(
    policy: &Effective,
    around: &Surroundings,
    edition: Edition,
    is_new: bool,
) -> String {
    let mut document = Document::default();
    document.redirection(around);
    document.static_elements(policy.networks(), &around.doh);
    document.edition(edition);
    document.arrivals();
    document.filter(policy, around);
    if is_new {
        for name in [sets::LEARNED, sets::KEPT] {
            for family in Family::ALL {
                document.replace(&family.set(name), Vec::new());
            }
        }
    }
    document.finish()
}

fn place(name: &str) -> Value {
    json!({"family": "inet", "table": TABLE, "name": name})
}

/// Commands in order.
#[derive(Default)]
struct Document {
    commands: Vec<Value>,
}

impl Document {
    fn finish(self) -> String {
        json!({"nftables": self.commands}).to_string()
    }

    fn add(&mut self, kind: &str, object: Value) {
        self.commands.push(json!({"add": {kind: object}}));
    }

    fn set(&mut self, kind: &str, name: &str, more: Value) {
        let mut set = place(name);
        let (Value::Object(set_members), Value::Object(more)) = (&mut set, more) else {
            unreachable!("both are objects");
        };
        set_members.extend(more);
        self.add(kind, set);
    }

    /// A chain without rules. `hook` makes it the first one for packets.
    fn chain(&mut self, name: &str, hook: Option<Value>) {
        self.set("chain", name, hook.unwrap_or_else(|| json!({})));
        self.commands.push(json!({"flush": {"chain": place(name)}}));
    }

    fn rule(&mut self, chain: &str, statements: Vec<Value>) {
        self.add(
            "rule",
            json!({"family": "inet", "table": TABLE, "chain": chain, "expr": statements}),
        );
    }

    fn redirection(&mut self, around: &Surroundings) {
        const RESOLVE: &str = "resolve";
        let hook = json!({
            "type": "nat", "hook": "output", "prio": RESOLVE_PRIORITY, "policy": "accept",
        });
        self.chain(RESOLVE, Some(hook));
        for address in &around.exempt {
            let mut to = to_port(DNS);
            to.push(destination_is(*address));
            to.push(json!({"return": null}));
            self.rule(RESOLVE, to);
        }
        self.rule(
            RESOLVE,
            vec![
                equals(meta("mark"), json!(around.mark)),
                json!({"return": null}),
            ],
        );
        let mut queries = to_port(DNS);
        queries.push(json!({"redirect": {"port": limits::DNS_PORT}}));
        self.rule(RESOLVE, queries);
    }

    fn sets(&mut self) {
        self.set("set", GENERATION, json!({"type": "mark"}));
        self.set("set", FINGERPRINT, json!({"type": "ipv6_addr"}));
        self.set("map", STAMP, json!({"type": "nf_proto", "map": "mark"}));
        let life = limits::LEARNED_LIFE.1.as_secs();
        for family in Family::ALL {
            let kind = family.address_type();
            for name in [
                sets::DENY_ALWAYS,
                sets::ALLOW_ALWAYS,
                sets::DENY,
                sets::ALLOW,
                sets::DOH,
            ] {
                self.set(
                    "set",
                    &family.set(name),
                    json!({"type": kind, "flags": ["interval"]}),
                );
            }
            let learned = json!({
                "type": kind, "flags": ["timeout"], "timeout": life, "size": limits::LEARNED,
            });
            self.set("set", &family.set(sets::LEARNED), learned);
            // Those that are learned at once, and those that are remembered.
            let size = limits::LEARNED + limits::REMEMBERED;
            let kept = json!({"type": kind, "size": size});
            self.set("set", &family.set(sets::KEPT), kept);
            let record = json!({
                "type": [kind, "inet_proto", "inet_service"],
                "flags": ["timeout"],
                "timeout": RECORD_LIFE,
                "size": RECORDS,
                "stmt": [{"counter": null}],
            });
            self.set("set", &family.set(sets::REFUSED), record.clone());
            self.set("set", &family.set(sets::ADMITTED), record);
        }
    }

    fn static_elements(&mut self, networks: &Networks, doh: &DohBlock) {
        let blocked = match doh {
            DohBlock::Networks(networks) => networks.as_slice(),
            DohBlock::Off | DohBlock::Everywhere => &[],
        };
        for (name, list) in [
            (sets::DENY_ALWAYS, networks.deny_always.as_slice()),
            (sets::ALLOW_ALWAYS, &networks.allow_always),
            (sets::DENY, &networks.deny),
            (sets::ALLOW, &networks.allow),
            (sets::DOH, blocked),
        ] {
            for family in Family::ALL {
                let own = list.iter().filter(|it| Family::of(it.addr()) == family);
                self.replace(&family.set(name), own.map(network).collect());
            }
        }
    }

    /// Replaces the elements of a set.
    fn replace(&mut self, set: &str, elements: Vec<Value>) {
        self.commands.push(json!({"flush": {"set": place(set)}}));
        if !elements.is_empty() {
            self.set("element", set, json!({"elem": elements}));
        }
    }

    fn edition(&mut self, edition: Edition) {
        let generation = edition.generation;
        self.replace(FINGERPRINT, vec![json!(edition.fingerprint)]);
        self.replace(GENERATION, vec![json!(generation)]);
        self.commands.push(json!({"flush": {"map": place(STAMP)}}));
        let stamps = Family::ALL.map(|family| json!([family.word(), generation]));
        self.set("element", STAMP, json!({"elem": stamps}));
    }

    /// Marks connections whose first packet arrives from another machine, so that they may be
    /// answered. A packet in the middle of a TCP connection begins none: the kernel tracks
    /// connections only since there are rules, and takes the first packet that it sees for the first
    /// one of a connection, also of one that the sandbox opened before.
    fn arrivals(&mut self) {
        const ARRIVE: &str = "arrive";
        let hook = json!({"type": "filter", "hook": "input", "prio": 0, "policy": "accept"});
        self.chain(ARRIVE, Some(hook));
        let flags = json!({"payload": {"protocol": "tcp", "field": "flags"}});
        let opening = json!({"&": [flags, ["fin", "syn", "rst", "ack"]]});
        for begins in [
            equals(opening, json!("syn")),
            differs(meta("l4proto"), json!("tcp")),
        ] {
            let mark = json!({"mangle": {"key": ct("mark"), "value": FROM_OUTSIDE}});
            self.rule(
                ARRIVE,
                vec![
                    is_in(ct("state"), json!("new")),
                    differs(meta("iifname"), json!("lo")),
                    begins,
                    mark,
                ],
            );
        }
    }

    fn filter(&mut self, policy: &Effective, around: &Surroundings) {
        const EGRESS: &str = "egress";
        const ADMIT: &str = "admit";
        const REFUSE: &str = "refuse";
        // Packets that no rule judges are dropped, whatever the default is.
        let hook = json!({"type": "filter", "hook": "output", "prio": 0, "policy": "drop"});
        self.chain(ADMIT, None);
        self.chain(REFUSE, None);
        self.chain(EGRESS, Some(hook));
        let accept = || json!({"accept": null});
        let goto = |chain: &str| json!({"goto": {"target": chain}});
        let established = || is_in(ct("state"), json!("established"));
        let begins = || equals(ct("direction"), json!("original"));
        let drop = || json!({"drop": null});

        // The kernel refuses a TCP connection with a reset that seems to come from its destination.
        let flags = json!({"payload": {"protocol": "tcp", "field": "flags"}});
        let over_loopback = || equals(meta("oifname"), json!("lo"));
        self.rule(
            EGRESS,
            vec![
                over_loopback(),
                is_in(ct("state"), json!("related")),
                is_in(flags, json!("rst")),
                accept(),
            ],
        );
        // Every process can bind a foreign IPv6 address. Over the loopback interface it would be
        // another machine: what is sent to that machine would be an answer, and what comes from it
        // could be the answer of an upstream. A rejection would be sent to that machine, too.
        let source_type = || json!({"fib": {"result": "type", "flags": ["saddr"]}});
        let foreign = || differs(source_type(), json!("local"));
        self.rule(EGRESS, vec![over_loopback(), foreign(), drop()]);
        for upstream in &around.upstreams {
            let mut to = to_port(upstream.port());
            // An upstream that the sandbox may ask directly is asked without a mark, and with an address
            // of its own only.
            to.push(match is_asked_directly(*upstream, &around.exempt) {
                true => equals(source_type(), json!("local")),
                false => equals(meta("mark"), json!(around.mark)),
            });
            to.push(destination_is(upstream.ip()));
            to.push(accept());
            self.rule(EGRESS, to);
        }
        // Clients may have connected to the sidecar's API before there were rules. To the kernel, an
        // answer, or a mere acknowledgement, would be the first packet of a connection.
        let from_api = json!({"payload": {"protocol": "tcp", "field": "sport"}});
        self.rule(
            EGRESS,
            vec![
                equals(meta("mark"), json!(around.mark)),
                equals(from_api, json!(around.api_port)),
                accept(),
            ],
        );
        // The engine's resolver listens at this address of the loopback interface, on a port that is
        // not known here. It answers any query, so that only the sidecar may ask it. It only answers:
        // what else comes from its address pretends to be it.
        self.rule(
            EGRESS,
            vec![begins(), destination_is(ENGINE_RESOLVER), goto(REFUSE)],
        );
        self.rule(EGRESS, vec![begins(), source_is(ENGINE_RESOLVER), drop()]);
        self.rule(EGRESS, vec![over_loopback(), accept()]);
        // Redirected queries may still be on their way to the interface of their old destination.
        for loopback in [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ] {
            let mut to = to_port(limits::DNS_PORT);
            to.push(destination_is(loopback));
            to.push(accept());
            self.rule(EGRESS, to);
        }
        // Without its neighbours a machine has no IPv6.
        let neighbours = json!({"set": [
            "nd-neighbor-solicit", "nd-neighbor-advert", "nd-router-solicit",
            "mld-listener-report", "mld2-listener-report",
        ]});
        let icmp_type = json!({"payload": {"protocol": "icmpv6", "field": "type"}});
        self.rule(EGRESS, vec![equals(icmp_type, neighbours), accept()]);
        // A machine that is allowed would answer to the foreign address, and so would the kernel with
        // its error messages, which quote the packet.
        self.rule(EGRESS, vec![foreign(), drop()]);
        // Answers to connections that came from outside, such as the server's to execd.
        self.rule(
            EGRESS,
            vec![
                equals(ct("direction"), json!("reply")),
                equals(ct("mark"), json!(FROM_OUTSIDE)),
                accept(),
            ],
        );
        // The kernel's own error messages. A connection that a protocol's helper expects is none.
        let icmp = json!({"set": [ICMP, ICMPV6]});
        self.rule(
            EGRESS,
            vec![
                is_in(ct("state"), json!("related")),
                equals(meta("l4proto"), icmp),
                accept(),
            ],
        );
        let this_generation = equals(ct("mark"), json!(format!("@{GENERATION}")));
        self.rule(EGRESS, vec![established(), this_generation, accept()]);

        let mut dot = to_port(DOT);
        dot.push(goto(REFUSE));
        self.rule(EGRESS, dot);
        self.doh(EGRESS, &around.doh, &goto(REFUSE));
        for address in &around.exempt {
            let mut to = to_port(DNS);
            to.push(destination_is(*address));
            to.push(goto(ADMIT));
            self.rule(EGRESS, to);
        }
        for (name, chain) in [
            (sets::DENY_ALWAYS, REFUSE),
            (sets::ALLOW_ALWAYS, ADMIT),
            (sets::DENY, REFUSE),
            (sets::LEARNED, ADMIT),
            (sets::ALLOW, ADMIT),
        ] {
            for family in Family::ALL {
                self.rule(EGRESS, vec![destination_in(family, name), goto(chain)]);
            }
        }
        for family in Family::ALL {
            let kept = destination_in(family, sets::KEPT);
            self.rule(EGRESS, vec![established(), kept, goto(ADMIT)]);
        }
        let by_default = match policy.default_action() {
            Action::Allow => ADMIT,
            Action::Deny => REFUSE,
        };
        self.rule(EGRESS, vec![goto(by_default)]);

        self.record(ADMIT, sets::ADMITTED);
        let stamp = json!({"map": {"key": meta("nfproto"), "data": format!("@{STAMP}")}});
        self.rule(
            ADMIT,
            vec![json!({"mangle": {"key": ct("mark"), "value": stamp}})],
        );
        self.rule(ADMIT, vec![accept()]);

        self.record(REFUSE, sets::REFUSED);
        self.rule(REFUSE, vec![json!({"counter": null})]);
        let is_tcp = equals(meta("l4proto"), json!("tcp"));
        self.rule(
            REFUSE,
            vec![is_tcp, json!({"reject": {"type": "tcp reset"}})],
        );
        let unreachable = json!({"reject": {"type": "icmpx", "expr": "admin-prohibited"}});
        self.rule(REFUSE, vec![unreachable]);
    }

    fn doh(&mut self, chain: &str, doh: &DohBlock, refuse: &Value) {
        match doh {
            DohBlock::Off => {}
            DohBlock::Everywhere => {
                let mut https = to_port(HTTPS);
                https.push(refuse.clone());
                self.rule(chain, https);
            }
            DohBlock::Networks(_) => {
                for family in Family::ALL {
                    let mut https = to_port(HTTPS);
                    https.push(destination_in(family, sets::DOH));
                    https.push(refuse.clone());
                    self.rule(chain, https);
                }
            }
        }
    }

    /// Records the destinations of packets that reach a chain.
    fn record(&mut self, chain: &str, set: &str) {
        for family in Family::ALL {
            let key = json!({"concat": [
                destination(family), meta("l4proto"),
                {"payload": {"protocol": "th", "field": "dport"}},
            ]});
            let update = json!({"set": {
                "op": "update", "elem": key, "set": format!("@{}", family.set(set)),
            }});
            let has_ports = equals(meta("l4proto"), json!({"set": ["tcp", "udp"]}));
            self.rule(
                chain,
                vec![
                    equals(meta("nfproto"), json!(family.word())),
                    has_ports,
                    update,
                ],
            );
        }
    }
}
