//! Which addresses messages may be sent to. A subscription must not lead into the host, its networks
//! or a sandbox, whatever its name resolves to at the moment of the connection.

use std::{
    error::Error as StdError,
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, LazyLock},
};

use async_trait::async_trait;
use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::{own_addresses, sandbox::Service};

/// Networks that are not the public Internet, and those that embed IPv4 addresses.
const NOT_PUBLIC: [&str; 31] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/96",
    "::ffff:0:0/96",
    "::ffff:0:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
];

static NETWORKS: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
    let parse = |text: &&str| text.parse().expect("a network in the list above");
    NOT_PUBLIC.iter().map(parse).collect()
});

/// An address that messages must not be sent to. The text names no address, which would show a
/// tenant's administrator what a name resolves to inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RefusedAddress;

impl fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the host is not on the public Internet, or is this server's own; [webhooks_delivery] \
             allow_private or allow_networks opens other networks",
        )
    }
}

impl StdError for RefusedAddress {}

/// What the operator opens.
#[derive(Clone, Debug, Default)]
pub struct OpenNetworks {
    /// Every address.
    pub all: bool,
    /// These networks.
    pub networks: Vec<IpNet>,
}

/// Decides about addresses.
#[derive(Clone)]
pub(super) struct AddressRules {
    open: OpenNetworks,
    is_sandbox: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// Whether an address is this host's own. Asked each time, because interfaces come and go.
    is_own: fn(IpAddr) -> bool,
}

impl fmt::Debug for AddressRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AddressRules").field(&self.open).finish()
    }
}

impl AddressRules {
    pub(super) fn new(open: OpenNetworks, service: &Service) -> Self {
        let service = service.clone();
        Self {
            open,
            is_sandbox: Arc::new(move |address| service.is_sandbox_address(address)),
            is_own: own_addresses::contain,
        }
    }

    pub(super) fn permit(&self, address: IpAddr) -> bool {
        if self.open.all {
            return true;
        }
        let address = address.to_canonical();
        if (self.is_sandbox)(address) {
            return false;
        }
        let within = |networks: &[IpNet]| networks.iter().any(|it| it.contains(&address));
        within(&self.open.networks) || !within(&NETWORKS) && !(self.is_own)(address)
    }

    /// Checks the host of a URL that is an address; the connection of a name asks the resolver.
    pub(super) fn check_host(&self, url: &url::Url) -> Result<(), RefusedAddress> {
        let address = match url.host() {
            Some(url::Host::Ipv4(address)) => Ipv4Addr::into(address),
            Some(url::Host::Ipv6(address)) => Ipv6Addr::into(address),
            Some(url::Host::Domain(_)) | None => return Ok(()),
        };
        self.permit(address).then_some(()).ok_or(RefusedAddress)
    }
}

/// Finds the addresses of a name.
#[async_trait]
pub(super) trait Lookup: Send + Sync + 'static {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The host's own resolver.
pub(super) struct HostLookup;

#[async_trait]
impl Lookup for HostLookup {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((host, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// The resolver of the client. What it answers is what the client connects to: the name is not
/// resolved again, so an answer that changes in between gains nothing.
pub(super) struct GuardedResolver {
    pub(super) rules: AddressRules,
    pub(super) lookup: Arc<dyn Lookup>,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (rules, lookup) = (self.rules.clone(), Arc::clone(&self.lookup));
        Box::pin(async move {
            let found = lookup.lookup(name.as_str()).await?;
            let permitted = found.into_iter().filter(|address| rules.permit(*address));
            let permitted: Vec<_> = permitted.map(|ip| SocketAddr::new(ip, 0)).collect();
            if permitted.is_empty() {
                return Err(RefusedAddress.into());
            }
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `2606:4700::7`.
    const OWN_V6: u128 = (0x2606_4700 << 96) | 7;

    fn rules(open: OpenNetworks) -> AddressRules {
        let sandbox: IpAddr = "8.8.4.4".parse().unwrap();
        AddressRules {
            open,
            is_sandbox: Arc::new(move |address| address == sandbox),
            is_own: |address| {
                let own: [IpAddr; 2] = [[8, 8, 8, 1].into(), Ipv6Addr::from_bits(OWN_V6).into()];
                own.contains(&address)
            },
        }
    }

    fn permitted(rules: &AddressRules, text: &str) -> bool {
        rules.permit(text.parse().unwrap())
    }

    #[test]
    fn only_public_addresses_are_permitted() {
        let rules = rules(OpenNetworks::default());
        for public in ["8.8.8.8", "1.1.1.1", "172.32.0.1", "2606:4700::1111"] {
            assert!(permitted(&rules, public), "{public}");
        }
        for refused in [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.17.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "8.8.4.4",
            "::ffff:8.8.4.4",
            // This host's own, public as they are.
            "8.8.8.1",
            "::ffff:8.8.8.1",
            "2606:4700::7",
        ] {
            assert!(!permitted(&rules, refused), "{refused}");
        }
    }

    #[test]
    fn the_operator_opens_networks_but_not_sandboxes_in_them() {
        let networks = vec![
            "10.1.0.0/16".parse().unwrap(),
            "8.8.4.0/24".parse().unwrap(),
            "8.8.8.1/32".parse().unwrap(),
        ];
        let some = rules(OpenNetworks {
            all: false,
            networks,
        });
        assert!(permitted(&some, "10.1.2.3") && permitted(&some, "8.8.8.8"));
        assert!(!permitted(&some, "10.2.0.1") && !permitted(&some, "8.8.4.4"));
        assert!(permitted(&some, "8.8.8.1") && !permitted(&some, "2606:4700::7"));
        let all = rules(OpenNetworks {
            all: true,
            networks: Vec::new(),
        });
        assert!(permitted(&all, "127.0.0.1") && permitted(&all, "8.8.4.4"));
    }

    #[test]
    fn an_address_in_any_notation_is_checked() {
        let rules = rules(OpenNetworks::default());
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://0x7f000001/",
            "http://2130706433/",
            "http://[::1]:8080/",
            "http://[::ffff:169.254.169.254]/",
            "http://8.8.8.1:8080/",
            "http://[2606:4700::7]/",
        ] {
            let url = url::Url::parse(url).unwrap();
            assert_eq!(rules.check_host(&url), Err(RefusedAddress), "{url}");
        }
        let name = url::Url::parse("http://example.org/").unwrap();
        assert_eq!(rules.check_host(&name), Ok(()));
    }

    /// Answers as it was prepared.
    struct Prepared(Vec<IpAddr>);

    #[async_trait]
    impl Lookup for Prepared {
        async fn lookup(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            Ok(self.0.clone())
        }
    }

    #[tokio::test]
    async fn a_name_leads_to_its_public_addresses_only() {
        let resolve = async |answer: &[&str]| {
            let answer = answer.iter().map(|it| it.parse().unwrap()).collect();
            let resolver = GuardedResolver {
                rules: rules(OpenNetworks::default()),
                lookup: Arc::new(Prepared(answer)),
            };
            let found = resolver.resolve("example.org".parse().unwrap()).await;
            found.map(|found| found.map(|it| it.ip().to_string()).collect::<Vec<_>>())
        };
        let both = resolve(&["10.0.0.1", "8.8.8.1", "8.8.8.8"]).await;
        assert_eq!(both.unwrap(), ["8.8.8.8"]);
        for refused in [["10.0.0.1", "::1"], ["8.8.8.1", "2606:4700::7"]] {
            let error = resolve(&refused).await.unwrap_err();
            assert!(error.is::<RefusedAddress>(), "{error}");
        }
    }
}
