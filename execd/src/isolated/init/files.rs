//! A process that serves requests for files of one connection, inside the session and as its user.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as Pair},
};

use axum::{Router, body::Body};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use osb_service::Supervisor;
use tokio::net::UnixStream;
use tower::Service;

use crate::{
    app::App,
    env::Environment,
    file,
    isolated::{plan::FileOrder, wire},
    limits, server,
};

/// Serves the one request of a connection.
pub(super) fn work(fds: Vec<OwnedFd>) -> io::Result<()> {
    let mut fds = fds.into_iter();
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let order: FileOrder = wire::unpacked(fds.next().ok_or_else(short)?)?;
    let socket = Pair::from(fds.next().ok_or_else(short)?);
    socket.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(limits::ISOLATED_FILE_THREADS)
        .enable_all()
        .build()?;
    let served = runtime.block_on(async move {
        let socket = TokioIo::new(UnixStream::from_std(socket)?);
        let environment = Environment::confined(order.view);
        let router: Router = file::routes()
            .fallback(server::not_found)
            .method_not_allowed_fallback(server::not_found)
            .with_state(App::new(environment, Supervisor::new()));
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            router.clone().call(request.map(Body::new))
        });
        http1::Builder::new()
            .keep_alive(false)
            .serve_connection(socket, service)
            .await
            .map_err(io::Error::other)
    });
    // What is half written is cleaned up; what blocks for ever ends with the process.
    runtime.shutdown_timeout(limits::ISOLATED_FILE_CLEANUP);
    served
}
