//! Terminals: time from a key to its echo.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use serde::Deserialize;
use serde_json::json;
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{
        Message,
        client::IntoClientRequest,
        http::{HeaderName, HeaderValue},
    },
};

use super::{Options, execd::Execd, http::Connection, report::Report, stats::Samples};

/// Keys per turn.
const PER_TURN: usize = 100;
/// Longest time for one echo.
const ECHO: Duration = Duration::from_secs(10);
/// A terminal's line buffer has room for 4,095 keys; Ctrl-U empties it in time.
const LINE: usize = 1_000;

/// A WebSocket that speaks execd's PTY protocol.
pub(super) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

#[derive(Deserialize)]
struct Created {
    session_id: String,
}

/// Measures keys, one after the other.
pub(super) async fn measure(
    execd: &Execd,
    prefix: &str,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let mut terminal = Terminal::start(execd).await?;
    let mut samples = Samples::default();
    for _ in 0..options.turns * PER_TURN {
        samples.add(terminal.keys.press().await?);
    }
    report.durations(&format!("{prefix}terminal: a key and its echo"), &samples);
    terminal.end().await
}

/// A terminal of an execd whose program is `cat`.
pub(super) struct Terminal {
    connection: Connection,
    path: String,
    /// Its keys.
    pub(super) keys: Keys,
}

impl Terminal {
    /// Starts one.
    pub(super) async fn start(execd: &Execd) -> Result<Self> {
        let mut connection = execd.connect().await?;
        let body = serde_json::to_vec(&json!({ "command": "exec cat" }))?;
        let reply = connection
            .open(
                "POST",
                &execd.path("/pty"),
                Some("application/json"),
                Full::from(body).boxed(),
            )
            .await?;
        let body = reply.into_body().collect().await?.to_bytes();
        let Created { session_id } =
            serde_json::from_slice(&body).context("no session was made")?;
        let path = execd.path(&format!("/pty/{session_id}"));
        let mut request = format!("ws://{}{path}/ws", execd.address()).into_client_request()?;
        for (name, value) in execd.headers() {
            let name = HeaderName::try_from(name)?;
            let value = HeaderValue::from_str(value)?;
            request.headers_mut().insert(name, value);
        }
        let (socket, _) = connect_async(request).await?;
        let keys = Keys::of(socket).await?;
        Ok(Self {
            connection,
            path,
            keys,
        })
    }

    /// Ends it.
    pub(super) async fn end(mut self) -> Result<()> {
        self.connection.send("DELETE", &self.path, None).await?;
        Ok(())
    }
}

/// Keys for a terminal that echoes them.
pub(super) struct Keys {
    socket: Socket,
    pressed: usize,
}

impl Keys {
    /// Waits until the terminal of this socket is connected.
    pub(super) async fn of(socket: Socket) -> Result<Self> {
        let mut keys = Self { socket, pressed: 0 };
        loop {
            match keys.next().await? {
                Message::Text(text) if text.contains("connected") => return Ok(keys),
                _ => {}
            }
        }
    }

    /// Replaces the shell of the terminal by `cat`.
    pub(super) async fn become_cat(&mut self) -> Result<()> {
        // The shell shows the line, too, but not what it prints.
        self.send(b"printf '%s-cat\\n' now; exec cat\r").await?;
        let mut output = Vec::new();
        while !output.windows(8).any(|bytes| bytes == b"now-cat\r") {
            if let Message::Binary(frame) = self.next().await? {
                output.extend_from_slice(frame.get(1..).unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Time from one key to its echo.
    pub(super) async fn press(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.send(b"x").await?;
        loop {
            match self.next().await? {
                Message::Binary(frame) if frame.first() == Some(&1) => break,
                _ => {}
            }
        }
        let time = start.elapsed();
        self.pressed += 1;
        if self.pressed.is_multiple_of(LINE) {
            self.send(&[0x15]).await?;
        }
        Ok(time)
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let frame = [&[0], bytes].concat();
        Ok(self.socket.send(Message::Binary(frame.into())).await?)
    }

    async fn next(&mut self) -> Result<Message> {
        match timeout(ECHO, self.socket.next())
            .await?
            .context("closed")??
        {
            Message::Close(_) => bail!("the terminal was closed"),
            message => Ok(message),
        }
    }
}
