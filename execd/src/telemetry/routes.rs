//! Attributes of counted requests: route templates and file operations.

use std::sync::{Arc, RwLock};

use http::Method;

/// Route of requests without a route of their own, and of those to a user's server (contract: execd
/// §13).
const UNKNOWN: &str = "unknown";

/// File operations: the same behind each of the three prefixes.
const FILES: &[(Method, &str, &str)] = &[
    (Method::GET, "/files/info", "info"),
    (Method::DELETE, "/files", "delete"),
    (Method::POST, "/files/permissions", "chmod"),
    (Method::POST, "/files/mv", "rename"),
    (Method::POST, "/directories", "mkdir"),
    (Method::DELETE, "/directories", "rmdir"),
    (Method::GET, "/directories/list", "listdir"),
    (Method::GET, "/files/search", "search"),
    (Method::GET, "/files/find", "search"),
    (Method::POST, "/files/replace", "replace"),
    (Method::POST, "/files/upload", "upload"),
    (Method::GET, "/files/download", "download"),
];

/// Prefixes of file routes with an identity or a session: four segments, then one of the paths
/// above.
const PREFIXES: [&str; 2] = ["/v1/filesystem/", "/v1/isolated/session/"];
const PREFIX_SEGMENTS: usize = 4;

/// File operation of a request.
pub(super) fn operation(method: &Method, path: &str) -> Option<&'static str> {
    let path = file_path(path);
    let known = FILES.iter().find(|(m, p, _)| m == method && *p == path);
    known.map(|(_, _, operation)| *operation)
}

/// Path without the prefix for an identity or a session.
fn file_path(path: &str) -> &str {
    if !PREFIXES.iter().any(|prefix| path.starts_with(prefix)) {
        return path;
    }
    let slash = path.match_indices('/').nth(PREFIX_SEGMENTS);
    slash.map_or("", |(at, _)| &path[at..])
}

/// Cache of templates, bounded by the number of routes.
#[derive(Debug, Default)]
pub(super) struct Routes(RwLock<Vec<Known>>);

#[derive(Debug)]
struct Known {
    matched: String,
    /// Path that replaces the wildcard.
    rest: &'static str,
    template: Arc<str>,
}

impl Routes {
    /// Template of a request without a route.
    pub(super) fn unknown(&self) -> Arc<str> {
        self.known("", "")
    }

    /// Route template of a request in the reference's spelling, `/pty/:sessionId`. `matched` is in
    /// axum's, `/pty/{sessionId}`.
    pub(super) fn template(&self, matched: Option<&str>, method: &Method, path: &str) -> Arc<str> {
        let matched = matched.filter(|matched| !matched.starts_with("/proxy"));
        let rest = match matched {
            None => return self.unknown(),
            Some(matched) if matched.ends_with("/{*path}") => {
                let path = file_path(path);
                let known = FILES.iter().find(|(m, p, _)| m == method && *p == path);
                let Some((_, rest, _)) = known else {
                    return self.unknown();
                };
                *rest
            }
            Some(_) => "",
        };
        self.known(matched.unwrap_or_default(), rest)
    }

    fn known(&self, matched: &str, rest: &'static str) -> Arc<str> {
        let is = |known: &&Known| known.matched == matched && known.rest == rest;
        let found = |all: &[Known]| all.iter().find(is).map(|known| Arc::clone(&known.template));
        let read = self.0.read().expect("no holder of this lock panics");
        if let Some(template) = found(&read) {
            return template;
        }
        drop(read);
        let mut all = self.0.write().expect("no holder of this lock panics");
        if let Some(template) = found(&all) {
            return template;
        }
        let template: Arc<str> = written(matched, rest).into();
        all.push(Known {
            matched: matched.to_owned(),
            rest,
            template: Arc::clone(&template),
        });
        template
    }
}

fn written(matched: &str, rest: &str) -> String {
    if matched.is_empty() {
        return UNKNOWN.to_owned();
    }
    let (own, wild) = match matched.split_once("/{*path}") {
        // `rest` includes the segment before the wildcard, if there is one.
        Some((own, _)) => (own.trim_end_matches("/files"), rest),
        None => (matched, ""),
    };
    own.replace('{', ":").replace('}', "") + wild
}

/// Method, if HTTP defines it. Clients could otherwise create any number of attribute values.
pub(super) fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        Method::CONNECT => "CONNECT",
        Method::TRACE => "TRACE",
        _ => "_OTHER",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        let routes = Routes::default();
        let template = |method: Method, matched: &str, path: &str| {
            let matched = Some(matched).filter(|matched| !matched.is_empty());
            routes.template(matched, &method, path).to_string()
        };
        let id = "/v1/isolated/session/{id}";
        for (method, matched, path, want) in [
            (Method::GET, "/ping", "/ping", "/ping"),
            (
                Method::GET,
                "/pty/{sessionId}/ws",
                "/pty/7/ws",
                "/pty/:sessionId/ws",
            ),
            (
                Method::POST,
                "/v1/filesystem/{uid}/{gid}/{*path}",
                "/v1/filesystem/1/2/files/mv",
                "/v1/filesystem/:uid/:gid/files/mv",
            ),
            (
                Method::GET,
                &format!("{id}/files/{{*path}}"),
                "/v1/isolated/session/7/files/info",
                "/v1/isolated/session/:id/files/info",
            ),
            (
                Method::GET,
                "/v1/filesystem/{uid}/{gid}/{*path}",
                "/v1/filesystem/1/2/whatever",
                UNKNOWN,
            ),
            (
                Method::GET,
                "/proxy/{port}/{*path}",
                "/proxy/1/files/info",
                UNKNOWN,
            ),
            (Method::GET, "/proxy", "/proxy", UNKNOWN),
            (Method::GET, "", "/none", UNKNOWN),
        ] {
            for _ in 0..2 {
                assert_eq!(template(method.clone(), matched, path), want);
            }
        }
        assert_eq!(routes.0.read().unwrap().len(), 5);
    }

    #[test]
    fn file_operations_of_every_identity() {
        for prefix in ["", "/v1/filesystem/1/2", "/v1/isolated/session/7"] {
            for (method, path, name) in FILES {
                assert_eq!(operation(method, &format!("{prefix}{path}")), Some(*name));
            }
        }
        for path in [
            "/v1/isolated/session/7",
            "/v1/isolated/session/7/run",
            "/x/files/info",
        ] {
            assert_eq!(operation(&Method::GET, path), None, "{path}");
        }
        assert_eq!(operation(&Method::GET, "/files"), None);
    }
}
