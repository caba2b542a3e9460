//! Socket between the daemon and a session's init. A message is one type byte with descriptors;
//! longer data is in a nameless file among them.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::retry_on_intr,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};
use serde::{Serialize, de::DeserializeOwned};

/// Plan of the session.
pub(super) const PLAN: u8 = b'P';
/// Starts a run: order, control, standard output, standard error, then the state to restore and the
/// file for the new state, as far as the order requests them.
pub(super) const RUN: u8 = b'R';
/// Connection for files: order, socket.
pub(super) const FILES: u8 = b'F';
/// Kills every process of the session but its init.
pub(super) const CLEAR: u8 = b'C';

/// Messages to the keeper of a run: SIGINT, SIGTERM or SIGKILL for all its processes.
pub(super) const INTERRUPT: u8 = b'i';
pub(super) const TERMINATE: u8 = b't';
pub(super) const KILL: u8 = b'k';

/// Maximum number of descriptors in a message.
const DESCRIPTORS: usize = 8;

/// Creates a nameless file in memory. Every process that receives it can write it.
pub(super) fn memory() -> io::Result<File> {
    Ok(File::from(memfd_create("execd", MemfdFlags::CLOEXEC)?))
}

/// Writes a value to a nameless file.
pub(super) fn packed(value: &impl Serialize) -> io::Result<File> {
    let mut file = memory()?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.rewind()?;
    Ok(file)
}

/// Reads the value from such a file.
pub(super) fn unpacked<T: DeserializeOwned>(fd: OwnedFd) -> io::Result<T> {
    let mut file = File::from(fd);
    file.seek(SeekFrom::Start(0))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Sends a message without blocking.
///
/// # Errors
/// When the peer no longer receives messages.
pub(super) fn send(socket: &UnixStream, what: u8, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    debug_assert!(fds.len() <= DESCRIPTORS, "there is room for them");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let what = [what];
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&what)], &mut ancillary, flags))?;
    Ok(())
}

/// Receives a message; `None` when the peer has closed the socket.
pub(super) fn receive(socket: impl AsFd) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut what = [0];
    let received = retry_on_intr(|| {
        let mut room = [IoSliceMut::new(&mut what)];
        recvmsg(&socket, &mut room, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(Some((what[0], fds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_one_by_one_with_their_descriptors() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = packed(&("a", 1)).unwrap();
        send(&ours, RUN, &[file.as_fd(), ours.as_fd()]).unwrap();
        send(&ours, CLEAR, &[]).unwrap();
        drop(ours);
        let (what, mut fds) = receive(&theirs).unwrap().unwrap();
        assert_eq!((what, fds.len()), (RUN, 2));
        drop(fds.pop());
        let value: (String, u32) = unpacked(fds.pop().unwrap()).unwrap();
        assert_eq!(value, ("a".to_owned(), 1));
        assert_eq!(receive(&theirs).unwrap().unwrap().0, CLEAR);
        assert!(receive(&theirs).unwrap().is_none());
    }
}
