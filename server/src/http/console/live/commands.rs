//! Follows what runs in a sandbox.

use std::{sync::Arc, time::Duration};

use osb_protocol::{SandboxId, lifecycle::SandboxCommand};
use serde::Serialize;
use tokio::time::sleep;

use super::{
    super::backend::COMMANDS,
    published::{Content, Published},
};
use crate::sandbox::Service;

/// Pause between two reports of the sandbox.
const PERIOD: Duration = Duration::from_secs(2);

/// The last commands; `None` before the first report.
#[derive(Default)]
pub(super) struct Recent(Option<Vec<SandboxCommand>>);

impl Content for Recent {
    type Change = Vec<SandboxCommand>;

    fn snapshot(&self) -> impl Serialize {
        &self.0
    }
}

/// Publishes the commands when they change, for as long as the sandbox exists. They are read while a
/// tab shows them, since each sandbox is asked otherwise only once a minute.
pub(super) async fn follow(service: Service, id: SandboxId, recent: Arc<Published<Recent>>) {
    while service.has_commands() && service.find(&id).is_some() {
        // What fails now may work next time; the tab keeps what it has.
        if let Ok(list) = service.commands(&id, COMMANDS).await {
            recent.publish_if(|Recent(known)| {
                let is_new = known.as_ref() != Some(&list.commands);
                is_new.then(|| known.insert(list.commands).clone())
            });
        }
        // Commands of the console are noted; others begin and end unseen.
        tokio::select! {
            () = sleep(PERIOD) => {}
            () = service.command_noted(&id) => {}
        }
    }
}
