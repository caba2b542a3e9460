//! Follows the resource use of a sandbox.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use osb_protocol::{SandboxId, lifecycle::MetricsSample};
use serde::Serialize;
use tokio::{sync::broadcast::error::RecvError, time::sleep};

use super::published::{Content, Published};
use crate::sandbox::Service;

/// Samples in a snapshot: those that the recorded history may not have yet, with a margin.
const RECENT: usize = 60;
/// Pause before a sandbox is watched again whose samples ended.
const PAUSE: Duration = Duration::from_secs(1);

/// The last samples.
#[derive(Default)]
pub(super) struct Recent(VecDeque<MetricsSample>);

impl Content for Recent {
    type Change = MetricsSample;

    fn snapshot(&self) -> impl Serialize {
        &self.0
    }
}

/// Publishes a sample each second, for as long as the sandbox exists.
pub(super) async fn follow(service: Service, id: SandboxId, recent: Arc<Published<Recent>>) {
    while service.find(&id).is_some() {
        if let Ok(mut samples) = service.watch_metrics(&id) {
            loop {
                match samples.recv().await {
                    Ok(sample) => recent.publish(|Recent(kept)| {
                        if kept.len() == RECENT {
                            kept.pop_front();
                        }
                        kept.push_back(sample.clone());
                        sample
                    }),
                    // A slow server misses samples.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => break,
                }
            }
        }
        sleep(PAUSE).await;
    }
}
