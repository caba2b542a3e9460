//! Settings from the environment (contract: egress §7).

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use ipnet::IpNet;
use secrecy::SecretString;
use tracing::Level;

use crate::limits;

/// Names of the variables.
pub mod names {
    /// Prefix of all variables of the sidecar.
    pub const PREFIX: &str = "OPENSANDBOX_EGRESS_";
    /// What is enforced, see [`Mode`](super::Mode).
    pub const MODE: &str = "OPENSANDBOX_EGRESS_MODE";
    /// Address of the API.
    pub const HTTP_ADDR: &str = "OPENSANDBOX_EGRESS_HTTP_ADDR";
    /// Token of the API.
    pub const TOKEN: &str = "OPENSANDBOX_EGRESS_TOKEN";
    /// First policy, as JSON.
    pub const RULES: &str = "OPENSANDBOX_EGRESS_RULES";
    /// File in which the policy is kept.
    pub const POLICY_FILE: &str = "OPENSANDBOX_EGRESS_POLICY_FILE";
    /// Rules that a policy may have.
    pub const MAX_RULES: &str = "OPENSANDBOX_EGRESS_MAX_RULES";
    /// Level of the log.
    pub const LOG_LEVEL: &str = "OPENSANDBOX_EGRESS_LOG_LEVEL";
    /// Whether everything is refused until the sandbox claims this sidecar.
    pub const AWAIT_CLAIM: &str = "OPENSANDBOX_EGRESS_AWAIT_CLAIM";
    /// Id of the sandbox, for logs, metrics, the webhook and a claim.
    pub const SANDBOX_ID: &str = "OPENSANDBOX_EGRESS_SANDBOX_ID";
    /// Attributes of metrics and log lines.
    pub const EXTRA_ATTRIBUTES: &str = "OPENSANDBOX_EGRESS_METRICS_EXTRA_ATTRS";
    /// URL to which denied names are sent.
    pub const DENY_WEBHOOK: &str = "OPENSANDBOX_EGRESS_DENY_WEBHOOK";
    /// Name servers that the sandbox may ask directly.
    pub const EXEMPT: &str = "OPENSANDBOX_EGRESS_NAMESERVER_EXEMPT";
    /// Name servers that the sidecar asks.
    pub const UPSTREAM: &str = "OPENSANDBOX_EGRESS_DNS_UPSTREAM";
    /// Time for an answer of an upstream, in seconds.
    pub const UPSTREAM_TIMEOUT: &str = "OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT";
    /// Name that probes of upstreams ask for.
    pub const PROBE: &str = "OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE";
    /// Interval of the probes, in seconds.
    pub const PROBE_INTERVAL: &str = "OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE_INTERVAL_SEC";
    /// Whether DNS over HTTPS is refused.
    pub const BLOCK_DOH: &str = "OPENSANDBOX_EGRESS_BLOCK_DOH_443";
    /// Networks of DNS over HTTPS.
    pub const DOH_BLOCKLIST: &str = "OPENSANDBOX_EGRESS_DOH_BLOCKLIST";
    /// Features of the contract that this sidecar does not have.
    pub const TRANSPARENT: &str = "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT";
}

/// What is enforced (contract: egress §1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Names only: a process that knows an address may connect to it.
    Dns,
    /// Names and addresses.
    DnsNft,
}

impl Mode {
    /// Parses a mode: parts in any order and case, joined by `+`. Blank is `dns`.
    fn parse(text: &str) -> Option<Self> {
        let (mut dns, mut nft) = (false, false);
        for part in text.split('+').map(str::trim) {
            match part {
                "" => {}
                _ if part.eq_ignore_ascii_case("dns") => dns = true,
                _ if part.eq_ignore_ascii_case("nft") => nft = true,
                _ => return None,
            }
        }
        match (dns, nft) {
            (_, false) => Some(Self::Dns),
            (true, true) => Some(Self::DnsNft),
            (false, true) => None,
        }
    }

    /// Word of the contract.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::DnsNft => "dns+nft",
        }
    }
}

/// Whether DNS over HTTPS is refused. DNS over TLS and QUIC always is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DohBlock {
    /// It is not.
    Off,
    /// All of HTTPS is refused, because no networks are listed (contract: egress §2.4, rule 6a).
    Everywhere,
    /// HTTPS to these networks is refused.
    Networks(Vec<IpNet>),
}

