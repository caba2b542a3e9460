//! Questions, answers and failures, with a service that a test controls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::get,
};
use futures::FutureExt;
use osb_protocol::headers;
use osb_service::Supervisor;
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};

use super::{
    super::super::Denied,
    AT_ONCE, HttpOptions, HttpTenants,
    cache::{Cache, REFUSED_MAX},
    provider::{Answer, ProviderFailure},
};

/// Time after which a test gives up.
const DEADLINE: Duration = Duration::from_secs(30);
/// Longer than any test waits.
const NEVER: Duration = Duration::from_secs(3600);

/// A service that answers as a test wants, and counts.
#[derive(Debug)]
struct Service {
    asked: AtomicUsize,
    fails: AtomicBool,
    /// A question is answered once there is a permit.
    answers: Semaphore,
    /// Questions that are being answered, and the most at once.
    open: AtomicUsize,
    most: AtomicUsize,
}

impl Service {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Takes the permits away: questions hang.
    fn hang(&self) {
        self.answers.forget_permits(Semaphore::MAX_PERMITS);
    }
}

async fn answer(State(service): State<Arc<Service>>, headers: HeaderMap) -> Response {
    service.asked.fetch_add(1, Ordering::SeqCst);
    let open = service.open.fetch_add(1, Ordering::SeqCst) + 1;
    service.most.fetch_max(open, Ordering::SeqCst);
    drop(service.answers.acquire().await.unwrap());
    service.open.fetch_sub(1, Ordering::SeqCst);
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

struct Stage {
    tenants: HttpTenants,
    service: Arc<Service>,
    _tasks: Supervisor,
}

/// Tenants over a service that answers `permits` questions at once.
async fn stage(permits: usize, max_stale: Duration, timeout: Duration) -> Stage {
    let service = Arc::new(Service {
        asked: AtomicUsize::new(0),
        fails: AtomicBool::new(false),
        answers: Semaphore::new(permits),
        open: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
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
        timeout,
        max_stale,
        auth: Some(("x-provider".to_owned(), "secret".into())),
    };
    Stage {
        tenants: HttpTenants::new(options, &tasks).unwrap(),
        service,
        _tasks: tasks,
    }
}

impl Stage {
    async fn tenant(&self, key: &str) -> Result<String, Denied> {
        let found = self.tenants.find(key.as_bytes(), || true);
        let found = timeout(DEADLINE, found).await.expect("an answer")?;
        Ok(found.scope.tenant().unwrap_or_default().to_owned())
    }

    /// Waits until no question waits for its answer.
    async fn settled(&self) {
        let settled = async {
            while self.tenants.cache().questions() > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(DEADLINE, settled).await.expect("no question waits");
    }
}

#[tokio::test]
async fn an_answer_counts_for_its_time() {
    let stage = stage(Semaphore::MAX_PERMITS, Duration::ZERO, NEVER).await;
    for (key, times, expected) in [
        ("forever", 1, Ok("ns-a".to_owned())),
        ("never", 3, Ok("ns-b".to_owned())),
        ("other", 1, Err(Denied::Wrong)),
        ("blank", 1, Err(Denied::Unavailable)),
        ("text", 1, Err(Denied::Unavailable)),
        ("osb_stored", 0, Err(Denied::Wrong)),
    ] {
        let before = stage.service.asked();
        for _ in 0..3 {
            assert_eq!(stage.tenant(key).await, expected, "{key}");
        }
        assert_eq!(stage.service.asked() - before, times, "{key}");
    }
    let long = "x".repeat(super::KEY_MAX + 1);
    let before = stage.service.asked();
    assert_eq!(stage.tenant(&long).await, Err(Denied::Wrong));
    assert_eq!(stage.service.asked(), before);
}

#[tokio::test]
async fn a_failing_service_leaves_what_is_known_for_a_while() {
    for (max_stale, expected) in [
        (NEVER, Ok("ns-b".to_owned())),
        (Duration::ZERO, Err(Denied::Unavailable)),
    ] {
        let stage = stage(Semaphore::MAX_PERMITS, max_stale, NEVER).await;
        assert_eq!(stage.tenant("never").await, Ok("ns-b".to_owned()));
        stage.service.fails.store(true, Ordering::SeqCst);
        assert_eq!(stage.tenant("never").await, expected);
        assert_eq!(stage.tenant("forever").await, Err(Denied::Unavailable));
    }
}

#[tokio::test]
async fn requests_with_one_key_wait_for_one_answer() {
    let stage = stage(0, Duration::ZERO, NEVER).await;
    let all = futures::future::join_all((0..16).map(|_| stage.tenant("never")));
    let answers = async {
        while stage.service.asked() == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        stage.service.answers.add_permits(1);
    };
    let (all, ()) = tokio::join!(all, answers);
    assert!(
        all.iter().all(|one| *one == Ok("ns-b".to_owned())),
        "{all:?}"
    );
    assert_eq!(stage.service.asked(), 1);
}

/// An attacker who opens and closes connections, each with another key.
#[tokio::test]
async fn questions_of_clients_that_are_gone_come_to_an_end() {
    let stage = stage(0, Duration::ZERO, NEVER).await;
    for n in 0..100 {
        let key = format!("unknown-{n}");
        let gone = stage.tenants.find(key.as_bytes(), || true).now_or_never();
        assert!(gone.is_none(), "{gone:?}");
    }
    assert_eq!(stage.tenants.cache().questions(), 100);
    stage.service.answers.add_permits(Semaphore::MAX_PERMITS);
    stage.settled().await;
    assert_eq!(stage.service.asked(), 100);
    let most = stage.service.most.load(Ordering::SeqCst);
    assert!(most <= AT_ONCE, "{most} at once");
}

#[tokio::test]
async fn a_client_that_sent_many_wrong_keys_asks_nothing() {
    let stage = stage(Semaphore::MAX_PERMITS, NEVER, NEVER).await;
    assert_eq!(stage.tenant("never").await, Ok("ns-b".to_owned()));
    let throttled = stage.tenants.find(b"unknown", || false).await;
    assert_eq!(throttled, Err(Denied::Throttled));
    assert_eq!(stage.service.asked(), 1);
    let known = stage.tenants.find(b"never", || false).await;
    assert!(known.is_ok(), "a key that was right before: {known:?}");
}

#[tokio::test]
async fn a_service_that_hangs_delays_no_key_that_is_known() {
    let stage = stage(Semaphore::MAX_PERMITS, NEVER, NEVER).await;
    assert_eq!(stage.tenant("never").await, Ok("ns-b".to_owned()));
    stage.service.hang();
    for _ in 0..3 {
        assert_eq!(stage.tenant("never").await, Ok("ns-b".to_owned()));
    }
    let arrives = async {
        while stage.service.asked() < 2 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, arrives).await.expect("the question");
    assert_eq!(stage.service.asked(), 2, "one question goes on");
}

#[tokio::test]
async fn a_service_that_is_away_is_left_alone_for_a_while() {
    let stage = stage(0, Duration::ZERO, Duration::from_millis(500)).await;
    for key in ["one", "other", "third"] {
        assert_eq!(stage.tenant(key).await, Err(Denied::Unavailable), "{key}");
    }
    assert_eq!(stage.service.asked(), 1);
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut cache = Cache::default();
    let now = Instant::now();
    for n in 0..=u32::try_from(REFUSED_MAX).unwrap() {
        let mut digest = [0; 32];
        digest[..4].copy_from_slice(&n.to_be_bytes());
        let verdict = cache.settle(digest, &Ok(Answer::Unknown), NEVER, now);
        assert_eq!(verdict, Err(Denied::Wrong));
    }
    assert_eq!(cache.refused(), REFUSED_MAX);
}

#[test]
fn a_key_that_is_withdrawn_or_moves_ends_what_it_opened() {
    let mut cache = Cache::default();
    let now = Instant::now();
    let mut settle = |name: Option<&str>| {
        let answer = name.map_or(Answer::Unknown, |name| Answer::Tenant {
            name: name.to_owned(),
            ttl: Duration::ZERO,
        });
        cache.settle([7; 32], &Ok(answer), NEVER, now)
    };
    let first = settle(Some("a")).unwrap();
    let same = settle(Some("a")).unwrap();
    assert!(Arc::ptr_eq(&first, &same));
    let moved = settle(Some("b")).unwrap();
    let ended = |it: &super::Principal| it.validity.ended().is_cancelled();
    assert!(ended(&first) && !ended(&moved));
    settle(None).unwrap_err();
    assert!(ended(&moved));
}

#[test]
fn failures_are_summed_up_for_the_log() {
    let mut cache = Cache::default();
    let start = Instant::now();
    assert_eq!(cache.count_failure(start), Some(1));
    for _ in 0..50 {
        assert_eq!(cache.count_failure(start + Duration::from_secs(9)), None);
    }
    assert_eq!(
        cache.count_failure(start + Duration::from_secs(10)),
        Some(51)
    );
}

#[test]
fn late_failures_do_not_leave_the_service_alone_for_longer() {
    let mut cache = Cache::default();
    let start = Instant::now();
    let failure = || Err(ProviderFailure::Away("a test".to_owned()));
    for after in 0..4 {
        let now = start + Duration::from_secs(after);
        let verdict = cache.settle([1; 32], &failure(), NEVER, now);
        assert_eq!(verdict, Err(Denied::Unavailable));
        assert!(cache.is_away(now));
    }
    assert!(!cache.is_away(start + Duration::from_secs(5)));
}
