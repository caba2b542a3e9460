//! Headers that belong to one connection and must not travel further (RFC 9110 §7.6.1).

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        CONNECTION, COOKIE, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
        TRANSFER_ENCODING, UPGRADE,
    },
};

/// contract: lifecycle §7.5
static HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Removes the hop-by-hop headers and those that `Connection` names.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = connection_options(headers)
        .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Whether the body of a message can be forwarded: it has no transfer coding other than `chunked`,
/// which the HTTP library decodes. With any other the client would get encoded bytes without the
/// `Transfer-Encoding` header, which is not forwarded.
pub(crate) fn has_plain_transfer(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).into_iter();
    match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(only), None) => only
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"chunked"),
        _ => false,
    }
}

/// Returns the protocol that a message requests in `Upgrade`, if `Connection` names that header.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    connection_options(headers)
        .any(|option| option.eq_ignore_ascii_case("upgrade"))
        .then(|| headers.get(UPGRADE).cloned())
        .flatten()
}

/// Protocols that carry requests: HTTP itself, in any version, and TLS in front of it (RFC 2817).
const CARRY_REQUESTS: [&str; 4] = ["h2c", "h2", "http", "tls"];

/// Whether any protocol that a message offers in `Upgrade` carries requests. A backend may choose any of
/// the list, and a value that cannot be read may be one of them.
pub(crate) fn offers_http(headers: &HeaderMap) -> bool {
    let carries_requests = |protocol: &str| {
        let name = protocol.split('/').next().unwrap_or_default().trim();
        CARRY_REQUESTS
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
    };
    headers.get_all(UPGRADE).into_iter().any(|value| {
        let text = value.to_str();
        text.map_or(true, |text| text.split(',').any(carries_requests))
    })
}

/// Adds the headers that request or accept an upgrade.
pub(crate) fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// HTTP/2 clients may send one cookie per line; HTTP/1.1 has a single line (RFC 9113 §8.2.3).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    join(headers, &COOKIE, b"; ");
}

/// Joins all lines of a header into one, in order. Empty lines are left out.
pub(crate) fn join(headers: &mut HeaderMap, name: &HeaderName, separator: &[u8]) {
    let lines: Vec<&[u8]> = headers
        .get_all(name)
        .into_iter()
        .map(HeaderValue::as_bytes)
        .filter(|line| !line.is_empty())
        .collect();
    if !lines.is_empty()
        && let Ok(whole) = HeaderValue::from_bytes(&lines.join(separator))
    {
        headers.insert(name, whole);
    }
}

fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(CONNECTION)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|option| !option.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        headers
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn connection_headers_and_those_it_names_are_removed() {
        let mut headers = map(&[
            ("connection", "keep-alive, X-One"),
            ("connection", ",x-two ,"),
            ("x-one", "1"),
            ("x-two", "2"),
            ("x-three", "3"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
        ]);
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers, map(&[("x-three", "3")]));
    }

    #[test]
    fn an_upgrade_needs_both_headers() {
        let both = map(&[("connection", "keep-alive, Upgrade"), ("upgrade", "vnc")]);
        assert_eq!(upgrade(&both).unwrap(), "vnc");
        assert_eq!(upgrade(&map(&[("upgrade", "vnc")])), None);
        assert_eq!(upgrade(&map(&[("connection", "upgrade")])), None);
    }

    #[test]
    fn http_is_found_anywhere_in_an_offer() {
        for offer in [
            &["h2c"][..],
            &["H2C"],
            &["h2c, x"],
            &["x,h2c"],
            &["x , h2c/1.0 ,y"],
            &["x", "h2c"],
            &["HTTP/2.0"],
            &["TLS/1.0, HTTP/1.1"],
        ] {
            let lines: Vec<_> = offer.iter().map(|line| ("upgrade", *line)).collect();
            assert!(offers_http(&map(&lines)), "{offer:?}");
        }
        for offer in ["websocket", "vnc, x", "h2cx", "http-like"] {
            assert!(!offers_http(&map(&[("upgrade", offer)])), "{offer}");
        }
        let mut unreadable = HeaderMap::new();
        unreadable.insert(UPGRADE, HeaderValue::from_bytes(b"\xff").unwrap());
        assert!(offers_http(&unreadable));
    }
}
