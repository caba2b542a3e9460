//! Load of this machine: waiting until other work is over, how much longer tests may take because it
//! is not, and making load on purpose.

use std::{
    fs, hint,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle, available_parallelism},
    time::{Duration, Instant},
};

use crate::{deadline, step::notice, wait::until};

/// Factor by which tests extend their deadlines.
pub(crate) const PATIENCE: &str = "OSB_TEST_PATIENCE";
/// Least and greatest factor.
const FACTORS: (f64, f64) = (1.0, 10.0);
/// Processor time by which the factor is measured, on each processor.
const SAMPLE: Duration = Duration::from_millis(300);

/// Linux reports here for how long tasks waited for a processor.
const PRESSURE: &str = "/proc/pressure/cpu";
/// Percentage of the last ten seconds in which a task waited, from which on a machine is not quiet.
const BUSY: f64 = 40.0;
/// Longest wait for a quiet machine.
const LONGEST_WAIT: Duration = Duration::from_secs(180);

/// Waits until this machine is quiet, for at most three minutes, and reports what it saw: whether a
/// failure came under load is then on record.
pub(crate) fn wait_until_quiet(suite: &str) {
    let started = Instant::now();
    let mut seen = pressure();
    if seen.is_none_or(|seen| seen <= BUSY) {
        return;
    }
    let quiet = until(deadline::within(LONGEST_WAIT), || {
        seen = pressure();
        seen.is_none_or(|seen| seen <= BUSY)
    });
    let verdict = if quiet { "quiet" } else { "still busy" };
    notice(&format!(
        "{suite}: the machine is {verdict} after {} s; a task waited for a processor in {:.0} % of the last ten seconds",
        started.elapsed().as_secs(),
        seen.unwrap_or_default(),
    ));
}

/// Percentage of the last ten seconds in which a task waited; `None` where the kernel does not say.
fn pressure() -> Option<f64> {
    parse_pressure(&fs::read_to_string(PRESSURE).ok()?)
}

fn parse_pressure(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let value = some
        .split(' ')
        .find_map(|field| field.strip_prefix("avg10="))?;
    value.parse().ok()
}

/// Measures by how much this machine's other work slows the tests of a suite down: the wall time of some
/// work on every processor, divided by the processor time that it took.
pub(crate) fn patience(suite: &str) -> f64 {
    let workers: Vec<_> = (0..processors())
        .map(|_| {
            thread::spawn(|| {
                let started = Instant::now();
                let before = processor_time();
                while processor_time().saturating_sub(before) < SAMPLE {
                    work();
                }
                started.elapsed()
            })
        })
        .collect();
    let times = workers.into_iter().filter_map(|worker| worker.join().ok());
    let factor = factor(times.max().unwrap_or_default());
    if factor > FACTORS.0 {
        notice(&format!(
            "{suite}: deadlines are {factor} times as long on this busy machine"
        ));
    }
    factor
}

/// Factor for a machine on which the longest sample took this time.
fn factor(longest: Duration) -> f64 {
    let slowest = longest.as_secs_f64() / SAMPLE.as_secs_f64();
    // Half a step of tolerance: on a quiet machine the factor is one.
    (slowest - 0.25).round().clamp(FACTORS.0, FACTORS.1)
}

/// Processor time of the calling thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn work() {
    for _ in 0..1_000 {
        hint::spin_loop();
    }
}

fn processors() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

/// Threads that keep every processor busy until this is dropped.
pub(crate) struct BusyLoops {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyLoops {
    /// Starts `each` loops for every processor.
    pub(crate) fn start(each: usize) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let threads = (0..processors() * each)
            .map(|_| {
                let end = Arc::clone(&end);
                thread::spawn(move || {
                    while !end.load(Ordering::Relaxed) {
                        work();
                    }
                })
            })
            .collect();
        Self { end, threads }
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_as_the_kernel_writes_it() {
        let text = "some avg10=77.48 avg60=42.30 avg300=12.74 total=47468096\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(parse_pressure(text), Some(77.48));
        assert_eq!(parse_pressure("full avg10=1.00\n"), None);
    }

    #[test]
    fn patience_grows_with_the_load() {
        let of_samples = [0.9, 1.5, 2.0, 4.1, 100.0].map(|times| factor(SAMPLE.mul_f64(times)));
        assert_eq!(of_samples, [1.0, 1.0, 2.0, 4.0, 10.0]);
    }
}
