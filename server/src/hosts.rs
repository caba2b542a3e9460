//! Under which host names published ports are reached (contract: lifecycle §6.1, §6.3). Decided once at
//! start: nothing below looks at the environment or the network again.

use std::{
    fs,
    net::{IpAddr, Ipv6Addr, ToSocketAddrs, UdpSocket},
    path::Path,
};

use crate::{
    config::{Config, RuntimeType, StorageView},
    sandbox::Hosts,
};

/// Decides the hosts from the configuration and from where this process runs.
#[must_use]
pub(crate) fn find(config: &Config) -> Hosts {
    let location = ProcessLocation {
        in_container: in_container(Path::exists, |name| std::env::var(name).ok()),
        outward_address: &outward_address,
    };
    decide(
        config.server.eip.as_deref(),
        &config.server.host,
        config.docker.host_ip.as_deref(),
        &config.docker.publish_host,
        &location,
    )
}

/// Whether this process sees the files of the engine's host. A container has files of its own, and an
/// engine that is reached over a network runs on another machine.
#[must_use]
pub(crate) fn storage_view(config: &Config) -> StorageView {
    let in_container = in_container(Path::exists, |name| std::env::var(name).ok());
    let engine = std::env::var("DOCKER_HOST").ok();
    let is_docker = config.runtime.kind == RuntimeType::Docker;
    let is_local = !is_docker || !in_container && is_local_engine(engine.as_deref());
    StorageView {
        sees_host: config.storage.host_is_local.unwrap_or(is_local),
        in_container,
    }
}

/// Whether an engine's address, as in `DOCKER_HOST`, is a socket of this machine.
fn is_local_engine(address: Option<&str>) -> bool {
    let address = address.map(str::trim).filter(|address| !address.is_empty());
    address.is_none_or(|address| address.starts_with("unix://") || address.starts_with('/'))
}

/// Where this process runs.
struct ProcessLocation<'a> {
    in_container: bool,
    /// The address that packets to the outside leave from.
    outward_address: &'a dyn Fn() -> String,
}

