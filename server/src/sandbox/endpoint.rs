//! Where a port of a sandbox is reached (contract: lifecycle §6).
//!
//! The runtime says how ([`Reach`]); this module turns that into addresses with the hosts that were
//! decided at start.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use osb_protocol::{SandboxId, headers, lifecycle::Endpoint};
use osb_runtime::{EGRESS_PORT, EXECD_PORT, Phase, Reach, Runtime, Viewpoint};
use secrecy::{ExposeSecret, SecretString};

use super::{Error, Facts, Record, lifecycle::now, state};

/// Name of the header with the token of a sandbox with secure access, in the spelling of the contract.
const SECURE_ACCESS: &str = "OpenSandbox-Secure-Access";

/// What a client asked about an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointQuery {
    /// Wanted port of the sandbox.
    pub port: u16,
    /// Base of the URLs of this server's proxy, without scheme.
    pub proxy_base: String,
    /// Whether the way has to lead through that proxy. A sandbox with secure access has no other.
    pub through_proxy: bool,
}

/// How execd of a sandbox is reached from this server.
#[derive(Clone, Debug)]
pub struct Execd {
    /// Host and port.
    pub authority: String,
    /// Its token.
    pub token: Option<SecretString>,
}

/// Where this server sends traffic for a port.
#[derive(Clone, Debug)]
pub struct Route {
    /// Host and port.
    pub authority: String,
    /// Goes before the path, such as `/proxy/8000` when only execd is reachable.
    pub path_prefix: String,
    /// Whether execd is what is talked to.
    pub is_execd: bool,
}

/// A sandbox that can be talked to, and where.
#[derive(Clone, Debug)]
pub struct Target {
    /// The sandbox.
    pub record: Arc<Record>,
    /// The way to its port.
    pub route: Route,
}

impl Target {
    /// execd's token, when execd is what is talked to.
    #[must_use]
    pub fn execd_token(&self) -> Option<&SecretString> {
        let token = self.record.facts.origin.token.as_ref();
        token.filter(|_| self.route.is_execd)
    }
}

/// Whether a sandbox could answer what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answering {
    /// It runs, for so long without a pause.
    For(Duration),
    /// It is paused.
    Frozen,
    /// It has ended, or has lost its network.
    Gone,
}

/// Whether a sandbox could answer.
#[must_use]
pub fn answering(facts: &Facts) -> Answering {
    match facts.phase {
        _ if facts.lost.is_some() => Answering::Gone,
        Some((Phase::Running, since)) => {
            let micros = now().unix_us().saturating_sub(since.unix_us());
            Answering::For(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
        }
        Some((Phase::Paused, _)) => Answering::Frozen,
        _ => Answering::Gone,
    }
}

/// Hosts under which published ports are reached, as they stand in a URL: literal IPv6 addresses in
/// brackets.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// For clients.
    pub external: String,
    /// For this server itself, when it does not reach sandboxes at their own addresses.
    pub internal: String,
}

/// Answers a client.
///
/// # Errors
/// When the sandbox has no address yet, does not run any more, or has no way in.
pub fn for_client(
    runtime: &dyn Runtime,
    hosts: &Hosts,
    facts: &Facts,
    query: &EndpointQuery,
) -> Result<Endpoint, Error> {
    let id = &facts.origin.id;
    let is_host = facts.address.host_network;
    if facts.phase.is_none() && !is_host {
        return Err(Error::NoAddressYet(id.clone()));
    }
    let port = query.port;
    if has_ended(facts) {
        return Err(not_running(runtime, facts, port));
    }
    let proxied = || format!("{}/sandboxes/{id}/proxy/{port}", query.proxy_base);
    if let Some(secret) = &facts.origin.secure_access {
        let mut headers = BTreeMap::new();
        headers.insert(SECURE_ACCESS.to_owned(), secret.expose_secret().to_owned());
        if port == EXECD_PORT {
            headers.extend(execd_header(facts));
        }
        headers.extend(egress_header(facts, port));
        let endpoint = proxied();
        return Ok(Endpoint { endpoint, headers });
    }
    let reach = match reach(runtime, facts, port, Viewpoint::Client)? {
        // Endpoints end with the requested port, so execd's own goes through its proxy too.
        Reach::Published(outside) if port == EXECD_PORT => Reach::ThroughExecd(outside),
        reach => reach,
    };
    let needs_token = port == EXECD_PORT || matches!(reach, Reach::ThroughExecd(_));
    let execd = execd_header(facts).filter(|_| needs_token);
    let headers = execd.into_iter().chain(egress_header(facts, port));
    let headers = headers.collect();
    let endpoint = match query.through_proxy {
        true => proxied(),
        false => {
            let (authority, path) = address(reach, port, &hosts.external);
            authority + &path
        }
    };
    Ok(Endpoint { endpoint, headers })
}

