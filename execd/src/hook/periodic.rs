//! Periodic hooks.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};
use tracing::{error, info, warn};

use super::{
    config::Periodic,
    schedule::{self, Times},
    start,
};
use crate::{base::Base, blocking::start_in_place, limits, process::Exit};

/// Runs a hook on its schedule, one run at a time. Times that pass during a run are skipped.
pub(super) async fn run_to_end(base: Base, hook: Periodic) {
    let name = hook.name.as_str();
    match hook.schedule.times() {
        Ok(Times::Every(interval)) => {
            let mut ticks = interval_at(Instant::now() + interval, interval);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                ticks.tick().await;
                if !run(&base, &hook).await {
                    break;
                }
            }
        }
        Ok(Times::Cron(cron)) => {
            let mut last = Timestamp::now();
            while let Some(next) = schedule::next(&cron, last) {
                until(next).await;
                if !run(&base, &hook).await {
                    break;
                }
                // A clock that was set back must not repeat a run.
                last = next.max(Timestamp::now());
            }
        }
        Err(error) => error!(name, %error, "the times of a periodic hook cannot be understood"),
    }
    warn!(name, "periodic hook does not run again");
}

/// Waits until a time. Rechecks the clock at intervals, because it may be set meanwhile.
async fn until(time: Timestamp) {
    loop {
        let left = Duration::try_from(time.duration_since(Timestamp::now())).unwrap_or_default();
        if left.is_zero() {
            return;
        }
        sleep(left.min(limits::CLOCK_LOOK)).await;
    }
}

/// Runs a hook once. Returns `false` if its process cannot be ended.
async fn run(base: &Base, hook: &Periodic) -> bool {
    let name = hook.name.as_str();
    let limit = Duration::from_secs(hook.hook.timeout_seconds.into());
    // Its program may be on a file system that hangs.
    let started = start_in_place(|| start(base, &hook.hook.command)).await;
    let started = started
        .map_err(|busy| busy.to_string())
        .and_then(|started| started.map_err(|error| error.to_string()));
    let process = match started {
        Ok(process) => process,
        Err(error) => {
            warn!(name, %error, "periodic hook cannot be started");
            return true;
        }
    };
    match timeout(limit, process.exited()).await {
        Ok(Exit::Code(0)) => info!(name, "periodic hook ended"),
        Ok(exit) => warn!(name, %exit, "periodic hook failed"),
        Err(_) => {
            warn!(name, ?limit, "periodic hook did not end in time");
            process.kill_tree();
            let killed = timeout(limits::HOOK_KILL, process.exited()).await.is_ok();
            if !killed {
                error!(name, "periodic hook cannot be killed");
            }
            return killed;
        }
    }
    true
}
