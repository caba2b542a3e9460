//! Terminals (contract: execd §9, A10).

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::{
    SinkExt, Stream, StreamExt,
    stream::{SplitSink, SplitStream},
};
use osb_protocol::execd::pty::{
    BinaryFrame, ClientFrame, NewPty, PtyCreated, PtyMode, PtyRole, PtyStatus, ServerFrame,
    close_code,
};
use reqwest::{Method, StatusCode, Upgraded, header};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::{client::generate_key, derive_accept_key},
        protocol::{Role, WebSocketConfig},
    },
};

/// A message of a terminal's WebSocket, not decoded.
pub use tokio_tungstenite::tungstenite::Message as SocketMessage;

use super::{ExecdClient, answer};
use crate::{Error, http};

/// Longest message taken: a replay has up to 1 MiB of output.
const MESSAGE_MAX: usize = 4 * 1024 * 1024;

/// The WebSocket of an attached terminal: a stream and a sink of whole messages.
///
/// It answers the server's pings by itself while it is polled for messages.
pub type ExecdSocket = WebSocketStream<Upgraded>;

/// How to attach to a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// Terminal or pipes; counts only when the process is not started yet.
    pub mode: PtyMode,
    /// Viewers watch; the one holder also writes.
    pub role: PtyRole,
    /// Offset from which earlier output is repeated.
    pub since: u64,
    /// Take the place of the present holder.
    pub takeover: bool,
    /// Flow control: most bytes of output on their way that are not acknowledged
    /// ([`ClientFrame::Ack`]). Execd answers with the window that it uses; one of an earlier
    /// release uses none.
    pub window: Option<u64>,
}

impl Default for Attach {
    fn default() -> Self {
        Self {
            mode: PtyMode::Pty,
            role: PtyRole::Holder,
            since: 0,
            takeover: false,
            window: None,
        }
    }
}

impl Attach {
    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = vec![("since", self.since.to_string())];
        if self.mode == PtyMode::Pipe {
            query.push(("pty", "0".to_owned()));
        }
        if self.role == PtyRole::Viewer {
            query.push(("mode", "viewer".to_owned()));
        }
        if self.takeover {
            query.push(("takeover", "1".to_owned()));
        }
        if let Some(window) = self.window {
            query.push(("window", window.to_string()));
        }
        query
    }
}

impl ExecdClient {
    /// Creates a terminal session. Its process starts with the first attach.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create_pty(&self, new: &NewPty) -> Result<String, Error> {
        let call = self.service.request(Method::POST, &["pty"]);
        let created: PtyCreated = answer(call.json(new)).await?;
        Ok(created.session_id)
    }

    /// Status of a terminal session.
    ///
    /// # Errors
    /// See [`Error`]; 404 when it is unknown.
    pub async fn pty_status(&self, id: &str) -> Result<PtyStatus, Error> {
        answer(self.service.request(Method::GET, &["pty", id])).await
    }

    /// Ends a terminal session and its process.
    ///
    /// # Errors
    /// See [`Error`]; 404 when it is unknown.
    pub async fn delete_pty(&self, id: &str) -> Result<(), Error> {
        http::done(self.service.request(Method::DELETE, &["pty", id])).await
    }

    /// Attaches to a terminal session and decodes its frames. The connection ends when both halves
    /// are dropped; the process goes on.
    ///
    /// # Errors
    /// See [`ExecdClient::open_pty`].
    pub async fn attach_pty(&self, id: &str, how: &Attach) -> Result<(PtyInput, PtyOutput), Error> {
        let (input, output) = self.open_pty(id, how).await?.split();
        Ok((PtyInput(input), PtyOutput(output)))
    }

    /// Attaches to a terminal session and leaves its messages as they are, for a relay.
    ///
    /// # Errors
    /// See [`Error`]; 404 when it is unknown, 409 when another client holds it.
    pub async fn open_pty(&self, id: &str, how: &Attach) -> Result<ExecdSocket, Error> {
        self.open_socket(&["pty", id, "ws"], &how.query()).await
    }

    /// Opens a TCP connection to a program of the sandbox. Binary messages carry its bytes, for a
    /// relay.
    ///
    /// # Errors
    /// See [`Error`]; 502 when no program accepts connections on the port, 404 from an execd without
    /// tunnels.
    pub async fn open_tunnel(&self, port: u16) -> Result<ExecdSocket, Error> {
        self.open_socket(&["tunnel", &port.to_string()], &[]).await
    }

    async fn open_socket(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<ExecdSocket, Error> {
        let key = generate_key();
        let call = self
            .service
            .endless(Method::GET, path)
            .query(query)
            .header(header::CONNECTION, "upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, &key);
        let response = call.send().await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(http::api_error(response).await.into());
        }
        let accepted = response.headers().get(header::SEC_WEBSOCKET_ACCEPT);
        if accepted.is_none_or(|accepted| *accepted != derive_accept_key(key.as_bytes())) {
            return Err(Error::Unexpected("the WebSocket handshake does not match"));
        }
        let config = WebSocketConfig::default().max_message_size(Some(MESSAGE_MAX));
        let connection = response.upgrade().await?;
        Ok(ExecdSocket::from_raw_socket(connection, Role::Client, Some(config)).await)
    }
}

