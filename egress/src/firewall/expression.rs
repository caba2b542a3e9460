//! Expressions of rules, as `nft` reads them.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

/// Family of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Name of a set of this family.
    pub(crate) fn set(self, name: &str) -> String {
        match self {
            Self::V4 => format!("{name}_v4"),
            Self::V6 => format!("{name}_v6"),
        }
    }

    pub(super) fn protocol(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    pub(super) fn address_type(self) -> &'static str {
        match self {
            Self::V4 => "ipv4_addr",
            Self::V6 => "ipv6_addr",
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }
}

pub(super) fn meta(key: &str) -> Value {
    json!({"meta": {"key": key}})
}

pub(super) fn ct(key: &str) -> Value {
    json!({"ct": {"key": key}})
}

pub(super) fn destination(family: Family) -> Value {
    json!({"payload": {"protocol": family.protocol(), "field": "daddr"}})
}

pub(super) fn destination_is(address: IpAddr) -> Value {
    equals(destination(Family::of(address)), json!(address))
}

pub(super) fn source_is(address: IpAddr) -> Value {
    let protocol = Family::of(address).protocol();
    let source = json!({"payload": {"protocol": protocol, "field": "saddr"}});
    equals(source, json!(address))
}

pub(super) fn destination_in(family: Family, set: &str) -> Value {
    equals(destination(family), json!(format!("@{}", family.set(set))))
}

/// Matches a destination port of TCP and UDP.
pub(super) fn to_port(port: u16) -> Vec<Value> {
    let destination = json!({"payload": {"protocol": "th", "field": "dport"}});
    vec![
        equals(meta("l4proto"), json!({"set": ["tcp", "udp"]})),
        equals(destination, json!(port)),
    ]
}

pub(super) fn equals(left: Value, right: Value) -> Value {
    json!({"match": {"op": "==", "left": left, "right": right}})
}

pub(super) fn differs(left: Value, right: Value) -> Value {
    json!({"match": {"op": "!=", "left": left, "right": right}})
}

pub(super) fn is_in(left: Value, right: Value) -> Value {
    json!({"match": {"op": "in", "left": left, "right": right}})
}

pub(super) fn network(network: &IpNet) -> Value {
    match network.prefix_len() == network.max_prefix_len() {
        true => json!(network.addr()),
        false => json!({"prefix": {"addr": network.addr(), "len": network.prefix_len()}}),
    }
}
