//! Why images cannot be pulled, read from the words of engines and registries.

use std::fmt;

/// Why an image cannot be pulled, as far as the engine's message shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullFault {
    /// The registry requires other credentials, or does not reveal whether the image exists.
    Denied,
    /// The registry has no such repository, tag or digest.
    Unknown,
    /// The registry has the image for other platforms only.
    Platform,
    /// The registry limits how often images are pulled.
    RateLimited,
    /// The registry does not answer, or the engine cannot resolve its name.
    Unreachable,
    /// The registry's certificate is not trusted, or it does not speak TLS.
    Untrusted,
    /// The host's disk is full.
    DiskFull,
    /// The pull made no progress for too long.
    TimedOut,
    /// Any other reason.
    Other,
}

impl PullFault {
    /// All faults.
    pub const ALL: [Self; 9] = [
        Self::Denied,
        Self::Unknown,
        Self::Platform,
        Self::RateLimited,
        Self::Unreachable,
        Self::Untrusted,
        Self::DiskFull,
        Self::TimedOut,
        Self::Other,
    ];

    /// Reads an engine's message about the pull of an image. A message often has the words of several
    /// causes around each other, and the more specific ones are looked for first. The names of the image
    /// and its registry are no such words.
    #[must_use]
    pub fn of(message: &str, image: &str) -> Self {
        let message = without_reference(&message.to_ascii_lowercase(), &image.to_ascii_lowercase());
        let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
        if has(&["no space left", "disk quota exceeded"]) {
            Self::DiskFull
        } else if has(&["toomanyrequests", "too many requests", "rate limit"]) {
            Self::RateLimited
        } else if has(&[
            "no matching manifest",
            "does not match the specified platform",
        ]) {
            Self::Platform
        } else if has(&["x509", "certificate", "http response to https client"]) {
            Self::Untrusted
        } else if has(&[
            "denied",
            "unauthorized",
            "authentication required",
            "no basic auth credentials",
            "incorrect username or password",
            "403 forbidden",
        ]) {
            Self::Denied
        } else if has(&["no such host", "server misbehaving", "proxyconnect"]) {
            Self::Unreachable
        } else if has(&[
            "manifest unknown",
            "name unknown",
            "not found",
            "does not exist",
            "repository name not known",
        ]) {
            Self::Unknown
        } else if has(&[
            "timeout",
            "timed out",
            "deadline exceeded",
            "connection refused",
            "connection reset",
            "no route to host",
            "network is unreachable",
            "unexpected eof",
        ]) {
            Self::Unreachable
        } else {
            Self::Other
        }
    }

    /// The reason in words, without the engine's.
    #[must_use]
    pub fn words(self) -> Option<&'static str> {
        match self {
            Self::Denied => Some("the registry denies access, or there is no such image"),
            Self::Unknown => Some("there is no such image or tag"),
            Self::Platform => Some("the registry does not have it for the platform"),
            Self::RateLimited => Some("the registry limits pulls at the moment"),
            Self::Unreachable => Some("the engine cannot reach the registry"),
            Self::Untrusted => Some("the engine does not trust the registry's certificate"),
            Self::DiskFull => Some("the disk of the engine is full"),
            Self::TimedOut => Some("the pull made no progress"),
            Self::Other => None,
        }
    }
}

/// Removes an image's reference, in every form that engines and registries give it, and all addresses
/// from a message. Both are in lower case.
fn without_reference(message: &str, image: &str) -> String {
    let name = image.split('@').next().unwrap_or(image);
    let (host, path) = match name.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (host, path),
        _ => ("", name),
    };
    let path = path.split(':').next().unwrap_or(path);
    let host = host.split(':').next().unwrap_or(host);
    let quotes = ['"', '\'', '`'];
    let mut kept: Vec<&str> = Vec::new();
    let mut before = "";
    for word in message.split_whitespace() {
        let bare =
            word.trim_matches(|letter: char| quotes.contains(&letter) || ",;:()".contains(letter));
        let is_address = bare.contains("://") || (!host.is_empty() && bare.starts_with(host));
        let is_qualified = bare.contains(path) && bare.contains(['/', ':', '@']);
        // A name without further parts may be an ordinary word, such as "denied".
        let is_named = bare == path
            && (word.starts_with(quotes)
                || matches!(before, "for" | "reference" | "image" | "image:"));
        if !is_address && !is_qualified && !is_named {
            kept.push(word);
        }
        before = word;
    }
    kept.join(" ")
}