/// The writing half of an attached terminal.
#[derive(Debug)]
pub struct PtyInput(SplitSink<ExecdSocket, SocketMessage>);

impl PtyInput {
    /// Sends bytes to standard input.
    ///
    /// # Errors
    /// [`Error::WebSocket`] when the connection is gone.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let message = BinaryFrame::Stdin(bytes).encode();
        Ok(self.0.send(SocketMessage::Binary(message.into())).await?)
    }

    /// Sends any other frame: a size, a signal, a ping.
    ///
    /// # Errors
    /// [`Error::WebSocket`] when the connection is gone.
    pub async fn send(&mut self, frame: &ClientFrame) -> Result<(), Error> {
        Ok(self.0.send(SocketMessage::text(frame.encode())).await?)
    }

    /// Closes the connection; the output half then ends.
    ///
    /// # Errors
    /// [`Error::WebSocket`] when the connection is gone.
    pub async fn close(&mut self) -> Result<(), Error> {
        Ok(self.0.close().await?)
    }
}

/// A frame of an attached terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PtyFrame {
    /// Output of the terminal, or standard output.
    Stdout(Bytes),
    /// Standard error; only with pipes.
    Stderr(Bytes),
    /// Output from before, or all output for a viewer.
    Replay {
        /// Offset of the first byte in all output.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// A control frame.
    Control(ServerFrame),
    /// The server closed the connection: the last frame.
    Closed {
        /// The close code; see [`close_code`].
        code: u16,
        /// The reason, for people.
        reason: String,
    },
}

impl PtyFrame {
    /// `None` for messages that mean nothing here, such as frames of later releases.
    fn of(message: SocketMessage) -> Option<Self> {
        match message {
            SocketMessage::Binary(bytes) => Self::of_binary(&bytes),
            SocketMessage::Text(text) => ServerFrame::decode(&text).map(Self::Control),
            SocketMessage::Close(close) => Some(close.map_or_else(
                || Self::Closed {
                    code: close_code::NO_STATUS,
                    reason: String::new(),
                },
                |close| Self::Closed {
                    code: close.code.into(),
                    reason: close.reason.to_string(),
                },
            )),
            SocketMessage::Ping(_) | SocketMessage::Pong(_) | SocketMessage::Frame(_) => None,
        }
    }

    fn of_binary(message: &Bytes) -> Option<Self> {
        match BinaryFrame::decode(message)? {
            BinaryFrame::Stdout(data) => Some(Self::Stdout(message.slice_ref(data))),
            BinaryFrame::Stderr(data) => Some(Self::Stderr(message.slice_ref(data))),
            BinaryFrame::Replay { offset, data } => Some(Self::Replay {
                offset,
                bytes: message.slice_ref(data),
            }),
            BinaryFrame::Stdin(_) => None,
        }
    }
}

/// The reading half of an attached terminal. It also answers the server's pings, so it must be
/// polled to keep the connection alive.
#[derive(Debug)]
pub struct PtyOutput(SplitStream<ExecdSocket>);

impl Stream for PtyOutput {
    type Item = Result<PtyFrame, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(self.0.poll_next_unpin(cx)) {
                Some(Ok(message)) => {
                    if let Some(frame) = PtyFrame::of(message) {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => return Poll::Ready(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_frames_begin_with_their_tag() {
        let read =
            |bytes: &'static [u8]| PtyFrame::of(SocketMessage::Binary(Bytes::from_static(bytes)));
        let hi = Bytes::from_static(b"hi");
        assert_eq!(read(b"\x01hi"), Some(PtyFrame::Stdout(hi.clone())));
        assert_eq!(read(b"\x02hi"), Some(PtyFrame::Stderr(hi.clone())));
        // contract: execd §9.3, byte example
        let replay = PtyFrame::Replay {
            offset: 5,
            bytes: hi,
        };
        assert_eq!(read(b"\x03\0\0\0\0\0\0\0\x05hi"), Some(replay));
        for nothing in [&b""[..], b"\x03\0\0", b"\x09hi"] {
            assert_eq!(read(nothing), None);
        }
    }

    #[test]
    fn text_frames_end_with_a_newline_and_may_be_unknown() {
        let read = |text: &str| PtyFrame::of(SocketMessage::text(text));
        let pong = PtyFrame::Control(ServerFrame::Pong);
        assert_eq!(read("{\"type\":\"pong\"}\n"), Some(pong));
        assert_eq!(read("{\"type\":\"dance\"}\n"), None);
        assert_eq!(read("nonsense"), None);
    }

    #[test]
    fn attaching_asks_only_for_what_is_not_the_default() {
        let all = Attach {
            mode: PtyMode::Pipe,
            role: PtyRole::Viewer,
            since: 7,
            takeover: true,
            window: Some(9),
        };
        let names = |attach: &Attach| -> Vec<String> {
            let query = attach.query().into_iter();
            query
                .map(|(name, value)| format!("{name}={value}"))
                .collect()
        };
        assert_eq!(names(&Attach::default()), ["since=0"]);
        assert_eq!(
            names(&all),
            ["since=7", "pty=0", "mode=viewer", "takeover=1", "window=9"]
        );
    }
}
