//! The last commands of the sandbox, without output and environment: an addition to the contract.
//!
//! The server reads it while the sandbox lives, and what a sandbox did stays known after its end.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Json, Router,
    extract::{FromRef, State},
    routing::get,
};
use jiff::Timestamp;
use osb_log::redact;
use osb_protocol::execd::history::{CommandHistoryEntry, CommandHistoryPage, CommandKind};

use crate::{
    error::{ApiError, ApiResult},
    http::Query,
    limits,
};

/// A command that is about to begin.
#[derive(Debug)]
pub struct Begun<'a> {
    /// Its id, if it can be interrupted by one.
    pub id: Option<&'a str>,
    /// How it is run.
    pub kind: CommandKind,
    /// Its text.
    pub command: &'a str,
    /// The directory that the client gave.
    pub cwd: Option<String>,
    /// The user that the client gave.
    pub uid: Option<u32>,
}

/// The last commands. Clones of the pointer share them.
#[derive(Debug)]
pub struct CommandHistory {
    /// When it began, in Unix microseconds.
    epoch: i64,
    state: Mutex<Kept>,
}

impl Default for CommandHistory {
    fn default() -> Self {
        Self {
            epoch: Timestamp::now().as_microsecond(),
            state: Mutex::default(),
        }
    }
}

#[derive(Debug, Default)]
struct Kept {
    /// By number.
    entries: VecDeque<CommandHistoryEntry>,
    /// Bytes of their texts.
    bytes: usize,
    last_number: u64,
    revision: u64,
}

impl CommandHistory {
    fn state(&self) -> MutexGuard<'_, Kept> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Records that a command begins, and returns its number.
    pub fn begin(&self, begun: Begun<'_>) -> u64 {
        let mut state = self.state();
        state.last_number += 1;
        state.revision += 1;
        let entry = CommandHistoryEntry {
            number: state.last_number,
            revision: state.revision,
            id: begun.id.map(str::to_owned),
            kind: begun.kind,
            command: redact::shown(begun.command),
            cwd: begun.cwd.map(|cwd| cut(cwd, limits::HISTORY_TEXT)),
            uid: begun.uid,
            started_at: Timestamp::now(),
            finished_at: None,
            exit_code: None,
            error: None,
        };
        state.bytes += size(&entry);
        state.entries.push_back(entry);
        state.evict();
        state.last_number
    }

    /// Records the end of a command. One that was displaced meanwhile is ignored.
    pub fn end(&self, number: u64, exit_code: i32, error: Option<String>) {
        let mut state = self.state();
        let Ok(index) = state.entries.binary_search_by_key(&number, |it| it.number) else {
            return;
        };
        state.revision += 1;
        let revision = state.revision;
        let entry = &mut state.entries[index];
        let before = size(entry);
        entry.revision = revision;
        entry.finished_at = Some(Timestamp::now());
        entry.exit_code = Some(exit_code);
        entry.error = error.map(|error| cut(error, limits::HISTORY_TEXT));
        let after = size(entry);
        state.bytes += after - before;
        state.evict();
    }

    /// What began or ended after a revision.
    fn since(&self, revision: u64) -> CommandHistoryPage {
        let state = self.state();
        let newer = state.entries.iter().filter(|it| it.revision > revision);
        let mut newer: Vec<&CommandHistoryEntry> = newer.collect();
        newer.sort_unstable_by_key(|entry| entry.revision);
        let mut bytes = 0;
        let fits = newer.iter().take_while(|entry| {
            // JSON may need six bytes for one.
            bytes += 6 * size(entry) + limits::HISTORY_NUMBERS;
            bytes <= limits::HISTORY_PAGE
        });
        let fits = fits.count();
        CommandHistoryPage {
            epoch: self.epoch,
            more: fits < newer.len(),
            entries: newer.into_iter().take(fits).cloned().collect(),
        }
    }
}

impl Kept {
    fn evict(&mut self) {
        while self.entries.len() > limits::HISTORY_ENTRIES || self.bytes > limits::HISTORY_BYTES {
            let Some(oldest) = self.entries.pop_front() else {
                return;
            };
            self.bytes -= size(&oldest);
        }
    }
}

