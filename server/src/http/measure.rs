//! What every request costs: how many there were by route, method and status, and how long they took
//! until the last byte (contract: lifecycle §A5).
//!
//! A request is measured where its connection is served, so that nothing in between is left out. Its
//! route is found by its path alone: the router's own answer does not come back that far.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use http::{Method, StatusCode};

use crate::durations::{CREATE_MS, Durations};

/// Upper bounds of the buckets of request durations, in milliseconds.
pub const REQUEST_MS: [u64; 14] = [
    1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000,
];
/// Most kinds of SDK that are distinguished: clients name themselves.
const SDKS: usize = 64;
/// Languages of SDKs that are distinguished.
const LANGUAGES: [&str; 8] = [
    "csharp",
    "go",
    "java",
    "javascript",
    "kotlin",
    "python",
    "rust",
    "typescript",
];
/// Longest release of an SDK, in bytes.
const VERSION_MAX: usize = 32;
/// Language or release of an SDK that is not distinguished.
const OTHER_SDK: &str = "other";
/// Status of a request whose client was gone before the answer.
const CLIENT_CLOSED: u16 = 499;
/// Methods with a name of their own.
const METHODS: [Method; 9] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::HEAD,
    Method::OPTIONS,
    Method::CONNECT,
    Method::TRACE,
];
/// Name of every other method.
const OTHER: &str = "OTHER";
/// Route of requests that reach none.
pub(super) const UNKNOWN: &str = "unknown";

/// Counts requests. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    routes: OnceLock<Routes>,
    requests: RwLock<HashMap<RequestKind, Arc<Durations>>>,
    creates: RwLock<HashMap<SdkCreate, Arc<Durations>>>,
    connections: AtomicUsize,
    observer: OnceLock<Box<dyn Observer>>,
}

/// Gets every measurement as well, to send it elsewhere.
pub trait Observer: std::fmt::Debug + Send + Sync {
    /// A request has ended.
    fn request(&self, request: &RequestKind, took: Duration);
    /// An SDK reports a create.
    fn create(&self, create: &SdkCreate, took: Duration);
}

/// Templates of routes.
#[derive(Debug, Default)]
struct Routes {
    by_path: matchit::Router<&'static str>,
}

/// What distinguishes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKind {
    /// Template such as `/sandboxes/{sandbox_id}`, without a version.
    pub route: &'static str,
    /// Method in upper case.
    pub method: &'static str,
    /// Status of the answer.
    pub status: u16,
}

/// A create that an SDK has measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SdkCreate {
    /// Language in lower case.
    pub language: String,
    /// Release of the SDK.
    pub version: String,
    /// Whether it succeeded.
    pub success: bool,
}

impl SdkCreate {
    /// An SDK as its `User-Agent` names it: `OpenSandbox-Python-SDK/1.1.0`.
    pub(super) fn of(user_agent: &str, success: bool) -> Self {
        let Some((language, version)) = sdk(user_agent) else {
            return Self::named(UNKNOWN, UNKNOWN, success);
        };
        let known = |name: &&&str| name.eq_ignore_ascii_case(language);
        let language = LANGUAGES.iter().find(known).copied();
        let version = Some(version).filter(|version| is_release(version));
        Self::named(
            language.unwrap_or(OTHER_SDK),
            version.unwrap_or(OTHER_SDK),
            success,
        )
    }

    fn named(language: &str, version: &str, success: bool) -> Self {
        Self {
            language: language.to_owned(),
            version: version.to_owned(),
            success,
        }
    }
}

/// Whether a text looks like a release: `1.1.0`, `2.0.0-rc.1+build_7`.
fn is_release(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-+_".contains(&byte);
    let begins_with_digit = text.bytes().next().is_some_and(|it| it.is_ascii_digit());
    begins_with_digit && text.len() <= VERSION_MAX && text.bytes().all(allowed)
}

fn sdk(user_agent: &str) -> Option<(&str, &str)> {
    const START: &str = "opensandbox-";
    const MIDDLE: &str = "-sdk/";
    let lower = user_agent.to_ascii_lowercase();
    let (mut from, mut found) = (0, None);
    while let Some(at) = lower[from..].find(START) {
        from += at + START.len();
        let middle = lower[from..].find(MIDDLE)? + from;
        let language = &user_agent[from..middle];
        let rest = &user_agent[middle + MIDDLE.len()..];
        let version = rest.split_whitespace().next().unwrap_or_default();
        let is_name = !language.is_empty() && language.bytes().all(|it| it.is_ascii_alphanumeric());
        // A version behind a space is none.
        if is_name && rest.starts_with(version) && !version.is_empty() {
            found = Some((language, version));
            break;
        }
    }
    found
}