/// Settings.
#[derive(Debug)]
pub struct Config {
    /// What is enforced.
    pub mode: Mode,
    /// Address of the API.
    pub http_addr: SocketAddr,
    /// Token of the API. Without one, the API is open.
    pub token: Option<SecretString>,
    /// First policy, as JSON.
    pub rules: Option<String>,
    /// File in which the policy is kept.
    pub policy_file: Option<PathBuf>,
    /// Whether everything is refused until the sandbox claims this sidecar. The policy file then
    /// exists once it has.
    pub awaits_claim: bool,
    /// Rules that a policy may have; `None` for any number.
    pub max_rules: Option<usize>,
    /// Level of the log.
    pub log_level: Level,
    /// Id of the sandbox; empty if unknown.
    pub sandbox_id: String,
    /// Attributes of metrics and log lines, `key=value` separated by commas.
    pub extra_attributes: String,
    /// URL to which denied names are sent.
    pub deny_webhook: Option<http::Uri>,
    /// Name servers that the sandbox may ask directly.
    pub exempt: Vec<IpAddr>,
    /// Name servers to ask; `None` for those of `resolv.conf`.
    pub upstreams: Option<Vec<SocketAddr>>,
    /// Time for an answer of each upstream. `None` if all of them share [`limits::UPSTREAMS`].
    pub upstream_timeout: Option<Duration>,
    /// Name that probes ask for; `None` for the root's name servers.
    pub probe: Option<String>,
    /// Interval of the probes.
    pub probe_interval: Duration,
    /// Whether DNS over HTTPS is refused.
    pub doh: DohBlock,
}

/// Reason why the sidecar cannot start with these settings. It never continues with a weaker one.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {rule}, not {value:?}")]
pub struct ConfigError {
    /// Name of the variable.
    pub name: &'static str,
    /// What it must be.
    pub rule: &'static str,
    /// What it is.
    pub value: String,
}

impl Config {
    /// Reads the variables. Returns the settings, and a warning for each value that is replaced by a
    /// default, as the contract demands for some.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn read(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(Self, Vec<String>), ConfigError> {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let mut warnings = Vec::new();
        let config = Self {
            mode: mode(set(names::MODE))?,
            http_addr: http_addr(set(names::HTTP_ADDR))?,
            // Used verbatim, so that a token of blanks is a token.
            token: variable(names::TOKEN)
                .filter(|token| !token.is_empty())
                .map(SecretString::from),
            rules: variable(names::RULES),
            policy_file: set(names::POLICY_FILE).map(|path| path.trim().into()),
            awaits_claim: is_true(set(names::AWAIT_CLAIM)),
            max_rules: max_rules(set(names::MAX_RULES), &mut warnings),
            log_level: log_level(set(names::LOG_LEVEL)),
            sandbox_id: variable(names::SANDBOX_ID).unwrap_or_default(),
            extra_attributes: variable(names::EXTRA_ATTRIBUTES).unwrap_or_default(),
            deny_webhook: webhook(set(names::DENY_WEBHOOK))?,
            exempt: exempt(set(names::EXEMPT), &mut warnings),
            upstreams: upstreams(set(names::UPSTREAM))?,
            upstream_timeout: seconds(set(names::UPSTREAM_TIMEOUT), 120),
            probe: probe(set(names::PROBE)),
            probe_interval: seconds(set(names::PROBE_INTERVAL), 3600)
                .unwrap_or(limits::PROBE_INTERVAL),
            doh: doh(
                is_true(set(names::BLOCK_DOH)),
                set(names::DOH_BLOCKLIST),
                &mut warnings,
            ),
        };
        if is_true(set(names::TRANSPARENT)) {
            return Err(ConfigError {
                name: names::TRANSPARENT,
                rule: "this sidecar does not intercept HTTP; must be unset",
                value: "true".to_owned(),
            });
        }
        if config.awaits_claim && !config.can_be_claimed() {
            return Err(ConfigError {
                name: names::AWAIT_CLAIM,
                rule: "needs OPENSANDBOX_EGRESS_TOKEN, OPENSANDBOX_EGRESS_SANDBOX_ID and \
                       OPENSANDBOX_EGRESS_POLICY_FILE, and no OPENSANDBOX_EGRESS_RULES; must be unset",
                value: "true".to_owned(),
            });
        }
        Ok((config, warnings))
    }

    /// Whether a claim is safe: only the server can make it, it names the sandbox, it lasts, and there
    /// is no other policy before it.
    fn can_be_claimed(&self) -> bool {
        let has_policy = self
            .rules
            .as_deref()
            .is_some_and(|it| !it.trim().is_empty());
        let is_named = !self.sandbox_id.trim().is_empty();
        self.token.is_some() && is_named && self.policy_file.is_some() && !has_policy
    }
}

