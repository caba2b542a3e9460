//! Terminals: time from a key to its echo.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use tokio_tungstenite::{
    connect_async,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderValue},
};

use super::{Options, execd::Execd, report::Report, stats::Samples};

/// Keys per turn.
const PER_TURN: usize = 100;
/// Longest time for one echo.
const ECHO: Duration = Duration::from_secs(10);

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
    let Created { session_id } = serde_json::from_slice(&body).context("no session was made")?;
    let path = execd.path(&format!("/pty/{session_id}/ws"));
    let mut request = format!("ws://{}{path}", execd.address()).into_client_request()?;
    for (name, value) in execd.headers() {
        let name = hyper::header::HeaderName::try_from(name)?;
        request
            .headers_mut()
            .insert(name, HeaderValue::from_str(value)?);
    }
    let (mut socket, _) = connect_async(request).await?;
    loop {
        match timeout(ECHO, socket.next()).await?.context("closed")?? {
            Message::Text(text) if text.contains("connected") => break,
            _ => {}
        }
    }
    let mut samples = Samples::default();
    for _ in 0..options.turns * PER_TURN {
        let start = Instant::now();
        socket.send(Message::Binary(vec![0, b'x'].into())).await?;
        loop {
            match timeout(ECHO, socket.next()).await?.context("closed")?? {
                Message::Binary(frame) if frame.first() == Some(&1) => break,
                Message::Close(_) => bail!("the terminal was closed"),
                _ => {}
            }
        }
        samples.add(start.elapsed());
        // A terminal's line buffer holds 4,095 keys: Ctrl-U empties it in time.
        if samples.len() % 1000 == 0 {
            socket.send(Message::Binary(vec![0, 0x15].into())).await?;
        }
    }
    report.durations(&format!("{prefix}terminal: a key and its echo"), &samples);
    let path = execd.path(&format!("/pty/{session_id}"));
    connection.send("DELETE", &path, None).await?;
    Ok(())
}
