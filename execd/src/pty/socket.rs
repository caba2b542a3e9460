//! WebSocket with the contract's frames and deadlines (contract: execd §9.3).

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use bytes::Bytes;
use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use osb_protocol::execd::pty::{BinaryFrame, ServerFrame, close_code};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Error as SocketError, error::ProtocolError};

use super::scrollback::{Slice, Stream};
use crate::limits;

/// Error: the client has disconnected, or reads too slowly.
#[derive(Debug)]
pub(super) struct Disconnected;

/// Message from the client.
#[derive(Debug)]
pub(super) enum Received {
    Text(Utf8Bytes),
    Binary(Bytes),
    /// Ping or pong, which only shows that the client is connected.
    Heartbeat,
    /// Close frame, which must be answered.
    Closing,
    /// Invalid message; the connection must close for this reason.
    Invalid(CloseReason),
}

/// Code and text of a close frame that execd sends.
pub(super) type CloseReason = (u16, &'static str);

/// Sending half of a WebSocket.
pub(super) struct Sender(SplitSink<WebSocket, Message>);

/// Receiving half of a WebSocket.
pub(super) struct Receiver(SplitStream<WebSocket>);

pub(super) fn split(socket: WebSocket) -> (Sender, Receiver) {
    let (sink, stream) = socket.split();
    (Sender(sink), Receiver(stream))
}

impl Receiver {
    /// Waits for the next message, without a deadline. Safe to cancel.
    pub(super) async fn next(&mut self) -> Result<Received, Disconnected> {
        match self.0.next().await {
            Some(Ok(Message::Text(text))) => Ok(Received::Text(text)),
            Some(Ok(Message::Binary(bytes))) => Ok(Received::Binary(bytes)),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(Received::Heartbeat),
            Some(Ok(Message::Close(_))) => Ok(Received::Closing),
            Some(Err(error)) => close_reason(error)
                .map(Received::Invalid)
                .ok_or(Disconnected),
            None => Err(Disconnected),
        }
    }
}

/// Close reason for an invalid frame (RFC 6455 §7.4.1). `None` when the connection broke.
fn close_reason(error: axum::Error) -> Option<CloseReason> {
    match *error.into_inner().downcast::<SocketError>().ok()? {
        SocketError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        SocketError::Protocol(_) => Some((close_code::PROTOCOL_ERROR, "protocol error")),
        SocketError::Utf8(_) => Some((close_code::INVALID_TEXT, "text is not UTF-8")),
        SocketError::Capacity(_) => Some((close_code::TOO_LONG, "message too long")),
        _ => None,
    }
}

impl Sender {
    async fn send(&mut self, message: Message) -> Result<(), Disconnected> {
        match timeout(limits::PTY_WRITE, self.0.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Disconnected),
        }
    }

    pub(super) async fn frame(&mut self, frame: &ServerFrame) -> Result<(), Disconnected> {
        self.send(Message::Text(frame.encode().into())).await
    }

    async fn binary(&mut self, frame: BinaryFrame<'_>) -> Result<(), Disconnected> {
        self.send(Message::Binary(frame.encode().into())).await
    }

    pub(super) async fn error(
        &mut self,
        code: &str,
        error: impl Into<String>,
    ) -> Result<(), Disconnected> {
        let frame = ServerFrame::Error {
            error: error.into(),
            code: code.to_owned(),
        };
        self.frame(&frame).await
    }

    /// Sends live output.
    pub(super) async fn output(&mut self, slice: &Slice) -> Result<(), Disconnected> {
        let data = &slice.bytes;
        self.binary(match slice.stream {
            Stream::Stdout => BinaryFrame::Stdout(data),
            Stream::Stderr => BinaryFrame::Stderr(data),
        })
        .await
    }

    /// Sends output with the offset of its first byte.
    pub(super) async fn replay(&mut self, slice: &Slice) -> Result<(), Disconnected> {
        let frame = BinaryFrame::Replay {
            offset: slice.from,
            data: &slice.bytes,
        };
        self.binary(frame).await
    }

    /// Sends a ping.
    pub(super) async fn ping(&mut self) -> Result<(), Disconnected> {
        self.send(Message::Ping(Bytes::new())).await
    }

    /// Answers the client's close frame with the same code.
    pub(super) async fn answer_close(&mut self) {
        // The library queued the answer when it read the close frame; this flushes it.
        let _late = timeout(limits::PTY_CLOSE, self.0.close()).await;
    }

    /// Sends a close frame and ends the connection. A client that does not read misses the reason.
    pub(super) async fn close(mut self, (code, reason): CloseReason) {
        let frame = CloseFrame {
            code,
            reason: Utf8Bytes::from_static(reason),
        };
        let close = async {
            let _disconnected = self.0.send(Message::Close(Some(frame))).await;
            let _disconnected = self.0.close().await;
        };
        let _late = timeout(limits::PTY_CLOSE, close).await;
    }
}
