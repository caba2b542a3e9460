//! `/tunnel/{port}`: a TCP connection to a program of the sandbox as a WebSocket, for what does not
//! speak HTTP, such as VNC: an addition to the contract. Binary messages carry the bytes both ways.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr},
};

use axum::{
    Router,
    extract::{
        FromRef, Path, State,
        ws::{
            CloseFrame, Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection,
        },
    },
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::BytesMut;
use futures::{SinkExt, StreamExt};
use http::StatusCode;
use osb_protocol::execd::pty::close_code;
use osb_service::Supervisor;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    error::{ApiError, ApiResult},
    limits,
};

/// All routes.
pub(crate) fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Supervisor: FromRef<S>,
{
    Router::new().route("/tunnel/{port}", get(open))
}

/// Handles `GET /tunnel/{port}`. The connection is there before the upgrade, so its failure has a
/// status.
async fn open(
    State(tasks): State<Supervisor>,
    Path(port): Path<String>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let port = port.parse::<u16>().ok().filter(|port| *port > 0);
    let port =
        port.ok_or_else(|| ApiError::Invalid("port must be a number from 1 to 65535".to_owned()))?;
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => {
            let text = format!("Bad Request: {}", rejection.body_text());
            return Ok((StatusCode::BAD_REQUEST, text).into_response());
        }
    };
    let program = connect(port).await.map_err(|error| {
        ApiError::NoProgram(format!(
            "no program accepts connections on port {port}: {error}"
        ))
    })?;
    let upgrade = upgrade
        .max_message_size(limits::TUNNEL_MESSAGE)
        .max_frame_size(limits::TUNNEL_MESSAGE);
    Ok(upgrade.on_upgrade(move |client| async move {
        let stopping = tasks.stopping().clone();
        let relayed = async move {
            tokio::select! {
                () = relay(client, program) => {}
                () = stopping.cancelled() => {}
            }
        };
        // In a supervised task, so that the shutdown waits for it.
        if let Err(error) = tasks.spawn("tunnel", relayed).await {
            tracing::error!(%error, "tunnel failed");
        }
    }))
}

/// Connects to a program on the loopback interface, with IPv4 first.
async fn connect(port: u16) -> io::Result<TcpStream> {
    let connect = async {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
            // Without IPv6, the second reason would only be that.
            Err(why) => match TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await {
                Err(_) => Err(why),
                connected => connected,
            },
            connected => connected,
        }
    };
    let program = timeout(limits::TUNNEL_CONNECT, connect).await;
    let program = program.map_err(|_| io::ErrorKind::TimedOut)??;
    // Keys and moves of a pointer are small, and each counts.
    program.set_nodelay(true)?;
    Ok(program)
}

/// Passes bytes on until either side ends. Nothing is queued: a side that takes nothing stops the
/// other.
async fn relay(client: WebSocket, program: TcpStream) {
    let (mut to_client, mut from_client) = client.split();
    let (mut from_program, mut to_program) = program.into_split();
    let down = async {
        let mut buffer = BytesMut::with_capacity(limits::TUNNEL_READ);
        loop {
            buffer.reserve(limits::TUNNEL_READ);
            match from_program.read_buf(&mut buffer).await {
                Ok(0) => return close_code::NORMAL,
                Ok(_) => {}
                Err(_) => return close_code::INTERNAL_ERROR,
            }
            let message = Message::Binary(buffer.split().freeze());
            if to_client.send(message).await.is_err() {
                return close_code::NORMAL;
            }
        }
    };
    let up = async {
        while let Some(Ok(message)) = from_client.next().await {
            match message {
                Message::Binary(bytes) => {
                    if to_program.write_all(&bytes).await.is_err() {
                        return close_code::NORMAL;
                    }
                }
                Message::Text(_) => return close_code::UNSUPPORTED,
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Close(_) => return close_code::NORMAL,
            }
        }
        close_code::NORMAL
    };
    let code = tokio::select! {
        code = down => code,
        code = up => code,
    };
    let close = CloseFrame {
        code,
        reason: "".into(),
    };
    // The client may be gone, or take nothing.
    let _ = timeout(
        limits::TUNNEL_CLOSE,
        to_client.send(Message::Close(Some(close))),
    )
    .await;
}
