//! A WebSocket of one component, such as a terminal.

use js_sys::{ArrayBuffer, Uint8Array};
use wasm_bindgen::{JsCast, closure::Closure};
use web_sys::{BinaryType, CloseEvent, MessageEvent, WebSocket};

/// A message or the end of the connection.
pub(crate) enum SocketEvent {
    /// A binary frame.
    Bytes(Vec<u8>),
    /// A text frame.
    Text(String),
    /// The close code and reason.
    Closed(u16, String),
}

/// A connection. Dropping it closes it without another call of its handler.
pub(crate) struct Socket {
    raw: WebSocket,
    _on_message: Closure<dyn FnMut(MessageEvent)>,
    _on_close: Closure<dyn FnMut(CloseEvent)>,
}

impl Socket {
    /// Connects; `None` when the address is refused, which only a wrong page policy does.
    pub(crate) fn open(
        url: &str,
        on_event: impl Fn(SocketEvent) + Clone + 'static,
    ) -> Option<Self> {
        let raw = WebSocket::new(url).ok()?;
        raw.set_binary_type(BinaryType::Arraybuffer);
        let on_message_event = on_event.clone();
        let on_message = Closure::new(move |event: MessageEvent| {
            let data = event.data();
            match data.dyn_ref::<ArrayBuffer>() {
                Some(buffer) => {
                    on_message_event(SocketEvent::Bytes(Uint8Array::new(buffer).to_vec()))
                }
                None => on_message_event(SocketEvent::Text(data.as_string().unwrap_or_default())),
            }
        });
        let on_close = Closure::new(move |event: CloseEvent| {
            on_event(SocketEvent::Closed(event.code(), event.reason()));
        });
        raw.set_onmessage(Some(on_message.as_ref().unchecked_ref()));
        raw.set_onclose(Some(on_close.as_ref().unchecked_ref()));
        Some(Self {
            raw,
            _on_message: on_message,
            _on_close: on_close,
        })
    }

    /// Sends a binary frame, if connected.
    pub(crate) fn send_bytes(&self, bytes: &[u8]) {
        if self.raw.ready_state() == WebSocket::OPEN {
            let _ = self.raw.send_with_u8_array(bytes);
        }
    }

    /// Sends a text frame, if connected.
    pub(crate) fn send_text(&self, text: &str) {
        if self.raw.ready_state() == WebSocket::OPEN {
            let _ = self.raw.send_with_str(text);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.raw.set_onmessage(None);
        self.raw.set_onclose(None);
        let _ = self.raw.close();
    }
}
