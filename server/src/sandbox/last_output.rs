//! What a sandbox that does not run wrote last. A client that reaches for its execd learns the reason of
//! its end there, and perhaps nowhere else: some delete the sandbox after that.

use std::sync::Arc;

use osb_protocol::SandboxId;
use osb_service::ErrorChain;
use serde::Deserialize;
use tracing::debug;

use super::{Error, Service};

/// Lines at the end of a sandbox's output that are read: execd writes some after the entry point's.
const LINES: usize = 32;
/// Longest line that is shown, in characters.
const LINE_MAX: usize = 300;

impl Service {
    /// Adds the last line of the sandbox's output to an error that it does not run. Reads it once for
    /// each end.
    pub(crate) async fn with_last_output(&self, mut error: Error) -> Error {
        if let Error::NotRunning {
            id, last_output, ..
        } = &mut error
            && let Some(line) = self.last_output(id).await
        {
            *last_output = format!(" Its last output: {line}");
        }
        error
    }

    async fn last_output(&self, id: &SandboxId) -> Option<Arc<str>> {
        let facts = self.find(id)?.facts.clone();
        if facts.last_output.is_some() {
            return facts.last_output.filter(|line| !line.is_empty());
        }
        let lines = self.log_tail(id, LINES).await;
        let lines = lines
            .inspect_err(|error| {
                debug!(sandbox = %id, error = %ErrorChain(error), "cannot read the last output");
            })
            .ok()?;
        let line: Arc<str> = last_line(&lines).unwrap_or_default().into();
        // A sandbox that was removed or started again meanwhile needs none.
        let _ = self.inner.registry.update(id, |known| {
            if known.phase != facts.phase {
                return Err(());
            }
            known.last_output = Some(Arc::clone(&line));
            Ok(())
        });
        Some(line).filter(|line| !line.is_empty())
    }
}

/// A line of execd's log.
#[derive(Deserialize)]
struct Line {
    level: String,
    #[serde(rename = "ts")]
    _at: String,
    msg: String,
    #[serde(default)]
    error: String,
}

/// The last line of the entry point, or, if it wrote none, the last error of execd.
fn last_line(lines: &[String]) -> Option<String> {
    let mut last_error = None;
    for line in lines.iter().rev() {
        let line: String = line.chars().filter(|it| !it.is_control()).collect();
        let text = line.trim();
        if text.is_empty() {
            continue;
        }
        let Ok(of_execd) = serde_json::from_str::<Line>(text) else {
            return Some(text.chars().take(LINE_MAX).collect());
        };
        if last_error.is_none() && of_execd.level == "error" {
            let Line { msg, error, .. } = of_execd;
            let text = match error.is_empty() {
                true => msg,
                false => format!("{msg}: {error}"),
            };
            last_error = Some(text.chars().take(LINE_MAX).collect());
        }
    }
    last_error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(lines: &[&str]) -> Option<String> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        last_line(&lines)
    }

    #[test]
    fn the_last_line_is_the_entry_points_if_it_wrote_one() {
        let info = r#"{"level":"info","ts":"t","msg":"stopped"}"#;
        let failed = r#"{"level":"error","ts":"t","msg":"cannot start the entry point","error":"no such file"}"#;
        let plain = "bash: /no/such.sh: No such file or directory";
        for (lines, expected) in [
            (&[][..], None),
            (&["", " \t"], None),
            (&[info], None),
            (&[plain], Some(plain)),
            (&[info, "before", plain, "", info, failed], Some(plain)),
            (
                &[info, failed, info],
                Some("cannot start the entry point: no such file"),
            ),
            (&["\u{1b}[31mred\u{1b}[0m\r"], Some("[31mred[0m")),
            (&[r#"{"level":"error"}"#], Some(r#"{"level":"error"}"#)),
        ] {
            assert_eq!(last(lines).as_deref(), expected, "{lines:?}");
        }
        let long = "ä".repeat(LINE_MAX + 1);
        assert_eq!(last(&[&long]).unwrap().chars().count(), LINE_MAX);
    }
}