/// Address of the API alone, for the supervisor.
///
/// # Errors
/// See [`ConfigError`].
pub fn api_address(variable: impl Fn(&str) -> Option<String>) -> Result<SocketAddr, ConfigError> {
    http_addr(variable(names::HTTP_ADDR).filter(|value| !value.trim().is_empty()))
}

fn mode(value: Option<String>) -> Result<Mode, ConfigError> {
    let Some(value) = value else {
        return Ok(Mode::Dns);
    };
    Mode::parse(&value).ok_or(ConfigError {
        name: names::MODE,
        rule: "must be dns or dns+nft",
        value,
    })
}

/// `:18080` means every address, as in Go.
fn http_addr(value: Option<String>) -> Result<SocketAddr, ConfigError> {
    const DEFAULT: &str = ":18080";
    let value = value.unwrap_or_else(|| DEFAULT.to_owned());
    let text = value.trim();
    let parsed = match text.strip_prefix(':') {
        Some(port) => port
            .parse()
            .ok()
            .map(|port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))),
        None => text.parse().ok(),
    };
    parsed.ok_or(ConfigError {
        name: names::HTTP_ADDR,
        rule: "must be an address with a port, such as 127.0.0.1:18080 or :18080",
        value,
    })
}

fn max_rules(value: Option<String>, warnings: &mut Vec<String>) -> Option<usize> {
    match value.as_deref().map(|value| value.trim().parse()) {
        None => Some(limits::RULES),
        Some(Ok(0)) => None,
        Some(Ok(limit)) => Some(limit),
        Some(Err(_)) => {
            let name = names::MAX_RULES;
            warnings.push(format!("{name} is not a number, {} is used", limits::RULES));
            Some(limits::RULES)
        }
    }
}

fn log_level(value: Option<String>) -> Level {
    match value.unwrap_or_default().trim().to_lowercase().as_str() {
        "debug" => Level::DEBUG,
        "warn" | "warning" => Level::WARN,
        "error" | "fatal" => Level::ERROR,
        _ => Level::INFO,
    }
}

fn webhook(value: Option<String>) -> Result<Option<http::Uri>, ConfigError> {
    let Some(value) = value else { return Ok(None) };
    let address = value.trim().parse::<http::Uri>().ok();
    let is_web = |uri: &http::Uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()
    };
    match address.filter(is_web) {
        Some(address) => Ok(Some(address)),
        None => Err(ConfigError {
            name: names::DENY_WEBHOOK,
            rule: "must be an http or https URL",
            // It may have a secret.
            value: "another value".to_owned(),
        }),
    }
}

fn exempt(value: Option<String>, warnings: &mut Vec<String>) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for text in parts(value.as_deref()) {
        match text.parse::<IpAddr>() {
            Ok(address) if addresses.contains(&address.to_canonical()) => {}
            Ok(address) => addresses.push(address.to_canonical()),
            Err(_) => warnings.push(format!("{}: {text:?} is not an address", names::EXEMPT)),
        }
    }
    addresses
}

fn upstreams(value: Option<String>) -> Result<Option<Vec<SocketAddr>>, ConfigError> {
    const PORT: u16 = 53;
    let Some(value) = value else { return Ok(None) };
    let parse = |text: &str| {
        let bare = text.parse::<IpAddr>().or_else(|_| {
            let inner = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
            inner
                .unwrap_or_default()
                .parse::<Ipv6Addr>()
                .map(Into::into)
        });
        match bare {
            Ok(address) => Some(SocketAddr::new(address, PORT)),
            Err(_) => text.parse().ok().filter(|it: &SocketAddr| it.port() != 0),
        }
    };
    let mut found = Vec::new();
    let mut is_valid = true;
    for text in parts(Some(&value)) {
        match parse(text) {
            Some(address) if found.contains(&address) => {}
            Some(address) => found.push(address),
            None => is_valid = false,
        }
    }
    if found.is_empty() || !is_valid {
        return Err(ConfigError {
            name: names::UPSTREAM,
            rule: "must be addresses, each with or without a port, separated by commas",
            value,
        });
    }
    Ok(Some(found))
}

