//! Flow control, an addition to the contract: a client that asks for a window acknowledges output.

use osb_protocol::execd::pty::{ClientFrame, PtyRole, ServerFrame};
use serde_json::json;

use super::{Received, Terminal, session};
use crate::support::{Daemon, daemon};

/// The least window.
const WINDOW: usize = 16 << 10;

impl Terminal {
    async fn attach_with_window(daemon: &Daemon, id: &str, query: &str) -> Self {
        let query = format!("window=1&{query}");
        let mut terminal = Self::open(daemon, id, &query).await.unwrap();
        match terminal.answer().await {
            Received::Frame(ServerFrame::Connected { window, .. }) => {
                assert_eq!(window, Some(WINDOW as u64), "the least");
            }
            other => panic!("{other:?}"),
        }
        terminal
    }

    async fn acknowledge(&mut self, offset: usize) {
        let offset = offset as u64;
        let frame = ClientFrame::Ack { offset }.encode();
        self.send_control(serde_json::from_str(&frame).unwrap())
            .await;
    }

    /// Reads until the daemon, which answers in order, has sent all that it sends now.
    async fn read_all_sent(&mut self) {
        loop {
            let before = self.seen.len();
            self.send_control(json!({ "type": "ping" })).await;
            assert_eq!(self.answer().await, Received::Frame(ServerFrame::Pong));
            if self.seen.len() == before {
                return;
            }
        }
    }

    /// Acknowledges what was read, and reads on, until a text was seen.
    async fn drain_until(&mut self, text: &str) {
        let end = text.as_bytes();
        while !self.seen.windows(end.len()).any(|part| part == end) {
            self.acknowledge(self.seen.len()).await;
            let _ = self.step().await;
        }
    }
}

#[tokio::test]
async fn no_more_output_is_sent_than_the_window_and_what_is_acknowledged() {
    const OUTPUT: usize = 5 * WINDOW;
    let daemon = daemon();
    // What is written before the client is connected is replayed, whatever the window is.
    let place = tempfile::tempdir().unwrap();
    let connected = place.path().join("connected");
    let write = format!("head -c {OUTPUT} /dev/zero | tr '\\0' x; echo ' the end'; cat");
    let command = format!("until [ -e {connected:?} ]; do sleep 0.01; done; {write}");
    let id = session(&daemon, json!({ "command": command })).await;
    let mut terminal = Terminal::attach_with_window(&daemon, &id, "").await;
    std::fs::write(connected, "").unwrap();
    while terminal.seen.len() < WINDOW {
        assert_eq!(terminal.step().await, None);
    }
    terminal.read_all_sent().await;
    assert_eq!(terminal.seen.len(), WINDOW);
    // Nothing follows from what was acknowledged before, or cannot have been sent.
    terminal.acknowledge(0).await;
    terminal.read_all_sent().await;
    assert_eq!(terminal.seen.len(), WINDOW);
    terminal.acknowledge(1_000).await;
    while terminal.seen.len() < WINDOW + 1_000 {
        assert_eq!(terminal.step().await, None);
    }
    terminal.read_all_sent().await;
    assert_eq!(terminal.seen.len(), WINDOW + 1_000);

    // A viewer has a window of its own, and sees everything.
    let mut viewer = Terminal::attach_with_window(&daemon, &id, "mode=viewer").await;
    viewer.drain_until("the end").await;
    terminal.drain_until("the end").await;
    let all = "x".repeat(OUTPUT) + " the end";
    assert!(terminal.seen.starts_with(all.as_bytes()));
    assert!(viewer.seen.starts_with(all.as_bytes()));
}

#[tokio::test]
async fn an_interrupt_is_not_behind_the_output_of_a_client_that_reads_nothing() {
    let daemon = daemon();
    let id = session(&daemon, json!({})).await;
    let mut terminal = Terminal::attach_with_window(&daemon, &id, "").await;
    terminal.type_in("yes\n").await;
    while terminal.seen.len() < WINDOW {
        terminal.step().await;
    }
    terminal.read_all_sent().await;
    terminal.type_in("\u{3}").await;
    terminal.type_in("echo ba''ck\n").await;
    let before = terminal.seen.len();
    terminal.drain_until("back\r\n").await;
    let after = terminal.seen.len() - before;
    // The process waits for the client: little is left behind the window. Without flow control it
    // is all that fits into the connection and the ring.
    assert!(after < 512 << 10, "{after} bytes");
}

#[tokio::test]
async fn without_a_window_nothing_is_acknowledged() {
    let daemon = daemon();
    let id = session(&daemon, json!({ "command": "cat" })).await;
    for query in ["", "window=x", "window=-1"] {
        let query = format!("takeover=1&{query}");
        let mut terminal = Terminal::open(&daemon, &id, &query).await.unwrap();
        let connected = Received::Frame(ServerFrame::Connected {
            session_id: id.clone(),
            mode: osb_protocol::execd::pty::PtyMode::Pty,
            role: PtyRole::Holder,
            window: None,
        });
        assert_eq!(terminal.answer().await, connected);
        terminal.acknowledge(0).await;
        let refused = terminal.answer().await;
        assert!(
            matches!(&refused, Received::Frame(ServerFrame::Error { code, .. }) if code == "INVALID_FRAME"),
            "{refused:?}"
        );
    }
}
