//! Which addresses this machine has.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Whether an address is one of this machine's interfaces but loopback, at this moment.
#[must_use]
pub(crate) fn contain(address: IpAddr) -> bool {
    list().contains(&address)
}

/// The addresses of this machine's interfaces but loopback, as far as the kernel shows them.
#[must_use]
pub(crate) fn list() -> Vec<IpAddr> {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    let v4 = local_v4(&read("/proc/net/fib_trie")).into_iter();
    let v6 = local_v6(&read("/proc/net/if_inet6")).into_iter();
    let all = v4.map(IpAddr::from).chain(v6.map(IpAddr::from));
    let mut addresses: Vec<IpAddr> = all.filter(|address| !address.is_loopback()).collect();
    // Both tables of the kernel's trie have them.
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Addresses that the kernel's routes call its own. Each follows its `|--`, with its routes below.
fn local_v4(trie: &str) -> Vec<Ipv4Addr> {
    let mut last: Option<Ipv4Addr> = None;
    let mut found = Vec::new();
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(last);
        }
    }
    found
}

/// Addresses that begin the lines of the kernel's list, as 32 hexadecimal digits.
fn local_v6(list: &str) -> Vec<Ipv6Addr> {
    let addresses = list.lines().filter_map(|line| {
        let digits = line.split_whitespace().next()?;
        let bits = u128::from_str_radix(digits, 16).ok()?;
        Some(Ipv6Addr::from_bits(bits))
    });
    addresses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_lists_the_addresses_of_this_machine() {
        let trie = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
Local:
     |-- 203.0.113.0
        /24 link UNICAST
     |-- 203.0.113.7
        /32 host LOCAL
";
        let want: Vec<Ipv4Addr> = vec![[127, 0, 0, 1].into(), [203, 0, 113, 7].into()];
        assert_eq!(local_v4(trie), want);
        let lines = "\
00000000000000000000000000000001 01 80 10 80       lo
20010db8000000000000000000000007 02 40 00 80     eth0
";
        let want: Vec<Ipv6Addr> = vec![Ipv6Addr::LOCALHOST, "2001:db8::7".parse().unwrap()];
        assert_eq!(local_v6(lines), want);
        let own = list();
        assert!(!own.iter().any(IpAddr::is_loopback), "{own:?}");
    }
}
