//! Claims of sandboxes that wait in pools (contract: lifecycle §10).
//!
//! Such a sandbox is a container like any other, whose execd waits for `POST /internal/init` before it
//! starts an entry point. The claim is that request. execd answers the same claim again as before, and
//! refuses every other one.

use std::{io::Read, time::Duration};

use async_trait::async_trait;
use bollard::{
    models::ContainerInspectResponse, query_parameters::DownloadFromContainerOptionsBuilder,
};
use futures::{StreamExt, TryStreamExt};
use osb_protocol::SandboxId;
use secrecy::ExposeSecret;
use serde_json::json;
use tokio::time::timeout;
use tracing::warn;

use super::{
    DockerRuntime, KIND,
    container::{CLAIM_MARK, command},
    engine::bounded,
    error,
    exchange::{Answer, Exchange},
};
use crate::{Claim, ClaimMark, Pools, RuntimeError, SERVER_VARIABLES, SecureKind, WaitingSandbox};

/// Longest wait for an answer. The start of an entry point takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most pieces of an archive, and most bytes of the file in it, that are read: a client may have put
/// anything there.
const PIECES: usize = 16;
const MARK_MAX: u64 = 1024;
/// Header of the token of execd.
const TOKEN: &str = "X-EXECD-ACCESS-TOKEN";

async fn send(
    sandbox: &WaitingSandbox<'_>,
    method: &str,
    path: &str,
    body: &str,
) -> Result<Answer, RuntimeError> {
    let silent = |reason: String| RuntimeError::ExecdSilent {
        id: sandbox.origin.id.clone(),
        reason,
    };
    let Some(execd) = sandbox.execd else {
        return Err(RuntimeError::Start {
            id: sandbox.origin.id.clone(),
            reason: "this server has no route to its execd".to_owned().into(),
        });
    };
    let token = sandbox.origin.token.as_ref();
    let exchange = Exchange {
        method,
        path,
        token: token.map(|token| (TOKEN, token.expose_secret())),
        body,
    };
    match timeout(PATIENCE, exchange.send(execd)).await {
        Ok(Ok(Some(answer))) => Ok(answer),
        Ok(Ok(None)) => Err(silent("its answer is no HTTP".to_owned())),
        Ok(Err(error)) => Err(silent(error.to_string())),
        Err(_) => {
            let seconds = PATIENCE.as_secs();
            Err(silent(format!("no answer within {seconds} s")))
        }
    }
}

#[async_trait]
impl Pools for DockerRuntime {
    async fn claim(&self, sandbox: WaitingSandbox<'_>, claim: &Claim) -> Result<(), RuntimeError> {
        let allowed = |name: &String| !SERVER_VARIABLES.contains(&name.as_str());
        let set = claim.env.iter().filter(|(name, _)| allowed(name));
        let set = set.filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let unset = claim.env.iter().filter(|(_, value)| value.is_none());
        let unset = unset.map(|(name, _)| name).filter(|name| allowed(name));
        let body = json!({
            "sandboxId": sandbox.origin.id,
            "generation": 1,
            "claimId": claim.id,
            "entrypointPolicy": "restart",
            "entrypoint": command(&claim.entrypoint),
            "envs": set.collect::<std::collections::BTreeMap<_, _>>(),
            "unsetEnvs": unset.collect::<Vec<_>>(),
        });
        let answer = send(&sandbox, "POST", "/internal/init", &body.to_string()).await?;
        match answer.status {
            200 => Ok(()),
            400 => Err(RuntimeError::Refused {
                runtime: KIND,
                reason: answer.into_reason().into(),
            }),
            502..=504 => Err(RuntimeError::ExecdSilent {
                id: sandbox.origin.id.clone(),
                reason: answer.into_reason(),
            }),
            _ => Err(RuntimeError::Start {
                id: sandbox.origin.id.clone(),
                reason: format!("its execd refuses the claim: {}", answer.into_reason()).into(),
            }),
        }
    }

