//! The commands that sandboxes report.
//!
//! execd keeps the last commands of its sandbox. The server reads them each minute, before a removal
//! and when a client asks, and stores them: they are known after the sandbox's end. A program with
//! execd's rights can forge them, so they are never more than a report.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt, stream};
use osb_client::ExecdClient;
use osb_protocol::{
    SandboxId, WireTime,
    execd::history::{CommandHistoryEntry, CommandHistoryPage},
    headers::EXECD_ACCESS_TOKEN,
    lifecycle::{Endpoint, SandboxCommand, SandboxCommandList},
};
use osb_runtime::{EXECD_PORT, Phase};
use osb_service::ErrorChain;
use osb_store::ReportedCommand;
use secrecy::ExposeSecret;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tracing::{debug, warn};

use super::{Error, Facts, Service, lifecycle::now};
use crate::trace;

/// Time between two reports of a sandbox.
const PERIOD: Duration = Duration::from_secs(60);
/// Rounds after which old commands are deleted again.
const PRUNED: u64 = 60;
/// Longest time that a sandbox takes to report. A removal waits for it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Least time from the end of a report to the beginning of the sandbox's next one.
const PAUSE: Duration = Duration::from_millis(250);
/// Longest time that execd takes to interrupt a command: it waits 3 s before it uses force.
const INTERRUPTED: Duration = Duration::from_secs(10);
/// Sandboxes that are asked at the same time.
const ASKED: usize = 8;
/// Most pages of one report; the rest follows in the next one.
const PAGES: usize = 8;
/// Most commands of a sandbox in the store, and in one of its reports: execd keeps no more.
pub const COMMANDS_MAX: u32 = 1000;
/// Most bytes of the commands of all sandboxes in the store. Those of the oldest sandboxes go first.
const STORED_BYTES: u64 = 256 << 20;
/// Longest text of a report that is stored, in bytes.
const TEXT_MAX: usize = 2048;

/// How far the reports of each sandbox were read.
#[derive(Debug, Default)]
pub(super) struct CommandReports {
    reports: Mutex<HashMap<SandboxId, Arc<Reports>>>,
    /// Held while commands are written: however many sandboxes report, every other write to the store
    /// waits for one batch of them at most.
    writing: Arc<tokio::sync::Mutex<()>>,
    http: std::sync::OnceLock<reqwest::Client>,
}

/// The reports of one sandbox.
#[derive(Debug, Default)]
struct Reports {
    report: tokio::sync::Mutex<Report>,
    /// Notified when a command began or ended that the server knows of.
    news: Notify,
}

/// How far the reports of one sandbox were read.
#[derive(Debug, Default)]
struct Report {
    read: Read,
    /// When the last one began, and when it ended.
    last: Option<(Instant, Instant)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Read {
    epoch: i64,
    revision: u64,
}

impl CommandReports {
    fn reports(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Reports>>> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of one sandbox.
    fn of(&self, id: &SandboxId) -> Arc<Reports> {
        let mut reports = self.reports();
        Arc::clone(reports.entry(id.clone()).or_default())
    }
}

/// Reads reports until the server stops.
pub(super) fn start(service: Service) {
    if !service.inner.limits.commands {
        return;
    }
    let tasks = service.inner.tasks.clone();
    tasks
        .clone()
        .spawn_abortable("command reports", async move {
            for round in 0_u64.. {
                tokio::time::sleep(PERIOD).await;
                if service.inner.store.is_used_by_another() {
                    // The other server reads and prunes them.
                    continue;
                }
                service.read_all_reports().await;
                if round % PRUNED == 0 {
                    service.prune_commands().await;
                }
            }
        });
}

/// The error for an execd that does not answer.
fn silent(id: &SandboxId, why: &dyn std::fmt::Display) -> Error {
    debug!(sandbox = %id, error = %why, "a command is not found");
    Error::Unreachable {
        id: id.clone(),
        port: EXECD_PORT,
        reason: "execd does not answer",
    }
}

impl Service {
    /// Whether the commands of sandboxes are stored.
    #[must_use]
    pub fn has_commands(&self) -> bool {
        self.inner.limits.commands
    }

