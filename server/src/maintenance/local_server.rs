//! How a command reaches the server that runs with the same configuration on the same machine.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use crate::config::ServerSection;

/// Scheme, host and port.
pub(super) fn base_url(server: &ServerSection) -> String {
    let scheme = if server.tls.files().is_some() {
        "https"
    } else {
        "http"
    };
    let host = match server.host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if !address.is_unspecified() => format!("[{address}]"),
        Ok(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.to_string(),
        _ => server.host.clone(),
    };
    format!("{scheme}://{host}:{}", server.port)
}

/// A client that waits so long for an answer.
pub(super) fn client(wait: Duration) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .timeout(wait)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        // The certificate is for the server's public name.
        .tls_danger_accept_invalid_certs(true)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_reached_where_it_listens() {
        for (host, want) in [
            ("0.0.0.0", "http://127.0.0.1:8080"),
            ("::", "http://127.0.0.1:8080"),
            ("127.0.0.2", "http://127.0.0.2:8080"),
            ("fd00::5", "http://[fd00::5]:8080"),
            ("sandboxes.example", "http://sandboxes.example:8080"),
        ] {
            let mut server = ServerSection {
                host: host.to_owned(),
                ..ServerSection::default()
            };
            assert_eq!(base_url(&server), want);
            server.tls.certificate = Some("/c".into());
            server.tls.key = Some("/k".into());
            assert_eq!(base_url(&server), want.replace("http", "https"));
        }
    }
}
