//! The daemon's side: starts a worker, relays the request to it, and ends it.

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
    extract::{FromRef, Path, Request, State},
    response::Response,
    routing::any,
};
use osb_forward::after_segments;
use rustix::process::Signal;
use tokio::{net::UnixStream, sync::SemaphorePermit, time::timeout};
use tracing::warn;

use super::{FileIdentity, SUBCOMMAND, exchange, relay::relay, slots::WorkerSlots};
use crate::{
    base::Base,
    error::{ApiError, ApiResult},
    limits,
    process::Process,
};

/// The running executable, even if its file was replaced or deleted.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Limit of concurrent workers.
static WORKERS: WorkerSlots = WorkerSlots::new(limits::FILE_WORKERS);

/// File routes of every identity.
pub(crate) fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Base: FromRef<S>,
{
    Router::new().route("/v1/filesystem/{uid}/{gid}/{*path}", any(serve))
}

async fn serve(
    State(base): State<Base>,
    Path((uid, gid, _)): Path<(String, String, String)>,
    mut request: Request,
) -> ApiResult<Response> {
    let identity = FileIdentity::parse(&uid, &gid)?;
    let slot = WORKERS.acquire().await?;
    let unavailable =
        |why: &dyn std::fmt::Display| ApiError::IdentityUnavailable(format!("{identity}: {why}"));
    let (process, mut socket) = start(&base, identity).map_err(|error| unavailable(&error))?;
    let ready = timeout(limits::FILE_WORKER_START, exchange::ready(&mut socket)).await;
    match ready {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(unavailable(&error)),
        Err(_) => {
            process.signal(Signal::KILL);
            return Err(unavailable(&"its worker did not start in time"));
        }
    }
    *request.uri_mut() = after_segments(request.uri(), 4).into();
    let (tasks, end) = (&base.tasks, end(process, slot));
    let answer = relay(tasks, socket, request, "file worker", end).await;
    answer.map_err(|error| {
        warn!(%identity, %error, "a file worker ended without an answer");
        unavailable(&"its worker ended without an answer")
    })
}

/// Starts a worker whose standard input is the socket.
fn start(base: &Base, identity: FileIdentity) -> io::Result<(Process, UnixStream)> {
    let (ours, theirs) = Pair::pair()?;
    let own = base.environment.own();
    let mut command = Command::new(THIS_PROGRAM);
    command
        .arg0("execd")
        .arg(SUBCOMMAND)
        .args(identity.arguments())
        // Paths may refer to these variables. The token is not among them.
        .env_clear()
        .envs(own.iter())
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .process_group(0);
    let process = base.processes.spawn_own(&mut command)?;
    ours.set_nonblocking(true)?;
    Ok((process, UnixStream::from_std(ours)?))
}

/// Ends a worker. A worker exits when its socket closes, unless it was stopped.
async fn end(process: Process, _slot: SemaphorePermit<'static>) {
    if timeout(limits::FILE_WORKER_END, process.exited())
        .await
        .is_err()
    {
        process.signal(Signal::KILL);
        process.exited().await;
    }
}