    async fn is_waiting(&self, sandbox: WaitingSandbox<'_>) -> Result<bool, RuntimeError> {
        let answer = send(&sandbox, "GET", "/ready", "").await?;
        // It has failed for ever if it has an error.
        Ok(answer.status == 503 && !answer.body.contains(r#""error""#))
    }

    async fn claim_mark(&self, id: &SandboxId) -> Result<ClaimMark, RuntimeError> {
        let docker = self.docker()?;
        let inspected = async {
            let container = self.main_container(id).await?;
            let inspected = self.inspect(&container).await?;
            Ok::<_, RuntimeError>((container, inspected))
        };
        let (container, inspected) = match inspected.await {
            Ok(found) => found,
            Err(RuntimeError::NotFound(_)) => return Ok(ClaimMark::Absent),
            Err(error) => return Err(error),
        };
        let unmarked = match self.leaves_marks(&inspected) {
            true => ClaimMark::Absent,
            false => ClaimMark::Unknown,
        };
        let options = DownloadFromContainerOptionsBuilder::default()
            .path(CLAIM_MARK)
            .build();
        let pieces = docker.download_from_container(&container, Some(options));
        let pieces = pieces.take(PIECES).try_collect::<Vec<_>>();
        match bounded(docker, pieces).await.map(|it| it.concat()) {
            Ok(archive) if is_mark_of(&archive, id) => Ok(ClaimMark::Present),
            Ok(_) => Ok(unmarked),
            Err(error) if error::is_missing(&error) => Ok(unmarked),
            Err(error) => match error::unavailable(&error) {
                Some(error) => Err(error),
                None => {
                    let reason = error::reason(&error);
                    warn!(sandbox = %id, reason, "whether it was claimed cannot be seen");
                    Ok(ClaimMark::Unknown)
                }
            },
        }
    }
}

impl DockerRuntime {
    /// Whether each claim of a sandbox leaves a mark that the engine sees. Users other than root may not
    /// write it, and gVisor may keep what is written in a file of its own.
    fn leaves_marks(&self, container: &ContainerInspectResponse) -> bool {
        let user = container.config.as_ref().and_then(|it| it.user.as_deref());
        let user = user.unwrap_or_default();
        let user = user.split_once(':').map_or(user, |(user, _)| user);
        let host = container.host_config.as_ref();
        let runtime = host.and_then(|host| host.runtime.as_deref());
        let secure = runtime.and_then(|name| self.secure_runtime_named(name));
        matches!(user, "" | "0" | "root") && secure != Some(SecureKind::Gvisor)
    }
}

/// Whether an archive has the mark of a claim of this sandbox. An image may have that of another one,
/// which it was made from; what no execd writes was put there by a client.
fn is_mark_of(archive: &[u8], id: &SandboxId) -> bool {
    let mut archive = tar::Archive::new(archive);
    let Some(Ok(entry)) = archive.entries().ok().and_then(|mut it| it.next()) else {
        return true;
    };
    let mut text = String::new();
    match entry.take(MARK_MAX).read_to_string(&mut text) {
        Ok(_) => text
            .split_once('\n')
            .is_none_or(|(marked, _)| marked == id.as_str()),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::TcpListener,
        thread,
    };

    use osb_protocol::WireTime;
    use secrecy::SecretString;
    use serde_json::Value;

    use super::*;
    use crate::{Origin, Source, docker::fake_engine::FakeEngine};

    /// An execd that answers one request. Returns where it is, and the request with its body.
    fn execd(status: &'static str, body: &'static str) -> (String, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut request = String::new();
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.strip_prefix("Content-Length: ") {
                    length = value.trim().parse().unwrap();
                }
                request.push_str(&line);
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut content = vec![0; length];
            reader.read_exact(&mut content).unwrap();
            request.push_str(&String::from_utf8(content).unwrap());
            let answer = format!("HTTP/1.1 {status}\r\nConnection: close\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).unwrap();
            request
        });
        (address, asked)
    }

    fn origin() -> Origin {
        let at = WireTime::from_unix_us(1).unwrap();
        let mut origin = Origin::new("a", Source::Image("debian:12".to_owned()), at);
        origin.token = Some(SecretString::from("t0ken"));
        origin
    }

    fn claim() -> Claim {
        let variable =
            |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        Claim {
            id: "c-1".to_owned(),
            entrypoint: vec!["sleep 9".to_owned()],
            env: [
                variable("A", Some("1")),
                variable("B", None),
                variable("OPENSANDBOX_ID", Some("other")),
                variable("EXECD_ACCESS_TOKEN", None),
            ]
            .into(),
        }
    }

    #[tokio::test]
    async fn a_claim_is_one_request_with_everything() {
        let engine = FakeEngine::start(FakeEngine::with_volumes).await;
        let runtime = engine.runtime();
        let (address, asked) = execd("200 OK", "{}");
        let origin = origin();
        let sandbox = WaitingSandbox {
            origin: &origin,
            execd: Some(&address),
        };
        runtime.claim(sandbox, &claim()).await.unwrap();
        let asked = asked.join().unwrap();
        let (head, body) = asked.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("POST /internal/init HTTP/1.1\r\n"),
            "{head}"
        );
        assert!(head.contains("X-EXECD-ACCESS-TOKEN: t0ken"), "{head}");
        let wanted = json!({
            "sandboxId": "a", "generation": 1, "claimId": "c-1", "entrypointPolicy": "restart",
            "entrypoint": ["sleep", "9"], "envs": {"A": "1"}, "unsetEnvs": ["B"],
        });
        assert_eq!(serde_json::from_str::<Value>(body).unwrap(), wanted);
        engine.stop().await;
    }

