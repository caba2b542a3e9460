//! Addresses of other services as they may be shown: in the log, in `config show` and in a support
//! bundle. Operators put credentials into them.

use url::Url;

/// What is shown instead of a secret.
pub(crate) const MASK: &str = "********";
/// Length from which a segment of a path may be a token, as in the addresses of some collectors.
const TOKEN_MIN: usize = 16;

/// An address without its credentials, query and long segments.
pub(crate) fn shown(address: &str) -> String {
    let address = address.trim();
    if address.is_empty() {
        return String::new();
    }
    let Some((url, host)) = parsed(address) else {
        return MASK.to_owned();
    };
    let mut text = format!("{}://", url.scheme());
    if !url.username().is_empty() || url.password().is_some() {
        text.push_str(MASK);
        text.push('@');
    }
    text.push_str(&host);
    if let Some(port) = url.port() {
        text.push_str(&format!(":{port}"));
    }
    let segments = url.path().split('/');
    let segments = segments.map(|segment| if is_token(segment) { MASK } else { segment });
    text.push_str(&segments.collect::<Vec<_>>().join("/"));
    for (mark, part) in [('?', url.query()), ('#', url.fragment())] {
        if part.is_some() {
            text.push(mark);
            text.push_str(MASK);
        }
    }
    text
}

/// The parts of an address that [`shown`] leaves out, as the address has them; all of one that cannot
/// be read.
pub(crate) fn secrets(address: &str) -> Vec<String> {
    let address = address.trim();
    let Some((url, _)) = parsed(address) else {
        return vec![address.to_owned()];
    };
    let mut secrets = vec![url.username().to_owned()];
    let parts = [url.password(), url.query(), url.fragment()];
    secrets.extend(parts.into_iter().flatten().map(str::to_owned));
    secrets.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
    let tokens = url.path().split('/').filter(|segment| is_token(segment));
    secrets.extend(tokens.map(str::to_owned));
    secrets.retain(|secret| !secret.is_empty());
    secrets
}

/// An address with its host.
fn parsed(address: &str) -> Option<(Url, String)> {
    let url = Url::parse(address).ok()?;
    let host = url.host_str()?.to_owned();
    Some((url, host))
}

fn is_token(segment: &str) -> bool {
    segment.len() >= TOKEN_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_left_out() {
        for (address, want) in [
            ("", ""),
            ("https://a.example/keys", "https://a.example/keys"),
            (" http://10.0.0.1:80/ ", "http://10.0.0.1/"),
            ("https://[fd00::1]:9/v1", "https://[fd00::1]:9/v1"),
            ("https://me:pw@a.example/k", "https://********@a.example/k"),
            ("https://me@a.example:8/k", "https://********@a.example:8/k"),
            ("https://a/k?token=pw&b#pw", "https://a/k?********#********"),
            (
                "https://a/receiver/v1/0123456789abcdef/v1/metrics",
                "https://a/receiver/v1/********/v1/metrics",
            ),
            ("a.example:4318", MASK),
            ("https://", MASK),
            ("pw", MASK),
        ] {
            assert_eq!(shown(address), want, "{address}");
        }
    }

    #[test]
    fn what_is_left_out_is_known() {
        let all = secrets("https://me:pw@a.example/k/0123456789abcdef?token=x%20y#f");
        let want = ["me", "pw", "token=x%20y", "f", "x y", "0123456789abcdef"];
        assert_eq!(all, want);
        assert_eq!(secrets("https://a.example/k"), Vec::<String>::new());
        assert_eq!(secrets("pw"), ["pw"]);
    }
}
