//! The output of a sandbox's entry point, as far as the engine keeps it.

use bollard::query_parameters::{LogsOptions, LogsOptionsBuilder};
use futures::TryStreamExt;
use osb_protocol::SandboxId;

use super::{DockerRuntime, engine::bounded, error};
use crate::RuntimeError;

/// Longest line of a log tail, in bytes.
const LOG_LINE: usize = 4096;

/// The last bytes of an output.
#[derive(Debug)]
pub(super) struct TailBuffer {
    pub(super) bytes: Vec<u8>,
    /// Whether earlier bytes were dropped.
    pub(super) is_cut: bool,
    most: usize,
}

impl TailBuffer {
    /// Creates a buffer of at most `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            is_cut: false,
            most,
        }
    }

    fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
        // Twice the limit, so that bytes are moved seldom.
        if self.bytes.len() > 2 * self.most {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let surplus = self.bytes.len().saturating_sub(self.most);
        self.is_cut |= surplus > 0;
        self.bytes.drain(..surplus);
    }
}

impl DockerRuntime {
    pub(super) async fn read_log_tail(
        &self,
        id: &SandboxId,
        lines: usize,
    ) -> Result<Vec<String>, RuntimeError> {
        let options = LogsOptionsBuilder::default()
            .stdout(true)
            .stderr(true)
            .tail(&lines.to_string())
            .build();
        let container = self.main_container(id).await?;
        // `tail` bounds lines, not bytes.
        let buffer = TailBuffer::new(lines.max(1) * LOG_LINE);
        let output = self.read_output(&container, options, buffer).await?;
        let output = output.ok_or_else(|| RuntimeError::NotFound(id.clone()))?;
        let all: Vec<String> = String::from_utf8_lossy(&output.bytes)
            .lines()
            .map(str::to_owned)
            .collect();
        Ok(all[all.len().saturating_sub(lines)..].to_vec())
    }

    /// Returns the id of the sandbox's main container.
    pub(super) async fn main_container(&self, id: &SandboxId) -> Result<String, RuntimeError> {
        if let Some(known) = self.originals.main(id) {
            return Ok(known);
        }
        self.find_group(id).await?;
        let found = self.originals.main(id);
        found.ok_or_else(|| RuntimeError::NotFound(id.clone()))
    }

    /// Reads a container's log into `buffer`. `None` if there is no such container.
    pub(super) async fn read_output(
        &self,
        container: &str,
        options: LogsOptions,
        mut buffer: TailBuffer,
    ) -> Result<Option<TailBuffer>, RuntimeError> {
        let docker = self.docker()?;
        let mut output = docker.logs(container, Some(options));
        let read = async {
            while let Some(chunk) = output.try_next().await? {
                buffer.push(&chunk.into_bytes());
            }
            buffer.cut();
            Ok(buffer)
        };
        match bounded(docker, read).await {
            Ok(output) => Ok(Some(output)),
            Err(error) if error::is_missing(&error) => Ok(None),
            Err(error) => Err(error::other("read the log", &error)),
        }
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

    #[test]
    fn a_buffer_keeps_the_last_bytes() {
        let mut buffer = super::TailBuffer::new(4);
        for chunk in ["abc", "def", "ghi", "j"] {
            buffer.push(chunk.as_bytes());
        }
        buffer.cut();
        assert_eq!(
            (buffer.bytes.as_slice(), buffer.is_cut),
            (&b"ghij"[..], true)
        );
        let mut short = super::TailBuffer::new(4);
        short.push(b"abcd");
        short.cut();
        assert!(!short.is_cut);
    }
}
