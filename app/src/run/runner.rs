//! The command of the tab.

use std::time::Duration;

use leptos::prelude::*;
use osb_protocol::WireTime;

use super::{
    buffer::Output,
    wire::{Ended, RunMessage, RunOrder},
};
use crate::browser;

/// Pause between two updates of the shown output.
const FLUSH: Duration = Duration::from_millis(50);

/// What the tab shows the output of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A command that is run for the tab.
    Run(RunOrder),
    /// A command that began before.
    Follow {
        /// Its text.
        command: String,
        /// When it began.
        began: WireTime,
    },
}

impl Wanted {
    /// The text of the command.
    pub(super) fn command(&self) -> &str {
        match self {
            Self::Run(order) => &order.command,
            Self::Follow { command, .. } => command,
        }
    }
}

/// How the last order stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Phase {
    /// There was none.
    #[default]
    Idle,
    /// It is on its way.
    Starting,
    /// The command runs since this time in Unix milliseconds.
    Running(i64),
    /// It ended.
    Ended(Ended),
    /// It does not run, or is not known to.
    Refused(String),
    /// The connection broke. The command goes on.
    Lost,
    /// The session ended. The command goes on.
    SignedOut,
}

/// The command of the tab. Copies share it.
#[derive(Clone, Copy)]
pub(super) struct Runner {
    pub(super) phase: RwSignal<Phase>,
    /// What is shown; the connection starts with every change.
    pub(super) wanted: RwSignal<Option<Wanted>>,
    /// Counts the requests to stop.
    pub(super) stops: RwSignal<u32>,
    pub(super) output: StoredValue<Output>,
    /// Counts updates of the output.
    pub(super) revision: RwSignal<u64>,
    is_flushing: StoredValue<bool>,
}

#[cfg_attr(
    not(feature = "hydrate"),
    expect(
        dead_code,
        reason = "called by the connection, which only the browser has"
    )
)]
impl Runner {
    /// Takes in a message of the server.
    pub(super) fn receive(self, message: RunMessage) {
        match message {
            RunMessage::Ready => {}
            RunMessage::Started => {
                let since = self.wanted.with_untracked(|wanted| match wanted {
                    Some(Wanted::Follow { began, .. }) => began.unix_ms(),
                    _ => browser::now_ms(),
                });
                self.phase.set(Phase::Running(since));
            }
            RunMessage::Earlier { bytes } => {
                self.output.update_value(|output| output.missing += bytes);
                self.flush_soon();
            }
            RunMessage::Output { lines } => {
                self.output.update_value(|output| output.add(lines));
                self.flush_soon();
            }
            RunMessage::Ended(ended) => self.phase.set(Phase::Ended(ended)),
            RunMessage::Refused { message } => self.phase.set(Phase::Refused(message)),
        }
    }

    /// Takes note that the connection ended.
    pub(super) fn closed(self, is_signed_out: bool) {
        if !self.is_running() && *self.phase.read_untracked() != Phase::Starting {
            return;
        }
        self.phase.set(match is_signed_out {
            true => Phase::SignedOut,
            false => Phase::Lost,
        });
    }

    /// Shows new output soon: one update for what comes at the same time.
    fn flush_soon(self) {
        if !self.is_flushing.get_value() {
            self.is_flushing.set_value(true);
            let flush = move || {
                // The tab may be left by now.
                self.is_flushing.try_update_value(|is| *is = false);
                let _ = self.revision.try_update(|revision| *revision += 1);
            };
            set_timeout(flush, FLUSH);
        }
    }
}

impl Runner {
    pub(super) fn new() -> Self {
        Self {
            phase: RwSignal::default(),
            wanted: RwSignal::default(),
            stops: RwSignal::default(),
            output: StoredValue::new(Output::default()),
            revision: RwSignal::default(),
            is_flushing: StoredValue::new(false),
        }
    }

    /// Runs a command. One that runs already goes on without this page.
    pub(super) fn run(self, order: RunOrder) {
        self.begin(Wanted::Run(order));
    }

    /// Shows what a command of the list wrote, and writes.
    pub(super) fn follow(self, command: String, began: WireTime) {
        self.begin(Wanted::Follow { command, began });
    }

    fn begin(self, wanted: Wanted) {
        self.output.set_value(Output::default());
        self.revision.update(|revision| *revision += 1);
        self.phase.set(Phase::Starting);
        self.wanted.set(Some(wanted));
    }

    /// Asks the command to end.
    pub(super) fn stop(self) {
        self.stops.update(|stops| *stops += 1);
    }

    pub(super) fn is_running(self) -> bool {
        matches!(*self.phase.read(), Phase::Running(_))
    }

    /// Whether a command runs that this connection started. Others are stopped in the list.
    pub(super) fn can_stop(self) -> bool {
        self.is_running() && matches!(*self.wanted.read(), Some(Wanted::Run(_)))
    }
}
