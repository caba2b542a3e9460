//! The live connection of one tab.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
    time::Duration,
};

use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use futures::future::select_all;
use osb_app::{
    live::{Command, Frame, Position, Topic},
    sandboxes::PAGE_ROWS,
};
use osb_protocol::{SandboxId, identity::Role};
use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        watch,
    },
    time::{MissedTickBehavior, interval, timeout},
};

use super::{changes::SequencedChange, followers::Subscription, hub::Hub};
use crate::identity::Principal;

/// Most sandboxes one tab watches; a page watches one.
const WATCHED: usize = 16;
/// Most logs and series of samples that one tab follows.
const FOLLOWED: usize = 8;
/// Interval of beats on a quiet connection. The tab gives up after 40 s of silence.
const BEAT: Duration = Duration::from_secs(15);
/// A tab that takes nothing for this long is gone.
const STUCK: Duration = Duration::from_secs(30);

/// The connection ended.
struct Closed;

pub(super) struct Tab {
    pub(super) socket: WebSocket,
    hub: Arc<Hub>,
    /// Who is signed in. The scope limits what the tab sees.
    principal: Arc<Principal>,
    /// Position of the tab in the list; `None` if it does not watch it.
    list: Option<u64>,
    sandboxes: BTreeSet<SandboxId>,
    /// The rows whose use the tab shows.
    shown: Vec<SandboxId>,
    /// Changes each time when all sandboxes were sampled.
    sampled: watch::Receiver<i64>,
    /// What the tab follows together with others.
    followed: BTreeMap<Topic, Subscription>,
}

impl Tab {
    pub(super) fn new(socket: WebSocket, hub: Arc<Hub>, principal: Arc<Principal>) -> Self {
        Self {
            socket,
            shown: Vec::new(),
            sampled: hub.watch_samples(),
            hub,
            principal,
            list: None,
            sandboxes: BTreeSet::new(),
            followed: BTreeMap::new(),
        }
    }

    /// Serves the tab until its connection ends.
    pub(super) async fn run(&mut self) {
        let mut changes = self.hub.subscribe();
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        beat.reset();
        if self.send(self.hub.hello()).await.is_err() {
            return;
        }
        while let Ok(()) = self.step(&mut changes, &mut beat).await {}
    }

    async fn step(
        &mut self,
        changes: &mut broadcast::Receiver<Arc<SequencedChange>>,
        beat: &mut tokio::time::Interval,
    ) -> Result<(), Closed> {
        tokio::select! {
            message = self.socket.recv() => match message {
                Some(Ok(Message::Text(text))) => self.run_command(&text).await,
                Some(Ok(Message::Close(_)) | Err(_)) | None => Err(Closed),
                Some(Ok(_)) => Ok(()),
            },
            change = changes.recv() => match change {
                Ok(change) => self.pass_on(&change).await,
                Err(RecvError::Lagged(_)) => self.start_over().await,
                Err(RecvError::Closed) => Err(Closed),
            },
            (topic, message) = next(&mut self.followed) => match message {
                Ok(message) => self.send(message).await,
                // A tab that takes less than is sent gets the whole content instead.
                Err(RecvError::Lagged(_)) => match self.followed.get_mut(&topic) {
                    Some(subscription) => {
                        let snapshot = subscription.start_over();
                        self.send(snapshot).await
                    }
                    None => Ok(()),
                },
                Err(RecvError::Closed) => {
                    self.followed.remove(&topic);
                    Ok(())
                }
            },
            Ok(()) = self.sampled.changed(), if !self.shown.is_empty() => self.show_usage().await,
            _ = beat.tick() => self.send_frame(&Frame::Beat).await,
        }
    }

