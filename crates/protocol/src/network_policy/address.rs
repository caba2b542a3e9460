//! Kinds of addresses: how near to the sandbox they are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::public::is_not_public;

/// How near an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// This machine, this link, a group of machines, or no machine at all.
    Near,
    /// A private network, or another one that is not the public Internet.
    Private,
    /// The internet.
    Public,
}

impl AddressKind {
    /// Kind of an address. Addresses that carry an IPv4 address (mapped, 6to4, NAT64) are of that
    /// address's kind.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => match embedded(address) {
                Some(address) => Self::of_v4(address),
                None => Self::of_v6(address),
            },
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [first, ..] = address.octets();
        // 0.0.0.0/8 reaches this machine on Linux; 240.0.0.0/4 is reserved.
        let is_near = address.is_loopback()
            || address.is_link_local()
            || address.is_multicast()
            || first == 0
            || first >= 240;
        match (is_near, is_not_public(address.into())) {
            (true, _) => Self::Near,
            (false, true) => Self::Private,
            (false, false) => Self::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        let is_near = address.is_loopback()
            || address.is_unspecified()
            || address.is_multicast()
            || address.is_unicast_link_local();
        match (is_near, is_not_public(address.into())) {
            (true, _) => Self::Near,
            (false, true) => Self::Private,
            (false, false) => Self::Public,
        }
    }
}

/// IPv4 address within an IPv6 address.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let from = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] => Some(from(g, h)),
        [0x2002, high, low, ..] => Some(from(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network_policy::not_public;

    #[test]
    fn every_address_has_a_kind() {
        for (kind, addresses) in [
            (
                AddressKind::Near,
                "0.0.0.0 0.1.2.3 127.0.0.1 127.9.9.9 169.254.169.254 224.0.0.251 240.0.0.1 \
                 255.255.255.255 :: ::1 fe80::1 ff02::1 ::ffff:127.0.0.1 2002:7f00:1:: \
                 64:ff9b::a9fe:a9fe",
            ),
            (
                AddressKind::Private,
                "fec0::1 64:ff9b:1::1 10.0.0.1 172.16.0.1 172.31.255.255 192.168.0.1 100.64.0.1 100.127.1.1 fd00::1 \
                 fc00::1 ::ffff:10.0.0.1 64:ff9b::a00:1 168.63.129.16 192.0.0.8 198.18.0.1 198.19.255.255 \
                 100::1 5f00::1 2002:a83f:8110::",
            ),
            (
                AddressKind::Public,
                "1.1.1.1 172.32.0.1 100.128.0.1 100.63.1.1 192.0.2.1 2001:db8::1 2606:4700::1111 \
                 64:ff9b::101:101 168.63.129.17 192.0.1.1 198.20.0.1 2002:101:101::",
            ),
        ] {
            for address in addresses.split_whitespace() {
                assert_eq!(AddressKind::of(address.parse().unwrap()), kind, "{address}");
            }
        }
    }

    #[test]
    fn nothing_in_a_network_that_is_not_public_is_public() {
        // 6to4 has the kind of the IPv4 address within.
        let networks = not_public().into_iter();
        for network in networks.filter(|it| it.to_string() != "2002::/16") {
            for address in [network.network(), network.broadcast()] {
                assert_ne!(AddressKind::of(address), AddressKind::Public, "{address}");
            }
        }
    }
}