    /// The last commands of a sandbox, also of one that is gone.
    ///
    /// # Errors
    /// [`Error::NotFound`] when nothing is known of it; when the store fails.
    pub async fn commands(&self, id: &SandboxId, limit: u32) -> Result<SandboxCommandList, Error> {
        self.require_within(id).await?;
        let record = self.find(id);
        if let Some(record) = &record {
            self.read_report(&record.facts).await;
        }
        let stored = self.inner.store.commands(id, limit).await?;
        if stored.is_empty() && record.is_none() {
            return Err(Error::NotFound(id.clone()));
        }
        Ok(SandboxCommandList {
            sandbox_id: id.clone(),
            reported_by: "sandbox".to_owned(),
            commands: stored.into_iter().filter_map(shown).collect(),
        })
    }

    /// Notes that a command of a sandbox began or ended, so that tabs which follow its commands show it
    /// at once.
    pub fn note_command(&self, id: &SandboxId) {
        // Otherwise nothing would ever forget the sandbox.
        if !self.has_commands() {
            return;
        }
        self.inner.command_reports.of(id).news.notify_one();
    }

    /// Waits until a command of a sandbox is noted. One that was noted before counts, once.
    pub async fn command_noted(&self, id: &SandboxId) {
        self.inner.command_reports.of(id).news.notified().await;
    }

    /// Ends the command of a sandbox that began at this time, as the sandbox reports it.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NoSuchCommand`] when none that began then can be interrupted, and
    /// [`Error::Unreachable`] when execd does not answer.
    pub async fn interrupt_command(
        &self,
        id: &SandboxId,
        started_at: WireTime,
    ) -> Result<(), Error> {
        self.note_sandbox(id);
        let none = || Error::NoSuchCommand(id.clone());
        let (client, entry) = self.locate(id, started_at).await?;
        let command = entry.id.filter(|_| entry.finished_at.is_none());
        let command = command.ok_or_else(none)?;
        match timeout(INTERRUPTED, client.interrupt(&command)).await {
            Ok(Ok(())) => {
                self.note_command(id);
                Ok(())
            }
            // It has just ended.
            Ok(Err(osb_client::Error::Api(_))) => Err(none()),
            Ok(Err(error)) => Err(silent(id, &error)),
            Err(late) => Err(silent(id, &late)),
        }
    }

    /// The command of a sandbox that began at this time, as the sandbox reports it now.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NoSuchCommand`], and [`Error::Unreachable`] when execd does not
    /// answer.
    pub async fn reported_command(
        &self,
        id: &SandboxId,
        started_at: WireTime,
    ) -> Result<CommandHistoryEntry, Error> {
        self.locate(id, started_at).await.map(|(_, entry)| entry)
    }

    /// Finds a command by its beginning, with the client of its sandbox.
    async fn locate(
        &self,
        id: &SandboxId,
        started_at: WireTime,
    ) -> Result<(ExecdClient, CommandHistoryEntry), Error> {
        let record = self.find(id).ok_or_else(|| Error::NotFound(id.clone()))?;
        let client = self.report_client(&record.facts);
        let client = client.map_err(|why| silent(id, &why))?;
        let (end, mut since, mut epoch) = (Instant::now() + PATIENCE, 0, 0);
        for _ in 0..PAGES {
            let page = timeout_at(end, client.command_history(since, epoch)).await;
            let page = page.map_err(|late| silent(id, &late))?;
            let page = page.map_err(|error| silent(id, &error))?;
            let last = page.entries.iter().map(|entry| entry.revision).max();
            let (more, of) = (page.more, page.epoch);
            let mut entries = page.entries.into_iter();
            let found =
                entries.find(|entry| entry.started_at.as_microsecond() == started_at.unix_us());
            if let Some(entry) = found {
                return Ok((client, entry));
            }
            match last {
                Some(last) if more => (since, epoch) = (last, of),
                _ => break,
            }
        }
        Err(Error::NoSuchCommand(id.clone()))
    }