/// Introduction to the engine's own words.
impl fmt::Display for PullFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words() {
            Some(words) => write!(f, "{words}: "),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_engines_have_their_fault() {
        for (message, fault) in [
            (
                "pull access denied for a/b, repository does not exist or may require 'docker login': \
                 denied: requested access to the resource is denied",
                PullFault::Denied,
            ),
            (
                "Head \"https://r.example/v2/a/manifests/1\": unauthorized: authentication required",
                PullFault::Denied,
            ),
            (
                "Get \"https://r.example/v2/\": no basic auth credentials",
                PullFault::Denied,
            ),
            (
                "manifest for debian:nope not found: manifest unknown: manifest unknown",
                PullFault::Unknown,
            ),
            (
                "failed to resolve reference \"docker.io/library/debian:nope\": not found",
                PullFault::Unknown,
            ),
            (
                "no matching manifest for linux/arm64/v8 in the manifest list entries: not found",
                PullFault::Platform,
            ),
            (
                "toomanyrequests: You have reached your unauthenticated pull rate limit",
                PullFault::RateLimited,
            ),
            (
                "Get \"https://r.invalid/v2/\": dial tcp: lookup r.invalid: no such host",
                PullFault::Unreachable,
            ),
            (
                "Get \"https://r.example/v2/\": dial tcp 192.0.2.1:443: connect: connection refused",
                PullFault::Unreachable,
            ),
            (
                "Get \"https://r.example/v2/\": context deadline exceeded (Client.Timeout exceeded \
                 while awaiting headers)",
                PullFault::Unreachable,
            ),
            (
                "Get \"https://r.example/v2/\": tls: failed to verify certificate: x509: certificate \
                 signed by unknown authority",
                PullFault::Untrusted,
            ),
            (
                "http: server gave HTTP response to HTTPS client",
                PullFault::Untrusted,
            ),
            (
                "failed to register layer: write /x: no space left on device",
                PullFault::DiskFull,
            ),
            ("invalid tar header", PullFault::Other),
        ] {
            assert_eq!(PullFault::of(message, "debian:nope"), fault, "{message}");
        }
    }

    #[test]
    fn names_of_images_are_no_words_of_faults() {
        for (image, message, fault) in [
            (
                "denied/unauthorized:timeout",
                "manifest for denied/unauthorized:timeout not found: manifest unknown",
                PullFault::Unknown,
            ),
            (
                "r.example/certificate:1",
                "failed to resolve reference \"r.example/certificate:1\": not found",
                PullFault::Unknown,
            ),
            (
                "toomanyrequests",
                "Head \"https://r.example/v2/toomanyrequests/manifests/latest\": unauthorized: \
                 authentication required",
                PullFault::Denied,
            ),
            (
                "x509.example:5000/a",
                "Get \"https://x509.example:5000/v2/\": dial tcp: lookup x509.example: no such host",
                PullFault::Unreachable,
            ),
            (
                "denied",
                "pull access denied for denied, repository does not exist or may require 'docker login'",
                PullFault::Denied,
            ),
            (
                "denied",
                "no such image: denied: not found",
                PullFault::Unknown,
            ),
            (
                "denied",
                "unknown: requested access is denied",
                PullFault::Denied,
            ),
        ] {
            assert_eq!(PullFault::of(message, image), fault, "{image}: {message}");
        }
    }

    #[test]
    fn all_faults_but_the_last_have_words() {
        let nameless = PullFault::ALL.into_iter().filter(|it| it.words().is_none());
        assert_eq!(nameless.collect::<Vec<_>>(), [PullFault::Other]);
    }
}
