//! Connection to a terminal session, from the replay to its close frame.

use std::sync::Arc;

use axum::extract::ws::WebSocket;
use bytes::Bytes;
use osb_protocol::execd::{
    code,
    pty::{BinaryFrame, ClientFrame, PtyMode, PtyRole, ServerFrame, close_code},
};
use rustix::process::Signal;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    input::Input,
    scrollback::HolderPosition,
    session::{HolderGuard, PtySession, Run},
    socket::{CloseReason, Disconnected, Received, Receiver, Sender, split},
};
use crate::{base::Base, json, limits};

/// Close reason for clients of a deleted session.
const DELETED: &str = "session deleted";

/// Parameters of a connection.
pub(super) struct Attach {
    pub(super) base: Base,
    pub(super) session: Arc<PtySession>,
    pub(super) mode: PtyMode,
    pub(super) since: u64,
    /// Most output on its way that the client has not acknowledged; `None`: no limit.
    pub(super) window: Option<u64>,
}

/// Close frame that ends a connection; `None` if the client has closed it.
type FinalClose = Option<CloseReason>;

impl Attach {
    /// Serves the client that may write. Without a hold, takes over the session.
    pub(super) async fn hold(self, socket: WebSocket, hold: Option<HolderGuard>) {
        let (mut sender, receiver) = split(socket);
        let hold = match hold {
            Some(hold) => Some(hold),
            None => self.session.take_over().await,
        };
        let Some(hold) = hold else {
            let text = format!(
                "another client is already connected to pty session {}",
                self.session.id
            );
            let _disconnected = sender.error(code::ALREADY_CONNECTED, text).await;
            sender
                .close((close_code::INTERNAL_ERROR, "ALREADY_CONNECTED"))
                .await;
            return;
        };
        let run = match self
            .session
            .ensure_started(&self.base, self.mode == PtyMode::Pty)
            .await
        {
            Ok(run) => run,
            Err(error) => {
                // The next holder need not wait until this client has received the reason.
                drop(hold);
                if self.session.deleted.is_cancelled() {
                    sender.close((close_code::NORMAL, DELETED)).await;
                    return;
                }
                let text = format!("error starting pty session: {error}");
                let _disconnected = sender.error(code::START_FAILED, text).await;
                sender
                    .close((close_code::INTERNAL_ERROR, "START_FAILED"))
                    .await;
                return;
            }
        };
        let evicted = hold.evicted.clone();
        let connection = Connection::new(self, run, PtyRole::Holder);
        let ended = connection.serve(&mut sender, receiver, &evicted).await;
        // The next holder need not wait until this client has read its close frame.
        drop(hold);
        finish(sender, ended).await;
    }

    /// Serves a read-only client.
    pub(super) async fn view(self, socket: WebSocket) {
        let (mut sender, receiver) = split(socket);
        let Some(run) = self.session.run() else {
            // The process ended after the handshake.
            sender.close((close_code::NORMAL, "process exited")).await;
            return;
        };
        let connection = Connection::new(self, run, PtyRole::Viewer);
        let never = CancellationToken::new();
        let ended = connection.serve(&mut sender, receiver, &never).await;
        finish(sender, ended).await;
    }
}

async fn finish(sender: Sender, ended: Result<FinalClose, Disconnected>) {
    if let Ok(Some(reason)) = ended {
        sender.close(reason).await;
    }
}

struct Connection {
    base: Base,
    session: Arc<PtySession>,
    run: Arc<Run>,
    role: PtyRole,
    /// Offset up to which output was sent.
    offset: u64,
    window: Option<u64>,
    /// Offset up to which the client has acknowledged output. Output that was evicted before it was
    /// sent counts as acknowledged.
    acknowledged: u64,
    violations: u32,
    input: Input,
}

impl Connection {
    fn new(attach: Attach, run: Arc<Run>, role: PtyRole) -> Self {
        Self {
            base: attach.base,
            session: attach.session,
            run,
            role,
            offset: attach.since,
            window: attach.window,
            acknowledged: 0,
            violations: 0,
            input: Input::default(),
        }
    }

    /// Serves until one side ends the connection, or another client takes over. A takeover
    /// interrupts even a send, so that it never waits for this client.
    async fn serve(
        mut self,
        sender: &mut Sender,
        receiver: Receiver,
        evicted: &CancellationToken,
    ) -> Result<FinalClose, Disconnected> {
        let session = Arc::clone(&self.session);
        let stopping = self.base.tasks.stopping().clone();
        let run = Arc::clone(&self.run);
        let ended = tokio::select! {
            biased;
            () = evicted.cancelled() => Ok(Some((close_code::TAKEN_OVER, "TAKEN_OVER"))),
            () = session.deleted.cancelled() => Ok(Some((close_code::NORMAL, DELETED))),
            () = stopping.cancelled() => Ok(Some((close_code::GOING_AWAY, "execd stops"))),
            ended = self.exchange_frames(sender, receiver) => ended,
        };
        // Input that a client sent before it disconnected still belongs to the process.
        let rest = self.input.finish(&run.running.input);
        let _unread = timeout(limits::PTY_LAST_INPUT, rest).await;
        ended
    }

