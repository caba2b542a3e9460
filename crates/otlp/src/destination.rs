//! Destination of metrics (contract: execd §1.2, §13).

use std::{fs::File, io::Read, net::IpAddr, path::Path, time::Duration};

use http::{Uri, uri::Scheme};

use crate::limits;

/// Variable with the address for metrics, used unchanged.
const ENV_METRICS_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";
/// Variable with the address for traces, used unchanged.
#[cfg(any(test, feature = "traces"))]
const ENV_TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// Variable with the address for all signals. The path for metrics is appended.
const ENV_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Variable with the address of the host, on which a collector may listen.
const ENV_HOST_IP: &str = "HOST_IP";
/// File with the host's address, which platforms provide in containers.
pub(crate) const HOST_INFO: &str = "/etc/hostinfo";
/// Variable with the timeout of one attempt in milliseconds, for all signals.
const ENV_TIMEOUT: &str = "OTEL_EXPORTER_OTLP_TIMEOUT";
/// Variable with a file of certificates, in PEM form, that are trusted besides the system's.
#[cfg(feature = "tls")]
const ENV_CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
/// Port of a collector on the host.
const PORT: u16 = 4318;
const PATH: &str = "v1/metrics";

/// Destination of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) address: Uri,
    /// Time limit of one attempt.
    pub(crate) timeout: Duration,
    /// File of certificates that are trusted besides the system's.
    #[cfg(feature = "tls")]
    pub(crate) certificate: Option<std::path::PathBuf>,
}

/// Reason why the destination in a variable is unusable. The messages omit the address, which may
/// contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// The text is not an address.
    #[error("{0} must be an address such as http://collector:4318")]
    Address(&'static str),
    /// The address needs TLS.
    #[error("{0} must begin with http:// because TLS is not spoken here; a collector can forward")]
    Tls(&'static str),
    /// The address has a user, and perhaps a password.
    #[error("{0} must hold no user and no password; OTEL_EXPORTER_OTLP_HEADERS can authenticate")]
    Credentials(&'static str),
}

impl Destination {
    /// Finds the destination: in the variables of OpenTelemetry, else the host's address in a
    /// variable, else in a file. `None` if none of them is set.
    pub(crate) fn find(
        variable: impl Fn(&str) -> Option<String>,
        host_info: &Path,
    ) -> Result<Option<Self>, DestinationError> {
        let set = |name| variable(name).filter(|value| !value.trim().is_empty());
        let address = if let Some(text) = set(ENV_METRICS_ENDPOINT) {
            address(ENV_METRICS_ENDPOINT, text.trim())?
        } else if let Some(text) = set(ENV_ENDPOINT) {
            let base = text.trim().trim_end_matches('/');
            address(ENV_ENDPOINT, &format!("{base}/{PATH}"))?
        } else {
            let named = set(ENV_HOST_IP).and_then(|text| text.trim().parse().ok());
            match named.or_else(|| host_of(host_info)) {
                Some(host) => of_host(host),
                None => return Ok(None),
            }
        };
        Ok(Some(Self {
            address,
            timeout: Signal::Metrics.timeout(&set),
            #[cfg(feature = "tls")]
            certificate: set(ENV_CERTIFICATE).map(Into::into),
        }))
    }
}

impl Destination {
    /// Its host, for the log. The path may contain a token.
    pub(crate) fn host(&self) -> String {
        self.address.host().unwrap_or_default().to_owned()
    }
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Metrics,
    #[cfg(any(test, feature = "traces"))]
    Traces,
}

impl Signal {
    /// Variable with the address for this signal alone, used unchanged.
    fn variable(self) -> &'static str {
        match self {
            Self::Metrics => ENV_METRICS_ENDPOINT,
            #[cfg(any(test, feature = "traces"))]
            Self::Traces => ENV_TRACES_ENDPOINT,
        }
    }

    /// Time limit of one attempt.
    fn timeout(self, set: &impl Fn(&'static str) -> Option<String>) -> Duration {
        let own = match self {
            Self::Metrics => "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT",
            #[cfg(any(test, feature = "traces"))]
            Self::Traces => "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
        };
        let read = |name| set(name)?.trim().parse().ok().filter(|millis| *millis > 0);
        let millis = [own, ENV_TIMEOUT].into_iter().find_map(read);
        millis.map_or(limits::EXPORT, Duration::from_millis)
    }

    fn path(self) -> &'static str {
        match self {
            Self::Metrics => PATH,
            #[cfg(any(test, feature = "traces"))]
            Self::Traces => "v1/traces",
        }
    }

    /// Name for the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            #[cfg(any(test, feature = "traces"))]
            Self::Traces => "traces",
        }
    }
}