impl Meter {
    /// Learns the routes; `/v1` before them does not count.
    pub(super) fn set_routes(&self, templates: impl IntoIterator<Item = String>) {
        let mut routes = Routes::default();
        for template in templates {
            let bare = template.strip_prefix("/v1").unwrap_or(&template);
            let name: &'static str = bare
                .replace("/sandboxes/{id}", "/sandboxes/{sandbox_id}")
                .leak();
            // A path under both prefixes comes twice.
            let _ = routes.by_path.insert(bare, name);
        }
        // A meter has one router.
        let _ = self.0.routes.set(routes);
    }

    /// Passes on every measurement from now on; only the first observer counts.
    pub fn observe_with(&self, observer: Box<dyn Observer>) {
        let _ = self.0.observer.set(observer);
    }

    /// Begins to measure a request.
    pub(super) fn begin<B>(&self, request: &http::Request<B>) -> Measured {
        let path = request.uri().path();
        let bare = path.strip_prefix("/v1").unwrap_or(path);
        let routes = self.0.routes.get();
        let route = routes.and_then(|routes| routes.by_path.at(bare).ok());
        let method = METHODS.iter().position(|known| known == request.method());
        // A preflight never reaches a route.
        let route = route.filter(|_| request.method() != Method::OPTIONS);
        Measured {
            meter: self.clone(),
            began: Instant::now(),
            kind: RequestKind {
                route: route.map_or(UNKNOWN, |route| *route.value),
                method: method.map_or(OTHER, method_name),
                status: CLIENT_CLOSED,
            },
        }
    }

    /// Counts a connection until the guard is dropped.
    pub(super) fn connection(&self) -> OpenConnection {
        self.0.connections.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self.clone())
    }

    pub(super) fn connections(&self) -> usize {
        self.0.connections.load(Ordering::Relaxed)
    }

    /// Takes over what an SDK has measured.
    pub(super) fn sdk_create(&self, create: SdkCreate, took: Duration) {
        let (create, durations) = {
            // One lock for the look and the insertion, so that requests at once add no more.
            let creates = self.0.creates.write();
            let mut creates = creates.unwrap_or_else(PoisonError::into_inner);
            let is_full = creates.len() >= SDKS && !creates.contains_key(&create);
            let create = match is_full {
                true => SdkCreate::named(OTHER_SDK, OTHER_SDK, create.success),
                false => create,
            };
            let new = || Arc::new(Durations::new(&CREATE_MS));
            let durations = creates.entry(create.clone()).or_insert_with(new);
            (create, Arc::clone(durations))
        };
        if let Some(observer) = self.0.observer.get() {
            observer.create(&create, took);
        }
        durations.add(took);
    }

    fn ended(&self, kind: &RequestKind, took: Duration) {
        if let Some(observer) = self.0.observer.get() {
            observer.request(kind, took);
        }
        durations(&self.0.requests, *kind, &REQUEST_MS).add(took);
    }

    /// All requests so far, in order.
    pub(super) fn requests(&self) -> Vec<(RequestKind, Arc<Durations>)> {
        sorted(&self.0.requests)
    }

    /// All creates that SDKs have reported, in order.
    pub(super) fn sdk_creates(&self) -> Vec<(SdkCreate, Arc<Durations>)> {
        sorted(&self.0.creates)
    }
}

type Table<K> = RwLock<HashMap<K, Arc<Durations>>>;

fn durations<K: std::hash::Hash + Eq>(
    table: &Table<K>,
    key: K,
    bounds: &'static [u64],
) -> Arc<Durations> {
    // The map is whole after every operation, so a panic elsewhere does not spoil it.
    let known = table.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(durations) = known.get(&key) {
        return Arc::clone(durations);
    }
    drop(known);
    let mut known = table.write().unwrap_or_else(PoisonError::into_inner);
    let new = || Arc::new(Durations::new(bounds));
    Arc::clone(known.entry(key).or_insert_with(new))
}

fn sorted<K: Ord + Clone>(table: &Table<K>) -> Vec<(K, Arc<Durations>)> {
    let known = table.read().unwrap_or_else(PoisonError::into_inner);
    let mut all: Vec<_> = known
        .iter()
        .map(|(key, durations)| (key.clone(), Arc::clone(durations)))
        .collect();
    drop(known);
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

fn method_name(index: usize) -> &'static str {
    const NAMES: [&str; 9] = [
        "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE",
    ];
    NAMES[index]
}

/// A request that is under way, until this is dropped.
#[derive(Debug)]
pub(super) struct Measured {
    meter: Meter,
    began: Instant,
    kind: RequestKind,
}