    #[tokio::test]
    async fn a_refused_claim_says_why() {
        let engine = FakeEngine::start(FakeEngine::with_volumes).await;
        let runtime = engine.runtime();
        let origin = origin();
        for (status, is_of_client) in [("400 Bad Request", true), ("409 Conflict", false)] {
            let (address, asked) = execd(status, "because");
            let sandbox = WaitingSandbox {
                origin: &origin,
                execd: Some(&address),
            };
            let error = runtime.claim(sandbox, &claim()).await.unwrap_err();
            assert!(error.to_string().contains("because"), "{error}");
            let is_refused = matches!(error, RuntimeError::Refused { .. });
            assert_eq!(is_refused, is_of_client, "{error}");
            asked.join().unwrap();
        }
        let unreachable = WaitingSandbox {
            origin: &origin,
            execd: None,
        };
        let error = runtime.claim(unreachable, &claim()).await.unwrap_err();
        assert!(matches!(error, RuntimeError::Start { .. }), "{error}");
        engine.stop().await;
    }

    #[tokio::test]
    async fn a_claim_without_a_definite_answer_may_be_repeated() {
        let engine = FakeEngine::start(FakeEngine::with_volumes).await;
        let runtime = engine.runtime();
        let origin = origin();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = closed.local_addr().unwrap().to_string();
        drop(closed);
        let (starting, asked) = execd("503 Service Unavailable", "not yet");
        for execd in [address, starting] {
            let sandbox = WaitingSandbox {
                origin: &origin,
                execd: Some(&execd),
            };
            let error = runtime.claim(sandbox, &claim()).await.unwrap_err();
            assert!(error.retryable(), "{error}");
            assert!(matches!(error, RuntimeError::ExecdSilent { .. }), "{error}");
        }
        asked.join().unwrap();
        engine.stop().await;
    }

    #[tokio::test]
    async fn only_one_that_may_still_be_claimed_waits() {
        let engine = FakeEngine::start(FakeEngine::with_volumes).await;
        let runtime = engine.runtime();
        let origin = origin();
        for (status, body, is_waiting) in [
            ("503 Service Unavailable", r#"{"initialized":false}"#, true),
            (
                "503 Service Unavailable",
                r#"{"initialized":false,"error":"it failed"}"#,
                false,
            ),
            ("200 OK", r#"{"initialized":true,"sandboxId":"a"}"#, false),
            ("404 Not Found", "", false),
        ] {
            let (address, asked) = execd(status, body);
            let sandbox = WaitingSandbox {
                origin: &origin,
                execd: Some(&address),
            };
            let seen = runtime.is_waiting(sandbox).await.unwrap();
            assert_eq!(seen, is_waiting, "{status} {body}");
            let asked = asked.join().unwrap();
            assert!(asked.starts_with("GET /ready HTTP/1.1\r\n"), "{asked}");
        }
        engine.stop().await;
    }
}