fn probe(value: Option<String>) -> Option<String> {
    let name = value?.trim().trim_end_matches('.').to_owned();
    (!name.is_empty()).then_some(name)
}

/// Whole seconds, at most `max`; `None` for anything else.
fn seconds(value: Option<String>, max: u64) -> Option<Duration> {
    let parsed = value.and_then(|value| value.trim().parse::<u64>().ok());
    let seconds = parsed.filter(|seconds| *seconds > 0)?;
    Some(Duration::from_secs(seconds.min(max)))
}

fn doh(is_on: bool, list: Option<String>, warnings: &mut Vec<String>) -> DohBlock {
    if !is_on {
        return DohBlock::Off;
    }
    let mut networks: Vec<IpNet> = Vec::new();
    for text in parts(list.as_deref()) {
        let address = text.parse::<IpAddr>().map(|it| it.to_canonical().into());
        match address.or_else(|_| text.parse::<IpNet>()) {
            Ok(network) => networks.push(network.trunc()),
            Err(_) => warnings.push(format!(
                "{}: {text:?} is neither an address nor a network",
                names::DOH_BLOCKLIST
            )),
        }
    }
    match networks.is_empty() {
        true => DohBlock::Everywhere,
        false => DohBlock::Networks(IpNet::aggregate(&networks)),
    }
}

fn parts(list: Option<&str>) -> impl Iterator<Item = &str> {
    let parts = list.unwrap_or_default().split(',').map(str::trim);
    parts.filter(|part| !part.is_empty())
}

