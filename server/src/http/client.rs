//! Who sent a request: the other end of the connection or, behind trusted proxies, whom they report.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use axum::extract::{ConnectInfo, Request};
use http::{HeaderMap, HeaderName, HeaderValue, header::FORWARDED, uri::Scheme};
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Networks of the proxies in front of this server.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Arc<[IpNet]>);

impl TrustedProxies {
    /// These networks.
    #[must_use]
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self(networks.into_iter().collect())
    }

    fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Extension of requests on connections with TLS.
#[derive(Clone, Copy, Debug)]
pub(super) struct OverTls;

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Client {
    /// Address that limits count by.
    pub(super) address: IpAddr,
    /// How the client reached this server, as far as it is known.
    pub(super) scheme: Scheme,
    /// The other end of the connection. No header can hide it, nor any of those below.
    peer: IpAddr,
    /// Every address on the way that was reported by a trusted one.
    reported: Vec<IpAddr>,
}

impl Client {
    /// The client of a connection without a proxy.
    pub(super) fn direct(peer: IpAddr) -> Self {
        let peer = peer.to_canonical();
        Self {
            address: peer,
            scheme: Scheme::HTTP,
            peer,
            reported: Vec::new(),
        }
    }

    fn of(peer: IpAddr, scheme: Scheme, headers: &HeaderMap, proxies: &TrustedProxies) -> Self {
        let mut direct = Self {
            scheme,
            ..Self::direct(peer)
        };
        if !proxies.contain(direct.address) {
            return direct;
        }
        let mut walk = |hops| walk(direct.peer, &mut direct.reported, hops, proxies);
        let listed = walk(x_forwarded_for(headers));
        let forwarded = walk(forwarded(headers));
        // A proxy adds to one of both headers and may pass on the other as the client wrote it.
        let address = match headers.contains_key(X_FORWARDED_FOR) {
            true => listed,
            false => forwarded,
        };
        let reported = headers
            .get_all(X_FORWARDED_PROTO)
            .iter()
            .next_back()
            .and_then(|value| value.as_bytes().rsplit(|byte| *byte == b',').next())
            .map(|scheme| scheme.trim_ascii().eq_ignore_ascii_case(b"https"));
        Self {
            address,
            scheme: match reported {
                Some(true) => Scheme::HTTPS,
                Some(false) => Scheme::HTTP,
                None => direct.scheme,
            },
            peer: direct.peer,
            reported: direct.reported,
        }
    }

    /// Whether the request may have come from an address of which this holds.
    pub(super) fn may_be(&self, holds: impl Fn(IpAddr) -> bool) -> bool {
        let passed = std::iter::once(&self.peer).chain(&self.reported);
        passed.copied().any(holds)
    }

    /// What limits count by: the address, or the network of 64 bits that an IPv6 client has to
    /// itself.
    pub(super) fn group(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(_) => self.address,
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(
                address.to_bits() & !u128::from(u64::MAX),
            )),
        }
    }
}

/// Puts the [`Client`] into the request's extensions.
pub(super) fn identify(proxies: &TrustedProxies, request: &mut Request) {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |peer| peer.0.ip());
    let scheme = match request.extensions().get::<OverTls>() {
        Some(OverTls) => Scheme::HTTPS,
        None => Scheme::HTTP,
    };
    let client = Client::of(peer, scheme, request.headers(), proxies);
    request.extensions_mut().insert(client);
}

/// The client of a request that passed [`identify`].
pub(super) fn of(extensions: &http::Extensions) -> Client {
    let client = extensions.get::<Client>().cloned();
    client.unwrap_or_else(|| Client::direct(IpAddr::V6(Ipv6Addr::UNSPECIFIED)))
}

/// Takes the client out of a request that passed [`identify`] and that nothing else asks for it.
pub(super) fn take(extensions: &mut http::Extensions) -> Client {
    let client = extensions.remove::<Client>();
    client.unwrap_or_else(|| Client::direct(IpAddr::V6(Ipv6Addr::UNSPECIFIED)))
}

/// Follows the hops from the last, which the peer reports, towards the first, for as long as the one
/// that reports is trusted. `passed` gets each of them.
fn walk(
    peer: IpAddr,
    passed: &mut Vec<IpAddr>,
    hops: Vec<Option<IpAddr>>,
    proxies: &TrustedProxies,
) -> IpAddr {
    let mut at = peer;
    for hop in hops.into_iter().rev() {
        match hop {
            Some(address) if proxies.contain(at) => at = address,
            _ => break,
        }
        passed.push(at);
    }
    at
}

fn x_forwarded_for(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    let lines = headers.get_all(X_FORWARDED_FOR).into_iter();
    let entries = lines.flat_map(|line| text(line).split(','));
    entries.map(node).collect()
}

/// The `for` members of `Forwarded` (RFC 7239 §4), one per hop.
fn forwarded(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    let lines = headers.get_all(FORWARDED).into_iter();
    let hops = lines.flat_map(|line| unquoted(text(line), ','));
    let address = |hop: &str| {
        let pairs = unquoted(hop, ';');
        let mut pairs = pairs.iter().filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
        node(value)
    };
    hops.into_iter().map(address).collect()
}

