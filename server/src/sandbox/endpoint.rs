//! Where a port of a sandbox is reached (contract: lifecycle §6).

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr, UdpSocket},
    path::Path,
};

use osb_protocol::{SandboxId, headers, lifecycle::Endpoint};
use osb_runtime::{EXECD_PORT, HTTP_PORT, Phase};
use secrecy::{ExposeSecret, SecretString};

use super::{Error, Facts};

/// What a client asked about an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointQuery {
    /// Wanted port of the sandbox.
    pub port: u16,
    /// Route through this server: the base of the proxy URL, without scheme.
    pub server_proxy: Option<String>,
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
pub struct Target {
    /// Host and port.
    pub authority: String,
    /// Goes before the path, such as `/proxy/8000` when only execd is reachable.
    pub path_prefix: String,
    /// execd's token, when execd is what is talked to.
    pub token: Option<SecretString>,
}

/// Hosts under which published ports are reached, as they stand in a URL: literal IPv6 addresses in
/// brackets.
#[derive(Clone, Debug)]
pub struct PublicHost {
    /// For clients.
    pub external: String,
    /// For this server itself, when it does not reach sandboxes at their own addresses.
    pub internal: String,
    /// Whether this server reaches sandboxes at their own addresses.
    pub resolve_internal: bool,
}

impl PublicHost {
    /// Decides the hosts (contract: lifecycle §6.1, §6.3).
    #[must_use]
    pub fn decide(
        eip: Option<&str>,
        host: &str,
        docker_host_ip: Option<&str>,
        resolve_internal: bool,
    ) -> Self {
        let given = |text: Option<&str>| {
            text.map(str::trim)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let in_container = in_container();
        let wildcard = matches!(host, "" | "0.0.0.0" | "::");
        let loopback = matches!(host, "127.0.0.1" | "::1" | "localhost");
        let host_ip = given(docker_host_ip).filter(|_| in_container);
        let own = (!(wildcard || loopback && host_ip.is_some())).then(|| host.to_owned());
        let internal = own
            .clone()
            .or_else(|| host_ip.clone())
            .unwrap_or_else(|| "127.0.0.1".to_owned());
        let external = given(eip)
            .map(|eip| host_of(&eip).to_owned())
            .or(own)
            .or(host_ip)
            .unwrap_or_else(outward_address);
        Self {
            external: in_url(external),
            internal: in_url(internal),
            resolve_internal,
        }
    }
}

/// A literal IPv6 address gets the brackets that tell it from the port after it.
fn in_url(host: String) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{host}]"),
        Err(_) => host,
    }
}

/// The host of an address like `https://host:port/path`: published ports have ports of their own.
fn host_of(address: &str) -> &str {
    let bare = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = bare.split('/').next().unwrap_or(bare);
    match authority.rfind(':') {
        // Without brackets there is no port.
        Some(_) if authority.parse::<Ipv6Addr>().is_ok() => authority,
        // Not within the brackets of an IPv6 address.
        Some(colon) if !authority[colon..].contains(']') => &authority[..colon],
        _ => authority,
    }
}

/// Whether this process runs in a container.
fn in_container() -> bool {
    const KINDS: [&str; 6] = [
        "podman",
        "docker",
        "oci",
        "lxc",
        "lxc-libvirt",
        "systemd-nspawn",
    ];
    Path::new("/.dockerenv").exists()
        || Path::new("/run/.containerenv").exists()
        || ["container", "CONTAINER"]
            .iter()
            .filter_map(|name| std::env::var(name).ok())
            .any(|kind| KINDS.contains(&kind.as_str()))
}

/// The address that packets to the outside would leave from. Nothing is sent.
fn outward_address() -> String {
    let address = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("8.8.8.8:80")?;
        socket.local_addr()
    });
    match address {
        Ok(address) if !address.ip().is_unspecified() => address.ip().to_string(),
        _ => "127.0.0.1".to_owned(),
    }
}

/// Answers a client.
///
/// # Errors
/// When the sandbox has no address yet or no way in.
pub fn for_client(
    facts: &Facts,
    query: &EndpointQuery,
    hosts: &PublicHost,
) -> Result<Endpoint, Error> {
    let direct = published(facts, query.port, &hosts.external)?;
    let mut headers = BTreeMap::new();
    if let (true, Some(token)) = (direct.through_execd, &facts.origin.token) {
        let token = token.expose_secret().to_owned();
        headers.insert(headers_name(headers::EXECD_ACCESS_TOKEN), token);
    }
    let endpoint = match &query.server_proxy {
        Some(base) => format!("{base}/sandboxes/{}/proxy/{}", facts.origin.id, query.port),
        None => direct.address,
    };
    Ok(Endpoint { endpoint, headers })
}

