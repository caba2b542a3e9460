//! The daemon's side: starting a worker, handing it the request, ending it.

use std::{
    io,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream as Pair, process::CommandExt},
    },
    process::{Command, Stdio},
};

use axum::{
    Router,
    body::Body,
    extract::{Path, Request, State},
    response::{IntoResponse, Response},
    routing::any,
};
use http::{HeaderName, StatusCode, header};
use http_body_util::BodyExt;
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use osb_forward::after_segments;
use osb_protocol::{
    execd::code,
    headers::{API_KEY, EXECD_ACCESS_TOKEN},
};
use rustix::process::Signal;
use tokio::{
    net::UnixStream,
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{FileIdentity, SUBCOMMAND, exchange};
use crate::{
    app::App,
    error::{ApiError, ApiResult},
    limits,
    process::Process,
};

/// The program itself, also when its file was replaced or deleted meanwhile.
const THIS_PROGRAM: &str = "/proc/self/exe";

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

/// Workers at once.
static WORKERS: Semaphore = Semaphore::const_new(limits::FILE_WORKERS);

/// The file routes of every identity.
pub(crate) fn routes() -> Router<App> {
    Router::new().route("/v1/filesystem/{uid}/{gid}/{*path}", any(serve))
}

async fn serve(
    State(app): State<App>,
    Path((uid, gid, _)): Path<(String, String, String)>,
    mut request: Request,
) -> ApiResult<Response> {
    let identity = FileIdentity::parse(&uid, &gid)?;
    let slot = WORKERS.acquire().await;
    let slot = slot.expect("the semaphore is never closed");
    let unavailable = |why: &dyn std::fmt::Display| {
        let message = format!("filesystem identity unavailable: {identity}: {why}");
        let code = code::FILESYSTEM_IDENTITY_UNAVAILABLE;
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
    };
    let (process, mut socket) = start(&app, identity).map_err(|error| unavailable(&error))?;
    let ready = timeout(limits::FILE_WORKER_START, exchange::ready(&mut socket)).await;
    match ready {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(unavailable(&error)),
        Err(_) => {
            process.signal(Signal::KILL);
            return Err(unavailable(&"its worker did not start in time"));
        }
    }
    let handshake = http1::handshake(TokioIo::new(socket)).await;
    let (mut sender, connection) = handshake.map_err(|error| unavailable(&error))?;
    let wanted = CancellationToken::new();
    // Dropped with this function when the client leaves, else with the body of the answer.
    let until_then = wanted.clone().drop_guard();
    app.tasks.spawn("file worker", async move {
        tokio::select! {
            // What went wrong shows in the answer.
            _ended = connection => {}
            () = wanted.cancelled() => {}
        }
        end(process, slot).await;
    });
    *request.uri_mut() = after_segments(request.uri(), 4).into();
    for name in &NOT_PASSED_ON {
        request.headers_mut().remove(name);
    }
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| {
        warn!(%identity, %error, "a file worker ended without an answer");
        unavailable(&"its worker ended without an answer")
    })?;
    Ok(answer(response, until_then))
}

/// Starts a worker whose standard input is the socket.
fn start(app: &App, identity: FileIdentity) -> io::Result<(Process, UnixStream)> {
    let (ours, theirs) = Pair::pair()?;
    let own = app.environment.own();
    let mut command = Command::new(THIS_PROGRAM);
    command
        .arg0("execd")
        .arg(SUBCOMMAND)
        .args(identity.arguments())
        // They are what paths may refer to. The token is not among them.
        .env_clear()
        .envs(own.iter())
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .process_group(0);
    let process = app.processes.spawn_own(&mut command)?;
    ours.set_nonblocking(true)?;
    Ok((process, UnixStream::from_std(ours)?))
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

/// Without its socket a worker ends by itself, unless somebody stopped it.
async fn end(process: Process, _slot: SemaphorePermit<'static>) {
    if timeout(limits::FILE_WORKER_END, process.exited())
        .await
        .is_err()
    {
        process.signal(Signal::KILL);
        process.exited().await;
    }
}
