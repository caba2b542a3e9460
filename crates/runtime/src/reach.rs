//! Routes to ports of sandboxes.

use std::net::IpAddr;

use crate::{Address, EXECD_PORT, HTTP_PORT};

/// Where a connection to a sandbox starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewpoint {
    /// This server.
    Server,
    /// A client on any machine that reaches this server.
    Client,
}

/// Route to a port of a sandbox. The host of a published port, and its public name, are outside of
/// the runtime's knowledge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The host's own port: the sandbox shares the host's network.
    HostNetwork,
    /// A published port of the host.
    Published(u16),
    /// The sandbox's own address.
    Direct(IpAddr),
    /// execd's proxy, on a published port of the host.
    ThroughExecd(u16),
    /// A gateway.
    Gateway {
        /// Host and port of the gateway.
        authority: String,
        /// Path prefix of the sandbox's port; empty or with a leading slash.
        path: String,
    },
}

/// Why a port cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoRoute(pub &'static str);

impl Reach {
    /// Resolves a port of a container on a host: through the host's network, at the container's own
    /// address if this server has a route there, else through published ports. Only execd and port
    /// 8080 are published; execd's proxy serves every other port (contract: lifecycle §6.1, §6.3).
    ///
    /// # Errors
    /// When the port, or execd for ports that need it, is not published.
    pub fn of_container(
        address: &Address,
        port: u16,
        from: Viewpoint,
        has_route: bool,
    ) -> Result<Self, NoRoute> {
        if address.host_network {
            return Ok(Self::HostNetwork);
        }
        if let (Viewpoint::Server, true, Some(ip)) = (from, has_route, address.ip) {
            return Ok(Self::Direct(ip));
        }
        let execd = || {
            let published = address.ports.execd;
            published.ok_or(NoRoute("its execd is not published"))
        };
        match port {
            EXECD_PORT => execd().map(Self::Published),
            HTTP_PORT => {
                let published = address.ports.http.map(Self::Published);
                published.ok_or(NoRoute("port 8080 is not published"))
            }
            _ => execd().map(Self::ThroughExecd),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ports;

    fn address() -> Address {
        Address {
            host_network: false,
            ip: Some([172, 20, 0, 2].into()),
            ports: Ports {
                execd: Some(40001),
                http: Some(40002),
            },
        }
    }

    #[test]
    fn only_this_server_uses_the_address_of_a_container() {
        let address = address();
        let reach = |port, from, has_route| Reach::of_container(&address, port, from, has_route);
        let direct = Ok(Reach::Direct([172, 20, 0, 2].into()));
        assert_eq!(reach(8000, Viewpoint::Server, true), direct);
        for (from, has_route) in [(Viewpoint::Server, false), (Viewpoint::Client, true)] {
            assert_eq!(reach(8080, from, has_route), Ok(Reach::Published(40002)));
            assert_eq!(reach(44772, from, has_route), Ok(Reach::Published(40001)));
            assert_eq!(reach(8000, from, has_route), Ok(Reach::ThroughExecd(40001)));
        }
    }

    #[test]
    fn an_unpublished_port_has_no_route() {
        let address = Address {
            ports: Ports::default(),
            ..address()
        };
        for port in [8080, 8000, 44772] {
            let reach = Reach::of_container(&address, port, Viewpoint::Client, true);
            assert!(reach.is_err(), "{port}: {reach:?}");
        }
        let host = Address {
            host_network: true,
            ..Address::default()
        };
        let reach = Reach::of_container(&host, 1, Viewpoint::Client, true);
        assert_eq!(reach, Ok(Reach::HostNetwork));
    }
}
