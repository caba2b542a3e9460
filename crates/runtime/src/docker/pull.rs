//! Image pulls (contract: lifecycle §17.3), shared by the creates that need the same image.
//!
//! A pull runs as long as one of its creates waits for it. It is driven by these creates, so that it
//! needs no task of its own, and the engine ends it when the last one is gone.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bollard::{Docker, auth::DockerCredentials, query_parameters::CreateImageOptionsBuilder};
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, Shared, WeakShared},
};
use osb_protocol::lifecycle::ImageAuth;
use sha2::{Digest, Sha256};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{
    KIND,
    engine_message::{ClientTexts, EngineMessage},
    error,
    image::split_reference,
    layers::Layers,
};
use crate::{Progress, PullFault, RuntimeError};

/// Shortest time between two notes about the progress of a pull.
const NOTE_INTERVAL: Duration = Duration::from_millis(250);

/// What to pull.
#[derive(Clone, Debug)]
pub(super) struct PullRequest<'a> {
    pub(super) image: &'a str,
    pub(super) platform: Option<String>,
    pub(super) auth: Option<&'a ImageAuth>,
}

impl PullRequest<'_> {
    fn key(&self) -> PullKey {
        let digest = |auth: &ImageAuth| {
            // Lengths keep names and passwords apart.
            let name = auth.username.as_bytes();
            let digest = Sha256::new().chain_update(name.len().to_le_bytes());
            let digest = digest.chain_update(name).chain_update(&auth.password);
            digest.finalize().into()
        };
        PullKey {
            image: self.image.to_owned(),
            platform: self.platform.clone(),
            credentials: self.auth.map(digest),
        }
    }
}

/// Pulls with one key have the same result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PullKey {
    image: String,
    platform: Option<String>,
    /// Digest of the credentials.
    credentials: Option<[u8; 32]>,
}

/// The pulls in progress.
#[derive(Debug, Default)]
pub(super) struct Pulls(Mutex<HashMap<PullKey, WeakPull>>);

type PullWork = BoxFuture<'static, Result<(), PullError>>;

#[derive(Debug)]
struct WeakPull {
    work: WeakShared<PullWork>,
    note: watch::Receiver<String>,
}

/// An error that every waiting create gets.
#[derive(Clone, Debug)]
enum PullError {
    Unavailable { reason: String },
    Failed { fault: PullFault, reason: String },
}

impl PullError {
    fn of_engine(error: &bollard::errors::Error, key: &PullKey) -> Self {
        match error::unavailable(error) {
            Some(_) => Self::Unavailable {
                reason: error::reason(error),
            },
            None => Self::failed(&error::message(error), key),
        }
    }

    fn failed(message: &str, key: &PullKey) -> Self {
        let texts = ClientTexts::of_pull(key.platform.as_deref());
        let message = EngineMessage::of_text(message, &texts);
        Self::Failed {
            fault: PullFault::of(message.own_words(), &key.image),
            reason: message.text().to_owned(),
        }
    }

    fn into_error(self, image: &str) -> RuntimeError {
        match self {
            Self::Unavailable { reason } => RuntimeError::Unavailable {
                runtime: KIND,
                reason,
            },
            Self::Failed { fault, reason } => RuntimeError::ImagePull {
                image: image.to_owned(),
                fault,
                reason,
            },
        }
    }
}

impl Pulls {
    /// Pulls an image, or waits for the pull that another create has begun. `patience` is the longest
    /// wait for the next message of the engine.
    pub(super) async fn pull(
        &self,
        docker: &Docker,
        request: PullRequest<'_>,
        progress: &dyn Progress,
        patience: Duration,
    ) -> Result<(), RuntimeError> {
        let (mut work, mut note) = self.join(docker, &request, patience);
        let known = note.borrow_and_update().clone();
        if !known.is_empty() {
            progress.note(&known);
        }
        let result = loop {
            tokio::select! {
                biased;
                result = &mut work => break result,
                changed = note.changed() => match changed {
                    Ok(()) => {
                        let text = note.borrow_and_update().clone();
                        progress.note(&text);
                    }
                    // The pull has ended.
                    Err(_) => break work.await,
                },
            }
        };
        result.map_err(|error| error.into_error(request.image))
    }

