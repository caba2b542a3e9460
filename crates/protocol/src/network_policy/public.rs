//! The public Internet, and what is not part of it.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::LazyLock,
};

use ipnet::{IpNet, Ipv6Net};

/// Networks that are not the public Internet. Loopback is missing: it is the sandbox's own.
const NOT_PUBLIC: [&str; 19] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    // Carrier-grade NAT: clouds have services there.
    "100.64.0.0/10",
    // Links, with the clouds' metadata services.
    "169.254.0.0/16",
    // A service of Azure on each of its hosts.
    "168.63.129.16/32",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
    // NAT64 with a prefix of one's own, and 6to4, which embeds IPv4 addresses.
    "64:ff9b:1::/48",
    "2002::/16",
    "100::/64",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
];
/// NAT64 on the Internet: an IPv4 address behind these 96 bits.
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);
const NAT64_BITS: u8 = 96;

static NETWORKS: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
    let parse = |text: &str| -> IpNet { text.parse().expect("a network in the list above") };
    NOT_PUBLIC.map(parse).to_vec()
});

/// Whether an address is of a network that is not the public Internet.
pub(super) fn is_not_public(address: IpAddr) -> bool {
    NETWORKS.iter().any(|network| network.contains(&address))
}

/// Networks that are not the public Internet, with those that NAT64 shows to IPv6. Loopback is missing: it
/// is the sandbox's own.
#[must_use]
pub fn not_public() -> Vec<IpNet> {
    let mut networks = NETWORKS.clone();
    let mapped: Vec<IpNet> = networks.iter().filter_map(behind_nat64).collect();
    networks.extend(mapped);
    networks
}

/// An IPv4 network as NAT64 shows it to IPv6.
fn behind_nat64(network: &IpNet) -> Option<IpNet> {
    let IpNet::V4(network) = network else {
        return None;
    };
    let bits = NAT64.to_bits() | u128::from(network.addr().to_bits());
    let mapped = Ipv6Net::new(Ipv6Addr::from_bits(bits), NAT64_BITS + network.prefix_len());
    mapped.ok().map(IpNet::V6)
}