/// Names are shown in the spelling of the contract.
fn headers_name(name: &str) -> String {
    name.to_ascii_uppercase()
}

/// Where the proxy of this server sends traffic.
///
/// # Errors
/// As [`for_client`].
pub fn for_proxy(facts: &Facts, port: u16, hosts: &PublicHost) -> Result<Target, Error> {
    running(facts, port)?;
    let to_execd = port == EXECD_PORT;
    let target = |authority: String, path_prefix: String, through_execd: bool| Target {
        authority,
        path_prefix,
        token: facts.origin.token.clone().filter(|_| through_execd),
    };
    if facts.address.host_network {
        return Ok(target(format!("127.0.0.1:{port}"), String::new(), to_execd));
    }
    if let (true, Some(ip)) = (hosts.resolve_internal, facts.address.ip) {
        return Ok(target(with_port(ip, port), String::new(), to_execd));
    }
    let published = published(facts, port, &hosts.internal)?;
    let (authority, prefix) = match published.address.split_once('/') {
        Some((authority, path)) => (authority.to_owned(), format!("/{path}")),
        None => (published.address, String::new()),
    };
    Ok(target(authority, prefix, published.through_execd))
}

/// How this server reaches a sandbox's execd.
///
/// # Errors
/// As [`for_client`].
pub fn for_execd(facts: &Facts, hosts: &PublicHost) -> Result<Execd, Error> {
    running(facts, EXECD_PORT)?;
    let authority = match (facts.address.host_network, facts.address.ip) {
        (true, _) => format!("127.0.0.1:{EXECD_PORT}"),
        (false, Some(ip)) if hosts.resolve_internal => with_port(ip, EXECD_PORT),
        _ => format!("{}:{}", hosts.internal, execd_port(facts)?),
    };
    Ok(Execd {
        authority,
        token: facts.origin.token.clone(),
    })
}

/// What does not run is not talked to: its address may be another sandbox's by now.
fn running(facts: &Facts, port: u16) -> Result<(), Error> {
    match facts.phase {
        Some((Phase::Running | Phase::Paused | Phase::Restarting, _)) => Ok(()),
        Some(_) => Err(unreachable(&facts.origin.id, port, "it does not run")),
        None => Err(Error::NoAddressYet(facts.origin.id.clone())),
    }
}

struct Published {
    address: String,
    through_execd: bool,
}

/// The address by published ports: 8080 directly, all others through execd's own proxy.
fn published(facts: &Facts, port: u16, host: &str) -> Result<Published, Error> {
    if facts.address.host_network {
        let address = format!("{host}:{port}");
        return Ok(Published {
            address,
            through_execd: port == EXECD_PORT,
        });
    }
    if facts.phase.is_none() {
        return Err(Error::NoAddressYet(facts.origin.id.clone()));
    }
    if port == HTTP_PORT {
        let reason = "port 8080 is not published";
        let outside = facts
            .address
            .ports
            .http
            .ok_or_else(|| unreachable(&facts.origin.id, port, reason))?;
        return Ok(Published {
            address: format!("{host}:{outside}"),
            through_execd: false,
        });
    }
    let address = format!("{host}:{}/proxy/{port}", execd_port(facts)?);
    Ok(Published {
        address,
        through_execd: true,
    })
}

fn execd_port(facts: &Facts) -> Result<u16, Error> {
    let reason = "its execd is not published";
    facts
        .address
        .ports
        .execd
        .ok_or_else(|| unreachable(&facts.origin.id, EXECD_PORT, reason))
}

fn unreachable(id: &SandboxId, port: u16, reason: &'static str) -> Error {
    Error::Unreachable {
        id: id.clone(),
        port,
        reason,
    }
}

