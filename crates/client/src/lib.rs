//! The Rust SDK: lifecycle and execd over HTTP and WebSocket.
