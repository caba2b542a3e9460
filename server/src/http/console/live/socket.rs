//! One tab.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use osb_app::live::{Command, Frame, Position, Topic};
use osb_protocol::SandboxId;
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::{MissedTickBehavior, interval, timeout},
};

use super::hub::{Hub, Told};

/// Most sandboxes one tab watches; a page watches one.
const WATCHED: usize = 16;
/// How often a quiet connection says that it lives. The tab gives up after 40 s of silence.
const BEAT: Duration = Duration::from_secs(15);
/// A tab that takes nothing for this long is gone.
const STUCK: Duration = Duration::from_secs(30);

/// The connection is over.
struct Over;

pub(super) struct Tab {
    pub(super) socket: WebSocket,
    hub: Arc<Hub>,
    /// Where the tab stands in the list; `None` when it does not watch it.
    list: Option<u64>,
    sandboxes: BTreeSet<SandboxId>,
}

impl Tab {
    pub(super) fn new(socket: WebSocket, hub: Arc<Hub>) -> Self {
        Self {
            socket,
            hub,
            list: None,
            sandboxes: BTreeSet::new(),
        }
    }

    /// Serves the tab until it goes.
    pub(super) async fn run(&mut self) {
        let mut told = self.hub.subscribe();
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        beat.reset();
        if self.send(self.hub.hello()).await.is_err() {
            return;
        }
        while let Ok(()) = self.step(&mut told, &mut beat).await {}
    }

    async fn step(
        &mut self,
        told: &mut broadcast::Receiver<Arc<Told>>,
        beat: &mut tokio::time::Interval,
    ) -> Result<(), Over> {
        tokio::select! {
            message = self.socket.recv() => match message {
                Some(Ok(Message::Text(text))) => self.obey(&text).await,
                Some(Ok(Message::Close(_)) | Err(_)) | None => Err(Over),
                Some(Ok(_)) => Ok(()),
            },
            change = told.recv() => match change {
                Ok(told) => self.pass_on(&told).await,
                Err(RecvError::Lagged(_)) => self.start_over().await,
                Err(RecvError::Closed) => Err(Over),
            },
            _ = beat.tick() => self.send_frame(&Frame::Beat).await,
        }
    }

    async fn obey(&mut self, text: &str) -> Result<(), Over> {
        // A command that is not understood is of a page that is newer than this server.
        match serde_json::from_str(text) {
            Ok(Command::Subscribe {
                topic: Topic::Sandboxes,
                since,
            }) => self.show_list(since).await,
            Ok(Command::Subscribe {
                topic: Topic::Sandbox(id),
                ..
            }) => {
                if self.sandboxes.len() < WATCHED {
                    self.sandboxes.insert(id.clone());
                }
                self.send(self.hub.detail(&id).await).await
            }
            Ok(Command::Unsubscribe {
                topic: Topic::Sandboxes,
            }) => {
                self.list = None;
                Ok(())
            }
            Ok(Command::Unsubscribe {
                topic: Topic::Sandbox(id),
            }) => {
                self.sandboxes.remove(&id);
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    /// What was missed when that is known, else everything.
    async fn show_list(&mut self, since: Option<Position>) -> Result<(), Over> {
        if let Some(position) = since
            && let Some(missed) = self.hub.since(&position)
        {
            self.list = Some(position.seq);
            for told in missed {
                self.send(told.frame.clone()).await?;
                self.list = Some(told.seq);
            }
            return Ok(());
        }
        let (seq, frame) = self.hub.list();
        self.list = Some(seq);
        self.send(frame).await
    }

    async fn pass_on(&mut self, told: &Told) -> Result<(), Over> {
        // A snapshot that was sent meanwhile may already contain this change.
        if self.list.is_some_and(|seen| told.seq > seen) {
            self.list = Some(told.seq);
            self.send(told.frame.clone()).await?;
        }
        if self.sandboxes.contains(&told.id) {
            self.send(self.hub.detail(&told.id).await).await?;
        }
        Ok(())
    }

    /// The tab fell behind: it gets everything it watches as it is now.
    async fn start_over(&mut self) -> Result<(), Over> {
        if self.list.is_some() {
            self.show_list(None).await?;
        }
        for id in self.sandboxes.clone() {
            self.send(self.hub.detail(&id).await).await?;
        }
        Ok(())
    }

    async fn send_frame(&mut self, frame: &Frame<()>) -> Result<(), Over> {
        let text = serde_json::to_string(frame).map_err(|_| Over)?;
        self.send(text.into()).await
    }

    async fn send(&mut self, text: Utf8Bytes) -> Result<(), Over> {
        match timeout(STUCK, self.socket.send(Message::Text(text))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Over),
        }
    }
}