fn is_true(value: Option<String>) -> bool {
    let value = value.unwrap_or_default().trim().to_lowercase();
    matches!(value.as_str(), "1" | "true" | "yes" | "y" | "on")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<(Config, Vec<String>), ConfigError> {
        Config::read(|name| {
            let pair = pairs.iter().find(|(key, _)| *key == name);
            pair.map(|(_, value)| (*value).to_owned())
        })
    }

    fn config(pairs: &[(&str, &str)]) -> Config {
        read(pairs).unwrap().0
    }

    #[test]
    fn nothing_set_gives_the_defaults() {
        let (config, warnings) = read(&[]).unwrap();
        assert_eq!(warnings, [""; 0]);
        assert_eq!(config.mode, Mode::Dns);
        assert_eq!(config.http_addr, "[::]:18080".parse().unwrap());
        assert!(config.token.is_none() && config.upstreams.is_none());
        assert_eq!(config.max_rules, Some(4096));
        assert_eq!(config.upstream_timeout, None);
        assert_eq!(config.probe_interval, Duration::from_secs(30));
        assert_eq!(config.doh, DohBlock::Off);
    }

    #[test]
    fn modes_are_parsed_and_a_bad_one_stops_the_start() {
        for (text, mode) in [
            ("", Mode::Dns),
            ("dns", Mode::Dns),
            ("dns+nft", Mode::DnsNft),
            ("nft+dns", Mode::DnsNft),
            ("  DNS+nft ", Mode::DnsNft),
            ("dns + ", Mode::Dns),
        ] {
            assert_eq!(config(&[(names::MODE, text)]).mode, mode, "{text:?}");
        }
        for text in ["nft", "mitm", "dns+mitm", "dns,nft"] {
            let error = read(&[(names::MODE, text)]).unwrap_err().to_string();
            assert!(
                error.contains(names::MODE) && error.contains(text),
                "{error}"
            );
        }
    }

    #[test]
    fn upstreams_are_addresses_with_or_without_ports() {
        let upstreams = |text: &str| read(&[(names::UPSTREAM, text)]).map(|it| it.0.upstreams);
        let found = upstreams(
            "8.8.8.8, 1.1.1.1:5353,,2001:db8::1,[2001:db8::2],[2001:db8::2]:853,8.8.8.8:53",
        );
        let texts: Vec<String> = found
            .unwrap()
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            texts,
            [
                "8.8.8.8:53",
                "1.1.1.1:5353",
                "[2001:db8::1]:53",
                "[2001:db8::2]:53",
                "[2001:db8::2]:853"
            ]
        );
        assert_eq!(upstreams("  ").unwrap(), None);
        for bad in [
            "dns.example",
            "1.1.1.1:",
            "[2001:db8::1",
            ",",
            "1.1.1.1:0",
            "8.8.8.8,x",
        ] {
            assert!(upstreams(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_out_of_range_become_defaults() {
        let limit = |text: &str| config(&[(names::MAX_RULES, text)]).max_rules;
        assert_eq!(limit("0"), None);
        assert_eq!(limit("100"), Some(100));
        assert_eq!(limit("-1"), Some(4096));
        assert_eq!(limit("many"), Some(4096));
        let time = |text: &str| config(&[(names::UPSTREAM_TIMEOUT, text)]).upstream_timeout;
        for (text, seconds) in [
            ("2", Some(2)),
            ("5", Some(5)),
            ("999", Some(120)),
            ("0", None),
            ("1.5", None),
        ] {
            assert_eq!(time(text), seconds.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn probes_have_a_name_and_an_interval() {
        let interval = |text: &str| config(&[(names::PROBE_INTERVAL, text)]).probe_interval;
        for (text, seconds) in [("", 30), ("5", 5), ("0", 30), ("x", 30), ("9999", 3600)] {
            assert_eq!(interval(text).as_secs(), seconds, "{text:?}");
        }
        let probe = |text: &str| config(&[(names::PROBE, text)]).probe;
        assert_eq!(probe(""), None);
        assert_eq!(probe(" . "), None);
        assert_eq!(probe("example.org."), Some("example.org".to_owned()));
    }

    #[test]
    fn lists_skip_what_they_cannot_read_with_a_warning() {
        let (config, warnings) = read(&[
            (names::EXEMPT, "10.0.0.53, 10.0.0.0/8, x, 10.0.0.53, ::1"),
            (names::BLOCK_DOH, "Yes"),
            (names::DOH_BLOCKLIST, "1.1.1.1, 8.8.8.0/24, dns.example"),
        ])
        .unwrap();
        assert_eq!(config.exempt.len(), 2);
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        let DohBlock::Networks(networks) = config.doh else {
            panic!("{:?}", config.doh);
        };
        assert_eq!(networks.len(), 2);
        let everywhere = self::config(&[(names::BLOCK_DOH, "1")]).doh;
        assert_eq!(everywhere, DohBlock::Everywhere);
    }

    #[test]
    fn a_sidecar_that_can_be_claimed_has_a_token_an_id_and_a_file_and_no_policy() {
        assert!(!config(&[]).awaits_claim);
        let whole = [
            (names::AWAIT_CLAIM, "true"),
            (names::TOKEN, "t"),
            (names::SANDBOX_ID, "a"),
            (names::POLICY_FILE, "/policy.json"),
        ];
        assert!(config(&whole).awaits_claim);
        for missing in 1..whole.len() {
            let mut pairs = whole.to_vec();
            let (name, _) = pairs.remove(missing);
            let error = read(&pairs).unwrap_err().to_string();
            assert!(
                error.contains(names::AWAIT_CLAIM) && error.contains(name),
                "{error}"
            );
        }
        let with_policy = [&whole[..], &[(names::RULES, "{}")]].concat();
        assert!(read(&with_policy).is_err());
    }

    #[test]
    fn what_is_not_there_is_refused() {
        assert!(read(&[(names::TRANSPARENT, "true")]).is_err());
        assert!(read(&[(names::TRANSPARENT, "false")]).is_ok());
        assert!(read(&[(names::DENY_WEBHOOK, "ftp://x.example")]).is_err());
        assert!(read(&[(names::HTTP_ADDR, "18080")]).is_err());
        for (text, address) in [("127.0.0.1:1", "127.0.0.1:1"), (" ", "[::]:18080")] {
            let address = address.parse().unwrap();
            assert_eq!(config(&[(names::HTTP_ADDR, text)]).http_addr, address);
            assert_eq!(api_address(|_| Some(text.to_owned())).unwrap(), address);
        }
    }
}
