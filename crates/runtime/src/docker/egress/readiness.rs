//! The wait until the rules of a sidecar stand (contract: egress §13.3).

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use osb_protocol::SandboxId;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use super::super::{DockerRuntime, EgressConfig, KIND, engine::bounded};
use crate::{EGRESS_PORT, RuntimeError};

/// Pause between questions whether the rules stand. They usually do after some hundredths of a
/// second.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest wait for one answer.
const TRY: Duration = Duration::from_secs(1);
/// Questions without an answer after which the container is inspected: it may have ended.
const UNANSWERED: u32 = 40;
/// Beginning of a positive answer.
const HEALTHY: &[u8] = b"HTTP/1.1 200";
/// Log lines that explain why a sidecar ended.
const LOG_LINES: &str = "12";

/// Why a sidecar does not enforce.
#[derive(Debug)]
enum Unready {
    /// Nothing answers yet.
    Silent,
    /// It answers, but not that its rules stand.
    Unhealthy,
}

impl DockerRuntime {
    /// Waits until the rules of a sidecar stand, and returns the address of its API. The sandbox must
    /// not start before. `port` publishes the API.
    ///
    /// # Errors
    /// The sidecar ended, or took longer than configured.
    pub(in crate::docker) async fn await_rules(
        &self,
        id: &SandboxId,
        container: &str,
        egress: &EgressConfig,
        port: Option<u16>,
    ) -> Result<SocketAddr, RuntimeError> {
        let failed = |reason: String| RuntimeError::Start {
            id: id.clone(),
            reason: reason.into(),
        };
        let deadline = Instant::now() + egress.readiness_timeout;
        let address = self.sidecar_address(container, port).await?;
        let mut unanswered = 0;
        loop {
            let answer = timeout(TRY, ask(address))
                .await
                .unwrap_or(Err(Unready::Silent));
            match answer {
                Ok(()) => return Ok(address),
                Err(Unready::Unhealthy) => {}
                Err(Unready::Silent) => unanswered += 1,
            }
            if unanswered % UNANSWERED == UNANSWERED - 1
                && let Some(reason) = self.why_ended(container).await?
            {
                return Err(failed(reason));
            }
            if Instant::now() >= deadline {
                let seconds = egress.readiness_timeout.as_secs_f64();
                let log = self.last_lines(container).await;
                return Err(failed(format!(
                    "the egress sidecar did not enforce the network policy within {seconds} s: {log}"
                )));
            }
            sleep(PAUSE).await;
        }
    }

    /// Address of a running sidecar's API, as this server reaches it.
    async fn sidecar_address(
        &self,
        container: &str,
        port: Option<u16>,
    ) -> Result<SocketAddr, RuntimeError> {
        if let Some(port) = port {
            let host = self.config.publish_host;
            let host = if host.is_unspecified() {
                [127, 0, 0, 1].into()
            } else {
                host
            };
            return Ok((host, port).into());
        }
        let inspected = self.inspect(container).await?;
        let networks = inspected.network_settings.and_then(|it| it.networks);
        let mut addresses = networks.into_iter().flatten().filter_map(|(_, endpoint)| {
            let address: IpAddr = endpoint.ip_address?.parse().ok()?;
            Some(address)
        });
        match addresses.next() {
            Some(address) => Ok((address, EGRESS_PORT).into()),
            None => Err(RuntimeError::Other {
                runtime: KIND,
                op: "find the sidecar's address",
                reason: "the engine gave it none".to_owned(),
            }),
        }
    }

    /// Why a sidecar is not running; `None` if it is.
    async fn why_ended(&self, container: &str) -> Result<Option<String>, RuntimeError> {
        let state = self.inspect(container).await?.state.unwrap_or_default();
        // A supervised worker that fails again and again keeps the container running. It waits until
        // the deadline then.
        if state.running == Some(true) {
            return Ok(None);
        }
        let status = state.exit_code.unwrap_or_default();
        let log = self.last_lines(container).await;
        Ok(Some(format!(
            "the egress sidecar ended with status {status}: {log}"
        )))
    }

    /// The last lines that a sidecar wrote, as far as they can explain why it does not work.
    async fn last_lines(&self, container: &str) -> String {
        use bollard::query_parameters::LogsOptionsBuilder;
        use futures::TryStreamExt;
        let Ok(docker) = self.docker() else {
            return String::new();
        };
        let options = LogsOptionsBuilder::default()
            .stdout(true)
            .stderr(true)
            .tail(LOG_LINES)
            .build();
        let lines = docker
            .logs(container, Some(options))
            .try_collect::<Vec<_>>();
        let lines = bounded(docker, lines).await.unwrap_or_default();
        let texts: Vec<String> = lines
            .iter()
            .map(|line| line.to_string().trim().to_owned())
            .collect();
        explain(&texts)
    }
}

/// The last lines of a log that its supervisor did not write about starts and ends of its worker. A
/// worker that fails repeats its own lines.
fn explain(lines: &[String]) -> String {
    const MOST: usize = 3;
    let is_of_supervisor =
        |line: &str| line.starts_with("{\"ts\":") || line.contains("\"msg\":\"the worker ");
    let mut last: Vec<&str> = Vec::new();
    for line in lines.iter().rev().map(String::as_str) {
        if !line.is_empty() && !is_of_supervisor(line) && !last.contains(&line) {
            last.push(line);
        }
    }
    last.truncate(MOST);
    last.reverse();
    match last.is_empty() {
        true => "its log does not say why".to_owned(),
        false => last.join(" | "),
    }
}

/// Asks a sidecar whether its rules stand.
async fn ask(address: SocketAddr) -> Result<(), Unready> {
    const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: egress\r\nConnection: close\r\n\r\n";
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(REQUEST).await?;
        let mut head = [0; HEALTHY.len()];
        stream.read_exact(&mut head).await?;
        std::io::Result::Ok(head)
    };
    match exchange.await {
        Ok(head) if head == HEALTHY => Ok(()),
        Ok(_) => Err(Unready::Unhealthy),
        // A published port accepts before anything listens inside.
        Err(_) => Err(Unready::Silent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_worker_that_fails_again_and_again_gives_the_reason() {
        let attempt = [
            r#"{"ts":"2031-05-01T10:00:00Z","name":"egress","event":"start","pid":7,"attempt":1}"#,
            r#"{"level":"info","ts":"2031-05-01T10:00:00Z","msg":"the worker was started","pid":7}"#,
            "egress: OPENSANDBOX_EGRESS_DENY_WEBHOOK: must be an http or https URL",
            r#"{"level":"warn","ts":"2031-05-01T10:00:00Z","msg":"the worker has ended","pid":7}"#,
            r#"{"ts":"2031-05-01T10:00:00Z","name":"egress","event":"backoff","sleep_ms":1035}"#,
            "",
        ];
        let twice = attempt.iter().chain(&attempt);
        let lines: Vec<String> = twice.map(|line| (*line).to_owned()).collect();
        assert_eq!(explain(&lines), attempt[2]);
        assert_eq!(explain(&lines[..2]), "its log does not say why");
        let plain: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        assert_eq!(explain(&plain), "b | c | d");
    }

    #[tokio::test]
    async fn only_a_positive_answer_says_that_the_rules_stand() {
        for (answer, is_ready) in [
            ("HTTP/1.1 200 OK\r\n\r\nok", true),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n", false),
            ("", false),
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let serve = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 512];
                let _read = stream.read(&mut request).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            };
            let (asked, ()) = tokio::join!(ask(address), serve);
            assert_eq!(asked.is_ok(), is_ready, "{answer:?}");
        }
    }
}
