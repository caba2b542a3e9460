//! The connection to the engine.

use std::{fmt, future::Future, sync::OnceLock};

use bollard::{Docker, errors::Error};
use futures::future::BoxFuture;
use tokio::time::timeout;

use super::error;
use crate::RuntimeError;

type Connect = Box<dyn Fn() -> Result<Docker, Error> + Send + Sync>;

/// Connects on first use: the client library cannot be set up while the engine's socket does not
/// exist, but a server must start before its engine does. The client keeps no idle connections, so
/// one that died without a sign cannot delay a later call.
pub(super) struct Engine {
    connect: Connect,
    client: OnceLock<Docker>,
}

impl Engine {
    pub(super) fn new(connect: Connect) -> Self {
        Self {
            connect,
            client: OnceLock::new(),
        }
    }

    /// Returns the client, making it on the first call.
    pub(super) fn client(&self) -> Result<&Docker, RuntimeError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = (self.connect)().map_err(|error| error::other("connect", &error))?;
        Ok(self.client.get_or_init(|| client))
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("connected", &self.client.get().is_some())
            .finish()
    }
}

/// Bounds a call by the client's time limit, including the body of the response: the client library
/// itself stops counting after the headers. The future is boxed, as the library's are large.
pub(super) fn bounded<'a, T: 'a>(
    docker: &Docker,
    call: impl Future<Output = Result<T, Error>> + Send + 'a,
) -> BoxFuture<'a, Result<T, Error>> {
    let limit = docker.timeout();
    Box::pin(async move {
        let result = timeout(limit, call).await;
        result.unwrap_or(Err(Error::RequestTimeoutError))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        Runtime,
        docker::{
            DockerConfig,
            fake_engine::{self, FakeEngine, HALF_OPEN, STALL},
            labels,
        },
    };

    /// Guards against hanging.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn an_idle_connection_is_not_used_again() {
        // The engine's end of it may have vanished without a sign.
        let engine = FakeEngine::start(|_| (HALF_OPEN, "[]".to_owned())).await;
        let runtime = engine.runtime();
        for _ in 0..2 {
            let removed = timeout(PATIENCE, runtime.remove(&"a".into())).await;
            removed.expect("a connection of its own").unwrap();
        }
    }

    #[tokio::test]
    async fn a_response_whose_body_stalls_is_an_unavailable_engine() {
        async fn check<T: fmt::Debug>(call: impl Future<Output = Result<T, RuntimeError>>) {
            let result = timeout(PATIENCE, call).await.expect("bounded");
            let error = result.unwrap_err();
            assert!(
                matches!(error, RuntimeError::Unavailable { .. }),
                "{error:?}"
            );
        }
        for stalled in ["GET /containers", "POST /containers/create", "GET /volumes"] {
            let engine = FakeEngine::start(move |request| match request {
                _ if request.starts_with(stalled) => (STALL, "[".to_owned()),
                _ if request.starts_with("GET /containers/json") => (200, "[]".to_owned()),
                _ => FakeEngine::with_volumes(request),
            })
            .await;
            let runtime = engine.runtime_with(DockerConfig {
                api_timeout: Duration::from_secs(1),
                ..fake_engine::config()
            });
            match stalled {
                "GET /containers" => {
                    check(runtime.remove(&"a".into())).await;
                    check(runtime.observe("c")).await;
                    check(runtime.observe_all()).await;
                    runtime
                        .originals
                        .record_created(&"a".into(), crate::Role::Main, "c");
                    check(runtime.log_tail(&"a".into(), 1)).await;
                }
                "POST /containers/create" => {
                    check(runtime.create(labels::tests::spec(), &|_| {})).await;
                }
                _ => check(runtime.sweep()).await,
            }
        }
    }
}
