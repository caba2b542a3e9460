//! What is changed about the headers on the way.

use std::{borrow::Cow, net::IpAddr};

use http::{
    HeaderMap, HeaderName, HeaderValue, Uri,
    header::{CONTENT_LENGTH, FORWARDED, HOST, LOCATION, TRANSFER_ENCODING},
};

use crate::headers;

/// How headers are changed. Hop-by-hop headers are always removed, both ways.
#[derive(Clone, Debug, Default)]
pub struct HeaderRules {
    /// Request headers the backend must not see.
    pub drop_request: Cow<'static, [HeaderName]>,
    /// Response headers the client must not see, for example `server`.
    pub drop_response: Cow<'static, [HeaderName]>,
    /// Request headers that replace the client's, after everything else.
    pub set_request: HeaderMap,
    /// Which `Host` the backend sees.
    pub host: Host,
    /// What the backend learns about the client.
    pub forwarded: Forwarded,
    /// Taken from the beginning of a `Location` first: what the backend, a proxy itself, put there;
    /// without a trailing slash.
    pub location_strip: Option<String>,
    /// Put before a `Location` that starts with a single `/`; without a trailing slash.
    pub location_prefix: Option<String>,
}

/// Which `Host` the backend sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Host {
    /// The one of the target.
    #[default]
    OfTarget,
    /// The one of the client.
    Keep,
}

/// What the backend learns about the client, in `X-Forwarded-*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Forwarded {
    /// What the client wrote.
    #[default]
    Keep,
    /// What the client wrote is thrown away; `X-Forwarded-For`, `-Proto` and, from the client's
    /// `Host`, `-Host` are made anew. For a proxy that faces clients.
    Rebuild(Peer),
    /// The peer is appended to `X-Forwarded-For`, which becomes a single line; `-Proto` is set where
    /// it is absent. For a proxy behind another one.
    Append(Peer),
}

/// Who sent a request and over what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address of the connection.
    pub address: IpAddr,
    /// `http` or `https`.
    pub scheme: http::uri::Scheme,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Everything a client might use to lie about where it is. contract: lifecycle §7.5
static FORWARDED_FAMILY: [HeaderName; 6] = [
    FORWARDED,
    X_FORWARDED_FOR,
    X_FORWARDED_HOST,
    HeaderName::from_static("x-forwarded-port"),
    X_FORWARDED_PROTO,
    HeaderName::from_static("x-real-ip"),
];

impl HeaderRules {
    /// Turns the client's headers into the backend's. `uri` is the client's.
    pub(crate) fn apply_to_request(&self, headers: &mut HeaderMap, uri: &Uri) {
        let host = headers.remove(HOST).or_else(|| authority_of(uri));
        if headers.contains_key(TRANSFER_ENCODING) {
            // RFC 9112 §6.3: the length, if any, is wrong, and a way to smuggle requests.
            headers.remove(CONTENT_LENGTH);
        }
        headers::strip_hop_by_hop(headers);
        for name in &*self.drop_request {
            headers.remove(name);
        }
        self.forwarded.apply(headers, host.as_ref());
        if let (Host::Keep, Some(host)) = (self.host, host) {
            headers.insert(HOST, host);
        }
        for (name, value) in &self.set_request {
            headers.insert(name, value.clone());
        }
    }

    /// Turns the backend's headers into the client's.
    pub(crate) fn apply_to_response(&self, headers: &mut HeaderMap) {
        if headers.contains_key(TRANSFER_ENCODING) {
            // As for requests: the body has the length that its chunks give it.
            headers.remove(CONTENT_LENGTH);
        }
        headers::strip_hop_by_hop(headers);
        for name in &*self.drop_response {
            headers.remove(name);
        }
        if let Some(location) = headers.get_mut(LOCATION)
            && let Some(moved) = self.moved(location.as_bytes())
        {
            *location = moved;
        }
    }

    /// The client's `Location` for that of the backend.
    fn moved(&self, location: &[u8]) -> Option<HeaderValue> {
        let strip = self.location_strip.as_deref().unwrap_or_default();
        let rest = location.strip_prefix(strip.as_bytes());
        let rest = rest.filter(|rest| rest.starts_with(b"/"));
        let location = rest.unwrap_or(location);
        let prefix = self.location_prefix.as_deref().unwrap_or_default();
        let is_rooted = location.starts_with(b"/") && !location.starts_with(b"//");
        let prefix = if is_rooted { prefix } else { "" };
        HeaderValue::from_bytes(&[prefix.as_bytes(), location].concat()).ok()
    }
}

impl Forwarded {
    fn apply(&self, headers: &mut HeaderMap, host: Option<&HeaderValue>) {
        match self {
            Self::Keep => {}
            Self::Rebuild(peer) => {
                for name in &FORWARDED_FAMILY {
                    headers.remove(name);
                }
                headers.insert(X_FORWARDED_FOR, ascii(&peer.address.to_string()));
                headers.insert(X_FORWARDED_PROTO, ascii(peer.scheme.as_str()));
                if let Some(host) = host {
                    headers.insert(X_FORWARDED_HOST, host.clone());
                }
            }
            Self::Append(peer) => {
                headers.append(X_FORWARDED_FOR, ascii(&peer.address.to_string()));
                // Many servers read the first line of several.
                headers::join(headers, &X_FORWARDED_FOR, b", ");
                headers
                    .entry(X_FORWARDED_PROTO)
                    .or_insert_with(|| ascii(peer.scheme.as_str()));
            }
        }
    }
}

/// HTTP/2 clients and absolute-form requests name the host in the URI.
fn authority_of(uri: &Uri) -> Option<HeaderValue> {
    HeaderValue::from_str(uri.authority()?.as_str()).ok()
}

fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("addresses and schemes are visible ASCII")
}
