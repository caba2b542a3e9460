//! Why a sandbox with lifecycle hooks ended before its entry point started. The engine reports only
//! an exit status, which could be the entry point's; execd writes the reason to its log.

use osb_protocol::{SandboxId, execd::log_message};
use osb_runtime::Phase;
use osb_service::ErrorChain;
use serde::Deserialize;
use tracing::{info, warn};

use super::{Facts, Service};

/// Lines at the end of a sandbox's output that are read. execd writes nothing after the reason but
/// what it writes as it ends.
const LINES: usize = 32;
/// Longest reason that is kept, in characters.
const REASON_MAX: usize = 300;

/// Whether a sandbox ended with a failure that its hooks may explain. One that is being removed was
/// killed, and its log goes with it.
pub(super) fn may_explain(facts: &Facts) -> bool {
    let has_failed = matches!(facts.phase, Some((Phase::Exited(code), _)) if code != 0);
    facts.origin.hooks && has_failed && !facts.is_deleted()
}

impl Service {
    /// Reads why these sandboxes ended, one after the other.
    pub(super) fn explain_ends(&self, ids: Vec<SandboxId>) {
        if ids.is_empty() {
            return;
        }
        let service = self.clone();
        let tasks = &self.inner.tasks;
        tasks.spawn_abortable("ends by hooks", async move {
            for id in ids {
                service.explain_end(&id).await;
            }
        });
    }

    async fn explain_end(&self, id: &SandboxId) {
        // It may have been deleted since its end was reported.
        let record = self.inner.registry.get(id);
        let Some(ended) = record
            .filter(|record| may_explain(&record.facts))
            .and_then(|record| record.facts.phase)
        else {
            return;
        };
        let lines = match self.inner.runtime.log_tail(id, LINES).await {
            Ok(lines) => lines,
            Err(error) => {
                warn!(sandbox = %id, error = %ErrorChain(&error), "cannot read why its hooks failed");
                return;
            }
        };
        let Some(reason) = reason(&lines) else {
            return;
        };
        info!(sandbox = %id, reason, "its lifecycle hooks failed");
        // A sandbox that was removed or started again meanwhile needs no reason.
        let _ = self.inner.registry.update(id, |facts| {
            if facts.phase != Some(ended) {
                return Err(());
            }
            facts.failed_hooks = Some(reason.into());
            Ok(())
        });
    }
}

/// A line of execd's log.
#[derive(Deserialize)]
struct Line {
    level: String,
    msg: String,
    #[serde(default)]
    exit: String,
    #[serde(default)]
    limit: String,
    #[serde(default)]
    error: String,
}

/// The reason in the last lines of a sandbox's output, if the hooks are why it ended.
fn reason(lines: &[String]) -> Option<String> {
    let parsed = lines
        .iter()
        .rev()
        .filter_map(|line| serde_json::from_str::<Line>(line.trim()).ok());
    let mut errors = parsed.filter(|line| line.level == "error");
    let last = errors.next()?;
    let text = match last.msg.as_str() {
        log_message::HOOKS_FAILED => last.error,
        log_message::PRE_START_FAILED => match errors.next() {
            Some(before) if before.msg == log_message::PRE_START_TIMEOUT => {
                format!("the preStart hook did not end within {}", before.limit)
            }
            _ => format!("the preStart hook failed: {}", last.exit),
        },
        _ => return None,
    };
    Some(text.chars().take(REASON_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Option<String> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        reason(&lines)
    }

    #[test]
    fn the_reason_is_the_last_error_of_execd() {
        let failed =
            r#"{"level":"error","ts":"t","msg":"preStart hook failed","exit":"exit status 3"}"#;
        let late =
            r#"{"level":"error","ts":"t","msg":"preStart hook did not end in time","limit":"2s"}"#;
        let broken = r#"{"level":"error","ts":"t","msg":"lifecycle hooks failed","error":"no such program"}"#;
        let other = r#"{"level":"error","ts":"t","msg":"execd failed","error":"cannot listen"}"#;
        let info = r#"{"level":"info","ts":"t","msg":"stopped"}"#;
        let text = |lines: &[&str]| read(lines).unwrap();
        assert_eq!(
            text(&["npm ERR!", failed, info, "left over"]),
            "the preStart hook failed: exit status 3"
        );
        assert_eq!(
            text(&[late, failed]),
            "the preStart hook did not end within 2s"
        );
        assert_eq!(
            text(&[late, failed, failed]),
            "the preStart hook failed: exit status 3"
        );
        assert_eq!(text(&[broken]), "no such program");
        for unrelated in [
            &[][..],
            &[other],
            &[failed, other],
            &["preStart hook failed"],
        ] {
            assert_eq!(read(unrelated), None, "{unrelated:?}");
        }
    }
}
