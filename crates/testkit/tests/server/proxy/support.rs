//! Sandboxes and what the tests ask of them.

use std::net::{IpAddr, Ipv4Addr};

use osb_protocol::WireTime;
use osb_runtime::{Expiry, Observed};
use osb_testkit::{CannedProgram, TestServer, running_at};
use reqwest::{Method, RequestBuilder};
use serde_json::Value;

/// Address of the sandbox.
pub(crate) const BOX: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 5));
/// What a program in the sandbox answers.
const INSIDE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ninside";

/// A program in the sandbox.
pub(crate) async fn program() -> CannedProgram {
    CannedProgram::start(BOX, INSIDE).await.unwrap()
}

/// A running sandbox that expires in so many seconds.
pub(crate) fn expiring(id: &str, seconds: i64) -> Observed {
    let mut sandbox = running_at(id, BOX, None);
    sandbox.origin.expiry = Expiry::At(in_seconds(seconds));
    sandbox
}

pub(crate) fn in_seconds(seconds: i64) -> WireTime {
    let now = WireTime::new(jiff::Timestamp::now());
    now.plus_seconds(seconds).unwrap()
}

/// A request without the API key to a port of a sandbox.
pub(crate) fn proxied(server: &TestServer, id: &str, port: u16) -> RequestBuilder {
    server.bare(Method::GET, &format!("/v1/sandboxes/{id}/proxy/{port}/x"))
}

/// What the API shows of a sandbox.
pub(crate) async fn shown(server: &TestServer, id: &str) -> Value {
    let request = server.request(Method::GET, &format!("/v1/sandboxes/{id}"));
    request.send().await.unwrap().json().await.unwrap()
}

/// When a sandbox expires.
pub(crate) async fn expiry(server: &TestServer, id: &str) -> WireTime {
    let shown = shown(server, id).await;
    WireTime::parse(shown["expiresAt"].as_str().unwrap()).unwrap()
}
