//! A WebSocket with the contract's frames and deadlines (contract: execd §9.3).

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use bytes::Bytes;
use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use osb_protocol::execd::pty::{BinaryFrame, ServerFrame, close_code};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Error as SocketError, error::ProtocolError};

use super::screen::{Slice, Stream};
use crate::limits;

/// The client is gone, or too slow to be served.
#[derive(Debug)]
pub(super) struct Gone;

/// Message from the client.
#[derive(Debug)]
pub(super) enum Received {
    Text(Utf8Bytes),
    Binary(Bytes),
    /// Something that only shows that the client lives.
    Alive,
    /// The client closes the connection; its close frame is to be answered.
    Closing,
    /// The message is invalid; the connection must close for this reason.
    Unreadable(CloseReason),
}

/// Code and text of a close frame of ours.
pub(super) type CloseReason = (u16, &'static str);

/// The sending side.
pub(super) struct Sender(SplitSink<WebSocket, Message>);

/// The receiving side.
pub(super) struct Receiver(SplitStream<WebSocket>);

pub(super) fn split(socket: WebSocket) -> (Sender, Receiver) {
    let (sink, stream) = socket.split();
    (Sender(sink), Receiver(stream))
}

impl Receiver {
    /// The next frame. Safe to cancel: silence is measured by the caller.
    pub(super) async fn next(&mut self) -> Result<Received, Gone> {
        match self.0.next().await {
            Some(Ok(Message::Text(text))) => Ok(Received::Text(text)),
            Some(Ok(Message::Binary(bytes))) => Ok(Received::Binary(bytes)),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(Received::Alive),
            Some(Ok(Message::Close(_))) => Ok(Received::Closing),
            Some(Err(error)) => unreadable(error).map(Received::Unreadable).ok_or(Gone),
            None => Err(Gone),
        }
    }
}

/// The close that an unreadable frame calls for (RFC 6455 §7.4.1). `None` when the connection broke.
fn unreadable(error: axum::Error) -> Option<CloseReason> {
    match *error.into_inner().downcast::<SocketError>().ok()? {
        SocketError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        SocketError::Protocol(_) => Some((close_code::PROTOCOL_ERROR, "protocol error")),
        SocketError::Utf8(_) => Some((close_code::INVALID_TEXT, "text is not UTF-8")),
        SocketError::Capacity(_) => Some((close_code::TOO_LONG, "message too long")),
        _ => None,
    }
}

impl Sender {
    async fn send(&mut self, message: Message) -> Result<(), Gone> {
        match timeout(limits::PTY_WRITE, self.0.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }

    pub(super) async fn frame(&mut self, frame: &ServerFrame) -> Result<(), Gone> {
        self.send(Message::Text(frame.encode().into())).await
    }

    async fn binary(&mut self, frame: BinaryFrame<'_>) -> Result<(), Gone> {
        self.send(Message::Binary(frame.encode().into())).await
    }

    pub(super) async fn error(&mut self, code: &str, error: impl Into<String>) -> Result<(), Gone> {
        let frame = ServerFrame::Error {
            error: error.into(),
            code: code.to_owned(),
        };
        self.frame(&frame).await
    }

    /// Live output.
    pub(super) async fn output(&mut self, slice: &Slice) -> Result<(), Gone> {
        let data = &slice.bytes;
        self.binary(match slice.stream {
            Stream::Stdout => BinaryFrame::Stdout(data),
            Stream::Stderr => BinaryFrame::Stderr(data),
        })
        .await
    }

    /// Output with the offset of its first byte.
    pub(super) async fn replay(&mut self, slice: &Slice) -> Result<(), Gone> {
        let frame = BinaryFrame::Replay {
            offset: slice.from,
            data: &slice.bytes,
        };
        self.binary(frame).await
    }

    /// Sends a ping.
    pub(super) async fn ping(&mut self) -> Result<(), Gone> {
        self.send(Message::Ping(Bytes::new())).await
    }

    /// Answers the client's close frame with the same code.
    pub(super) async fn answer_close(&mut self) {
        // The answer was queued when the close frame was read.
        let _late = timeout(limits::PTY_CLOSE, self.0.close()).await;
    }

    /// Ends the connection. A client that does not read gets no reason.
    pub(super) async fn close(mut self, (code, reason): CloseReason) {
        let frame = CloseFrame {
            code,
            reason: Utf8Bytes::from_static(reason),
        };
        let close = async {
            let _gone = self.0.send(Message::Close(Some(frame))).await;
            let _gone = self.0.close().await;
        };
        let _late = timeout(limits::PTY_CLOSE, close).await;
    }
}