impl Destination {
    /// Finds the destination of a program whose operator has turned the signal on: the address under
    /// a key of its configuration, used unchanged, else the variables of OpenTelemetry, else a
    /// collector on the same machine.
    pub(crate) fn configured(
        signal: Signal,
        key: &'static str,
        endpoint: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, DestinationError> {
        let set = |name| variable(name).filter(|value| !value.trim().is_empty());
        let address = if let Some(text) = endpoint.filter(|text| !text.trim().is_empty()) {
            address(key, text.trim())?
        } else if let Some(text) = set(signal.variable()) {
            address(signal.variable(), text.trim())?
        } else {
            let base = set(ENV_ENDPOINT).unwrap_or_else(|| format!("http://localhost:{PORT}"));
            let base = base.trim().trim_end_matches('/');
            address(ENV_ENDPOINT, &format!("{base}/{}", signal.path()))?
        };
        Ok(Self {
            address,
            timeout: signal.timeout(&set),
            #[cfg(feature = "tls")]
            certificate: set(ENV_CERTIFICATE).map(Into::into),
        })
    }
}

fn address(variable: &'static str, text: &str) -> Result<Uri, DestinationError> {
    let uri: Uri = text
        .parse()
        .map_err(|_| DestinationError::Address(variable))?;
    let credentials = uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'));
    let has_tls = match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTP => false,
        Some(scheme) if *scheme == Scheme::HTTPS => true,
        _ => return Err(DestinationError::Address(variable)),
    };
    if has_tls && cfg!(not(feature = "tls")) {
        return Err(DestinationError::Tls(variable));
    }
    match credentials {
        true => Err(DestinationError::Credentials(variable)),
        false => Ok(uri),
    }
}

fn of_host(host: IpAddr) -> Uri {
    let authority = std::net::SocketAddr::new(host, PORT);
    let address = format!("http://{authority}/{PATH}");
    address.parse().expect("an address and a path are a URI")
}

