//! A blocking connection without an HTTP library, which measures the duration of a stream alone.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::execd::Execd;

/// Longest time without data from the server.
const SILENCE: Duration = Duration::from_secs(30);
/// End of a chunked body.
const END: &[u8] = b"\r\n0\r\n\r\n";

/// A persistent, blocking HTTP/1.1 connection.
pub(super) struct Plain {
    stream: TcpStream,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Plain {
    /// Connects, and prepares the one request that is sent repeatedly.
    pub(super) fn post(execd: &Execd, route: &str, body: &Value) -> Result<Self> {
        let stream = TcpStream::connect(execd.address())
            .with_context(|| format!("cannot connect to {}", execd.address()))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        let body = body.to_string();
        let mut request = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n",
            execd.path(route),
            execd.address(),
            body.len()
        );
        for (name, value) in execd.headers() {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        request.push_str(&body);
        Ok(Self {
            stream,
            request: request.into_bytes(),
            reply: Vec::new(),
        })
    }

    /// Sends the request, and returns the reply with its head once the last chunk has arrived.
    pub(super) fn send(&mut self) -> Result<&[u8]> {
        self.reply.clear();
        self.stream.write_all(&self.request)?;
        let mut piece = [0; 4096];
        while !self.reply.ends_with(END) {
            let read = self.stream.read(&mut piece);
            let len = read.context("the stream does not end")?;
            ensure!(len > 0, "the stream broke off");
            self.reply.extend_from_slice(&piece[..len]);
            // An error has no chunks, so its end would not be found.
            ensure!(
                self.reply.starts_with(b"HTTP/1.1 200 "),
                "execd refused the request: {}",
                String::from_utf8_lossy(&self.reply)
            );
        }
        Ok(&self.reply)
    }
}
