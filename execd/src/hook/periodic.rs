//! Hooks that run at times.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};
use tracing::{error, info, warn};

use super::{
    config::Periodic,
    schedule::{self, Times},
    start,
};
use crate::{base::Base, limits, process::Exit};

/// Runs a hook whenever it is time, one run after the other: times that come during a run are
/// passed over.
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
                // A clock that was set back makes nothing run twice.
                last = next.max(Timestamp::now());
            }
        }
        Err(error) => error!(name, %error, "the times of a periodic hook cannot be understood"),
    }
    warn!(name, "periodic hook does not run again");
}

/// Waits until a time. The clock may be set meanwhile, so it is looked at now and then.
async fn until(time: Timestamp) {
    loop {
        let left = Duration::try_from(time.duration_since(Timestamp::now())).unwrap_or_default();
        if left.is_zero() {
            return;
        }
        sleep(left.min(limits::CLOCK_LOOK)).await;
    }
}

/// Runs a hook once. `false` when it cannot be ended.
async fn run(base: &Base, hook: &Periodic) -> bool {
    let name = hook.name.as_str();
    let limit = Duration::from_secs(hook.hook.timeout_seconds.into());
    let process = match start(base, &hook.hook.command) {
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
