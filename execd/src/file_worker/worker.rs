//! The worker's side: serves one request with another identity.

use std::{
    io::{self, Write},
    os::{fd::AsFd, unix::net::UnixStream as Pair},
};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::{FileIdentity, exchange, relay};
use crate::env::Environment;

/// Assumes `identity` and serves the request on standard input. Returns when the response is
/// complete or the client has disconnected.
///
/// Must be called while the process is single-threaded. The process must exit afterwards, because
/// some of its work may still block.
///
/// # Errors
/// When standard input is not a socket, or no thread can start.
pub fn run(identity: FileIdentity) -> io::Result<()> {
    // Other processes of this user could inspect the worker, which holds the daemon's variables. A
    // change of identity may reset the attribute, so it is set before and after.
    let hide = || set_dumpable_behavior(DumpableBehavior::NotDumpable);
    hide()?;
    let mut socket = Pair::from(io::stdin().as_fd().try_clone_to_owned()?);
    let assumed = identity.assume().and_then(|()| hide());
    socket.write_all(&[exchange::to_wire(assumed)])?;
    if assumed.is_err() {
        return Ok(());
    }
    let environment = Environment::new(std::env::vars_os().collect());
    // A disconnected client is no error, and a response that was cut short has no other recipient.
    let _left = relay::serve(socket, environment);
    Ok(())
}
