//! Clients that ask for a WebSocket.

use axum::{
    body::Body,
    extract::{
        FromRequestParts, Request,
        ws::{CloseFrame, Message, WebSocketUpgrade},
    },
    response::Response,
};
use http::{header::UPGRADE, request::Parts};
use hyper::upgrade::OnUpgrade;

/// Longest WebSocket close reason, in bytes (RFC 6455 §5.5).
const CLOSE_REASON: usize = 123;

/// A copy of the head of a request that asks for a WebSocket.
pub(super) fn handshake(request: &Request) -> Option<Parts> {
    let upgrade = request.headers().get(UPGRADE)?.to_str().ok()?;
    if !upgrade.eq_ignore_ascii_case("websocket") {
        return None;
    }
    let on_upgrade = request.extensions().get::<OnUpgrade>()?.clone();
    let mut bare = http::Request::builder()
        .method(request.method().clone())
        .uri(request.uri().clone())
        .version(request.version())
        .body(())
        .ok()?;
    *bare.headers_mut() = request.headers().clone();
    bare.extensions_mut().insert(on_upgrade);
    Some(bare.into_parts().0)
}

/// A client that asked for a WebSocket: a failure reaches it as a close frame, which is what a
/// browser can show; an HTTP status it cannot see.
pub(super) struct WebSocketClient(WebSocketUpgrade);

impl WebSocketClient {
    /// `None` unless the handshake is complete: another one can only be answered over HTTP.
    pub(super) async fn of(mut parts: Parts) -> Option<Self> {
        let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
        upgrade.ok().map(Self)
    }

    pub(super) fn close(self, code: u16, reason: &str) -> Response {
        let reason = &reason[..reason.floor_char_boundary(CLOSE_REASON)];
        let frame = CloseFrame {
            code,
            reason: reason.into(),
        };
        let upgraded = self.0.on_upgrade(async move |mut socket| {
            // The client may be gone already.
            let _ = socket.send(Message::Close(Some(frame))).await;
        });
        upgraded.map(Body::new)
    }
}
