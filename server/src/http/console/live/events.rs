//! Follows how much the audit trail holds: pages say that there are newer entries, and load them on
//! request.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tokio::{sync::watch, time::sleep};

use super::published::{Content, Published};

/// Least pause between two messages: a busy server records many entries a second.
const PAUSE: Duration = Duration::from_secs(1);

/// Entries that were written since the start of the server.
pub(super) struct Written(pub(super) u64);

impl Content for Written {
    type Change = u64;

    fn snapshot(&self) -> impl Serialize {
        self.0
    }
}

/// Publishes the number when it has grown, until the trail ends.
pub(super) async fn follow(mut trail: watch::Receiver<u64>, written: Arc<Published<Written>>) {
    loop {
        let now = *trail.borrow_and_update();
        written.publish_if(|Written(known)| {
            let has_grown = *known != now;
            *known = now;
            has_grown.then_some(now)
        });
        if trail.changed().await.is_err() {
            return;
        }
        sleep(PAUSE).await;
    }
}
