//! The last lines that a sandbox wrote.

use bollard::query_parameters::LogsOptionsBuilder;
use futures::TryStreamExt;
use osb_protocol::SandboxId;

use super::{DockerRuntime, engine::bounded, error};
use crate::RuntimeError;

/// Longest line of a log tail, in bytes.
const LOG_LINE: usize = 4096;

impl DockerRuntime {
    pub(super) async fn read_log_tail(
        &self,
        id: &SandboxId,
        lines: usize,
    ) -> Result<Vec<String>, RuntimeError> {
        let container = match self.originals.main(id) {
            Some(known) => Some(known),
            None => {
                self.find_group(id).await?;
                self.originals.main(id)
            }
        };
        let tail = match container {
            Some(container) => self.log_tail_of(&container, lines).await?,
            None => None,
        };
        tail.ok_or_else(|| RuntimeError::NotFound(id.clone()))
    }

    /// Reads the last lines of a container's log. `None` if there is no such container.
    async fn log_tail_of(
        &self,
        container: &str,
        lines: usize,
    ) -> Result<Option<Vec<String>>, RuntimeError> {
        let options = LogsOptionsBuilder::default()
            .stdout(true)
            .stderr(true)
            .tail(&lines.to_string())
            .build();
        let docker = self.docker()?;
        let mut output = docker.logs(container, Some(options));
        let read = async {
            let mut text = Vec::new();
            while let Some(chunk) = output.try_next().await? {
                text.extend_from_slice(&chunk.into_bytes());
                // `tail` bounds lines, not bytes.
                if text.len() > lines.max(1) * LOG_LINE {
                    text.drain(..text.len() - lines.max(1) * LOG_LINE);
                }
            }
            Ok(text)
        };
        let text = match bounded(docker, read).await {
            Ok(text) => text,
            Err(error) if error::is_missing(&error) => return Ok(None),
            Err(error) => return Err(error::other("read the log", &error)),
        };
        let all: Vec<String> = String::from_utf8_lossy(&text)
            .lines()
            .map(str::to_owned)
            .collect();
        Ok(Some(all[all.len().saturating_sub(lines)..].to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{
        Runtime, RuntimeError,
        docker::{fake_engine::FakeEngine, labels},
    };

    #[tokio::test]
    async fn the_log_of_an_unknown_container_is_found_by_its_label() {
        let engine = FakeEngine::start(|request| {
            if request.starts_with("GET /containers/json") {
                let renamed =
                    json!({"Id": "c1", "Labels": {labels::ID: "a", labels::SERVER: "us"}});
                return (200, json!([renamed]).to_string());
            }
            match request.starts_with("GET /containers/c1/logs") {
                // A frame: stream 1, four bytes of length, the bytes.
                true => (200, "\u{1}\0\0\0\0\0\0\u{8}one\ntwo\n".to_owned()),
                false => (404, json!({"message": "No such container"}).to_string()),
            }
        })
        .await;
        let tail = engine.runtime().log_tail(&"a".into(), 1).await.unwrap();
        assert_eq!(tail, ["two"]);
        let engine = FakeEngine::start(|request| match request {
            _ if request.starts_with("GET /containers/json") => (200, "[]".to_owned()),
            _ => (404, json!({"message": "No such container"}).to_string()),
        })
        .await;
        let none = engine.runtime().log_tail(&"a".into(), 1).await;
        assert!(matches!(none, Err(RuntimeError::NotFound(_))), "{none:?}");
    }
}