    async fn run_command(&mut self, text: &str) -> Result<(), Closed> {
        // An unknown command comes from a page that is newer than this server.
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
                self.send(self.hub.detail(&id, &self.principal.scope).await)
                    .await
            }
            Ok(Command::Subscribe { topic, .. }) => self.follow(topic).await,
            Ok(Command::Usage { mut ids }) => {
                ids.truncate(PAGE_ROWS);
                self.shown = ids;
                self.show_usage().await
            }
            Ok(Command::Unsubscribe {
                topic: Topic::Usage,
            }) => {
                self.shown = Vec::new();
                Ok(())
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
            Ok(Command::Unsubscribe { topic }) => {
                self.followed.remove(&topic);
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    /// Follows a topic, from a snapshot on.
    async fn follow(&mut self, topic: Topic) -> Result<(), Closed> {
        let is_new = !self.followed.contains_key(&topic);
        let principal = &self.principal;
        let may_follow = match topic {
            // The trail of all tenants.
            Topic::Events => {
                principal.role == Role::ServiceAdmin && principal.scope.tenant().is_none()
            }
            _ => true,
        };
        if !may_follow || (is_new && self.followed.len() >= FOLLOWED) {
            return self.send(Hub::nothing(&topic)).await;
        }
        match self.hub.follow(&topic, &self.principal.scope) {
            Some((snapshot, subscription)) => {
                self.followed.insert(topic, subscription);
                self.send(snapshot).await
            }
            None => self.send(Hub::nothing(&topic)).await,
        }
    }

    /// Sends the missed changes if they are still kept, else a snapshot.
    async fn show_list(&mut self, since: Option<Position>) -> Result<(), Closed> {
        if let Some(position) = since
            && let Some(missed) = self.hub.since(&position)
        {
            self.list = Some(position.seq);
            for change in missed {
                self.send(change.frame_within(&self.principal.scope))
                    .await?;
                self.list = Some(change.seq);
            }
            return Ok(());
        }
        let (seq, frames) = self.hub.list(&self.principal.scope);
        self.list = Some(seq);
        for frame in frames.iter() {
            self.send(frame.clone()).await?;
        }
        Ok(())
    }

    /// Sends what the shown rows use.
    async fn show_usage(&mut self) -> Result<(), Closed> {
        let seq = *self.sampled.borrow_and_update();
        let message = self.hub.usage(&self.shown, seq, &self.principal.scope);
        self.send(message).await
    }

    async fn pass_on(&mut self, change: &SequencedChange) -> Result<(), Closed> {
        // A snapshot that was sent meanwhile may already contain this change.
        if self.list.is_some_and(|seen| change.seq > seen) {
            self.list = Some(change.seq);
            self.send(change.frame_within(&self.principal.scope))
                .await?;
        }
        // A foreign sandbox that changes is as silent as one that does not exist.
        if self.sandboxes.contains(&change.id) && change.is_within(&self.principal.scope) {
            self.send(self.hub.detail(&change.id, &self.principal.scope).await)
                .await?;
        }
        Ok(())
    }

    /// Sends snapshots of everything that the tab watches, after it fell behind.
    async fn start_over(&mut self) -> Result<(), Closed> {
        if self.list.is_some() {
            self.show_list(None).await?;
        }
        for id in self.sandboxes.clone() {
            self.send(self.hub.detail(&id, &self.principal.scope).await)
                .await?;
        }
        Ok(())
    }

    async fn send_frame(&mut self, frame: &Frame<()>) -> Result<(), Closed> {
        let text = serde_json::to_string(frame).map_err(|_| Closed)?;
        self.send(text.into()).await
    }

    async fn send(&mut self, text: Utf8Bytes) -> Result<(), Closed> {
        match timeout(STUCK, self.socket.send(Message::Text(text))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Closed),
        }
    }
}

/// The next message of what a tab follows.
async fn next(
    followed: &mut BTreeMap<Topic, Subscription>,
) -> (Topic, Result<Utf8Bytes, RecvError>) {
    if followed.is_empty() {
        return pending().await;
    }
    let each = followed.iter_mut().map(|(topic, subscription)| {
        Box::pin(async move { (topic.clone(), subscription.messages.recv().await) })
    });
    select_all(each).await.0
}
