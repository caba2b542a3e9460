//! Record of a background run, which outlives the run: its status and its output.

use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use jiff::Timestamp;
use osb_protocol::execd::isolated::{IsolatedRun, IsolatedRunStarted};

use crate::{limits, output::Log};

/// Background run.
#[derive(Debug)]
pub(super) struct Background {
    pub(super) session: String,
    pub(super) id: String,
    started_at: Timestamp,
    pub(super) log: Arc<Log>,
    ended: Mutex<Option<Ended>>,
}

#[derive(Clone, Debug)]
struct Ended {
    at: Timestamp,
    /// Exit code, or the reason why there is none.
    code: Result<i32, String>,
}

impl Background {
    pub(super) fn new(session: &str) -> Self {
        Self {
            session: session.to_owned(),
            id: uuid::Uuid::new_v4().to_string(),
            started_at: Timestamp::now(),
            log: Arc::new(Log::bounded(limits::ISOLATED_LOG_RUNNING)),
            ended: Mutex::default(),
        }
    }

    /// Records its end: the exit code, or the reason why there is none.
    pub(super) fn end(&self, code: Result<i32, String>) {
        let at = Timestamp::now();
        *self.ended.lock().expect("no holder of this lock panics") = Some(Ended { at, code });
    }

    /// Time of its end; `None` while it runs.
    pub(super) fn ended_at(&self) -> Option<Timestamp> {
        self.ended().map(|ended| ended.at)
    }

    pub(super) fn is(&self, session: &str, id: &str) -> bool {
        (self.session.as_str(), self.id.as_str()) == (session, id)
    }

    fn ended(&self) -> Option<Ended> {
        self.ended
            .lock()
            .expect("no holder of this lock panics")
            .clone()
    }

    pub(super) fn is_running(&self) -> bool {
        self.ended().is_none()
    }

    /// Status in its wire format.
    pub(super) fn status(&self) -> IsolatedRun {
        let ended = self.ended();
        IsolatedRun {
            session_id: self.session.clone(),
            run_id: self.id.clone(),
            running: ended.is_none(),
            exit_code: ended.as_ref().and_then(|ended| ended.code.clone().ok()),
            error: ended.as_ref().and_then(|ended| ended.code.clone().err()),
            started_at: self.started_at,
            finished_at: ended.map(|ended| ended.at),
        }
    }

    pub(super) fn started(&self) -> IsolatedRunStarted {
        IsolatedRunStarted {
            session_id: self.session.clone(),
            run_id: self.id.clone(),
            started_at: self.started_at,
        }
    }

    /// Reads output from an offset, up to the limit of one response, and returns the next offset.
    /// An offset past the end means the end.
    pub(super) async fn read(&self, cursor: u64) -> std::io::Result<(Bytes, u64)> {
        let len = self.log.len();
        let from = cursor.min(len);
        let to = len.min(from + limits::ISOLATED_LOG_READ);
        let mut text = BytesMut::new();
        let mut at = from;
        while at < to {
            let piece = self.log.read(at, to).await?;
            if piece.is_empty() {
                break;
            }
            at += piece.len() as u64;
            text.extend_from_slice(&piece);
        }
        Ok((text.freeze(), at))
    }
}