/// Bytes of the texts of an entry.
fn size(entry: &CommandHistoryEntry) -> usize {
    let optional = [&entry.cwd, &entry.error];
    let texts = optional.into_iter().flatten().map(String::len);
    entry.command.len() + texts.sum::<usize>()
}

fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let mut end = most;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.shrink_to_fit();
    }
    text
}

/// All routes.
pub(crate) fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<CommandHistory>: FromRef<S>,
{
    Router::new().route("/commands/history", get(page))
}

/// Handles `GET /commands/history?since=&epoch=`. Without its epoch, a revision counts as of this one.
async fn page(
    State(history): State<Arc<CommandHistory>>,
    query: Query,
) -> ApiResult<Json<CommandHistoryPage>> {
    let epoch: i64 = match query.get("epoch") {
        None => history.epoch,
        Some(epoch) => epoch
            .parse()
            .map_err(|_| ApiError::invalid("epoch must be that of an earlier page"))?,
    };
    let since = match query.get("since") {
        None => 0,
        Some(since) => since.parse().map_err(|_| {
            ApiError::invalid("since must be the revision of an entry, or 0 for all of them")
        })?,
    };
    let since = if epoch == history.epoch { since } else { 0 };
    Ok(Json(history.since(since)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(command: &str) -> Begun<'_> {
        Begun {
            id: None,
            kind: CommandKind::Foreground,
            command,
            cwd: None,
            uid: None,
        }
    }

    fn numbers(page: &CommandHistoryPage) -> Vec<u64> {
        page.entries.iter().map(|entry| entry.number).collect()
    }

    #[test]
    fn an_end_is_a_revision_of_its_own() {
        let history = CommandHistory::default();
        let (first, second) = (history.begin(begun("a")), history.begin(begun("b")));
        assert_eq!(numbers(&history.since(0)), [first, second]);
        history.end(first, 3, Some("exit status 3".to_owned()));
        let page = history.since(2);
        assert_eq!((numbers(&page), page.more), (vec![first], false));
        assert_eq!(page.entries[0].exit_code, Some(3));
        assert!(page.entries[0].finished_at.is_some());
        let last = page.entries[0].revision;
        assert_eq!(numbers(&history.since(last)), [0; 0]);
        assert_eq!(numbers(&history.since(0)), [second, first]);
        history.end(99, 0, None);
    }

    #[test]
    fn entries_texts_and_pages_are_bounded() {
        let history = CommandHistory::default();
        for _ in 0..limits::HISTORY_ENTRIES + 5 {
            history.begin(begun("true"));
        }
        let all = history.since(0);
        assert_eq!(all.entries.len(), limits::HISTORY_ENTRIES);
        assert_eq!(all.entries[0].number, 6, "the oldest went first");
        history.end(1, 0, None);
        let long = "\u{1}".repeat(1 << 20);
        for _ in 0..limits::HISTORY_ENTRIES {
            let cwd = Some(long.clone());
            let number = history.begin(Begun {
                cwd,
                ..begun(&long)
            });
            history.end(number, 1, Some(long.clone()));
        }
        assert!(history.state().bytes <= limits::HISTORY_BYTES);
        let (mut since, mut seen) = (0, 0);
        loop {
            let page = history.since(since);
            let json = serde_json::to_vec(&page).unwrap();
            assert!(json.len() <= limits::HISTORY_PAGE, "{}", json.len());
            seen += page.entries.len();
            match page.more {
                true => since = page.entries.last().unwrap().revision,
                false => break,
            }
        }
        assert_eq!(seen, history.state().entries.len());
    }

    #[test]
    fn secrets_in_a_command_are_masked() {
        let history = CommandHistory::default();
        history.begin(begun(
            "curl -H 'Authorization: Bearer abcdefgh12345678' https://x",
        ));
        let shown = &history.since(0).entries[0].command;
        assert!(
            shown.contains("curl") && !shown.contains("abcdefgh12345678"),
            "{shown}"
        );
    }
}