/// First line that is an IP address.
fn host_of(file: &Path) -> Option<IpAddr> {
    let mut text = Vec::new();
    let file = File::open(file).ok()?;
    file.take(limits::HOST_INFO).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().find_map(|line| line.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(set: &[(&str, &str)], info: &str) -> Result<Option<Destination>, DestinationError> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("hostinfo");
        std::fs::write(&path, info).unwrap();
        let variable = |name: &str| {
            let found = set.iter().find(|(given, _)| *given == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Destination::find(variable, &path)
    }

    fn address(set: &[(&str, &str)], info: &str) -> Option<String> {
        let found = find(set, info).unwrap();
        found.map(|found| found.address.to_string())
    }

    #[test]
    fn the_first_variable_that_is_set_takes_precedence() {
        let metrics = (ENV_METRICS_ENDPOINT, "http://metrics:1/as/it/is");
        let all = (ENV_ENDPOINT, " http://all:2/base/ ");
        let host = (ENV_HOST_IP, "10.0.0.1");
        let info = "# host\nname\n  fd00::1  \n10.0.0.2\n";
        for (set, info, want) in [
            (&[metrics, all, host][..], info, "http://metrics:1/as/it/is"),
            (
                &[(ENV_METRICS_ENDPOINT, "http://metrics:1")],
                "",
                "http://metrics:1/",
            ),
            (&[all, host], info, "http://all:2/base/v1/metrics"),
            (&[(ENV_ENDPOINT, "http://all")], "", "http://all/v1/metrics"),
            (
                &[(ENV_ENDPOINT, " "), host],
                info,
                "http://10.0.0.1:4318/v1/metrics",
            ),
            (
                &[(ENV_HOST_IP, "fe80::1")],
                "",
                "http://[fe80::1]:4318/v1/metrics",
            ),
            (
                &[(ENV_HOST_IP, "node-7")],
                info,
                "http://[fd00::1]:4318/v1/metrics",
            ),
        ] {
            assert_eq!(address(set, info).as_deref(), Some(want), "{set:?}");
        }
        for (set, info) in [
            (&[][..], ""),
            (
                &[(ENV_METRICS_ENDPOINT, ""), (ENV_HOST_IP, "node-7")],
                "node-7\n",
            ),
        ] {
            assert_eq!(address(set, info), None, "{set:?}");
        }
        let nowhere = Destination::find(|_| None, Path::new("/nonexistent"));
        assert_eq!(nowhere, Ok(None));
    }

    #[test]
    fn a_configured_address_takes_precedence_over_variables() {
        let find = |signal, endpoint, set: &[(&str, &str)]| {
            let variable = |name: &str| {
                let found = set.iter().find(|(given, _)| *given == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let found = Destination::configured(signal, "otel.endpoint", endpoint, variable);
            found.map(|found| found.address.to_string())
        };
        let all = (ENV_ENDPOINT, "http://all:1/base/");
        let metrics = (ENV_METRICS_ENDPOINT, "http://metrics:2/x");
        let set = [all, metrics];
        for (signal, endpoint, set, want) in [
            (
                Signal::Metrics,
                Some("http://own:3/y"),
                &set[..],
                "http://own:3/y",
            ),
            (Signal::Metrics, Some(" "), &set, "http://metrics:2/x"),
            (Signal::Traces, None, &set, "http://all:1/base/v1/traces"),
            (Signal::Traces, None, &[], "http://localhost:4318/v1/traces"),
        ] {
            assert_eq!(find(signal, endpoint, set).as_deref(), Ok(want));
        }
        let over_tls = find(Signal::Metrics, Some("https://c"), &[]);
        let want = match cfg!(feature = "tls") {
            true => Ok("https://c/".to_owned()),
            false => Err(DestinationError::Tls("otel.endpoint")),
        };
        assert_eq!(over_tls, want);
    }

    #[test]
    fn errors_of_addresses_name_the_variable() {
        let tls = find(&[(ENV_ENDPOINT, "https://me:hunter2@collector")], "");
        let want = match cfg!(feature = "tls") {
            true => DestinationError::Credentials(ENV_ENDPOINT),
            false => DestinationError::Tls(ENV_ENDPOINT),
        };
        assert_eq!(tls, Err(want));
        for variable in [ENV_ENDPOINT, ENV_METRICS_ENDPOINT] {
            for address in ["http://me:hunter2@collector:4318", "http://me@collector/v1"] {
                let refused = find(&[(variable, address)], "").unwrap_err();
                assert_eq!(refused, DestinationError::Credentials(variable));
                let text = refused.to_string();
                assert!(
                    text.starts_with(variable) && !text.contains("hunter2"),
                    "{text}"
                );
            }
        }
        for bad in [
            "collector:4318",
            "grpc://collector",
            "http://",
            "a b",
            "/v1",
        ] {
            let refused = find(
                &[(ENV_METRICS_ENDPOINT, bad), (ENV_HOST_IP, "10.0.0.1")],
                "",
            );
            let want = DestinationError::Address(ENV_METRICS_ENDPOINT);
            assert_eq!(refused, Err(want), "{bad}");
        }
    }

    #[test]
    fn the_timeout_of_an_attempt_is_parsed() {
        let timeout = |set: &[(&str, &str)]| {
            let all = [&[(ENV_HOST_IP, "10.0.0.1")], set].concat();
            find(&all, "").unwrap().unwrap().timeout
        };
        let (metrics, all) = ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", ENV_TIMEOUT);
        let traces = "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT";
        let millis = Duration::from_millis;
        assert_eq!(timeout(&[(metrics, "7"), (all, "9")]), millis(7));
        for unusable in ["soon", "0"] {
            assert_eq!(timeout(&[(metrics, unusable), (all, "9")]), millis(9));
        }
        assert_eq!(timeout(&[(traces, "7"), (all, "9")]), millis(9));
        let of_traces = |set: &[(&str, &str)]| {
            let variable = |name: &str| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let found = Destination::configured(Signal::Traces, "key", None, variable);
            found.unwrap().timeout
        };
        assert_eq!(of_traces(&[(metrics, "5"), (traces, "7")]), millis(7));
        assert_eq!(timeout(&[]), Duration::from_secs(10));
    }
}
