//! Tenants of an HTTP service, asked once for each key and remembered for a while.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use http::{HeaderName, HeaderValue, StatusCode};
use osb_protocol::headers;
use secrecy::ExposeSecret;
use serde::Deserialize;
use tokio::time::Instant;
use tracing::warn;

use super::{
    super::{Denied, Principal, rules, secret},
    HttpOptions, TenantError,
};

/// How long an answer without a `ttl` counts.
const TTL: Duration = Duration::from_secs(30);
/// Longest time that any answer counts.
const TTL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Most keys that are remembered.
const REMEMBERED: usize = 10_000;
/// Largest answer, in bytes.
const ANSWER_MAX: usize = 64 << 10;

/// Tenants of an HTTP service.
#[derive(Debug)]
pub struct HttpTenants {
    asker: Arc<Asker>,
    max_stale: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct Asker {
    http: reqwest::Client,
    endpoint: String,
    timeout: Duration,
    auth: Option<(HeaderName, HeaderValue)>,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<[u8; 32], Known>,
    /// Questions that wait for their answer; other requests with the key wait for the same one.
    asked: HashMap<[u8; 32], Question>,
}

#[derive(Clone, Debug)]
struct Known {
    principal: Arc<Principal>,
    fresh_until: Instant,
    stale_until: Instant,
}

type Question = Shared<BoxFuture<'static, Answer>>;

/// What the service says of a key.
#[derive(Clone, Debug)]
enum Answer {
    Tenant {
        principal: Arc<Principal>,
        ttl: Duration,
    },
    Unknown,
    Failed,
}

#[derive(Deserialize)]
struct Body {
    namespace: String,
    ttl: Option<f64>,
}

impl HttpTenants {
    pub(super) fn new(options: HttpOptions) -> Result<Self, TenantError> {
        let refused = |source: Box<dyn std::error::Error + Send + Sync>| TenantError::Client {
            endpoint: options.endpoint.clone(),
            source,
        };
        let auth = match &options.auth {
            None => None,
            Some((name, value)) => {
                let name: HeaderName = name.parse().map_err(|it| refused(Box::new(it)))?;
                let value = HeaderValue::from_str(value.expose_secret());
                let mut value = value.map_err(|it| refused(Box::new(it)))?;
                value.set_sensitive(true);
                Some((name, value))
            }
        };
        if !options.endpoint.starts_with("https://") {
            warn!(
                endpoint = options.endpoint,
                "API keys are sent to the tenant provider without TLS"
            );
        }
        let http = osb_client::default_http().map_err(|error| refused(Box::new(error)))?;
        Ok(Self {
            asker: Arc::new(Asker {
                http,
                endpoint: options.endpoint,
                timeout: options.timeout,
                auth,
            }),
            max_stale: options.max_stale,
            state: Mutex::default(),
        })
    }

    /// The tenant of a key.
    pub(super) async fn find(&self, key: &[u8]) -> Result<Arc<Principal>, Denied> {
        // A stored key that works was found before; no other service needs to learn one that does not.
        if key.starts_with(secret::PREFIX.as_bytes()) {
            return Err(Denied::Wrong);
        }
        let digest = secret::digest(key);
        let question = {
            let mut state = self.locked();
            if let Some(known) = state.known.get(&digest)
                && known.fresh_until > Instant::now()
            {
                return Ok(Arc::clone(&known.principal));
            }
            let ask = || Arc::clone(&self.asker).ask(key.to_vec()).boxed().shared();
            state.asked.entry(digest).or_insert_with(ask).clone()
        };
        let answer = question.clone().await;
        let now = Instant::now();
        let mut state = self.locked();
        // The first that has the answer notes it for the others.
        if state
            .asked
            .get(&digest)
            .is_some_and(|it| it.ptr_eq(&question))
        {
            state.asked.remove(&digest);
            match &answer {
                Answer::Tenant { principal, ttl } => {
                    state.make_room(now);
                    let known = Known {
                        principal: Arc::clone(principal),
                        fresh_until: now + *ttl,
                        stale_until: now + *ttl + self.max_stale,
                    };
                    state.known.insert(digest, known);
                }
                Answer::Unknown => drop(state.known.remove(&digest)),
                Answer::Failed => {}
            }
        }
        match answer {
            Answer::Tenant { principal, .. } => Ok(principal),
            Answer::Unknown => Err(Denied::Wrong),
            Answer::Failed => match state.known.get(&digest) {
                Some(known) if known.stale_until > now => Ok(Arc::clone(&known.principal)),
                _ => Err(Denied::Unavailable),
            },
        }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        // Two maps, whole after every operation.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets what no longer serves and, if that is not enough, what expires first.
    fn make_room(&mut self, now: Instant) {
        if self.known.len() < REMEMBERED {
            return;
        }
        self.known.retain(|_, known| known.stale_until > now);
        while self.known.len() >= REMEMBERED {
            let first = self.known.iter().min_by_key(|(_, known)| known.stale_until);
            let Some(digest) = first.map(|(digest, _)| *digest) else {
                return;
            };
            self.known.remove(&digest);
        }
    }
}

impl Asker {
    async fn ask(self: Arc<Self>, key: Vec<u8>) -> Answer {
        match self.try_ask(&key).await {
            Ok(answer) => answer,
            Err(reason) => {
                warn!(
                    endpoint = self.endpoint,
                    reason, "the tenant provider failed"
                );
                Answer::Failed
            }
        }
    }

