//! What an operator reads to find the fault of one sandbox (contract: lifecycle §11).
//!
//! The texts join what the server knows (stages, state, cause) with what the runtime reports of the
//! container. No text has a value of an environment variable or a token.

mod events;
mod inspection;
mod raw;
mod since;

use std::sync::Arc;

use futures::StreamExt;
use osb_protocol::SandboxId;
use osb_runtime::{
    Diagnostics, Inspection, LogFollow, LogLine, LogLines, LogQuery, LogText, MASK, RuntimeError,
};
use osb_service::ErrorChain;
use osb_store::{HistoryEntry, Outcome};
use secrecy::ExposeSecret;
use serde_json::Value;
use tracing::warn;

pub use events::Event;
pub use since::parse as parse_since;

use super::{Error, Record, Service, lifecycle::now};

/// Most bytes of a log in an answer.
const LOG_BYTES: usize = 4 << 20;
/// Width of the lines around the title of a summary.
const RULE: usize = 72;

/// A sandbox that diagnostics can describe.
enum Subject {
    /// It exists.
    Known(Arc<Record>),
    /// Its create failed, or it vanished.
    Remembered(Box<HistoryEntry>),
}

impl Service {
    /// The last `lines` lines of the output of the entry point, with their times. With `seconds`, only
    /// those of that time.
    ///
    /// # Errors
    /// When the sandbox does not exist or the runtime fails.
    pub async fn diagnostic_log(
        &self,
        id: &SandboxId,
        lines: usize,
        seconds: Option<i64>,
    ) -> Result<LogText, Error> {
        let record = self.get(id)?;
        let since = seconds.and_then(|seconds| now().plus_seconds(-seconds));
        let query = LogQuery {
            lines,
            since,
            bytes: LOG_BYTES,
        };
        match self.diagnosing()?.read_log(id, query).await {
            // It is being created.
            Err(RuntimeError::NotFound(_)) => Ok(LogText::default()),
            read => {
                let log = read?;
                let text = without_tokens(&record, log.text);
                Ok(LogText { text, ..log })
            }
        }
    }

    /// The output of the entry point line by line: the last lines, and those written later if that is
    /// wanted.
    ///
    /// # Errors
    /// When the sandbox does not exist, has no container yet, or the runtime fails.
    pub async fn open_log(&self, id: &SandboxId, wanted: LogFollow) -> Result<LogLines, Error> {
        let record = self.get(id)?;
        let lines = self.diagnosing()?.open_log(id, wanted).await?;
        let masked = lines.map(move |line| {
            line.map(|line| LogLine {
                text: without_tokens(&record, line.text),
                ..line
            })
        });
        Ok(masked.boxed())
    }

    /// What happened to a sandbox, the oldest first. Of health checks only the last
    /// `checks` count. The create of a sandbox that failed or vanished is described, too.
    ///
    /// # Errors
    /// When the sandbox does not exist or the runtime fails.
    pub async fn diagnostic_events(
        &self,
        id: &SandboxId,
        checks: usize,
    ) -> Result<Vec<Event>, Error> {
        match self.subject(id).await? {
            Subject::Remembered(entry) => Ok(events::of_history(&entry)),
            Subject::Known(record) => {
                let container = self.inspect(id).await?;
                let events = events::of_record(&record, container.as_ref(), checks);
                let masked = events.into_iter().map(|event| Event {
                    text: without_tokens(&record, event.text),
                    ..event
                });
                Ok(masked.collect())
            }
        }
    }

    /// Settings and state of a sandbox, as aligned lines.
    ///
    /// # Errors
    /// When the sandbox does not exist or the runtime fails.
    pub async fn diagnostic_inspect(&self, id: &SandboxId) -> Result<String, Error> {
        match self.subject(id).await? {
            Subject::Remembered(entry) => Ok(inspection::of_history(&entry)),
            Subject::Known(record) => {
                let container = self.inspect(id).await?;
                let page = inspection::of_record(&record, container.as_ref());
                Ok(without_tokens(&record, page))
            }
        }
    }

    /// A sandbox as the API shows it, and its container, as JSON.
    ///
    /// # Errors
    /// When the sandbox does not exist or the runtime fails.
    pub async fn diagnostic_raw(&self, id: &SandboxId) -> Result<Value, Error> {
        match self.subject(id).await? {
            Subject::Remembered(entry) => Ok(raw::of_history(&entry)),
            Subject::Known(record) => {
                let container = self.inspect(id).await?;
                let mut value = raw::of_record(&record, container.as_ref());
                raw::each_text(&mut value, &|text| without_tokens(&record, text));
                Ok(value)
            }
        }
    }