impl Measured {
    /// Template of its route.
    pub(super) fn route(&self) -> &'static str {
        self.kind.route
    }

    /// Takes over the status of its answer. A client that was refused did not reach the route.
    pub(super) fn answered(&mut self, status: StatusCode) {
        if status == StatusCode::UNAUTHORIZED {
            self.kind.route = UNKNOWN;
        }
        self.kind.status = match status.canonical_reason() {
            Some(_) => status.as_u16(),
            // A program in a sandbox can answer anything; each status would be kept for ever.
            None => status.as_u16() / 100 * 100,
        };
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.meter.ended(&self.kind, self.began.elapsed());
    }
}

/// An open connection, until this is dropped.
#[derive(Debug)]
pub(super) struct OpenConnection(Meter);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter() -> Meter {
        let meter = Meter::default();
        let templates = [
            "/v1/sandboxes",
            "/v1/sandboxes/{id}",
            "/sandboxes/{id}",
            "/sandboxes/{id}/proxy/{port}/{*path}",
        ];
        meter.set_routes(templates.map(str::to_owned));
        meter
    }

    fn kind(meter: &Meter, method: &str, path: &str, status: Option<u16>) -> RequestKind {
        let request = http::Request::builder().method(method).uri(path).body(());
        let mut measured = meter.begin(&request.unwrap());
        if let Some(status) = status {
            measured.answered(StatusCode::from_u16(status).unwrap());
        }
        measured.kind
    }

    #[test]
    fn requests_are_distinguished_by_route_and_never_by_id() {
        let meter = meter();
        let one = "/sandboxes/{sandbox_id}";
        let proxy = "/sandboxes/{sandbox_id}/proxy/{port}/{*path}";
        for (method, path, status, want) in [
            (
                "GET",
                "/v1/sandboxes",
                Some(200),
                ("/sandboxes", "GET", 200),
            ),
            ("GET", "/sandboxes/a", Some(404), (one, "GET", 404)),
            ("GET", "/v1/sandboxes/b?x=1", Some(200), (one, "GET", 200)),
            ("PUT", "/v1/sandboxes/b", Some(405), (one, "PUT", 405)),
            ("BREW", "/v1/sandboxes/b", None, (one, OTHER, CLIENT_CLOSED)),
            ("GET", "/v1/sandboxes/b", Some(401), (UNKNOWN, "GET", 401)),
            (
                "OPTIONS",
                "/sandboxes",
                Some(200),
                (UNKNOWN, "OPTIONS", 200),
            ),
            ("GET", "/sandboxes/", Some(307), (UNKNOWN, "GET", 307)),
            ("GET", "/elsewhere", Some(404), (UNKNOWN, "GET", 404)),
            (
                "POST",
                "/sandboxes/a/proxy/80/x/y",
                Some(299),
                (proxy, "POST", 200),
            ),
        ] {
            let found = kind(&meter, method, path, status);
            assert_eq!(
                (found.route, found.method, found.status),
                want,
                "{method} {path}"
            );
        }
    }

    #[test]
    fn sdks_are_recognised_by_their_user_agent() {
        for (agent, language, version) in [
            ("OpenSandbox-Python-SDK/1.1.0", "python", "1.1.0"),
            ("x opensandbox-JAVASCRIPT-sdk/2 y", "javascript", "2"),
            ("OpenSandbox--SDK/1 OpenSandbox-Go-SDK/3", "go", "3"),
            ("OpenSandbox-Py thon-SDK/1", UNKNOWN, UNKNOWN),
            ("OpenSandbox-Python-SDK/ 1", UNKNOWN, UNKNOWN),
            ("OpenSandbox-Go-SDK/2.0.0-rc.1+b_7", "go", "2.0.0-rc.1+b_7"),
            ("OpenSandbox-Cobol-SDK/1.0", OTHER_SDK, "1.0"),
            ("OpenSandbox-Go-SDK/devel", "go", OTHER_SDK),
            ("OpenSandbox-Go-SDK/1\"}", "go", OTHER_SDK),
            (
                "OpenSandbox-Go-SDK/123456789012345678901234567890123",
                "go",
                OTHER_SDK,
            ),
            ("curl/8", UNKNOWN, UNKNOWN),
            ("", UNKNOWN, UNKNOWN),
        ] {
            let found = SdkCreate::of(agent, true);
            let found = (found.language.as_str(), found.version.as_str());
            assert_eq!(found, (language, version), "{agent}");
        }
    }

    #[test]
    fn clients_cannot_make_series_without_end() {
        let meter = meter();
        for number in 0..10 * SDKS {
            let create = SdkCreate::of(&format!("OpenSandbox-Go-SDK/{number}"), true);
            meter.sdk_create(create, Duration::from_millis(1));
        }
        let creates = meter.sdk_creates();
        assert_eq!(creates.len(), SDKS + 1);
        assert!(
            creates
                .iter()
                .any(|(create, _)| create.version == OTHER_SDK)
        );
        let total: u64 = creates
            .iter()
            .map(|(_, durations)| durations.read().1)
            .sum();
        assert_eq!(total, 10 * SDKS as u64);
    }
}