    async fn try_ask(&self, key: &[u8]) -> Result<Answer, String> {
        let text = |error: reqwest::Error| error.without_url().to_string();
        let Ok(mut key) = HeaderValue::from_bytes(key) else {
            return Ok(Answer::Unknown);
        };
        key.set_sensitive(true);
        let mut request = self.http.get(&self.endpoint).header(headers::API_KEY, key);
        if let Some((name, value)) = &self.auth {
            request = request.header(name, value);
        }
        let response = request.timeout(self.timeout).send().await.map_err(text)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Ok(Answer::Unknown),
            other => return Err(format!("it answered {other}")),
        }
        let mut response = response;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(text)? {
            body.extend_from_slice(&chunk);
            if body.len() > ANSWER_MAX {
                return Err(format!("its answer has more than {ANSWER_MAX} bytes"));
            }
        }
        let body: Body = serde_json::from_slice(&body)
            .map_err(|_| "its answer is not JSON with a namespace".to_owned())?;
        let name = rules::tenant_name(&body.namespace)
            .map_err(|error| format!("its namespace {}", error.msg))?;
        let ttl = match body.ttl {
            None => TTL,
            Some(seconds) => Duration::try_from_secs_f64(seconds)
                .map_err(|_| "its ttl is not a number of seconds".to_owned())?,
        };
        Ok(Answer::Tenant {
            principal: Arc::new(Principal::tenant(&name)),
            ttl: ttl.min(TTL_MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use axum::{
        Router,
        extract::State as Served,
        http::HeaderMap,
        response::{IntoResponse, Response},
        routing::get,
    };
    use osb_service::Supervisor;
    use tokio::net::TcpListener;

    use super::*;

    /// A provider that answers as a test wants, and counts.
    #[derive(Debug, Default)]
    struct Service {
        asked: AtomicUsize,
        fails: AtomicBool,
        delay: Duration,
    }

    async fn answer(Served(service): Served<Arc<Service>>, headers: HeaderMap) -> Response {
        service.asked.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(service.delay).await;
        assert_eq!(headers["x-provider"], "secret");
        if service.fails.load(Ordering::SeqCst) {
            return StatusCode::BAD_GATEWAY.into_response();
        }
        match headers[headers::API_KEY].to_str().unwrap() {
            "forever" => r#"{"namespace":"ns-a","ttl":3600}"#.into_response(),
            "never" => r#"{"namespace":"ns-b","ttl":0}"#.into_response(),
            "blank" => r#"{"namespace":" "}"#.into_response(),
            "text" => "namespace".into_response(),
            _ => StatusCode::UNAUTHORIZED.into_response(),
        }
    }

    async fn provider(
        delay: Duration,
        max_stale: Duration,
    ) -> (HttpTenants, Arc<Service>, Supervisor) {
        let service = Arc::new(Service {
            delay,
            ..Service::default()
        });
        let router = Router::new()
            .route("/", get(answer))
            .with_state(Arc::clone(&service));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/", listener.local_addr().unwrap());
        let tasks = Supervisor::new();
        tasks.spawn_abortable("provider", async move {
            axum::serve(listener, router).await.unwrap();
        });
        let options = HttpOptions {
            endpoint,
            timeout: Duration::from_secs(30),
            max_stale,
            auth: Some(("x-provider".to_owned(), "secret".into())),
        };
        (HttpTenants::new(options).unwrap(), service, tasks)
    }

    async fn tenant(tenants: &HttpTenants, key: &str) -> Result<String, Denied> {
        let found = tenants.find(key.as_bytes()).await?;
        Ok(found.scope.tenant().unwrap_or_default().to_owned())
    }

    #[tokio::test]
    async fn an_answer_counts_for_its_time() {
        let (tenants, service, _tasks) = provider(Duration::ZERO, Duration::from_secs(300)).await;
        for (key, times, expected) in [
            ("forever", 1, Ok("ns-a".to_owned())),
            ("never", 3, Ok("ns-b".to_owned())),
            ("other", 3, Err(Denied::Wrong)),
            ("blank", 3, Err(Denied::Unavailable)),
            ("text", 3, Err(Denied::Unavailable)),
            ("osb_stored", 0, Err(Denied::Wrong)),
        ] {
            let before = service.asked.load(Ordering::SeqCst);
            for _ in 0..3 {
                assert_eq!(tenant(&tenants, key).await, expected, "{key}");
            }
            assert_eq!(
                service.asked.load(Ordering::SeqCst) - before,
                times,
                "{key}"
            );
        }
    }

    #[tokio::test]
    async fn a_failing_provider_leaves_what_is_known_for_a_while() {
        for (max_stale, expected) in [
            (Duration::from_secs(300), Ok("ns-b".to_owned())),
            (Duration::ZERO, Err(Denied::Unavailable)),
        ] {
            let (tenants, service, _tasks) = provider(Duration::ZERO, max_stale).await;
            assert_eq!(tenant(&tenants, "never").await, Ok("ns-b".to_owned()));
            service.fails.store(true, Ordering::SeqCst);
            assert_eq!(tenant(&tenants, "never").await, expected);
            assert_eq!(tenant(&tenants, "forever").await, Err(Denied::Unavailable));
        }
    }

    #[tokio::test]
    async fn requests_with_one_key_wait_for_one_answer() {
        let (tenants, service, _tasks) = provider(Duration::from_millis(50), Duration::ZERO).await;
        let all = futures::future::join_all((0..16).map(|_| tenant(&tenants, "never"))).await;
        assert!(
            all.iter().all(|one| *one == Ok("ns-b".to_owned())),
            "{all:?}"
        );
        assert_eq!(service.asked.load(Ordering::SeqCst), 1);
    }
}
