//! One rule: an action and a target (contract: egress §4).

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;

/// Longest domain name, in characters without the final dot (RFC 1035 §2.3.4).
const NAME_LENGTH: usize = 253;
/// Longest label of a domain name.
const LABEL_LENGTH: usize = 63;

/// What happens to traffic that a rule or the default covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It passes.
    Allow,
    /// It is refused.
    Deny,
}

impl Action {
    /// Parses an action. Case and surrounding blanks do not matter; a blank text is `deny`, as the
    /// contract has it. `None` for any other word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "" => Some(Self::Deny),
            word if word.eq_ignore_ascii_case("allow") => Some(Self::Allow),
            word if word.eq_ignore_ascii_case("deny") => Some(Self::Deny),
            _ => None,
        }
    }

    /// Word of the contract.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// Destinations that a rule covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// This domain name: lower case, ASCII, without a final dot.
    Name(Box<str>),
    /// All names below this one, but not the name itself: `*.example.org`.
    Subdomains(Box<str>),
    /// An address or a network. IPv4 addresses mapped into IPv6 are IPv4 here, and host bits are
    /// zero.
    Network(IpNet),
}

/// Reason why a text is no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// It is empty.
    #[error("must not be empty")]
    Empty,
    /// It is an address with a zone, which has a meaning on one machine only.
    #[error("{0:?} has a zone; write the address without it")]
    Zone(String),
    /// It is a URL or has a path.
    #[error(
        "{0:?} is neither a domain name nor a network; write the host alone, such as example.org, or a network such as 10.0.0.0/8"
    )]
    Path(String),
    /// It names a port. Rules cover all ports.
    #[error("{0:?} has a port; rules cover every port, write the host alone")]
    Port(String),
    /// `*` is in a place where it has no meaning.
    #[error(
        "{0:?}: * may only be the first label, as in *.example.org; for everything, set defaultAction to allow"
    )]
    Wildcard(String),
    /// It is no domain name.
    #[error("{0:?} is not a domain name, an address or a network")]
    Name(String),
}

impl Target {
    /// Parses a target: an address, a network or a domain name, in this order. Names may have a
    /// final dot and letters beyond ASCII, which become their ASCII form.
    ///
    /// # Errors
    /// See [`TargetError`]. The contract's reference accepts texts that can never match, such as a
    /// URL; a rule that protects nothing is refused here.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TargetError::Empty);
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Network(address.to_canonical().into()));
        }
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Self::Network(canonical(network)));
        }
        Self::parse_name(text)
    }

    fn parse_name(text: &str) -> Result<Self, TargetError> {
        if text.contains('%') && text.contains(':') {
            return Err(TargetError::Zone(text.to_owned()));
        }
        if text.contains('/') {
            return Err(TargetError::Path(text.to_owned()));
        }
        if text.contains(':') {
            return Err(TargetError::Port(text.to_owned()));
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if name.contains('*') {
            return Err(TargetError::Wildcard(text.to_owned()));
        }
        let name = ascii_name(name).ok_or_else(|| TargetError::Name(text.to_owned()))?;
        Ok(match below {
            true => Self::Subdomains(name),
            false => Self::Name(name),
        })
    }
}

/// The form of a domain name that is compared: lower case, ASCII, without a final dot. `None` if the
/// text is no name, or if a resolver would read it as an address.
fn ascii_name(text: &str) -> Option<Box<str>> {
    let name = match text.is_ascii() {
        true => text.to_ascii_lowercase(),
        false => idna::domain_to_ascii(text).ok()?,
    };
    // After the conversion, which makes dots of other full stops.
    let name = name.strip_suffix('.').unwrap_or(&name);
    let is_label = |label: &str| {
        (1..=LABEL_LENGTH).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    // `1.2.3` and `0x7f.1` are addresses for some resolvers.
    let last = name.rsplit('.').next()?;
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
    let is_name = name.len() <= NAME_LENGTH && !is_number && name.split('.').all(is_label);
    is_name.then(|| name.into())
}

/// The network without host bits. An IPv4 network that is mapped into IPv6 becomes IPv4.
fn canonical(network: IpNet) -> IpNet {
    const MAPPED: u8 = 96;
    if let IpNet::V6(mapped) = network
        && let Some(address) = mapped.addr().to_ipv4_mapped()
        && mapped.prefix_len() >= MAPPED
        && let Ok(network) = IpNet::new(address.into(), mapped.prefix_len() - MAPPED)
    {
        return network.trunc();
    }
    network.trunc()
}

/// One rule of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What happens.
    pub action: Action,
    /// To which destinations.
    pub target: Target,
    /// The target as its author wrote it, without surrounding blanks. Clients get this text back. Two
    /// rules have the same target if `target` is equal, whatever their texts are.
    pub text: Box<str>,
}

impl Rule {
    /// Parses a rule.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn new(action: Action, target: &str) -> Result<Self, TargetError> {
        Ok(Self {
            action,
            target: Target::parse(target)?,
            text: target.trim().into(),
        })
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.action.word(), self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Target {
        Target::Name(text.into())
    }

    fn network(text: &str) -> Target {
        Target::Network(text.parse().unwrap())
    }

    #[test]
    fn addresses_come_before_networks_and_names() {
        for (text, target) in [
            (" 203.0.113.7 ", network("203.0.113.7/32")),
            ("2001:db8::1", network("2001:db8::1/128")),
            ("10.1.2.3/8", network("10.0.0.0/8")),
            ("2001:db8::1/32", network("2001:db8::/32")),
            ("::ffff:198.51.100.1", network("198.51.100.1/32")),
            ("::ffff:10.0.0.1/104", network("10.0.0.0/8")),
            ("Example.ORG.", name("example.org")),
            ("localhost", name("localhost")),
            ("_dmarc.example.org", name("_dmarc.example.org")),
            ("bücher.example", name("xn--bcher-kva.example")),
            ("Bücher。example。", name("xn--bcher-kva.example")),
            ("*.Example.org", Target::Subdomains("example.org".into())),
        ] {
            assert_eq!(Target::parse(text), Ok(target), "{text}");
        }
    }

    #[test]
    fn what_can_never_match_is_refused_with_a_reason() {
        for (text, reason) in [
            (" ", "must not be empty"),
            ("http://x.example", "neither a domain name nor a network"),
            ("10.0.0.0/33", "neither a domain name nor a network"),
            ("example.org:443", "has a port"),
            ("fe80::1%eth0", "has a zone"),
            ("*", "* may only be"),
            ("a.*.org", "* may only be"),
            ("*org", "* may only be"),
            ("*.*.org", "* may only be"),
            ("a..b", "is not a domain name"),
            ("1.2.3", "is not a domain name"),
            ("999.1.1.1", "is not a domain name"),
            ("0x7f000001", "is not a domain name"),
            ("two words", "is not a domain name"),
            (".", "is not a domain name"),
            ("a.example..", "is not a domain name"),
            ("bücher.example.。", "is not a domain name"),
        ] {
            let error = Target::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(Target::parse(&"a".repeat(64)).is_err());
        assert!(Target::parse(&format!("{}b", "a.".repeat(127))).is_err());
    }

    #[test]
    fn actions_have_two_words_and_blank_is_deny() {
        for text in ["deny", " DENY ", "", "  "] {
            assert_eq!(Action::parse(text), Some(Action::Deny), "{text:?}");
        }
        assert_eq!(Action::parse(" Allow"), Some(Action::Allow));
        assert_eq!(Action::parse("allowed"), None);
    }
}
