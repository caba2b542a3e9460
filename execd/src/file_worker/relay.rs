//! Relay of file requests to another process over a socket pair, and the server at its other end.
//!
//! ```text
//!   client ──HTTP──▶ daemon: `relay` ══socket══▶ worker: `serve` ─▶ the routes of `file`
//!                                └─ closes the socket when the client leaves
//! ```
//!
//! Both ends stream, so a file of any size takes constant memory.

use std::{io, os::unix::net::UnixStream as Pair};

use axum::{
    Router,
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{HeaderName, header};
use http_body_util::BodyExt;
use hyper::{
    body::Incoming, client::conn::http1 as client, server::conn::http1 as server,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use osb_forward::MAX_HEADERS;
use osb_protocol::headers::{API_KEY, EXECD_ACCESS_TOKEN};
use osb_service::Supervisor;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::{base::Base, env::Environment, file, http::not_found, limits};

/// Headers that concern the connection to the client, or authenticate the client. Workers do not
/// need them.
static NOT_PASSED_ON: [HeaderName; 9] = [
    HeaderName::from_static(EXECD_ACCESS_TOKEN),
    HeaderName::from_static(API_KEY),
    header::AUTHORIZATION,
    header::COOKIE,
    header::CONNECTION,
    header::EXPECT,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Relays a request, whose URI is already the worker's, and returns the response.
///
/// `end` runs afterwards in a task of this name: once the response is complete, the client
/// disconnects, or the worker ends.
///
/// # Errors
/// When the worker ends without a response.
pub(crate) async fn relay(
    tasks: &Supervisor,
    socket: UnixStream,
    mut request: Request,
    task: &'static str,
    end: impl Future<Output = ()> + Send + 'static,
) -> hyper::Result<Response> {
    for name in &NOT_PASSED_ON {
        request.headers_mut().remove(name);
    }
    let (mut sender, connection) = client::handshake(TokioIo::new(socket)).await?;
    let wanted = CancellationToken::new();
    // Dropped with this function when the client disconnects, else with the response body.
    let until_then = wanted.clone().drop_guard();
    tasks.spawn(task, async move {
        tokio::select! {
            // Errors show in the response.
            _ended = connection => {}
            () = wanted.cancelled() => {}
        }
        end.await;
    });
    let response = sender.send_request(request).await?;
    Ok(answer(response, until_then))
}

/// Response of the worker; the worker is needed until its end.
fn answer(response: http::Response<Incoming>, wanted: impl Send + 'static) -> Response {
    let mut response = response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _wanted = &wanted;
            frame
        }))
    });
    for name in [header::CONNECTION, header::TRANSFER_ENCODING] {
        response.headers_mut().remove(name);
    }
    response.into_response()
}

/// Serves the single request of a connection. Returns when the response is complete or the client
/// has disconnected. The process must exit afterwards, because some of its work may still block.
///
/// Must be called in a process without other threads.
///
/// # Errors
/// When no thread can start, or the response was cut short.
pub(crate) fn serve(socket: Pair, environment: Environment) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(limits::FILE_WORKER_THREADS)
        .enable_all()
        .build()?;
    let served = runtime.block_on(serve_one(socket, environment));
    // Pending writes are cleaned up; work that blocks for ever ends with the process.
    runtime.shutdown_timeout(limits::FILE_WORKER_CLEANUP);
    served
}

async fn serve_one(socket: Pair, environment: Environment) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let socket = TokioIo::new(UnixStream::from_std(socket)?);
    let router: Router = file::routes()
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .with_state(Base::new(environment, Supervisor::new()));
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        router.clone().call(request.map(Body::new))
    });
    let connection = server::Builder::new()
        .keep_alive(false)
        .max_headers(MAX_HEADERS)
        .serve_connection(socket, service);
    let ended = connection.without_shutdown().await;
    let mut socket = ended.map_err(io::Error::other)?.io.into_inner();
    socket.shutdown().await?;
    // Closing a socket with unread data discards a response that the daemon has not read yet.
    let mut rest = socket.take(limits::REFUSED_BODY);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
    Ok(())
}
