//! The worker's side: one request, as somebody else.

use std::{
    io::{self, Write},
    os::{fd::AsFd, unix::net::UnixStream as Pair},
};

use axum::{Router, body::Body};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use osb_service::Supervisor;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};
use tower::Service;

use super::{FileIdentity, exchange};
use crate::{app::App, env::Environment, file, limits, server};

/// Becomes `identity`, serves the request that comes from standard input, and returns when it is
/// answered or nobody waits for the answer.
///
/// To be called before the process has a second thread; the process must end afterwards, because
/// some of its work may still block.
///
/// # Errors
/// When standard input is no socket, or there is no thread to be had.
pub fn run(identity: FileIdentity) -> io::Result<()> {
    // Who runs as this user may look into its processes, and this one holds the daemon's variables.
    // A change of identity may undo that, so it is said before and after.
    let hide = || set_dumpable_behavior(DumpableBehavior::NotDumpable);
    hide()?;
    let mut socket = Pair::from(io::stdin().as_fd().try_clone_to_owned()?);
    let assumed = identity.assume().and_then(|()| hide());
    socket.write_all(&[exchange::told(assumed)])?;
    if assumed.is_err() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(limits::FILE_WORKER_THREADS)
        .enable_all()
        .build()?;
    // A client that left says nothing about errors, and an answer that broke off has nobody else.
    let _left = runtime.block_on(serve(socket));
    // What is being written is still cleaned up after; what blocks for ever ends with the process.
    runtime.shutdown_timeout(limits::FILE_WORKER_CLEANUP);
    Ok(())
}

async fn serve(socket: Pair) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let socket = TokioIo::new(UnixStream::from_std(socket)?);
    let environment = Environment::new(std::env::vars_os().collect());
    let router: Router = file::routes()
        .fallback(server::not_found)
        .method_not_allowed_fallback(server::not_found)
        .with_state(App::new(environment, Supervisor::new()));
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        router.clone().call(request.map(Body::new))
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(socket, service);
    let ended = connection.without_shutdown().await;
    let mut socket = ended.map_err(io::Error::other)?.io.into_inner();
    socket.shutdown().await?;
    // A socket closed with something unread takes the answer back that the daemon may not have read.
    let mut rest = socket.take(limits::REFUSED_BODY);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
    Ok(())
}