    async fn read_all_reports(&self) {
        let (records, _) = self.inner.registry.snapshot();
        {
            let ids: std::collections::HashSet<_> = records
                .iter()
                .map(|record| &record.facts.origin.id)
                .collect();
            let mut reports = self.inner.command_reports.reports();
            reports.retain(|id, _| ids.contains(id));
        }
        stream::iter(records)
            .for_each_concurrent(ASKED, async |record| {
                self.read_report(&record.facts).await;
            })
            .await;
    }

    /// Reads what a sandbox reports now, and stores it. A sandbox that does not answer is left alone.
    pub(super) async fn read_report(&self, facts: &Facts) {
        let runs = matches!(facts.phase, Some((Phase::Running, _)));
        let is_lost = self.inner.store.is_used_by_another();
        if !self.inner.limits.commands || !runs || is_lost {
            return;
        }
        let id = &facts.origin.id;
        let asked = Instant::now();
        let reports = self.inner.command_reports.of(id);
        // One at a time. It also serves those who asked before it began.
        let mut report = reports.report.lock().await;
        if let Some((began, ended)) = report.last {
            if began >= asked {
                return;
            }
            sleep_until(ended + PAUSE).await;
        }
        let began = Instant::now();
        if let Err(error) = self.read_pages(facts, &mut report.read).await {
            debug!(sandbox = %id, error, "its commands are not reported");
        }
        report.last = Some((began, Instant::now()));
    }

