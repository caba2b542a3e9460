//! The kernel's packet filter over a socket of our own, whose send buffer can be enlarged: the size
//! of a transaction is limited by it.

use std::{io, os::fd::OwnedFd};

use netlink_bindings::{consts, nftables::ChainedFinal, traits::NetlinkChained};
use rustix::{
    io::{Errno, retry_on_intr},
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
        socket_with, sockopt,
    },
};

/// Bytes of the send buffer that no transaction can use.
const RESERVED: usize = 32;
/// Length of a message's header.
const HEADER: usize = 16;
/// Type of an answer: an error, or a success with the code 0 (`NLMSG_ERROR`).
const ANSWER: u16 = 2;
/// What is read of an answer: its header and its code. The message that it answers follows.
const READ: usize = HEADER + 4;

/// Reason why elements were not written.
#[derive(Debug, thiserror::Error)]
pub enum ElementsError {
    /// There is no socket.
    #[error("cannot open a socket to the kernel's packet filter")]
    Open(#[source] io::Error),
    /// The kernel cannot be reached. Nothing was changed.
    #[error("cannot send to the kernel's packet filter")]
    Send(#[source] io::Error),
    /// The kernel refused a transaction. Nothing was changed.
    #[error("the kernel's packet filter refused the change, at {message}")]
    Refused {
        /// Kind of the message that it refused.
        message: &'static str,
        /// Its reason.
        #[source]
        source: io::Error,
    },
    /// The kernel's answer is missing. The change may have taken effect.
    #[error("the kernel's packet filter did not say what it did")]
    Unanswered(#[source] io::Error),
    /// The kernel accepts no transaction of this size from this process. Nothing was changed.
    #[error("a change of {0} bytes is too large for the kernel's packet filter")]
    TooLarge(usize),
    /// One of several transactions failed. Those before it took effect.
    #[error("the kernel's packet filter made only a part of the change")]
    Partly(#[source] Box<Self>),
}

impl ElementsError {
    /// Whether everything is as it was before.
    pub(crate) fn is_without_effect(&self) -> bool {
        !matches!(self, Self::Unanswered(_) | Self::Partly(_))
    }
}

/// What makes changes of the packet filter.
pub(crate) trait Transactions {
    /// First number for the messages of a transaction.
    fn sequence(&self) -> u32;

    /// Whether a transaction may have this many bytes.
    fn fits(&mut self, bytes: usize) -> bool;

    /// Makes a transaction: all of it or nothing.
    fn commit(&mut self, batch: ChainedFinal<'_>) -> Result<(), ElementsError>;
}

/// Connection to the kernel.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    /// Bytes that a transaction may have at present.
    room: usize,
}

impl Netlink {
    pub(crate) fn open() -> Result<Self, ElementsError> {
        let protocol = Some(netlink::NETFILTER);
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, protocol);
        let mut opened = Self {
            socket: socket.map_err(|error| ElementsError::Open(error.into()))?,
            sequence: 1,
            room: 0,
        };
        opened.measure();
        Ok(opened)
    }

    fn measure(&mut self) {
        let size = sockopt::socket_send_buffer_size(&self.socket).unwrap_or_default();
        self.room = size.saturating_sub(RESERVED);
    }

    /// Reads the kernel's answers to a transaction. It has made or refused it before `send` returned,
    /// so that they are all there.
    fn answer(&self, batch: &ChainedFinal<'_>) -> Result<(), ElementsError> {
        let mut refused = None;
        let mut done = false;
        // Answers that do not fit into the receive buffer are dropped, but never the first one.
        let mut dropped = false;
        loop {
            let mut buffer = [0; READ];
            match recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok(_) => {
                    let Some((index, code)) = read(&buffer, batch) else {
                        continue;
                    };
                    match code {
                        0 => done = true,
                        code if refused.is_none() => refused = Some((index, code)),
                        _ => {}
                    }
                }
                Err(Errno::NOBUFS) => dropped = true,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(ElementsError::Unanswered(error.into())),
            }
        }
        match refused {
            Some((index, code)) => Err(ElementsError::Refused {
                message: batch.name(index),
                source: io::Error::from_raw_os_error(code),
            }),
            None if done && !dropped => Ok(()),
            None => Err(ElementsError::Unanswered(Errno::NOBUFS.into())),
        }
    }
}

impl Transactions for Netlink {
    fn sequence(&self) -> u32 {
        self.sequence
    }

    fn fits(&mut self, bytes: usize) -> bool {
        if bytes > self.room {
            // Without the right to exceed the system's limit, the buffer gets as large as that.
            if sockopt::set_socket_send_buffer_size_force(&self.socket, bytes).is_err() {
                let _limited = sockopt::set_socket_send_buffer_size(&self.socket, bytes);
            }
            self.measure();
        }
        bytes <= self.room
    }

    fn commit(&mut self, mut batch: ChainedFinal<'_>) -> Result<(), ElementsError> {
        let messages = u32::try_from(batch.chain_len()).unwrap_or(u32::MAX);
        self.sequence = self.sequence.wrapping_add(messages);
        answer_once(batch.buf_mut());
        let sent = retry_on_intr(|| send(&self.socket, batch.payload(), SendFlags::empty()));
        sent.map_err(|error| ElementsError::Send(error.into()))?;
        self.answer(&batch)
    }
}

/// Has the kernel answer to the last change only, and to what it refuses: the answers to thousands of
/// messages would not fit into the receive buffer. The end of a transaction is not answered by every
/// kernel.
fn answer_once(batch: &mut [u8]) {
    let acknowledge = u16::try_from(consts::NLM_F_ACK).expect("flags have 16 bits");
    let starts = messages(batch);
    let Some((_end, changes)) = starts.split_last() else {
        return;
    };
    for start in starts.iter().filter(|it| changes.last() != Some(it)) {
        let flags = &mut batch[start + 6..start + 8];
        let without = u16::from_ne_bytes([flags[0], flags[1]]) & !acknowledge;
        flags.copy_from_slice(&without.to_ne_bytes());
    }
}

/// Where the messages of a batch begin.
fn messages(batch: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut next = 0;
    while let Some(length) = batch.get(next..next + HEADER).and_then(|it| number(it, 0)) {
        starts.push(next);
        let length = usize::try_from(length).unwrap_or(usize::MAX).max(HEADER);
        next = next.saturating_add(length.next_multiple_of(4));
    }
    starts
}

/// Position of the message that an answer belongs to, and the answer's code: 0, or an error of the
/// system. `None` if it is no answer to this batch.
fn read(answer: &[u8; READ], batch: &ChainedFinal<'_>) -> Option<(usize, i32)> {
    let is_answer = u16::from_ne_bytes([answer[4], answer[5]]) == ANSWER;
    let index = NetlinkChained::get_index(batch, number(answer, 8)?)?;
    let code = number(answer, HEADER)?.cast_signed();
    is_answer.then_some((index, code.saturating_neg()))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use netlink_bindings::nftables::{Chained, Nfgenmsg};

    use super::*;

    fn batch() -> ChainedFinal<'static> {
        let mut batch = Chained::new(7);
        let header = Nfgenmsg::new();
        batch.request().op_batch_begin_do(&header);
        for set in [c"a", c"a longer name"] {
            let message = batch.request().op_delsetelem_do(&header).into_encoder();
            message.push_set(set);
        }
        batch.request().op_batch_end_do(&header);
        batch.finalize()
    }

    #[test]
    fn only_the_last_change_is_answered() {
        let mut batch = batch();
        answer_once(batch.buf_mut());
        let bytes = batch.payload();
        let flags: Vec<u8> = messages(bytes).iter().map(|it| bytes[it + 6] & 4).collect();
        assert_eq!(flags, [0, 0, 4, 0]);
    }

    #[test]
    fn answers_belong_to_messages_of_the_batch() {
        let batch = batch();
        let answer = |kind: u16, sequence: u32, code: i32| {
            let mut bytes = [0; READ];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
            bytes[16..].copy_from_slice(&code.to_ne_bytes());
            read(&bytes, &batch)
        };
        assert_eq!(answer(ANSWER, 9, -2), Some((2, 2)));
        assert_eq!(answer(ANSWER, 7, 0), Some((0, 0)));
        assert_eq!(answer(ANSWER, 6, 0), None, "of an earlier batch");
        assert_eq!(answer(ANSWER, 11, 0), None, "of a later batch");
        assert_eq!(answer(3, 9, 0), None, "no answer");
    }
}