    /// What the runtime says now of the container: its state in the runtime's word, and whether its
    /// process exists. `None` while there is no container.
    ///
    /// # Errors
    /// When the sandbox does not exist or the runtime fails.
    pub async fn container_now(&self, id: &SandboxId) -> Result<Option<(String, bool)>, Error> {
        self.get(id)?;
        let container = self.inspect(id).await?;
        Ok(container.map(|it| (it.status, it.is_running)))
    }

    /// All of it in one text. A section that fails says so, and the others stay.
    ///
    /// # Errors
    /// When the sandbox does not exist or the runtime is unavailable.
    pub async fn diagnostic_summary(
        &self,
        id: &SandboxId,
        lines: usize,
        checks: usize,
    ) -> Result<String, Error> {
        let subject = self.subject(id).await?;
        let inspect = self.diagnostic_inspect(id).await;
        let events = self.diagnostic_events(id, checks).await;
        let log = match &subject {
            Subject::Known(_) => self.diagnostic_log(id, lines, None).await,
            Subject::Remembered(_) => Ok(LogText::default()),
        };
        let rule = "=".repeat(RULE);
        let mut text = format!("{rule}\nSandbox {id}\n{rule}\n");
        for (title, section) in [
            ("INSPECT", inspect),
            ("EVENTS", events.map(|lines| events_text(&lines))),
            ("LOGS", log.map(log_text)),
        ] {
            let section = section.or_else(|error| unavailable(id, title, error))?;
            text += &format!("\n{title}\n{}\n{section}", "-".repeat(title.len()));
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
        Ok(text)
    }

    /// Finds a sandbox, or what is remembered of it.
    async fn subject(&self, id: &SandboxId) -> Result<Subject, Error> {
        let missing = match self.get(id) {
            Ok(record) => return Ok(Subject::Known(record)),
            Err(error @ Error::NotFound(_)) => error,
            Err(error) => return Err(error),
        };
        let entry = self.history(id).await?;
        let entry = entry.filter(|entry| match entry.outcome {
            Outcome::CreateFailed | Outcome::Abandoned | Outcome::Vanished => true,
            Outcome::Deleted | Outcome::Expired => false,
        });
        entry
            .map(|entry| Subject::Remembered(Box::new(entry)))
            .ok_or(missing)
    }

    /// `None` while the sandbox has no container.
    async fn inspect(&self, id: &SandboxId) -> Result<Option<Inspection>, Error> {
        match self.diagnosing()?.inspect(id).await {
            Err(RuntimeError::NotFound(_)) => Ok(None),
            inspected => Ok(Some(inspected?)),
        }
    }

    fn diagnosing(&self) -> Result<&dyn Diagnostics, Error> {
        let runtime = &self.inner.runtime;
        runtime.diagnostics().ok_or_else(|| Error::Unsupported {
            feature: osb_protocol::Feature::Diagnostics,
            runtime: runtime.kind(),
        })
    }
}

/// Masks the sandbox's own tokens, whatever put them into a text: a program that prints its settings, a
/// health check, or an error of the engine. Users who may only read diagnostics do not have them.
pub(super) fn without_tokens(record: &Record, mut text: String) -> String {
    let origin = &record.facts.origin;
    let tokens = [&origin.token, &origin.secure_access, &origin.egress_token];
    for token in tokens.into_iter().flatten() {
        let token = token.expose_secret();
        if !token.is_empty() && text.contains(token) {
            text = text.replace(token, MASK);
        }
    }
    text
}

/// Line that replaces a section of a summary. An unavailable runtime has no other section either.
fn unavailable(id: &SandboxId, section: &str, error: Error) -> Result<String, Error> {
    if matches!(error, Error::NotFound(_) | Error::RuntimeDown { .. }) {
        return Err(error);
    }
    warn!(sandbox = %id, section, error = %ErrorChain(&error), "part of the diagnostics failed");
    Ok("(not available: the server's log has the reason)".to_owned())
}

/// A log as text.
#[must_use]
pub fn log_text(log: LogText) -> String {
    match log.text.is_empty() {
        true => "(no logs)".to_owned(),
        false => log.text,
    }
}

/// Events as text.
#[must_use]
pub fn events_text(events: &[Event]) -> String {
    match events {
        [] => "(no notable events)".to_owned(),
        events => events.iter().map(|event| format!("{event}\n")).collect(),
    }
}