    /// Reads at most [`COMMANDS_MAX`] commands; the rest follows in the next report.
    async fn read_pages(&self, facts: &Facts, read: &mut Read) -> Result<(), String> {
        let client = self.report_client(facts)?;
        let (end, mut count) = (Instant::now() + PATIENCE, 0);
        for _ in 0..PAGES {
            let page = client.command_history(read.revision, read.epoch);
            let page = timeout_at(end, page).await;
            let page = page.map_err(|_| "they come too slowly".to_owned())?;
            let page = page.map_err(|error| ErrorChain(&error).to_string())?;
            if page.entries.len() > COMMANDS_MAX as usize {
                return Err(format!("a page has {} of them", page.entries.len()));
            }
            count += page.entries.len();
            let more = page.more && !page.entries.is_empty() && count < COMMANDS_MAX as usize;
            let next = next_read(*read, &page);
            let commands = page.entries.into_iter().map(stored).collect();
            self.keep_commands(&facts.origin.id, commands).await?;
            *read = next;
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Writes commands to the store, in a task: a client that disconnects, or a sandbox that answers
    /// too slowly, must not break off a transaction.
    async fn keep_commands(
        &self,
        id: &SandboxId,
        commands: Vec<ReportedCommand>,
    ) -> Result<(), String> {
        if commands.is_empty() {
            return Ok(());
        }
        let (service, id) = (self.clone(), id.clone());
        let write = self.inner.tasks.spawn("commands", async move {
            let writing = Arc::clone(&service.inner.command_reports.writing);
            let _turn = writing.lock().await;
            let store = &service.inner.store;
            let put = store.put_commands(&id, &commands, COMMANDS_MAX).await;
            put.inspect_err(|error| {
                warn!(sandbox = %id, error = %ErrorChain(error), "its commands are not stored");
            })
        });
        let written = write.await.map_err(|error| error.to_string())?;
        written.map_err(|error| ErrorChain(&error).to_string())
    }

    fn report_client(&self, facts: &Facts) -> Result<ExecdClient, String> {
        let execd = self.execd_of(facts).map_err(|error| error.to_string())?;
        let http = &self.inner.command_reports.http;
        let http = match http.get() {
            Some(http) => http.clone(),
            None => {
                let made = osb_client::plain_http().map_err(|error| error.to_string())?;
                http.get_or_init(|| made).clone()
            }
        };
        let token = execd.token.map(|token| token.expose_secret().to_owned());
        let token = token.map(|token| (EXECD_ACCESS_TOKEN.to_owned(), token));
        let endpoint = Endpoint {
            endpoint: execd.authority,
            headers: token.into_iter().chain(trace::context()).collect(),
        };
        let client = ExecdClient::with_http(http, "http", &endpoint);
        client.map_err(|error| error.to_string())
    }

    async fn prune_commands(&self) {
        let before = now().unix_ms().div_euclid(1000) - self.inner.limits.history_seconds;
        let (records, _) = self.inner.registry.snapshot();
        let alive = records.iter().map(|record| record.facts.origin.id.clone());
        let alive: Vec<SandboxId> = alive.collect();
        if let Err(error) = self
            .inner
            .store
            .prune_commands(before, &alive, STORED_BYTES)
            .await
        {
            warn!(error = %ErrorChain(&error), "old commands stay");
        }
    }
}

/// Where the next report goes on. Revisions begin again when execd does.
fn next_read(read: Read, page: &CommandHistoryPage) -> Read {
    let last = page.entries.iter().map(|entry| entry.revision).max();
    let before = match read.epoch == page.epoch {
        true => read.revision,
        false => 0,
    };
    Read {
        epoch: page.epoch,
        revision: last.unwrap_or(0).max(before),
    }
}

fn stored(entry: CommandHistoryEntry) -> ReportedCommand {
    ReportedCommand {
        started_at: entry.started_at.as_microsecond(),
        number: i64::try_from(entry.number).unwrap_or(i64::MAX),
        kind: entry.kind.as_str().to_owned(),
        command: cut(entry.command),
        cwd: entry.cwd.map(cut),
        uid: entry.uid.map(i64::from),
        finished_at: entry.finished_at.map(jiff::Timestamp::as_microsecond),
        exit_code: entry.exit_code,
        error: entry.error.map(cut),
        reported_at: now().unix_ms().div_euclid(1000),
    }
}

fn cut(mut text: String) -> String {
    if text.len() > TEXT_MAX {
        text.truncate(text.floor_char_boundary(TEXT_MAX));
    }
    text
}

fn shown(command: ReportedCommand) -> Option<SandboxCommand> {
    Some(SandboxCommand {
        kind: command.kind,
        command: command.command,
        cwd: command.cwd,
        uid: command.uid,
        started_at: WireTime::from_unix_us(command.started_at)?,
        finished_at: command.finished_at.and_then(WireTime::from_unix_us),
        exit_code: command.exit_code,
        error: command.error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_execd_is_read_from_its_beginning() {
        let page = |epoch, revisions: &[u64]| CommandHistoryPage {
            epoch,
            more: false,
            entries: revisions
                .iter()
                .map(|revision| CommandHistoryEntry {
                    id: None,
                    number: 1,
                    revision: *revision,
                    kind: osb_protocol::execd::history::CommandKind::Session,
                    command: "é".repeat(TEXT_MAX),
                    cwd: None,
                    uid: None,
                    started_at: jiff::Timestamp::UNIX_EPOCH,
                    finished_at: None,
                    exit_code: None,
                    error: None,
                })
                .collect(),
        };
        let next = |read, page| {
            let Read { epoch, revision } = next_read(read, &page);
            (epoch, revision)
        };
        let read = Read {
            epoch: 5,
            revision: 9,
        };
        assert_eq!(next(read, page(5, &[10, 12])), (5, 12));
        assert_eq!(next(read, page(5, &[])), (5, 9));
        assert_eq!(next(read, page(6, &[])), (6, 0));
        assert_eq!(next(read, page(6, &[1, 2])), (6, 2));
        let kept = stored(page(5, &[1]).entries.remove(0));
        assert!(kept.command.len() <= TEXT_MAX && kept.command.ends_with('é'));
    }
}
