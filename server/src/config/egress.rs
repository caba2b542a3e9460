//! `[egress]`: the sidecar of sandboxes with a network policy (contract: lifecycle §14.8, A9).

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use osb_runtime::docker::EgressConfig;
use osb_service::config::ConfigError;
use serde::{Deserialize, Serialize};
use url::Url;

use super::mask;
use crate::sandbox::default_policy::{self, TooManyRules};

/// Longest wait for the rules, in seconds: a day.
const LONGEST_SECONDS: f64 = 86_400.0;

/// Most sidecars that wait. Each takes memory, and a few ports.
const WARM_MAX: usize = 32;

/// What the sidecar enforces (contract: egress §1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum EgressMode {
    /// Names only: a program that knows an address may connect to it.
    #[default]
    #[serde(rename = "dns")]
    Dns,
    /// Names and addresses.
    #[serde(rename = "dns+nft")]
    DnsNft,
}

impl EgressMode {
    /// The contract's word.
    fn word(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::DnsNft => "dns+nft",
        }
    }
}

/// The network policy of sandboxes whose request has none: an addition to the contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DefaultPolicy {
    /// No policy.
    #[default]
    None,
    /// The public Internet only.
    Public,
}

/// `[egress.upstream_proxy]`. It is read only to be refused, so that its values, which may be secret,
/// are not kept.
#[derive(Debug, Deserialize)]
pub struct UpstreamProxySection {}

/// `[egress]`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct EgressSection {
    /// Image of the sidecar. Without it, requests with a network policy are refused.
    pub image: Option<String>,
    /// What is enforced.
    pub mode: EgressMode,
    /// Whether IPv6 is off in sandboxes with a policy.
    pub disable_ipv6: bool,
    /// Collector of the sidecars' metrics.
    #[serde(serialize_with = "mask::mask_address")]
    pub otlp_endpoint: Option<String>,
    /// Name servers that the sidecars ask; empty for those of this host.
    pub dns_upstreams: Vec<String>,
    /// Longest wait until the rules of a sandbox stand, in seconds.
    pub readiness_timeout_seconds: f64,
    /// Sidecars that are started before a create needs them.
    pub warm_sidecars: usize,
    /// Read for compatibility: what the sidecar reserves on Kubernetes.
    pub requests: Option<BTreeMap<String, String>>,
    /// Read for compatibility: most that the sidecar may use on Kubernetes.
    pub limits: Option<BTreeMap<String, String>>,
    /// A proxy for intercepted connections, which this release does not have.
    #[serde(skip_serializing)]
    pub upstream_proxy: Option<UpstreamProxySection>,
    /// Policy of sandboxes whose request has none.
    pub default_policy: DefaultPolicy,
    /// Addresses and networks that the default policy allows as well.
    pub default_allow: Vec<String>,
}

impl Default for EgressSection {
    fn default() -> Self {
        Self {
            image: None,
            mode: EgressMode::Dns,
            disable_ipv6: true,
            otlp_endpoint: None,
            dns_upstreams: Vec::new(),
            readiness_timeout_seconds: 30.0,
            warm_sidecars: 2,
            requests: None,
            limits: None,
            upstream_proxy: None,
            default_policy: DefaultPolicy::None,
            default_allow: Vec::new(),
        }
    }
}

