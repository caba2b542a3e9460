//! The command of the tab.

use std::time::Duration;

use leptos::prelude::*;

use super::{
    buffer::Output,
    wire::{Ended, RunMessage, RunOrder},
};
use crate::browser;

/// Pause between two updates of the shown output.
const FLUSH: Duration = Duration::from_millis(50);

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
    /// What is to be run; the connection starts with every change.
    pub(super) order: RwSignal<Option<RunOrder>>,
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
            RunMessage::Started => self.phase.set(Phase::Running(browser::now_ms())),
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
            order: RwSignal::default(),
            stops: RwSignal::default(),
            output: StoredValue::new(Output::default()),
            revision: RwSignal::default(),
            is_flushing: StoredValue::new(false),
        }
    }

    /// Runs a command. One that runs already goes on without this page.
    pub(super) fn run(self, order: RunOrder) {
        self.output.set_value(Output::default());
        self.revision.update(|revision| *revision += 1);
        self.phase.set(Phase::Starting);
        self.order.set(Some(order));
    }

    /// Asks the command to end.
    pub(super) fn stop(self) {
        self.stops.update(|stops| *stops += 1);
    }

    pub(super) fn is_running(self) -> bool {
        matches!(*self.phase.read(), Phase::Running(_))
    }
}
