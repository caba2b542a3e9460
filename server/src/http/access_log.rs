//! The log of accesses: a line of JSON for each request, in a file of its own (contract: lifecycle
//! §14.2).
//!
//! A line has the path without its query, which may hold credentials, and without secrets of API keys.
//! Lines are written by a task: a slow disk delays no request, but costs lines once [`WAITING`] of
//! them wait.

use std::{
    io::{self, Write},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::StatusCode;
use osb_service::{
    ErrorChain, Supervisor,
    log_file::{LogFile, LogFileOptions},
};
use serde::Serialize;
use tokio::sync::mpsc;
use tracing::warn;

use crate::identity::redact_keys;

/// Most lines that wait to be written.
const WAITING: usize = 8_192;
/// Most lines that are written at once.
const AT_ONCE: usize = 512;
/// Longest path in a line, in bytes.
const PATH_MAX: usize = 2_048;

/// Takes lines. Clones write to the same file.
#[derive(Clone, Debug)]
pub struct AccessLog {
    lines: mpsc::Sender<Vec<u8>>,
    lost: Arc<AtomicU64>,
}

/// One request.
#[derive(Debug)]
pub(super) struct Access<'a> {
    /// Its id.
    pub(super) request_id: &'a str,
    /// Who sent it.
    pub(super) client: IpAddr,
    /// Its method.
    pub(super) method: &'a str,
    /// Its path, without a query.
    pub(super) path: &'a str,
    /// The status of the answer.
    pub(super) status: StatusCode,
    /// Time until the head of the answer.
    pub(super) took: Duration,
}

#[derive(Serialize)]
struct Line<'a> {
    timestamp: String,
    request_id: &'a str,
    client: IpAddr,
    method: &'a str,
    path: &'a str,
    status: u16,
    duration_ms: f64,
}

impl AccessLog {
    /// Opens the file and writes to it until the tasks stop.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn start(options: LogFileOptions, tasks: &Supervisor) -> io::Result<Self> {
        let mut file = LogFile::open(options)?;
        let (sender, mut lines) = mpsc::channel::<Vec<u8>>(WAITING);
        let lost = Arc::<AtomicU64>::default();
        let (counted, stopping) = (Arc::clone(&lost), tasks.stopping().clone());
        tasks.spawn("access log", async move {
            let mut ready = Vec::with_capacity(AT_ONCE);
            let mut is_failing = false;
            loop {
                tokio::select! {
                    biased;
                    _ = lines.recv_many(&mut ready, AT_ONCE) => {}
                    () = stopping.cancelled() => lines.close(),
                }
                if ready.is_empty() && lines.is_closed() && lines.is_empty() {
                    return;
                }
                let batch = std::mem::take(&mut ready);
                let written = tokio::task::spawn_blocking(move || {
                    let done = batch.iter().try_for_each(|line| file.write_all(line));
                    (file, done)
                });
                let Ok((returned, done)) = written.await else {
                    return;
                };
                file = returned;
                if let (false, Err(error)) = (is_failing, &done) {
                    warn!(error = %ErrorChain(error), "the log of accesses cannot be written");
                }
                is_failing = done.is_err();
                let lost = counted.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    warn!(
                        lost,
                        "lines of the log of accesses were lost: the disk is too slow"
                    );
                }
            }
        });
        Ok(Self {
            lines: sender,
            lost,
        })
    }

    /// Notes a request that was answered.
    pub(super) fn note(&self, access: &Access<'_>) {
        let path = redact_keys(access.path);
        let line = Line {
            timestamp: jiff::Timestamp::now().to_string(),
            request_id: access.request_id,
            client: access.client,
            method: access.method,
            path: &path[..path.floor_char_boundary(PATH_MAX)],
            status: access.status.as_u16(),
            duration_ms: access.took.as_secs_f64() * 1e3,
        };
        let Ok(mut line) = serde_json::to_vec(&line) else {
            return;
        };
        line.push(b'\n');
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[tokio::test]
    async fn a_request_is_a_line_without_its_query() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/access.log");
        let tasks = Supervisor::new();
        let options = LogFileOptions {
            path: path.clone(),
            max_bytes: 1 << 20,
            backups: 1,
        };
        let log = AccessLog::start(options, &tasks).unwrap();
        let long = "/x".repeat(PATH_MAX);
        let secret = format!("/v1/api-keys/osb_{}", "01234567".repeat(8));
        for path in ["/v1/sandboxes", "/a\"b\n", &long, &secret] {
            log.note(&Access {
                request_id: "r",
                client: IpAddr::from([10, 0, 0, 1]),
                method: "GET",
                path,
                status: StatusCode::NOT_FOUND,
                took: Duration::from_micros(1500),
            });
        }
        tasks.drain(Duration::from_secs(30)).await;
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 4, "{text}");
        let first = &lines[0];
        assert_eq!(first["path"], "/v1/sandboxes");
        assert_eq!(
            (&first["status"], &first["duration_ms"]),
            (&404.into(), &1.5.into())
        );
        assert_eq!(
            (&first["client"], &first["request_id"]),
            (&"10.0.0.1".into(), &"r".into())
        );
        assert_eq!(lines[1]["path"], "/a\"b\n");
        assert_eq!(lines[2]["path"].as_str().unwrap().len(), PATH_MAX);
        assert_eq!(lines[3]["path"], "/v1/api-keys/osb_01234567…");
        let after = log.lines.try_send(Vec::new());
        assert!(after.is_err(), "the task has ended");
    }
}
