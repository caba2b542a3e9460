//! What a subscription may look like, in one place for the API and the configuration.

use osb_protocol::FieldError;
use reqwest::Certificate;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use url::Url;

use super::event::EventType;

pub(crate) use super::secret::RULE as SECRET_RULE;

/// Most subscriptions. Each may send one message at a time.
pub(crate) const WEBHOOKS_MAX: usize = 64;
/// Longest name, in characters.
const NAME_MAX: usize = 128;
/// Longest URL, in bytes.
const URL_MAX: usize = 2048;
/// Longest name of a tenant, in characters.
const TENANT_MAX: usize = 128;

/// A name in one line.
///
/// # Errors
/// The rule that it breaks.
pub(crate) fn name(name: &str) -> Result<String, String> {
    line(name, NAME_MAX)
}

/// The name of a tenant.
///
/// # Errors
/// The rule that it breaks.
pub(crate) fn tenant(tenant: &str) -> Result<String, String> {
    line(tenant, TENANT_MAX)
}

fn line(text: &str, most: usize) -> Result<String, String> {
    let text = text.trim();
    if (1..=most).contains(&text.chars().count()) && !text.contains(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "must be 1 to {most} characters without line breaks"
    ))
}

/// Where messages can be sent. Whether the address is permitted shows at each connection.
///
/// # Errors
/// The rule that it breaks. The text does not repeat the URL, which may contain a secret.
pub(crate) fn url(text: &str) -> Result<Url, String> {
    let text = text.trim();
    if text.len() > URL_MAX {
        return Err(format!("must have at most {URL_MAX} bytes"));
    }
    let is_web = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    let Some(mut url) = Url::parse(text).ok().filter(is_web) else {
        return Err("must be an http:// or https:// URL".to_owned());
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain a user name or password".to_owned());
    }
    if url.port() == Some(0) {
        return Err("must not name port 0".to_owned());
    }
    url.set_fragment(None);
    Ok(url)
}

/// Types of events, each once; an empty list stands for all.
///
/// # Errors
/// The rule that one breaks.
pub(crate) fn events(names: &[String]) -> Result<Vec<String>, String> {
    let all = EventType::OF_SANDBOXES.map(EventType::as_str);
    if names.iter().any(|name| !all.contains(&name.as_str())) {
        return Err(format!("must be a list of {}", all.join(", ")));
    }
    let chosen = all
        .into_iter()
        .filter(|known| names.iter().any(|name| name == known));
    Ok(chosen.map(str::to_owned).collect())
}

/// Certificates of authorities, in PEM.
///
/// # Errors
/// The rule that the text breaks.
pub(crate) fn authorities(pem: &[u8]) -> Result<Vec<Certificate>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.ok().filter(|found| !found.is_empty());
    let Some(read) = read else {
        return Err("must contain certificates in PEM".to_owned());
    };
    let usable = |der: CertificateDer<'static>| {
        RootCertStore::empty().add(der.clone()).ok()?;
        Certificate::from_der(&der).ok()
    };
    let certificates: Option<Vec<_>> = read.into_iter().map(usable).collect();
    certificates.ok_or_else(|| "has a certificate that cannot be used".to_owned())
}

/// Collects the rules that are broken.
pub(super) fn valid<T>(
    field: &'static str,
    checked: Result<T, String>,
    wrong: &mut Vec<FieldError>,
) -> Option<T> {
    checked
        .map_err(|rule| wrong.push(FieldError::body("value_error", [field], rule)))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_of_the_web_and_without_credentials() {
        let fine = url(" https://example.org:8443/a?b=c#d ").unwrap();
        assert_eq!(fine.as_str(), "https://example.org:8443/a?b=c");
        for (bad, rule) in [
            ("", "http"),
            ("example.org", "http"),
            ("ftp://example.org", "http"),
            ("file:///etc/passwd", "http"),
            ("javascript:alert(1)", "http"),
            ("http://", "http"),
            ("https://u@example.org", "user name"),
            ("https://:hunter2@example.org", "user name"),
            ("http://example.org:0/", "port 0"),
            (&format!("http://a/{}", "x".repeat(URL_MAX)), "at most"),
        ] {
            let refused = url(bad).unwrap_err();
            assert!(refused.contains(rule), "{bad}: {refused}");
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }

    #[test]
    fn authorities_are_certificates_in_pem() {
        let issued = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let (good, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
        let both = format!("{good}{good}");
        assert_eq!(authorities(both.as_bytes()).unwrap().len(), 2);
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (bad, rule) in [
            ("", "must contain"),
            (&*key, "must contain"),
            ("-----BEGIN CERTIFICATE-----\n!\n", "must contain"),
            (broken, "cannot be used"),
        ] {
            let refused = authorities(bad.as_bytes()).unwrap_err();
            assert!(refused.contains(rule), "{refused}");
        }
    }

    #[test]
    fn events_are_known_and_listed_once() {
        let list = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            events(&names)
        };
        assert_eq!(list(&[]).unwrap(), [""; 0]);
        let chosen = list(&["sandbox.ready", "sandbox.created", "sandbox.ready"]);
        assert_eq!(chosen.unwrap(), ["sandbox.created", "sandbox.ready"]);
        for bad in ["sandbox.x", "webhook.test", ""] {
            assert!(
                list(&[bad]).unwrap_err().contains("sandbox.failed"),
                "{bad}"
            );
        }
        assert!(name(" ").is_err() && name("a\nb").is_err() && tenant("a").is_ok());
    }
}
