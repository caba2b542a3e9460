//! Content of a topic that changes all the time. Each message about it is encoded once for all tabs.

use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::extract::ws::Utf8Bytes;
use osb_app::live::{Frame, Topic};
use serde::Serialize;
use tokio::sync::broadcast;

/// Messages a tab may fall behind before it gets a snapshot.
const BEHIND: usize = 8;

/// What is known of a topic, and the messages about it.
pub(super) trait Source: Send + Sync {
    /// The whole content in one message, and the messages after it.
    fn subscribe(&self) -> (Utf8Bytes, broadcast::Receiver<Utf8Bytes>);
}

/// The content of a topic. What is sent of it are changes.
pub(super) trait Content: Send + 'static {
    /// One change.
    type Change: Serialize;
    /// The whole content, as far as it is kept.
    fn snapshot(&self) -> impl Serialize;
}

/// Content with its sequence number.
pub(super) struct Published<C> {
    topic: Topic,
    state: Mutex<State<C>>,
    messages: broadcast::Sender<Utf8Bytes>,
}

struct State<C> {
    content: C,
    seq: u64,
    /// The encoded snapshot at a sequence number, for tabs that fall behind together.
    snapshot: Option<(u64, Utf8Bytes)>,
}

impl<C: Content> Published<C> {
    pub(super) fn new(topic: Topic, content: C) -> Self {
        Self {
            topic,
            state: Mutex::new(State {
                content,
                seq: 1,
                snapshot: None,
            }),
            messages: broadcast::Sender::new(BEHIND),
        }
    }

    /// Changes the content, and sends the change.
    pub(super) fn publish(&self, change: impl FnOnce(&mut C) -> C::Change) {
        self.publish_if(|content| Some(change(content)));
    }

    /// Sends a change, if the content changes.
    pub(super) fn publish_if(&self, change: impl FnOnce(&mut C) -> Option<C::Change>) {
        let mut state = self.state();
        let Some(data) = change(&mut state.content) else {
            return;
        };
        state.seq += 1;
        let topic = self.topic.clone();
        let message = text(&Frame::Delta {
            topic,
            seq: state.seq,
            data,
        });
        // Sent under the lock, so that `subscribe` sees a change in exactly one of both. It fails when
        // the last tab has just gone.
        let _ = self.messages.send(message);
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        // Whole after every operation, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Content> Source for Published<C> {
    fn subscribe(&self) -> (Utf8Bytes, broadcast::Receiver<Utf8Bytes>) {
        let mut state = self.state();
        let messages = self.messages.subscribe();
        let seq = state.seq;
        if let Some((known, snapshot)) = &state.snapshot
            && *known == seq
        {
            return (snapshot.clone(), messages);
        }
        let snapshot = text(&Frame::Snapshot {
            topic: self.topic.clone(),
            seq,
            after: 0,
            data: state.content.snapshot(),
        });
        state.snapshot = Some((seq, snapshot.clone()));
        (snapshot, messages)
    }
}

fn text(frame: &impl Serialize) -> Utf8Bytes {
    serde_json::to_string(frame)
        .expect("maps have string keys, so this serialises")
        .into()
}