/// The header with execd's token.
fn execd_header(facts: &Facts) -> Option<(String, String)> {
    let token = facts.origin.token.as_ref()?;
    // Names are shown in the spelling of the contract.
    let name = headers::EXECD_ACCESS_TOKEN.to_ascii_uppercase();
    Some((name, token.expose_secret().to_owned()))
}

/// The header with the token of the sidecar that enforces the network policy, for the port of its
/// API (contract: egress §13.5).
fn egress_header(facts: &Facts, port: u16) -> Option<(String, String)> {
    let token = facts.origin.egress_token.as_ref();
    let token = token.filter(|_| port == EGRESS_PORT)?;
    let name = headers::EGRESS_AUTH.to_ascii_uppercase();
    Some((name, token.expose_secret().to_owned()))
}

/// Where the proxy of this server sends traffic.
///
/// # Errors
/// As [`for_client`], and when the sandbox does not run.
pub fn for_proxy(
    runtime: &dyn Runtime,
    hosts: &Hosts,
    facts: &Facts,
    port: u16,
) -> Result<Route, Error> {
    require_running(runtime, facts, port)?;
    let reach = reach(runtime, facts, port, Viewpoint::Server)?;
    let is_execd = port == EXECD_PORT || matches!(reach, Reach::ThroughExecd(_));
    let (authority, path_prefix) = address(reach, port, server_host(facts, hosts));
    Ok(Route {
        authority,
        path_prefix,
        is_execd,
    })
}

/// The way to a port through execd's proxy, which reaches programs on the sandbox's loopback interface
/// as well. `None` if the port's own way leads to execd, or if there is no way to execd.
#[must_use]
pub fn through_execd(
    runtime: &dyn Runtime,
    hosts: &Hosts,
    target: &Target,
    port: u16,
) -> Option<Target> {
    if target.route.is_execd {
        return None;
    }
    let execd = for_proxy(runtime, hosts, &target.record.facts, EXECD_PORT).ok()?;
    let route = Route {
        path_prefix: execd.path_prefix + &execd_path(port),
        ..execd
    };
    let record = Arc::clone(&target.record);
    Some(Target { record, route })
}

/// Path of a port behind execd's proxy.
#[must_use]
pub fn execd_path(port: u16) -> String {
    format!("/proxy/{port}")
}

/// How this server reaches a sandbox's execd.
///
/// # Errors
/// As [`for_proxy`].
pub fn for_execd(runtime: &dyn Runtime, hosts: &Hosts, facts: &Facts) -> Result<Execd, Error> {
    let route = for_proxy(runtime, hosts, facts, EXECD_PORT)?;
    Ok(Execd {
        authority: route.authority,
        token: facts.origin.token.clone(),
    })
}

/// A sandbox that does not run, or has lost its network, is not talked to: its address and its
/// published ports may be another sandbox's by now.
fn require_running(runtime: &dyn Runtime, facts: &Facts, port: u16) -> Result<(), Error> {
    match facts.phase {
        _ if has_ended(facts) => Err(not_running(runtime, facts, port)),
        Some((Phase::Running | Phase::Restarting, _)) => Ok(()),
        // A connection would be accepted by the kernel, and wait until the sandbox is resumed.
        Some((Phase::Paused, _)) => Err(Error::Paused(facts.origin.id.clone())),
        Some(_) => Err(not_running(runtime, facts, port)),
        None => Err(Error::NoAddressYet(facts.origin.id.clone())),
    }
}