fn with_port(ip: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(ip, port).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use osb_runtime::{Address, Phase, Ports};

    use super::*;
    use crate::sandbox::state::tests::{at, facts};

    fn hosts() -> PublicHost {
        PublicHost {
            external: "box.example".into(),
            internal: "127.0.0.1".into(),
            resolve_internal: true,
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

    fn client(facts: &Facts, port: u16, base: Option<&str>) -> (String, usize) {
        let query = EndpointQuery {
            port,
            server_proxy: base.map(str::to_owned),
        };
        let endpoint = for_client(facts, &query, &hosts()).unwrap();
        (endpoint.endpoint, endpoint.headers.len())
    }

    #[test]
    fn endpoints_end_with_the_requested_port_and_bring_their_token() {
        let facts = live();
        assert_eq!(
            client(&facts, 44772, None),
            ("box.example:40001/proxy/44772".into(), 1)
        );
        assert_eq!(
            client(&facts, 18080, None),
            ("box.example:40001/proxy/18080".into(), 1)
        );
        assert_eq!(client(&facts, 8080, None), ("box.example:40002".into(), 0));
        let base = Some("s.example/v1");
        let want = "s.example/v1/sandboxes/a/proxy/44772";
        assert_eq!(client(&facts, 44772, base), (want.into(), 1));
    }

    #[test]
    fn a_sandbox_without_address_is_told_apart_from_one_without_a_way_in() {
        let query = EndpointQuery {
            port: 44772,
            server_proxy: None,
        };
        let pending = for_client(&facts(), &query, &hosts()).unwrap_err();
        assert!(matches!(pending, Error::NoAddressYet(_)));
        let mut odd = live();
        odd.address.ports = Ports::default();
        let error = for_client(&odd, &query, &hosts()).unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }));
    }

    #[test]
    fn the_proxy_goes_to_the_container_or_through_execd() {
        let facts = live();
        let direct = for_proxy(&facts, 8000, &hosts()).unwrap();
        assert_eq!(
            (direct.authority.as_str(), direct.token.is_some()),
            ("172.20.0.2:8000", false)
        );
        let execd = for_proxy(&facts, 44772, &hosts()).unwrap();
        assert_eq!(
            (execd.authority.as_str(), execd.token.is_some()),
            ("172.20.0.2:44772", true)
        );
        let far = PublicHost {
            resolve_internal: false,
            ..hosts()
        };
        let through = for_proxy(&facts, 8000, &far).unwrap();
        assert_eq!(
            (
                through.authority.as_str(),
                through.path_prefix.as_str(),
                through.token.is_some()
            ),
            ("127.0.0.1:40001", "/proxy/8000", true)
        );
        assert_eq!(
            for_execd(&facts, &far).unwrap().authority,
            "127.0.0.1:40001"
        );
    }

    #[test]
    fn what_has_ended_is_not_talked_to() {
        let mut ended = live();
        ended.set_phase(Phase::Exited(0), at(30));
        assert_eq!(ended.address.ip, None);
        assert!(matches!(
            for_proxy(&ended, 8000, &hosts()),
            Err(Error::Unreachable { .. })
        ));
        assert!(matches!(
            for_execd(&ended, &hosts()),
            Err(Error::Unreachable { .. })
        ));
    }

    #[test]
    fn the_public_host_follows_the_contract() {
        let decide = |eip, host| PublicHost::decide(eip, host, None, true).external;
        for eip in [
            " e.example ",
            "e.example:1/x",
            "https://e.example/y",
            "http://e.example:8",
        ] {
            assert_eq!(decide(Some(eip), "127.0.0.1"), "e.example", "{eip}");
        }
        assert_eq!(
            decide(Some("[2001:db8::1]:8080"), "0.0.0.0"),
            "[2001:db8::1]"
        );
        assert_eq!(decide(None, "127.0.0.1"), "127.0.0.1");
        assert_eq!(decide(None, "10.1.2.3"), "10.1.2.3");
        assert!(!decide(None, "0.0.0.0").is_empty());
    }

    #[test]
    fn literal_ipv6_hosts_are_told_in_brackets() {
        let facts = live();
        let query = EndpointQuery {
            port: 8080,
            server_proxy: None,
        };
        for (eip, host, external, internal) in [
            (None, "::1", "[::1]:40002", "[::1]:40001"),
            (None, "fd00::5", "[fd00::5]:40002", "[fd00::5]:40001"),
            (None, "[fd00::5]", "[fd00::5]:40002", "[fd00::5]:40001"),
            (
                Some("2001:db8::1"),
                "::",
                "[2001:db8::1]:40002",
                "127.0.0.1:40001",
            ),
        ] {
            let hosts = PublicHost::decide(eip, host, None, false);
            let seen = for_client(&facts, &query, &hosts).unwrap().endpoint;
            assert_eq!(seen, external, "{host}");
            assert_eq!(for_execd(&facts, &hosts).unwrap().authority, internal);
            let proxied = for_proxy(&facts, 8000, &hosts).unwrap();
            assert_eq!(proxied.authority, internal);
        }
    }
}