    /// Sends the replay and `connected`, then passes frames in both directions until one side ends.
    async fn exchange_frames(
        &mut self,
        sender: &mut Sender,
        mut receiver: Receiver,
    ) -> Result<FinalClose, Disconnected> {
        self.send_opening(sender).await?;
        let mut end = self.run.end.subscribe();
        let mut ping = interval_at(Instant::now() + limits::PTY_PING, limits::PTY_PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silent_until = Instant::now() + limits::PTY_SILENCE;
        let session = Arc::clone(&self.session);
        let run = Arc::clone(&self.run);
        loop {
            let end_offset = end.borrow_and_update().map(|(_, total)| total);
            if end_offset.is_some_and(|total| self.offset >= total) {
                return self.send_exit(sender).await;
            }
            let listening = !self.input.is_full();
            tokio::select! {
                () = session.scrollback.wait_beyond(self.offset), if self.room() > 0 => self.send_output(sender, end_offset).await?,
                changed = end.changed() => changed.map_err(|_| Disconnected)?,
                received = receiver.next(), if listening => {
                    silent_until = Instant::now() + limits::PTY_SILENCE;
                    if let Some(ended) = self.receive(received?, sender).await? {
                        return Ok(Some(ended));
                    }
                }
                written = self.input.write(&run.running.input) => {
                    if !listening {
                        // While the queue was full, no message from the client was read.
                        silent_until = Instant::now() + limits::PTY_SILENCE;
                    }
                    if written.is_err()
                        && let Some(ended) = self.handle_closed_input(sender).await
                    {
                        return Ok(Some(ended));
                    }
                }
                _ = ping.tick() => sender.ping().await?,
                () = sleep_until(silent_until), if listening => return Err(Disconnected),
            }
        }
    }

    /// Handles a process that reads no more input. If the process has ended, the exit frame reports
    /// that instead.
    async fn handle_closed_input(&mut self, sender: &mut Sender) -> FinalClose {
        self.input.clear();
        if self.run.running.ended().is_some() {
            return None;
        }
        let text = "the process reads no more input";
        let _disconnected = sender.error(code::STDIN_WRITE_FAILED, text).await;
        Some((close_code::INTERNAL_ERROR, "STDIN_WRITE_FAILED"))
    }

    async fn send_opening(&mut self, sender: &mut Sender) -> Result<(), Disconnected> {
        match self
            .session
            .scrollback
            .replay(self.offset, limits::PTY_RING)
        {
            Some(slice) => {
                self.offset = slice.from + slice.bytes.len() as u64;
                sender.replay(&slice).await?;
            }
            // An offset that does not exist yet skips the replay.
            None => self.offset = self.session.scrollback.total(),
        }
        // The replay is outside of the window.
        self.acknowledged = self.offset;
        self.report_position();
        let frame = ServerFrame::Connected {
            session_id: self.session.id.clone(),
            mode: if self.run.running.is_terminal() {
                PtyMode::Pty
            } else {
                PtyMode::Pipe
            },
            role: self.role,
            window: self.window,
        };
        sender.frame(&frame).await
    }

    /// Bytes of output that may be sent now.
    fn room(&self) -> u64 {
        let on_its_way = self.offset.saturating_sub(self.acknowledged);
        self.window
            .map_or(u64::MAX, |window| window.saturating_sub(on_its_way))
    }

    /// Reports how far the holder is, for whom the process waits.
    fn report_position(&self) {
        if self.role == PtyRole::Holder {
            let offset = self.window.map_or(self.offset, |_| self.acknowledged);
            let slack = self.window;
            let position = HolderPosition { offset, slack };
            self.session.scrollback.set_holder(Some(position));
        }
    }

    /// Makes room for output that the client has shown.
    fn acknowledge(&mut self, offset: u64) {
        self.acknowledged = self.acknowledged.max(offset.min(self.offset));
        self.report_position();
    }

    /// Sends one frame of output. The loop sends the rest, so that output does not delay input.
    async fn send_output(
        &mut self,
        sender: &mut Sender,
        end: Option<u64>,
    ) -> Result<(), Disconnected> {
        let left = end.map_or(u64::MAX, |end| end.saturating_sub(self.offset));
        let left = left.min(self.room());
        let max = limits::PTY_FRAME.min(usize::try_from(left).unwrap_or(usize::MAX));
        let scrollback = &self.session.scrollback;
        let slice = match self.role {
            PtyRole::Holder => scrollback.read(self.offset, max),
            PtyRole::Viewer => scrollback.replay(self.offset, max),
        };
        let Some(slice) = slice else { return Ok(()) };
        let missed = slice.from > self.offset;
        self.acknowledged += slice.from - self.offset;
        self.offset = slice.from + slice.bytes.len() as u64;
        // A replay frame carries its offset, which shows a slow client how much it missed.
        if self.role == PtyRole::Viewer || missed {
            sender.replay(&slice).await?
        } else {
            sender.output(&slice).await?
        }
        self.report_position();
        Ok(())
    }

    async fn send_exit(&self, sender: &mut Sender) -> Result<FinalClose, Disconnected> {
        let exit = *self.run.end.borrow();
        let exit_code = exit.map_or(-1, |(exit, _)| exit.wire_code());
        sender.frame(&ServerFrame::Exit { exit_code }).await?;
        Ok(Some((close_code::NORMAL, "process exited")))
    }

    async fn receive(
        &mut self,
        received: Received,
        sender: &mut Sender,
    ) -> Result<FinalClose, Disconnected> {
        let frame = match received {
            Received::Heartbeat => return Ok(None),
            Received::Closing => {
                sender.answer_close().await;
                return Err(Disconnected);
            }
            Received::Invalid(reason) => return Ok(Some(reason)),
            Received::Binary(message) => match BinaryFrame::decode(&message) {
                Some(BinaryFrame::Stdin(data)) => {
                    return self.queue_input(message.slice_ref(data), sender).await;
                }
                _ => return Ok(None),
            },
            Received::Text(text) => match client_frame(&text) {
                Some(frame) => frame,
                None => return Ok(None),
            },
        };
        match frame {
            ClientFrame::Ping => sender.frame(&ServerFrame::Pong).await?,
            ClientFrame::Ack { offset } if self.window.is_some() => self.acknowledge(offset),
            ClientFrame::Unknown | ClientFrame::Ack { .. } => {
                sender
                    .error(code::INVALID_FRAME, "unknown frame type")
                    .await?
            }
            ClientFrame::Stdin { data } => {
                return self.queue_input(Bytes::from(data), sender).await;
            }
            _ if self.role == PtyRole::Viewer => return self.reject_input(sender).await,
            ClientFrame::Resize { cols, rows } => {
                let side = |cells: u32| u16::try_from(cells).ok().filter(|cells| *cells > 0);
                if let (Some(cols), Some(rows)) = (side(cols), side(rows)) {
                    self.run.running.resize(cols, rows);
                }
            }
            ClientFrame::Signal { signal } => {
                if let Some(signal) = parse_signal(&signal) {
                    self.run.running.signal(signal);
                }
            }
        }
        Ok(None)
    }

    /// Queues input for the process. Viewers may send none.
    async fn queue_input(
        &mut self,
        bytes: Bytes,
        sender: &mut Sender,
    ) -> Result<FinalClose, Disconnected> {
        if self.role == PtyRole::Viewer {
            return self.reject_input(sender).await;
        }
        self.input.push(bytes);
        Ok(None)
    }

    async fn reject_input(&mut self, sender: &mut Sender) -> Result<FinalClose, Disconnected> {
        self.violations += 1;
        sender
            .error(code::READ_ONLY, "viewer connections are read-only")
            .await?;
        Ok((self.violations >= limits::PTY_VIOLATIONS)
            .then_some((close_code::POLICY_VIOLATION, "READ_ONLY")))
    }
}

/// Decodes a text frame. Repairs a lone surrogate, which clients send when they cut text inside an
/// emoji.
fn client_frame(text: &str) -> Option<ClientFrame> {
    match ClientFrame::decode(text)? {
        ClientFrame::Unknown => {
            let repaired = json::repaired(text);
            repaired.map_or(Some(ClientFrame::Unknown), |text| {
                ClientFrame::decode(&text)
            })
        }
        frame => Some(frame),
    }
}

/// Signal that clients may send, by name.
fn parse_signal(signal: &str) -> Option<Signal> {
    Some(match signal {
        "SIGINT" => Signal::INT,
        "SIGTERM" => Signal::TERM,
        "SIGKILL" => Signal::KILL,
        "SIGQUIT" => Signal::QUIT,
        "SIGHUP" => Signal::HUP,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_surrogate_in_input_is_replaced() {
        let frame = client_frame(r#"{"type":"stdin","data":"cut \ud83d"}"#);
        let data = "cut \u{fffd}".to_owned();
        assert_eq!(frame, Some(ClientFrame::Stdin { data }));
        let unknown = client_frame(r#"{"type":"\ud83d"}"#);
        assert_eq!(unknown, Some(ClientFrame::Unknown));
        assert_eq!(client_frame(r"\ud83d"), None);
    }
}