fn decide(
    eip: Option<&str>,
    host: &str,
    docker_host_ip: Option<&str>,
    publish_host: &str,
    location: &ProcessLocation<'_>,
) -> Hosts {
    let given = |text: Option<&str>| {
        text.map(str::trim)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let wildcard = is_wildcard(host);
    let loopback = matches!(host, "127.0.0.1" | "::1" | "localhost");
    let host_ip = given(docker_host_ip).filter(|_| location.in_container);
    let own = (!(wildcard || loopback && host_ip.is_some())).then(|| host.to_owned());
    let internal = own
        .clone()
        .or_else(|| host_ip.clone())
        .unwrap_or_else(|| "127.0.0.1".to_owned());
    let external = given(eip)
        .map(|eip| host_of(&eip).to_owned())
        .or(own)
        .or(host_ip)
        // Ports that are published on one address only are not reachable under another.
        .or_else(|| (!is_wildcard(publish_host)).then(|| publish_host.to_owned()))
        .unwrap_or_else(location.outward_address);
    Hosts {
        external: in_url(external),
        internal: in_url(internal),
    }
}

fn is_wildcard(host: &str) -> bool {
    matches!(host, "" | "0.0.0.0" | "::")
}

/// Puts a literal IPv6 address in the brackets that separate it from a port.
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

/// Whether a process runs in a container, by the files and variables that engines leave there.
fn in_container(exists: impl Fn(&Path) -> bool, variable: impl Fn(&str) -> Option<String>) -> bool {
    const FILES: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];
    const KINDS: [&str; 6] = [
        "podman",
        "docker",
        "oci",
        "lxc",
        "lxc-libvirt",
        "systemd-nspawn",
    ];
    FILES.iter().any(|file| exists(Path::new(file)))
        || ["container", "CONTAINER"]
            .iter()
            .filter_map(|name| variable(name))
            .any(|kind| KINDS.contains(&kind.as_str()))
        // Other engines than Docker leave nothing else in a pod.
        || variable("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty())
}

/// The address that packets to the outside leave from. A datagram socket is connected for this;
/// nothing is sent. Without a route, the address of this machine's name.
fn outward_address() -> String {
    let address = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("8.8.8.8:80")?;
        socket.local_addr()
    });
    let outward = address.ok().map(|address| address.ip());
    let outward = outward.filter(|address| !address.is_unspecified());
    let address = outward.or_else(|| {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
        let addresses = (name.trim(), 0).to_socket_addrs().ok()?;
        addresses.map(|address| address.ip()).find(IpAddr::is_ipv4)
    });
    address.map_or_else(|| "127.0.0.1".to_owned(), |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(
        eip: Option<&str>,
        host: &str,
        docker_host_ip: Option<&str>,
        in_container: bool,
    ) -> (String, String) {
        let location = ProcessLocation {
            in_container,
            outward_address: &|| "192.0.2.1".to_owned(),
        };
        let publish_host = "0.0.0.0";
        let Hosts { external, internal } =
            decide(eip, host, docker_host_ip, publish_host, &location);
        (external, internal)
    }

    #[test]
    fn ports_published_on_one_address_are_reached_there() {
        let location = ProcessLocation {
            in_container: false,
            outward_address: &|| "192.0.2.1".to_owned(),
        };
        let external = |eip, host| decide(eip, host, None, "127.0.0.1", &location).external;
        assert_eq!(external(None, "0.0.0.0"), "127.0.0.1");
        assert_eq!(external(None, "10.1.2.3"), "10.1.2.3");
        assert_eq!(external(Some("e.example"), "0.0.0.0"), "e.example");
    }

    #[test]
    fn the_public_host_follows_the_contract() {
        let external = |eip, host| hosts(eip, host, None, false).0;
        for eip in [
            " e.example ",
            "e.example:1/x",
            "https://e.example/y",
            "http://e.example:8",
        ] {
            assert_eq!(external(Some(eip), "127.0.0.1"), "e.example", "{eip}");
        }
        let bracketed = external(Some("[2001:db8::1]:8080"), "0.0.0.0");
        assert_eq!(bracketed, "[2001:db8::1]");
        assert_eq!(external(None, "127.0.0.1"), "127.0.0.1");
        assert_eq!(external(None, "10.1.2.3"), "10.1.2.3");
        assert_eq!(external(None, "0.0.0.0"), "192.0.2.1");
    }

    #[test]
    fn in_a_container_ports_are_published_on_the_host() {
        let both = |host: &str| (host.to_owned(), host.to_owned());
        let inside = |host| hosts(None, host, Some("172.17.0.1"), true);
        assert_eq!(inside("0.0.0.0"), both("172.17.0.1"));
        assert_eq!(inside("127.0.0.1"), both("172.17.0.1"));
        assert_eq!(inside("10.1.2.3"), both("10.1.2.3"));
        let outside = hosts(None, "127.0.0.1", Some("172.17.0.1"), false);
        assert_eq!(outside, both("127.0.0.1"));
    }

    #[test]
    fn engines_leave_files_and_variables_in_containers() {
        let file = |name: &str| in_container(|path| path == Path::new(name), |_| None);
        assert!(file("/.dockerenv") && file("/run/.containerenv"));
        assert!(!file("/run/.containerenv.old"));
        let variable = |name: &str, value: &str| {
            let read = |asked: &str| (asked == name).then(|| value.to_owned());
            in_container(|_| false, read)
        };
        for kind in [
            "podman",
            "docker",
            "oci",
            "lxc",
            "lxc-libvirt",
            "systemd-nspawn",
        ] {
            assert!(
                variable("container", kind) && variable("CONTAINER", kind),
                "{kind}"
            );
        }
        assert!(variable("KUBERNETES_SERVICE_HOST", "10.0.0.1"));
        for (name, value) in [
            ("KUBERNETES_SERVICE_HOST", ""),
            ("container", ""),
            ("container", "1"),
            ("CONTAINERS", "docker"),
        ] {
            assert!(!variable(name, value), "{name}={value}");
        }
    }

    #[test]
    fn an_engine_behind_a_socket_is_on_this_machine() {
        for address in [
            None,
            Some(""),
            Some("unix:///var/run/docker.sock"),
            Some("/run/x.sock"),
        ] {
            assert!(is_local_engine(address), "{address:?}");
        }
        for address in ["tcp://10.0.0.1:2376", "ssh://a@b", "http://localhost:2375"] {
            assert!(!is_local_engine(Some(address)), "{address}");
        }
    }

    #[test]
    fn literal_ipv6_hosts_get_brackets() {
        for (eip, host, external, internal) in [
            (None, "::1", "[::1]", "[::1]"),
            (None, "fd00::5", "[fd00::5]", "[fd00::5]"),
            (None, "[fd00::5]", "[fd00::5]", "[fd00::5]"),
            (Some("2001:db8::1"), "::", "[2001:db8::1]", "127.0.0.1"),
        ] {
            let seen = hosts(eip, host, None, false);
            assert_eq!(seen, (external.to_owned(), internal.to_owned()), "{host}");
        }
    }
}
