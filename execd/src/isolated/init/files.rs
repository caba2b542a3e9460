//! Worker that serves a file request, inside the session and as its user.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as Pair},
};

use crate::{
    env::Environment,
    file_worker::relay,
    isolated::{plan::FileOrder, wire},
};

/// Serves the single request of a connection.
pub(super) fn work(fds: Vec<OwnedFd>) -> io::Result<()> {
    let mut fds = fds.into_iter();
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let order: FileOrder = wire::unpacked(fds.next().ok_or_else(short)?)?;
    let socket = Pair::from(fds.next().ok_or_else(short)?);
    relay::serve(socket, Environment::confined(order.view))
}
