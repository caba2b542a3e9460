//! The worker's side: one request, as somebody else.

use std::{
    io::{self, Write},
    os::{fd::AsFd, unix::net::UnixStream as Pair},
};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::{FileIdentity, exchange, relay};
use crate::env::Environment;

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
    socket.write_all(&[exchange::to_wire(assumed)])?;
    if assumed.is_err() {
        return Ok(());
    }
    let environment = Environment::new(std::env::vars_os().collect());
    // A client that left says nothing about errors, and an answer that broke off has nobody else.
    let _left = relay::serve(socket, environment);
    Ok(())
}
