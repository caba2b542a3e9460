//! Progress of running programs: one live line on a terminal, elsewhere a line per step now and
//! then. The last lines of output are kept, and shown when the program fails.

use std::{
    collections::{BTreeMap, VecDeque},
    io::IsTerminal,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::duration::readable;

/// Least time between two changes of the live line.
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// Least time between two progress lines of a step where stderr is not a terminal.
const REPORT_INTERVAL: Duration = Duration::from_secs(15);
/// Lines of a program that are shown when it fails.
const KEPT: usize = 400;
/// Characters of a line that the progress shows.
const SHOWN: usize = 120;
/// Moves to the start of the line and erases it.
const ERASE: &str = "\r\x1b[K";
/// Columns of a terminal that does not report its size.
const COLUMNS: u16 = 80;

/// The live line: the status of each running step.
static LIVE: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Prints a line to stderr, above the live one.
pub(crate) fn say(text: &str) {
    let live = live();
    if !live.is_empty() {
        eprint!("{ERASE}");
    }
    eprintln!("{text}");
}

/// One line of a watched program.
#[derive(Debug)]
pub(crate) enum Line {
    /// From stdout.
    Out(String),
    /// From stderr.
    Err(String),
    /// From either, ended by a carriage return, as progress bars are.
    Transient(String),
    /// No output for a moment.
    Idle,
}

/// A program that runs as part of a step.
pub(crate) struct Progress {
    step: String,
    started: Instant,
    shown: Instant,
    last: String,
    /// Whether it draws a progress bar, which says more than its other lines.
    has_bar: bool,
    output: VecDeque<String>,
}

impl Progress {
    /// Starts the progress of a program that `step` runs.
    pub(crate) fn of(step: String) -> Self {
        Self {
            step,
            started: Instant::now(),
            shown: Instant::now(),
            last: String::new(),
            has_bar: false,
            output: VecDeque::new(),
        }
    }

    /// Records a line of the program, and shows the status when its interval has passed.
    pub(crate) fn record(&mut self, line: &Line) {
        match line {
            Line::Transient(text) => match text.rsplit_once("] ") {
                // The count is more precise than the bar, and shorter.
                Some((_bar, count)) => {
                    self.has_bar = true;
                    self.note(count);
                }
                None => self.note(text),
            },
            Line::Out(text) | Line::Err(text) => {
                if !self.has_bar {
                    self.note(text);
                }
                if self.output.len() == KEPT {
                    self.output.pop_front();
                }
                self.output.push_back(text.clone());
            }
            Line::Idle => {}
        }
        let is_live = std::io::stderr().is_terminal();
        let interval = if is_live {
            REDRAW_INTERVAL
        } else {
            REPORT_INTERVAL
        };
        if self.shown.elapsed() < interval {
            return;
        }
        self.shown = Instant::now();
        let status = self.status();
        if is_live {
            let mut live = live();
            live.insert(self.step.clone(), status);
            eprint!("{ERASE}{}", fit(&live, columns()));
        } else {
            say(&format!("    {}, {status}", self.step));
        }
    }

    fn note(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.last = text.trim().chars().take(SHOWN).collect();
        }
    }

    fn status(&self) -> String {
        format!("{}: {}", readable(self.started.elapsed()), self.last)
    }

    /// Shows what the program printed.
    pub(crate) fn show_output(&self, program: &str) {
        let lines: Vec<&str> = self.output.iter().map(String::as_str).collect();
        say(&format!(
            "    {}: output of {program}:\n{}",
            self.step,
            lines.join("\n")
        ));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let mut live = live();
        if live.remove(&self.step).is_some() {
            eprint!("{ERASE}");
        }
    }
}

fn live() -> MutexGuard<'static, BTreeMap<String, String>> {
    // Each change is one insert or remove, so a panic elsewhere cannot leave the map half changed.
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn columns() -> usize {
    let reported = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_col);
    usize::from(if reported == 0 { COLUMNS } else { reported })
}

/// Fits all steps side by side into one line that does not wrap, cutting names before statuses.
fn fit(live: &BTreeMap<String, String>, columns: usize) -> String {
    const BETWEEN: &str = " | ";
    let cut = |text: &str, room: usize| text.chars().take(room).collect::<String>();
    let room = (columns / live.len().max(1)).saturating_sub(BETWEEN.len());
    let each = |(step, status): (&String, &String)| {
        let rest = room.saturating_sub(status.chars().count() + ", ".len());
        let step = cut(step, rest.max(room / 3));
        cut(&format!("{step}, {status}"), room)
    };
    live.iter().map(each).collect::<Vec<_>>().join(BETWEEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_progress_bars_are_only_shown() {
        let mut progress = Progress::of("a step".to_owned());
        for number in 0..KEPT + 7 {
            progress.record(&Line::Out(number.to_string()));
        }
        assert!(progress.status().ends_with(": 406"));
        progress.record(&Line::Transient("Reading ... 100%".to_owned()));
        assert!(progress.status().ends_with(": Reading ... 100%"));
        progress.record(&Line::Out("Unpacking".to_owned()));
        assert!(progress.status().ends_with(": Unpacking"));
        progress.record(&Line::Transient("  Building [=>  ] 3/9: tokio".to_owned()));
        progress.record(&Line::Err("warning: unused".to_owned()));
        progress.record(&Line::Transient(String::new()));
        progress.record(&Line::Idle);
        assert!(progress.status().ends_with(" s: 3/9: tokio"));
        assert_eq!(progress.output.len(), KEPT);
        assert_eq!(progress.output.front().unwrap(), "9");
        assert_eq!(progress.output.back().unwrap(), "warning: unused");
    }

    #[test]
    fn the_live_line_has_room_for_all_steps() {
        let live = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = |(step, status): &(&str, &str)| ((*step).to_owned(), (*status).to_owned());
            all.iter().map(owned).collect()
        };
        let execd = ("build execd", "3.1 s: 12/60: tokio, hyper");
        let packages = ("install packages", "4.0 s: Unpacking");
        let both = "build exe, 3.1 s: 12/60: to | install p, 4.0 s: Unpacking";
        assert_eq!(fit(&live(&[execd, packages]), 60), both);
        let alone = "build execd, 3.1 s: 12/60: tokio, hyper";
        assert_eq!(fit(&live(&[execd]), 80), alone);
        assert_eq!(fit(&live(&[]), 80), "");
    }
}