/// Whether nothing of the sandbox will answer any more, unless the operator starts its container again.
fn has_ended(facts: &Facts) -> bool {
    facts.lost.is_some() || matches!(facts.phase, Some((Phase::Exited(_), _)))
}

fn not_running(runtime: &dyn Runtime, facts: &Facts, port: u16) -> Error {
    let status = state::status(facts, &runtime.vocabulary().reasons);
    Error::NotRunning {
        id: facts.origin.id.clone(),
        port,
        status: status.message.unwrap_or_default(),
        last_output: String::new(),
    }
}

fn reach(runtime: &dyn Runtime, facts: &Facts, port: u16, from: Viewpoint) -> Result<Reach, Error> {
    let reach = runtime.reach(&facts.address, port, from);
    reach.map_err(|no_route| unreachable(&facts.origin.id, port, no_route.0))
}

/// Ports of the host's own network answer on loopback, whatever this server listens on.
fn server_host<'a>(facts: &Facts, hosts: &'a Hosts) -> &'a str {
    if facts.address.host_network {
        "127.0.0.1"
    } else {
        &hosts.internal
    }
}

/// Authority and path of a port; ports of the host are those of `host`.
fn address(reach: Reach, port: u16, host: &str) -> (String, String) {
    match reach {
        Reach::HostNetwork => (format!("{host}:{port}"), String::new()),
        Reach::Published(outside) => (format!("{host}:{outside}"), String::new()),
        Reach::Direct(ip) => (SocketAddr::new(ip, port).to_string(), String::new()),
        Reach::ThroughExecd(execd) => (format!("{host}:{execd}"), execd_path(port)),
        Reach::Gateway { authority, path } => (authority, path),
    }
}

