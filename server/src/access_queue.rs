//! Accesses that gateways report through Redis (contract: lifecycle §20).
//!
//! A gateway pushes one JSON text for each access to a list; each reader here takes one at a time. What
//! was taken is gone: an access that gets lost is followed by another while the sandbox is in use.

use std::time::Duration;

use anyhow::Context;
use osb_protocol::{SandboxId, WireTime};
use osb_service::{ErrorChain, Supervisor};
use redis::{AsyncConnectionConfig, Client, RedisError, aio::MultiplexedConnection};
use secrecy::ExposeSecret;
use serde::Deserialize;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::{
    config::RenewRedisSection,
    sandbox::{AccessSource, Service},
    wall_clock,
};

/// Seconds that one read waits for an access.
const WAIT_SECONDS: u32 = 5;
/// Longest wait for an answer of Redis: a read that finds nothing takes [`WAIT_SECONDS`].
const RESPONSE: Duration = Duration::from_secs(15);
/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Pause after an error.
const RETRY: Duration = Duration::from_secs(1);
/// Oldest access that counts, in seconds.
const MAX_AGE: i64 = 300;

/// An access, as a gateway reports it. Other members are not needed.
#[derive(Debug, Deserialize)]
struct Intent {
    sandbox_id: String,
    observed_at: String,
}

/// Starts the readers of the list.
///
/// # Errors
/// When the address of Redis cannot be read. Redis itself may be unavailable: the readers wait for it.
pub(crate) fn start(
    section: &RenewRedisSection,
    service: &Service,
    tasks: &Supervisor,
) -> anyhow::Result<()> {
    let dsn = section.dsn.as_ref().map(ExposeSecret::expose_secret);
    // The library's error may repeat the address, which may have a password in it.
    let client = Client::open(dsn.unwrap_or_default().trim()).ok();
    let client = client.context("renew_intent.redis.dsn is not an address of Redis")?;
    for number in 0..section.consumer_concurrency {
        let reader = Reader {
            client: client.clone(),
            key: section.queue_key.clone(),
            service: service.clone(),
            // One line of the log for each change is enough.
            is_first: number == 0,
        };
        tasks.spawn_abortable("accesses from redis", reader.run());
    }
    Ok(())
}

struct Reader {
    client: Client,
    key: String,
    service: Service,
    is_first: bool,
}

impl Reader {
    async fn run(self) {
        let mut was_connected = true;
        loop {
            let ended = self.read(&mut was_connected).await;
            if self.is_first && was_connected {
                warn!(
                    renew_event = "redis_disconnected",
                    error = %ErrorChain(&ended),
                    "accesses that gateways report are not seen until redis answers"
                );
            }
            was_connected = false;
            sleep(RETRY).await;
        }
    }

    /// Takes accesses until Redis fails.
    async fn read(&self, was_connected: &mut bool) -> RedisError {
        let mut connection = match self.connect().await {
            Ok(connection) => connection,
            Err(error) => return error,
        };
        if self.is_first {
            info!(
                renew_event = "redis_connected",
                "reads accesses that gateways report"
            );
        }
        *was_connected = true;
        let mut take = redis::cmd("BRPOP");
        take.arg(&self.key).arg(WAIT_SECONDS);
        loop {
            let taken = take.query_async::<Option<(Vec<u8>, Vec<u8>)>>(&mut connection);
            match taken.await {
                Ok(Some((_, intent))) => self.note(&intent),
                Ok(None) => {}
                Err(error) => return error,
            }
        }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(RESPONSE));
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        connection.await
    }

    fn note(&self, intent: &[u8]) {
        let now = wall_clock::now();
        match sandbox_of(intent, now) {
            Ok(id) => self
                .service
                .note_access_by_id(&id, AccessSource::RedisQueue),
            Err(reason) => debug!(
                renew_source = AccessSource::RedisQueue.as_str(),
                renew_skip_reason = reason,
                "access does not renew"
            ),
        }
    }
}

/// The sandbox that an intent is about, or why it does not count.
fn sandbox_of(intent: &[u8], now: WireTime) -> Result<SandboxId, &'static str> {
    let intent: Intent = serde_json::from_slice(intent).map_err(|_| "invalid")?;
    let observed_at = WireTime::parse(&intent.observed_at).map_err(|_| "invalid")?;
    let age = now.unix_us().saturating_sub(observed_at.unix_us());
    if age > MAX_AGE * 1_000_000 {
        return Err("stale");
    }
    if intent.sandbox_id.is_empty() {
        return Err("invalid");
    }
    Ok(SandboxId::new(intent.sandbox_id))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_recent_and_complete_intents_count() {
        let now = WireTime::parse("2031-05-01T10:05:00Z").unwrap();
        let id = |intent: Value| sandbox_of(intent.to_string().as_bytes(), now);
        let at = |at: &str| json!({"sandbox_id": "a", "observed_at": at});
        for recent in [
            "2031-05-01T10:05:00Z",
            "2031-05-01T10:00:00Z",
            "2031-05-01T10:04:59.123456789Z",
            "2031-05-01T12:04:59.5+02:00",
            "2031-05-01T10:04:59",
            // The gateway's clock may be ahead.
            "2031-05-01T10:06:00Z",
        ] {
            assert_eq!(id(at(recent)), Ok("a".into()), "{recent}");
        }
        assert_eq!(id(at("2031-05-01T09:59:59Z")), Err("stale"));
        let whole = json!({
            "sandbox_id": "a", "observed_at": "2031-05-01T10:05:00Z", "port": 8080,
            "request_uri": "/x", "namespace": "n", "later": [],
        });
        assert_eq!(id(whole), Ok("a".into()));
        for invalid in [
            at("yesterday"),
            json!({"sandbox_id": "a"}),
            json!({"observed_at": "2031-05-01T10:05:00Z"}),
            json!({"sandbox_id": "", "observed_at": "2031-05-01T10:05:00Z"}),
            json!({"sandbox_id": 1, "observed_at": "2031-05-01T10:05:00Z"}),
            json!([]),
        ] {
            assert_eq!(id(invalid.clone()), Err("invalid"), "{invalid}");
        }
        assert_eq!(sandbox_of(b"{", now), Err("invalid"));
    }
}