impl EgressSection {
    pub(super) fn check(&self, file: &Path) -> Result<(), ConfigError> {
        let rule = |key: &str, rule: &str| {
            let key = format!("egress.{key}");
            Err(ConfigError::rule(file, &key, rule))
        };
        if self.image.as_deref().is_some_and(|it| it.trim().is_empty()) {
            return rule(
                "image",
                "must not be empty; leave it out for no network policies",
            );
        }
        if self.otlp_endpoint().is_some_and(|it| !is_web_address(it)) {
            return rule("otlp_endpoint", "must be an http:// or https:// address");
        }
        if !self.dns_upstreams.iter().all(|it| is_name_server(it)) {
            let text = "must be addresses, each with or without a port, such as \"10.0.0.2\" or \
                        \"10.0.0.2:5353\"";
            return rule("dns_upstreams", text);
        }
        let seconds = self.readiness_timeout_seconds;
        if !(seconds > 0.0 && seconds <= LONGEST_SECONDS) {
            let text = "must be more than 0 and at most 86400 seconds";
            return rule("readiness_timeout_seconds", text);
        }
        if self.warm_sidecars > WARM_MAX {
            return rule("warm_sidecars", "must be at most 32");
        }
        if self.upstream_proxy.is_some() {
            let text = "needs interception of connections, which is not in this release";
            return rule("upstream_proxy", text);
        }
        let Some(allowed) = self.allowed_networks() else {
            let text = "must be a list of addresses and networks such as \"10.1.2.0/24\"; names \
                        need no rule";
            return rule("default_allow", text);
        };
        if self.default_policy == DefaultPolicy::None {
            return match allowed.is_empty() {
                true => Ok(()),
                false => rule("default_allow", "needs default_policy = \"public\""),
            };
        }
        if self.image.is_none() {
            return rule("default_policy", "needs egress.image");
        }
        if self.mode != EgressMode::DnsNft {
            return rule("default_policy", "needs egress.mode = \"dns+nft\"");
        }
        if default_policy::public(&allowed, &[]).is_err() {
            let text = "leaves too many small networks to refuse; name fewer, or larger ones";
            return rule("default_allow", text);
        }
        Ok(())
    }

    /// The collector, unless it is blank.
    fn otlp_endpoint(&self) -> Option<&str> {
        let endpoint = self.otlp_endpoint.as_deref().map(str::trim);
        endpoint.filter(|endpoint| !endpoint.is_empty())
    }

    /// The networks of `default_allow`; `None` when one cannot be read.
    fn allowed_networks(&self) -> Option<Vec<IpNet>> {
        let networks = self.default_allow.iter().map(|text| {
            let text = text.trim();
            let address = text.parse::<IpAddr>().map(IpNet::from);
            address.or_else(|_| text.parse()).ok()
        });
        networks.collect()
    }

    /// The policy of sandboxes whose request has none, as JSON; `None` if they have none. It also
    /// refuses `own`, which are addresses of this host.
    ///
    /// # Errors
    /// When it has too many rules.
    pub fn default_policy(&self, own: &[IpAddr]) -> Result<Option<Arc<str>>, TooManyRules> {
        match self.default_policy {
            DefaultPolicy::None => Ok(None),
            DefaultPolicy::Public => {
                // The check at start refuses what cannot be read.
                let allowed = self.allowed_networks().unwrap_or_default();
                let policy = default_policy::public(&allowed, own)?;
                Ok(Some(policy.into()))
            }
        }
    }

    /// Settings of the sidecar for the Docker back end; `None` without one.
    pub(super) fn runtime_config(&self) -> Option<EgressConfig> {
        let image = self.image.as_deref()?.trim().to_owned();
        let timeout = Duration::try_from_secs_f64(self.readiness_timeout_seconds);
        Some(EgressConfig {
            image,
            mode: self.mode.word().to_owned(),
            disable_ipv6: self.disable_ipv6,
            otlp_endpoint: self.otlp_endpoint().map(str::to_owned),
            dns_upstreams: self.dns_upstreams.clone(),
            // The check at start refuses what is no time.
            readiness_timeout: timeout.unwrap_or_default(),
            warm: self.warm_sidecars,
        })
    }
}

/// Whether a text is an address, with or without a port, that sandboxes may reach.
fn is_name_server(text: &str) -> bool {
    let with_port = text.parse::<SocketAddr>().map(|it| it.ip());
    let address = text.parse::<IpAddr>().or(with_port);
    address.is_ok_and(|it| !it.is_loopback() && !it.is_unspecified())
}

/// Whether a text is an address with a scheme of the web and a host.
fn is_web_address(text: &str) -> bool {
    let url = Url::parse(text);
    url.is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}