fn unreachable(id: &SandboxId, port: u16, reason: &'static str) -> Error {
    Error::Unreachable {
        id: id.clone(),
        port,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use osb_runtime::{Address, Phase, Ports, Vocabulary, sim::SimRuntime};

    use super::*;
    use crate::sandbox::state::tests::{at, facts};

    fn hosts() -> Hosts {
        Hosts {
            external: "box.example".into(),
            internal: "127.0.0.1".into(),
        }
    }

    fn live() -> Facts {
        let mut facts = facts();
        facts.phase = Some((Phase::Running, at(20)));
        Arc::make_mut(&mut facts.origin).token = Some(SecretString::from("t"));
        facts.address = Address {
            host_network: false,
            ip: Some("172.20.0.2".parse().unwrap()),
            ports: Ports {
                execd: Some(40001),
                http: Some(40002),
            },
        };
        facts
    }

    fn client_endpoint(facts: &Facts, port: u16, base: Option<&str>) -> Result<Endpoint, Error> {
        let query = EndpointQuery {
            port,
            proxy_base: base.unwrap_or("own.example").to_owned(),
            through_proxy: base.is_some(),
        };
        for_client(&SimRuntime::new(), &hosts(), facts, &query)
    }

    fn proxy_target(facts: &Facts, port: u16) -> Result<Route, Error> {
        for_proxy(&SimRuntime::new(), &hosts(), facts, port)
    }

    #[test]
    fn endpoints_end_with_the_requested_port_and_bring_their_token() {
        let facts = live();
        let client = |port, base| {
            let endpoint = client_endpoint(&facts, port, base).unwrap();
            (endpoint.endpoint, endpoint.headers.len())
        };
        let execd = "box.example:40001/proxy/44772".to_owned();
        assert_eq!(client(44772, None), (execd, 1));
        let egress = "box.example:40001/proxy/18080".to_owned();
        assert_eq!(client(18080, None), (egress, 1));
        assert_eq!(client(8080, None), ("box.example:40002".into(), 0));
        let proxied = "s.example/v1/sandboxes/a/proxy/44772".to_owned();
        assert_eq!(client(44772, Some("s.example/v1")), (proxied, 1));
    }

    #[test]
    fn no_address_yet_and_no_way_in_are_different_errors() {
        let pending = client_endpoint(&facts(), 44772, None).unwrap_err();
        assert!(matches!(pending, Error::NoAddressYet(_)));
        let mut odd = live();
        odd.address.ports = Ports::default();
        let error = client_endpoint(&odd, 44772, None).unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }));
    }

    #[test]
    fn the_proxy_goes_to_the_container_or_through_execd() {
        let facts = live();
        let direct = proxy_target(&facts, 8000).unwrap();
        assert_eq!(direct.authority, "172.20.0.2:8000");
        assert!(!direct.is_execd);
        let execd = proxy_target(&facts, 44772).unwrap();
        assert_eq!(execd.authority, "172.20.0.2:44772");
        assert!(execd.is_execd);
        let mut published = live();
        published.address.ip = None;
        let through = proxy_target(&published, 8000).unwrap();
        assert_eq!(through.authority, "127.0.0.1:40001");
        assert_eq!(through.path_prefix, "/proxy/8000");
        assert!(through.is_execd);
        let execd = for_execd(&SimRuntime::new(), &hosts(), &published).unwrap();
        assert_eq!(execd.authority, "127.0.0.1:40001");
        assert!(execd.token.is_some());
    }

    #[test]
    fn a_port_has_a_second_way_through_execd_unless_its_own_leads_there() {
        let second = |facts: &Facts, port| {
            let route = proxy_target(facts, port).unwrap();
            let reasons = &Vocabulary::CONTAINERS.reasons;
            let record = Arc::new(Record::derive(facts.clone(), 1, reasons));
            let target = Target { record, route };
            through_execd(&SimRuntime::new(), &hosts(), &target, port)
        };
        let facts = live();
        let through = second(&facts, 8000).unwrap();
        assert_eq!(through.route.authority, "172.20.0.2:44772");
        assert_eq!(through.route.path_prefix, "/proxy/8000");
        assert!(through.execd_token().is_some());
        assert!(second(&facts, 44772).is_none());
        let mut published = live();
        published.address.ip = None;
        assert!(second(&published, 8000).is_none());
    }

    #[test]
    fn every_way_to_a_sandbox_with_secure_access_leads_through_the_proxy() {
        let mut facts = live();
        Arc::make_mut(&mut facts.origin).secure_access = Some(SecretString::from("s"));
        facts.address.ports = Ports::default();
        for (port, base, want, headers) in [
            (8080, None, "own.example/sandboxes/a/proxy/8080", 1),
            (18080, Some("h/v1"), "h/v1/sandboxes/a/proxy/18080", 1),
            (44772, None, "own.example/sandboxes/a/proxy/44772", 2),
        ] {
            let endpoint = client_endpoint(&facts, port, base).unwrap();
            assert_eq!(endpoint.endpoint, want);
            assert_eq!(endpoint.headers["OpenSandbox-Secure-Access"], "s");
            assert_eq!(endpoint.headers.len(), headers, "{port}");
        }
        let direct = proxy_target(&facts, 8080).unwrap();
        assert_eq!(direct.authority, "172.20.0.2:8080");
    }

    #[test]
    fn only_the_port_of_the_sidecar_brings_its_token() {
        const NAME: &str = "OPENSANDBOX-EGRESS-AUTH";
        let mut facts = live();
        Arc::make_mut(&mut facts.origin).egress_token = Some(SecretString::from("e"));
        for base in [None, Some("s.example/v1")] {
            for (port, token) in [(18080, Some("e")), (44772, None), (8080, None), (80, None)] {
                let endpoint = client_endpoint(&facts, port, base).unwrap();
                let seen = endpoint.headers.get(NAME).map(String::as_str);
                assert_eq!(seen, token, "{port} {base:?}");
            }
        }
        let direct = client_endpoint(&facts, 18080, None).unwrap();
        assert_eq!(direct.endpoint, "box.example:40001/proxy/18080");
        assert!(direct.headers.contains_key("X-EXECD-ACCESS-TOKEN"));
        Arc::make_mut(&mut facts.origin).secure_access = Some(SecretString::from("s"));
        facts.address.ports = Ports::default();
        let secured = client_endpoint(&facts, 18080, None).unwrap();
        assert_eq!(secured.headers[NAME], "e");
        assert_eq!(secured.headers["OpenSandbox-Secure-Access"], "s");
    }

    #[test]
    fn the_time_before_a_resume_does_not_count_as_silence() {
        let mut facts = live();
        facts.set_phase(Phase::Running, now());
        assert!(
            matches!(answering(&facts), Answering::For(time) if time < Duration::from_secs(60))
        );
        facts.freeze(true, now());
        assert_eq!(answering(&facts), Answering::Frozen);
        facts.freeze(false, now());
        assert!(
            matches!(answering(&facts), Answering::For(time) if time < Duration::from_secs(60))
        );
        facts.set_phase(Phase::Exited(0), now());
        assert_eq!(answering(&facts), Answering::Gone);
    }

    #[test]
    fn a_sandbox_on_the_hosts_network_has_the_hosts_ports() {
        let mut facts = live();
        facts.address = Address {
            host_network: true,
            ..Address::default()
        };
        let endpoint = client_endpoint(&facts, 44772, None).unwrap();
        assert_eq!(endpoint.endpoint, "box.example:44772");
        assert_eq!(endpoint.headers.len(), 1);
        assert_eq!(
            proxy_target(&facts, 8000).unwrap().authority,
            "127.0.0.1:8000"
        );
    }

    #[test]
    fn a_gateway_brings_its_own_address() {
        let gateway = Reach::Gateway {
            authority: "gate.example".into(),
            path: "/s/a/8000".into(),
        };
        let parts = address(gateway, 8000, "box.example");
        assert_eq!(parts, ("gate.example".into(), "/s/a/8000".into()));
    }

    #[test]
    fn a_sandbox_that_lost_its_network_is_not_talked_to() {
        let mut lost = live();
        assert!(matches!(answering(&lost), Answering::For(_)));
        lost.mark_lost(osb_runtime::Role::Egress, at(30));
        for port in [18080, 44772, 8000] {
            let proxied = proxy_target(&lost, port);
            assert!(
                matches!(proxied, Err(Error::NotRunning { .. })),
                "{proxied:?}"
            );
        }
        assert_eq!(answering(&lost), Answering::Gone);
    }

    #[test]
    fn a_paused_sandbox_keeps_its_endpoints_and_is_not_talked_to() {
        let mut paused = live();
        paused.freeze(true, at(30));
        let endpoint = |facts| client_endpoint(facts, 8080, None).unwrap().endpoint;
        assert_eq!(endpoint(&paused), endpoint(&live()));
        let proxied = proxy_target(&paused, 8000);
        assert!(matches!(proxied, Err(Error::Paused(_))), "{proxied:?}");
        let execd = for_execd(&SimRuntime::new(), &hosts(), &paused);
        assert!(matches!(execd, Err(Error::Paused(_))), "{execd:?}");
    }

    #[test]
    fn an_ended_sandbox_is_not_talked_to() {
        let mut ended = live();
        ended.set_phase(Phase::Exited(0), at(30));
        assert_eq!(ended.address.ip, None);
        let proxied = proxy_target(&ended, 8000);
        assert!(matches!(proxied, Err(Error::NotRunning { .. })));
        let execd = for_execd(&SimRuntime::new(), &hosts(), &ended);
        assert!(matches!(execd, Err(Error::NotRunning { .. })));
    }

    #[test]
    fn clients_of_an_ended_sandbox_learn_how_it_ended() {
        for ports in [Ports::default(), live().address.ports] {
            let mut ended = live();
            ended.address.ports = ports;
            ended.set_phase(Phase::Exited(127), at(30));
            for port in [44772, 18080, 8080, 8000] {
                for base in [None, Some("s.example/v1")] {
                    let error = client_endpoint(&ended, port, base).unwrap_err();
                    assert!(matches!(error, Error::NotRunning { .. }), "{error:?}");
                    let text = error.to_string();
                    assert!(text.contains("exit code 127"), "{text}");
                }
                Arc::make_mut(&mut ended.origin).secure_access = Some(SecretString::from("s"));
            }
            let mut lost = live();
            lost.mark_lost(osb_runtime::Role::Egress, at(30));
            let text = client_endpoint(&lost, 44772, None).unwrap_err().to_string();
            assert!(text.contains("egress container ended"), "{text}");
        }
    }
}
