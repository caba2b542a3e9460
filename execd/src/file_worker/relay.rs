//! A request for files that another process serves: how it gets there, over one end of a pair of
//! sockets, and how it is served at the other.
//!
//! ```text
//!   client ──HTTP──▶ daemon: `relay` ══socket══▶ worker: `serve` ─▶ the routes of `file`
//!                                └─ closes the socket when the client leaves
//! ```
//!
//! Both ends stream, so a file of any size passes in constant memory.

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

/// What concerns the connection to the client or proves who the client is; neither is a worker's
/// business.
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

/// Hands on a request, whose address is the worker's already, and hands back the answer.
///
/// Then `end` follows, in a task of this name: once the answer was given whole, the client left, or
/// the worker did.
///
/// # Errors
/// When the worker ended without an answer.
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
    // Dropped with this function when the client leaves, else with the body of the answer.
    let until_then = wanted.clone().drop_guard();
    tasks.spawn(task, async move {
        tokio::select! {
            // What went wrong shows in the answer.
            _ended = connection => {}
            () = wanted.cancelled() => {}
        }
        end.await;
    });
    let response = sender.send_request(request).await?;
    Ok(answer(response, until_then))
}

/// The worker's answer; the worker is wanted until its end.
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

/// Serves the one request of a connection, and returns when it is answered or nobody waits for the
/// answer. The process must end afterwards, because some of its work may still block.
///
/// To be called in a process without other threads.
///
/// # Errors
/// When there is no thread to be had, or the answer did not get to its end.
pub(crate) fn serve(socket: Pair, environment: Environment) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(limits::FILE_WORKER_THREADS)
        .enable_all()
        .build()?;
    let served = runtime.block_on(serve_one(socket, environment));
    // What is being written is still cleaned up after; what blocks for ever ends with the process.
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
    // A socket closed with something unread takes the answer back that the daemon may not have read.
    let mut rest = socket.take(limits::REFUSED_BODY);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
    Ok(())
}