/// Splits where the separator is not in quotes.
fn unquoted(text: &str, separator: char) -> Vec<&str> {
    let mut quoted = false;
    text.split(move |letter| {
        quoted ^= letter == '"';
        letter == separator && !quoted
    })
    .collect()
}

/// What cannot be read as text names no address.
fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or_default()
}

/// An address, with or without port, brackets and quotes.
fn node(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    let address = text.parse::<IpAddr>().ok();
    let address = address.or_else(|| text.parse::<SocketAddr>().ok().map(|it| it.ip()));
    let bare = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    address.or_else(bare).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, trusted: &[&str], headers: &[(&'static str, &'static str)]) -> Client {
        let networks = trusted.iter().map(|network| network.parse().unwrap());
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        let proxies = TrustedProxies::new(networks);
        Client::of(peer.parse().unwrap(), Scheme::HTTP, &map, &proxies)
    }

    fn address(peer: &str, trusted: &[&str], headers: &[(&'static str, &'static str)]) -> String {
        client(peer, trusted, headers).address.to_string()
    }

    #[test]
    fn only_trusted_proxies_are_believed_and_only_about_who_reached_them() {
        let xff = "x-forwarded-for";
        let (one, all) = (&["10.0.0.1/32"][..], &["10.0.0.0/8", "fd00::/8"][..]);
        for (peer, trusted, headers, want) in [
            ("8.8.8.8", one, &[(xff, "1.1.1.1")][..], "8.8.8.8"),
            ("10.0.0.1", &[][..], &[(xff, "1.1.1.1")][..], "10.0.0.1"),
            ("10.0.0.1", one, &[][..], "10.0.0.1"),
            ("10.0.0.1", one, &[(xff, "1.1.1.1")][..], "1.1.1.1"),
            ("10.0.0.1", one, &[(xff, "6.6.6.6, 1.1.1.1")][..], "1.1.1.1"),
            (
                "10.0.0.1",
                one,
                &[(xff, "6.6.6.6"), (xff, "1.1.1.1")][..],
                "1.1.1.1",
            ),
            (
                "10.0.0.1",
                all,
                &[(xff, "6.6.6.6,1.1.1.1 , 10.2.0.9")][..],
                "1.1.1.1",
            ),
            (
                "10.0.0.1",
                one,
                &[(xff, "1.1.1.1,10.2.0.9")][..],
                "10.2.0.9",
            ),
            ("10.0.0.1", one, &[(xff, "1.1.1.1:99")][..], "1.1.1.1"),
            (
                "10.0.0.1",
                one,
                &[(xff, "[2001:db8::1]:99")][..],
                "2001:db8::1",
            ),
            (
                "10.0.0.1",
                one,
                &[(xff, "6.6.6.6, unknown")][..],
                "10.0.0.1",
            ),
            ("10.0.0.1", one, &[(xff, "6.6.6.6,")][..], "10.0.0.1"),
            (
                "::ffff:10.0.0.1",
                one,
                &[(xff, "::ffff:1.1.1.1")][..],
                "1.1.1.1",
            ),
            ("fd00::1", all, &[(xff, "10.1.1.1")][..], "10.1.1.1"),
        ] {
            assert_eq!(address(peer, trusted, headers), want, "{peer} {headers:?}");
        }
    }

    #[test]
    fn the_standard_header_is_read_unless_the_other_is_there() {
        let proxy = &["10.0.0.1/32"];
        for (value, want) in [
            ("for=1.1.1.1;proto=https", "1.1.1.1"),
            ("for=6.6.6.6, By=a;FOR=\"1.1.1.1:80\"", "1.1.1.1"),
            ("for=\"[2001:db8::1]\"", "2001:db8::1"),
            ("for=\"a,for=6.6.6.6\"", "10.0.0.1"),
            ("for=_hidden", "10.0.0.1"),
            ("proto=https", "10.0.0.1"),
        ] {
            assert_eq!(address("10.0.0.1", proxy, &[("forwarded", value)]), want);
        }
        let both = [("forwarded", "for=6.6.6.6"), ("x-forwarded-for", "1.1.1.1")];
        let client = client("10.0.0.1", proxy, &both);
        assert_eq!(client.address.to_string(), "1.1.1.1");
        for suspect in ["10.0.0.1", "1.1.1.1", "6.6.6.6"] {
            assert!(client.may_be(|address| address.to_string() == suspect));
        }
    }

    #[test]
    fn a_scheme_is_believed_of_trusted_proxies_only() {
        let https = [("x-forwarded-proto", "http, https")];
        let scheme = |trusted: &[&str]| client("10.0.0.1", trusted, &https).scheme;
        assert_eq!(scheme(&["10.0.0.0/8"]), Scheme::HTTPS);
        assert_eq!(scheme(&[]), Scheme::HTTP);
    }

    #[test]
    fn addresses_of_one_ipv6_client_count_together() {
        let group = |peer: &str| Client::direct(peer.parse().unwrap()).group().to_string();
        assert_eq!(group("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(group("192.0.2.7"), "192.0.2.7");
    }
}
