//! Origins of previews: each port of each sandbox has its own, so that no page of a sandbox can read
//! another's, nor the console.

use osb_protocol::SandboxId;

/// Longest label of a host name (RFC 1035 §2.3.4).
const LABEL_MAX: usize = 63;

/// A port of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Site {
    pub(crate) sandbox: SandboxId,
    pub(crate) port: u16,
}

impl Site {
    /// The first label of its host; `None` for ids that host names cannot hold.
    fn label(&self) -> Option<String> {
        let id = self.sandbox.as_str();
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let label = format!("{id}-{}", self.port);
        let holds = !id.is_empty()
            && !id.starts_with('-')
            && label.len() <= LABEL_MAX
            && label.bytes().all(fits);
        holds.then_some(label)
    }
}

/// What all origins of previews have in common, such as `http://*.localhost:8091`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviewOrigins {
    scheme: &'static str,
    /// What follows the first label of the host, with a dot before it.
    domain: String,
    /// Port in addresses; `None` for that of the scheme.
    port: Option<u16>,
}

impl PreviewOrigins {
    /// Reads `http://*.example.com:8091`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const FORM: &str = "must be like https://*.previews.example.com or http://*.localhost:8091";
        let (scheme, rest) = text.split_once("://").ok_or(FORM)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => "http",
            "https" => "https",
            _ => return Err(FORM),
        };
        let domain = rest.strip_prefix('*').ok_or(FORM)?;
        let (domain, port) = match domain.rsplit_once(':') {
            Some((domain, port)) => {
                let port: u16 = port.parse().map_err(|_| FORM)?;
                (domain, Some(port).filter(|port| *port > 0))
            }
            None => (domain, None),
        };
        let is_label = |label: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !label.is_empty() && label.len() <= LABEL_MAX && label.bytes().all(fits)
        };
        let labels = domain.strip_prefix('.').ok_or(FORM)?;
        if !labels.split('.').all(is_label) {
            return Err(FORM);
        }
        Ok(Self {
            scheme,
            domain: domain.to_ascii_lowercase(),
            port,
        })
    }

    /// Names that this machine's browsers resolve to itself.
    #[must_use]
    pub fn local(is_https: bool, port: u16) -> Self {
        Self {
            scheme: if is_https { "https" } else { "http" },
            domain: ".localhost".to_owned(),
            port: Some(port),
        }
    }

    /// Whether browsers reach it over HTTPS.
    pub(crate) fn is_https(&self) -> bool {
        self.scheme == "https"
    }

    /// The origin of a site; `None` when no host name can hold its id.
    pub(crate) fn of(&self, site: &Site) -> Option<String> {
        let label = site.label()?;
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        Some(format!("{}://{label}{}{port}", self.scheme, self.domain))
    }

    /// The site that a `Host` names. Its port may be that of a proxy in front.
    pub(crate) fn site(&self, host: &str) -> Option<Site> {
        let name = host.split(':').next().unwrap_or_default();
        let name = name.to_ascii_lowercase();
        let label = name.strip_suffix(self.domain.as_str())?;
        let (id, port) = label.rsplit_once('-')?;
        let port = port.parse().ok().filter(|port| *port > 0)?;
        let site = Site {
            sandbox: id.into(),
            port,
        };
        // Exactly one name leads to a site.
        (site.label().as_deref() == Some(label)).then_some(site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(sandbox: &str, port: u16) -> Site {
        Site {
            sandbox: sandbox.into(),
            port,
        }
    }

    #[test]
    fn each_port_of_each_sandbox_has_an_origin_that_leads_back_to_it() {
        let origins = PreviewOrigins::parse("https://*.P.example.com").unwrap();
        let own = site("0b6c1f2e-93aa-4c1d-8c79-1f2e93aa4c1d", 65535);
        let origin = origins.of(&own).unwrap();
        assert_eq!(
            origin,
            "https://0b6c1f2e-93aa-4c1d-8c79-1f2e93aa4c1d-65535.p.example.com"
        );
        let host = origin.strip_prefix("https://").unwrap();
        assert_eq!(origins.site(host), Some(own.clone()));
        assert_eq!(
            origins.site(&format!("{}:444", host.to_uppercase())),
            Some(own)
        );
        let local = PreviewOrigins::local(false, 8091);
        let origin = local.of(&site("a", 80)).unwrap();
        assert_eq!(origin, "http://a-80.localhost:8091");
    }

    #[test]
    fn other_hosts_are_no_site() {
        let origins = PreviewOrigins::local(false, 8091);
        for host in [
            "",
            "localhost",
            "localhost:8091",
            "127.0.0.1:8091",
            "a.localhost",
            "a-0.localhost",
            "a-080.localhost",
            "a-65536.localhost",
            "-80.localhost",
            "x.a-80.localhost",
            "a-80.localhost.example.com",
            "a-80.evil.com",
        ] {
            assert_eq!(origins.site(host), None, "{host}");
        }
    }

    #[test]
    fn ids_that_no_host_name_holds_have_no_origin() {
        let origins = PreviewOrigins::local(false, 8091);
        for id in ["", "a.b", "A", "a_b", "-a", "ü", &"a".repeat(64)] {
            assert_eq!(origins.of(&site(id, 80)), None, "{id}");
        }
    }

    #[test]
    fn what_is_no_origin_with_a_wildcard_is_refused() {
        for bad in [
            "",
            "localhost",
            "http://localhost:1",
            "ftp://*.a",
            "http://*",
            "http://*.",
            "http://*a.b",
            "http://*.a..b",
            "http://*.a/b",
            "http://*.a:b",
            "http://*.a:99999",
            "http://*.a_b",
        ] {
            assert!(PreviewOrigins::parse(bad).is_err(), "{bad}");
        }
    }
}
