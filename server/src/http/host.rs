//! The host that a request names.
//!
//! Every request of HTTP/1.1 names exactly one (RFC 9112 §3.2). A server without an API key answers
//! only to names that no stranger can own: otherwise the owner of any name could let it lead here
//! (DNS rebinding), and pages from there would share this server's origin in the visitor's browser.

use std::{net::IpAddr, sync::Arc};

use axum::extract::Request;
use http::{StatusCode, Version, header::HOST, uri::Authority};
use osb_protocol::error::code;

use super::error::ApiError;

/// Top-level domains that public DNS does not have.
const PRIVATE: [&str; 4] = [".localhost", ".local", ".internal", ".home.arpa"];

/// Which hosts are answered.
#[derive(Clone, Debug)]
pub struct AllowedHosts(Option<Arc<[String]>>);

impl AllowedHosts {
    /// Any host: what a request may do depends on a key that browsers do not send by themselves.
    #[must_use]
    pub fn any() -> Self {
        Self(None)
    }

    /// Hosts that no stranger can own, and these: addresses as in `server.eip` or `server.host`.
    #[must_use]
    pub fn own<'a>(named: impl IntoIterator<Item = &'a str>) -> Self {
        let names = named.into_iter().filter_map(|address| {
            let bare = address.split_once("://").map_or(address, |(_, rest)| rest);
            let authority = bare.trim().split('/').next()?.parse::<Authority>().ok()?;
            Some(name_of(&authority))
        });
        Self(Some(names.collect()))
    }

    fn admit(&self, host: &Authority) -> bool {
        let Some(named) = &self.0 else {
            return true;
        };
        let name = name_of(host);
        let address = name.trim_start_matches('[').trim_end_matches(']');
        address.parse::<IpAddr>().is_ok()
            || !name.contains('.')
            || PRIVATE.iter().any(|domain| name.ends_with(domain))
            || named.contains(&name)
    }
}

/// The name without a port, in lower case.
fn name_of(authority: &Authority) -> String {
    let name = authority.host().to_ascii_lowercase();
    name.strip_suffix('.').map(str::to_owned).unwrap_or(name)
}

/// Refuses a request, unless it names one host, which is this server.
pub(super) fn refusal(hosts: &AllowedHosts, request: &Request) -> Option<ApiError> {
    match named(request) {
        Ok(named) if named.iter().all(|host| hosts.admit(host)) => None,
        Ok(_) => Some(ApiError::new(
            StatusCode::MISDIRECTED_REQUEST,
            code::HOST_NOT_ALLOWED,
            "this server runs without an API key and answers only to its address, local names and \
             the host of server.eip",
        )),
        Err(rule) => Some(ApiError::new(
            StatusCode::BAD_REQUEST,
            code::UNKNOWN_ERROR,
            rule,
        )),
    }
}

/// The hosts that a request names: in `Host`, in its target, or in both.
pub(super) fn named(request: &Request) -> Result<Vec<Authority>, &'static str> {
    let mut lines = request.headers().get_all(HOST).into_iter();
    let (line, another) = (lines.next(), lines.next());
    if another.is_some() {
        return Err("the request has more than one Host header");
    }
    if line.is_none() && request.version() == Version::HTTP_11 {
        return Err("the request has no Host header");
    }
    let mut named: Vec<Authority> = request.uri().authority().cloned().into_iter().collect();
    if let Some(line) = line {
        let host = Authority::try_from(line.as_bytes()).ok();
        let host = host.filter(|host| !host.as_str().contains('@'));
        named.push(host.ok_or("the Host header is not a host")?);
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_no_stranger_can_own_are_this_server() {
        let hosts = AllowedHosts::own(["https://Box.example.org:8443/x", "0.0.0.0", ""]);
        let admits = |host: &str| hosts.admit(&host.parse().unwrap());
        for own in [
            "127.0.0.1:8080",
            "[::1]:8080",
            "localhost:8080",
            "a-1.localhost",
            "devbox:8080",
            "host.docker.internal",
            "box.example.org",
            "BOX.example.org.:8080",
        ] {
            assert!(admits(own), "{own}");
        }
        for other in [
            "evil.example:8080",
            "box.example.org.evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "internal.evil.example",
        ] {
            assert!(!admits(other), "{other}");
            assert!(
                AllowedHosts::any().admit(&other.parse().unwrap()),
                "{other}"
            );
        }
    }
}
