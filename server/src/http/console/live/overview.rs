//! Follows the numbers of the overview.

use std::{sync::Arc, time::Duration};

use osb_app::view::Pulse;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use super::published::{Content, Published};
use crate::{http::console::overview, sandbox::Service};

/// Pause between two looks: the use of sandboxes changes all the time, and each change of a number is
/// sent to every tab.
const PERIOD: Duration = Duration::from_secs(1);

/// The numbers that were sent last, if any were.
#[derive(Default)]
pub(super) struct Numbers(Option<Pulse>);

impl Content for Numbers {
    type Change = Pulse;

    fn snapshot(&self) -> impl Serialize {
        &self.0
    }
}

/// Publishes the numbers when they change.
pub(super) async fn follow(service: Service, numbers: Arc<Published<Numbers>>) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = overview::pulse(&service).await;
        numbers.publish_if(|Numbers(known)| {
            (known.as_ref() != Some(&now)).then(|| known.insert(now).clone())
        });
    }
}