    fn join(
        &self,
        docker: &Docker,
        request: &PullRequest<'_>,
        patience: Duration,
    ) -> (Shared<PullWork>, watch::Receiver<String>) {
        let key = request.key();
        let mut all = self.locked();
        // Also forgets those that have ended.
        all.retain(|_, pull| pull.in_progress().is_some());
        if let Some(pull) = all.get(&key)
            && let Some(work) = pull.in_progress()
        {
            return (work, pull.note.clone());
        }
        let (sender, note) = watch::channel(String::new());
        let credentials = request.auth.map(|auth| DockerCredentials {
            username: Some(auth.username.clone()),
            password: Some(auth.password.clone()),
            ..DockerCredentials::default()
        });
        let work = run(docker.clone(), key.clone(), credentials, sender, patience);
        let work = work.boxed().shared();
        if let Some(weak) = work.downgrade() {
            let note = note.clone();
            all.insert(key, WeakPull { work: weak, note });
        }
        (work, note)
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<PullKey, WeakPull>> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WeakPull {
    /// Returns the work unless it has ended or no create waits for it.
    fn in_progress(&self) -> Option<Shared<PullWork>> {
        let work = self.work.upgrade()?;
        work.peek().is_none().then_some(work)
    }
}

async fn run(
    docker: Docker,
    key: PullKey,
    credentials: Option<DockerCredentials>,
    note: watch::Sender<String>,
    patience: Duration,
) -> Result<(), PullError> {
    let (name, tag) = split_reference(&key.image);
    let mut options = CreateImageOptionsBuilder::default()
        .from_image(name)
        .tag(tag);
    if let Some(platform) = &key.platform {
        options = options.platform(platform);
    }
    let mut messages = docker.create_image(Some(options.build()), None, credentials);
    let mut layers = Layers::default();
    let (mut last_message, mut last_note) = (Instant::now(), None::<Instant>);
    let mut is_noted = true;
    // The engine responds with 200 before it pulls. A failure is a later item of the stream.
    loop {
        let give_up = last_message + patience;
        let next_note = last_note.map(|last| last + NOTE_INTERVAL);
        let until = match next_note.filter(|_| !is_noted) {
            Some(next_note) => next_note.min(give_up),
            None => give_up,
        };
        match timeout_at(until, messages.next()).await {
            Ok(None) => return Ok(()),
            Ok(Some(Err(error))) => return Err(PullError::of_engine(&error, &key)),
            Ok(Some(Ok(message))) => {
                if let Some(detail) = message.error_detail {
                    let reason = detail.message;
                    let unknown = "the engine reported no reason";
                    return Err(PullError::failed(
                        reason.as_deref().unwrap_or(unknown),
                        &key,
                    ));
                }
                last_message = Instant::now();
                layers.update(&message);
                is_noted = false;
            }
            Err(_) if Instant::now() >= give_up => {
                let seconds = patience.as_secs();
                return Err(PullError::Failed {
                    fault: PullFault::TimedOut,
                    reason: format!("the engine reported nothing for {seconds} seconds"),
                });
            }
            Err(_) => {}
        }
        if !is_noted && last_note.is_none_or(|last| last.elapsed() >= NOTE_INTERVAL) {
            let line = layers.line();
            note.send_if_modified(|known| {
                let is_news = *known != line;
                *known = line;
                is_news
            });
            (is_noted, last_note) = (true, Some(Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        Stage,
        docker::fake_engine::{FakeEngine, HOLD, STALL},
    };

    /// Longest wait for a message in these tests.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[derive(Debug, Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Progress for Notes {
        fn reached(&self, _stage: Stage) {}
        fn note(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
    }

    fn request<'a>(image: &'a str, auth: Option<&'a ImageAuth>) -> PullRequest<'a> {
        PullRequest {
            image,
            platform: None,
            auth,
        }
    }

    fn auth(username: &str, password: &str) -> ImageAuth {
        ImageAuth {
            username: username.to_owned(),
            password: password.to_owned(),
        }
    }

    #[tokio::test]
    async fn parallel_creates_share_one_pull() {
        let message = json!({"status": "Pulling fs layer", "id": "a"}).to_string();
        let engine = FakeEngine::start(move |_| (HOLD, format!("{message}\r\n"))).await;
        let (docker, pulls) = (engine.docker(), Pulls::default());
        let notes = Notes::default();
        let all = (0..20).map(|_| pulls.pull(&docker, request("a", None), &notes, PATIENCE));
        for pulled in futures::future::join_all(all).await {
            pulled.unwrap();
        }
        assert_eq!(engine.requests("POST /images/create").len(), 1);
        let notes = notes.0.into_inner().unwrap();
        assert_eq!(notes, vec!["0 of 1 layers downloaded, 0 of 0 MB"; 20]);
        assert!(
            pulls
                .locked()
                .values()
                .all(|pull| pull.in_progress().is_none())
        );
        // The next one begins anew: the image may have been removed meanwhile.
        let again = pulls.pull(&docker, request("a", None), &|_| {}, PATIENCE);
        again.await.unwrap();
        assert_eq!(engine.requests("POST /images/create").len(), 2);
        assert_eq!(pulls.locked().len(), 1, "those that ended are forgotten");
    }

    #[tokio::test]
    async fn credentials_and_platforms_have_pulls_of_their_own() {
        let engine = FakeEngine::start(|_| (HOLD, String::new())).await;
        let (docker, pulls) = (engine.docker(), Pulls::default());
        let (one, two, three) = (auth("u", "p1"), auth("u", "p2"), auth("up", "1"));
        let mut arm = request("a", None);
        arm.platform = Some("linux/arm64".to_owned());
        let requests = [
            request("a", None),
            request("a:1", None),
            request("a", Some(&one)),
            request("a", Some(&two)),
            request("a", Some(&three)),
            request("a", Some(&one)),
            arm,
        ];
        let all = requests.map(|it| pulls.pull(&docker, it, &|_| {}, PATIENCE));
        futures::future::join_all(all).await;
        let heads = engine.heads("POST /images/create");
        assert_eq!(heads.len(), 6, "{heads:?}");
        let with_auth = heads
            .iter()
            .filter(|head| head.contains("x-registry-auth:"));
        assert_eq!(with_auth.count(), 3, "{heads:?}");
        let arm = heads.iter().filter(|head| head.contains("platform=linux"));
        assert_eq!(arm.count(), 1, "{heads:?}");
    }

    #[tokio::test]
    async fn a_pull_outlives_the_create_that_began_it() {
        let engine = FakeEngine::start(|_| (HOLD, String::new())).await;
        let (docker, pulls) = (engine.docker(), Pulls::default());
        let mut first = Box::pin(pulls.pull(&docker, request("a", None), &|_| {}, PATIENCE));
        let mut second = Box::pin(pulls.pull(&docker, request("a", None), &|_| {}, PATIENCE));
        let begun = async {
            while engine.requests("POST /images/create").is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            _ = &mut first => panic!("it is held"),
            _ = &mut second => panic!("it is held"),
            () = begun => {}
        }
        drop(first);
        second.await.unwrap();
        assert_eq!(engine.requests("POST /images/create").len(), 1);
    }

    #[tokio::test]
    async fn a_pull_that_fails_has_its_reason() {
        let failure = |message: &str| {
            let detail = json!({"message": message});
            json!({"errorDetail": detail, "error": message}).to_string()
        };
        for (status, body, fault, words) in [
            (
                200,
                failure("toomanyrequests: slow down"),
                PullFault::RateLimited,
                "image a cannot be pulled: the registry limits pulls at the moment: toomanyrequests",
            ),
            (
                404,
                json!({"message": "pull access denied for a"}).to_string(),
                PullFault::Denied,
                "the registry denies access, or there is no such image: pull access denied for a",
            ),
            (
                500,
                json!({"message": "dial tcp: lookup r on 127.0.0.53:53: no such host"}).to_string(),
                PullFault::Unreachable,
                "the engine cannot reach the registry: dial tcp",
            ),
            (
                STALL,
                format!("{}\r\n", json!({"status": "Pulling from a"})),
                PullFault::TimedOut,
                "the pull made no progress: the engine reported nothing for 1 seconds",
            ),
            (
                500,
                failure("broken"),
                PullFault::Other,
                "image a cannot be pulled: ",
            ),
        ] {
            let engine = FakeEngine::start(move |_| (status, body.clone())).await;
            let (docker, pulls) = (engine.docker(), Pulls::default());
            let patience = Duration::from_secs(1);
            let pulled = pulls.pull(&docker, request("a", None), &|_| {}, patience);
            let error = pulled.await.unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            let RuntimeError::ImagePull { fault: seen, .. } = error else {
                panic!("{error:?}");
            };
            assert_eq!(seen, fault);
        }
    }

    #[tokio::test]
    async fn notes_are_few_and_the_last_one_arrives() {
        let engine = FakeEngine::start(|_| {
            let messages = (0..5_000_i64).map(|step| {
                let detail = json!({"current": step * 1_000_000, "total": 5_000_000_000_i64});
                let status = json!({"status": "Downloading", "id": "a", "progressDetail": detail});
                format!("{status}\r\n")
            });
            (STALL, messages.collect())
        })
        .await;
        let (docker, pulls, notes) = (engine.docker(), Pulls::default(), Notes::default());
        let begun = Instant::now();
        let last = "0 of 1 layers downloaded, 4999 of 5000 MB";
        let arrived = async {
            while notes
                .0
                .lock()
                .unwrap()
                .last()
                .is_none_or(|note| note != last)
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let pulled = pulls.pull(&docker, request("a", None), &notes, PATIENCE);
        tokio::select! {
            ended = pulled => panic!("{ended:?}"),
            () = arrived => {}
        }
        // As many as fit into the time that it took, however slow this machine is.
        let fit = begun.elapsed().as_millis() / NOTE_INTERVAL.as_millis() + 2;
        let count = notes.0.lock().unwrap().len();
        assert!(count as u128 <= fit, "{count} notes, {fit} fit");
    }
}
