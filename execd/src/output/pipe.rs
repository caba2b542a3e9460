//! Pipes between a process and the daemon.
//!
//! Output that waits in both pipes is read in the order in which it arrived, as far as the kernel
//! knows that order. The pipes belong to an epoll instance, to whose list of ready files the kernel
//! appends a pipe when the process writes to it. The list has a pipe at most once, and forgets one
//! that is read empty. It must therefore be read before the pipes are, and it shows which pipe got
//! output first, but not what arrived between two pieces of output in the same pipe.
//!
//! The instance is level-triggered: a pipe that still has output is reported again, so no output is
//! left behind whatever the kernel reports. The runtime waits for the instance, not for the pipes.

use std::{collections::VecDeque, io, os::fd::OwnedFd};

use bytes::Bytes;
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    io::{Errno, retry_on_intr},
    pipe::{PipeFlags, pipe_with},
};
use tokio::io::{Interest, unix::AsyncFd};
use tracing::warn;

use super::Source;
use crate::limits;

/// Sources of the pipes, by the index of the pipe.
const SOURCES: [Source; 2] = [Source::Stdout, Source::Stderr];

/// Attempts to learn the order of output that is known to wait.
const ATTEMPTS: usize = 3;

/// Daemon's ends of the pipes of a process.
#[derive(Debug)]
pub(crate) struct OutputPipes {
    /// Epoll instance of the pipes.
    arrivals: AsyncFd<OwnedFd>,
    /// `None` after the end of the output.
    pipes: [Option<OwnedFd>; 2],
    /// Pipes with output, in the order in which it arrived.
    turns: VecDeque<Turn>,
}

/// Pipe that is read next.
#[derive(Clone, Copy, Debug)]
struct Turn {
    index: usize,
    /// Maximum number of bytes to read before the turn of another pipe.
    left: usize,
}

impl OutputPipes {
    /// Takes over the reading end of each pipe.
    fn new(pipes: [Option<OwnedFd>; 2]) -> io::Result<Self> {
        let arrivals = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (pipe, index) in pipes.iter().zip(0..) {
            if let Some(pipe) = pipe {
                rustix::io::ioctl_fionbio(pipe, true)?;
                let data = epoll::EventData::new_u64(index);
                epoll::add(&arrivals, pipe, data, epoll::EventFlags::IN)?;
            }
        }
        Ok(Self {
            arrivals: register(arrivals)?,
            pipes,
            turns: VecDeque::new(),
        })
    }

    /// Waits for the next output. `None` at the end of all output. Safe to cancel.
    pub(super) async fn read(&mut self) -> Option<(Source, Bytes)> {
        loop {
            if let Some((index, bytes)) = self.read_turn() {
                return Some((SOURCES[index], bytes));
            }
            if !self.is_open() {
                return None;
            }
            self.wait().await;
        }
    }

    /// Waits until a pipe has output or ends.
    async fn wait(&mut self) {
        let Self {
            arrivals,
            pipes,
            turns,
        } = self;
        let waited = arrivals
            .async_io(Interest::READABLE, |arrivals| ask(arrivals, pipes, turns))
            .await;
        if let Err(error) = waited {
            warn!(%error, "waiting for a command's output failed");
            self.pipes = [None, None];
        }
    }

    /// Reads from the pipe whose turn it is, without waiting. `None` if it is the turn of none.
    fn read_turn(&mut self) -> Option<(usize, Bytes)> {
        while let Some(Turn { index, left }) = self.turns.pop_front() {
            let most = left.min(limits::READ_CHUNK);
            let Some(bytes) = self.take(index, most) else {
                continue;
            };
            if bytes.len() >= most && bytes.len() < left {
                let left = left - bytes.len();
                self.turns.push_front(Turn { index, left });
            }
            if self.turns.is_empty() && self.pipes.iter().all(Option::is_some) {
                // The kernel keeps an empty pipe in its list until it is asked again, so output
                // that arrives there later would seem older than output of the other pipe.
                // Asking now, before the caller works on the bytes, makes that unlikely.
                let _asked = self.ask();
            }
            return Some((index, bytes));
        }
        None
    }

    /// Reads up to `most` bytes from a pipe without waiting. `None` if it is empty or has ended.
    fn take(&mut self, index: usize, most: usize) -> Option<Bytes> {
        let pipe = self.pipes[index].as_ref()?;
        let mut piece: Vec<u8> = Vec::with_capacity(most);
        match retry_on_intr(|| rustix::io::read(pipe, spare_capacity(&mut piece))) {
            Ok(0) => {}
            Ok(_) => return Some(Bytes::from(piece)),
            Err(Errno::AGAIN) => return None,
            Err(error) => warn!(%error, "reading a command's output failed"),
        }
        // Closing does not suffice while a process that is starting still has a copy.
        let _deleted = epoll::delete(self.arrivals.get_ref(), pipe);
        self.pipes[index] = None;
        None
    }

    fn ask(&mut self) -> io::Result<()> {
        ask(self.arrivals.get_ref(), &self.pipes, &mut self.turns)
    }

    /// Number of unread bytes in each pipe.
    pub(super) fn waiting(&self) -> [usize; 2] {
        self.pipes
            .each_ref()
            .map(|pipe| pipe.as_ref().map_or(0, unread))
    }

    /// Reads output that waits, until at least `rest` bytes of each pipe were read, and `None` then.
    /// Bypasses the runtime's readiness, which may be older than the exit of the process and then
    /// reports empty pipes.
    pub(super) fn read_rest(&mut self, rest: &mut [usize; 2]) -> Option<(Source, Bytes)> {
        if *rest == [0, 0] {
            return None;
        }
        for _ in 0..ATTEMPTS {
            // The kernel's list can seem empty for a moment while another thread reads it.
            if !self.turns.is_empty() || self.ask().is_ok() {
                break;
            }
        }
        let output = self.read_turn().or_else(|| {
            // The order is unknown, but nothing is lost.
            let due = rest.iter().enumerate().filter(|(_, left)| **left > 0);
            self.turns
                .extend(due.map(|(index, left)| Turn { index, left: *left }));
            self.read_turn()
        });
        let (index, bytes) = output?;
        rest[index] = rest[index].saturating_sub(bytes.len());
        Some((SOURCES[index], bytes))
    }

    /// Whether more output may come.
    pub(super) fn is_open(&self) -> bool {
        self.pipes.iter().any(Option::is_some)
    }
}

/// Registers an epoll instance with the runtime.
#[expect(unsafe_code, reason = "the runtime has no safe interface for it")]
fn register(arrivals: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: `AsyncFd` owns the descriptor and is the only one to close it.
    let registered = unsafe { AsyncFd::register_with_interest(arrivals, Interest::READABLE) };
    registered.map_err(|error| error.into_parts().1)
}

/// Asks the kernel which pipes have output or have ended, and gives them turns in the order in which
/// that began.
///
/// # Errors
/// `WouldBlock` if there are none.
fn ask(
    arrivals: &OwnedFd,
    pipes: &[Option<OwnedFd>; 2],
    turns: &mut VecDeque<Turn>,
) -> io::Result<()> {
    const NOW: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    const UNUSED: epoll::Event = epoll::Event {
        flags: epoll::EventFlags::empty(),
        data: epoll::EventData::new_u64(0),
    };
    let mut events = [UNUSED; 2];
    let count = retry_on_intr(|| epoll::wait(arrivals, &mut events, Some(&NOW)))?;
    for event in &events[..count] {
        let index = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
        if let Some(Some(pipe)) = pipes.get(index) {
            // Output that arrives from now on may be younger than that of the other pipe.
            let left = if count == 1 {
                limits::READ_CHUNK
            } else {
                unread(pipe).max(1)
            };
            turns.push_back(Turn { index, left });
        }
    }
    if turns.is_empty() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    Ok(())
}

/// Number of unread bytes in a pipe.
fn unread(pipe: &OwnedFd) -> usize {
    let bytes = rustix::io::ioctl_fionread(pipe).unwrap_or(0);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Child's ends of the pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Pipes {
    /// Creates a pipe per stream, or one for both if `merged`.
    ///
    /// # Errors
    /// The system's error, for example when no descriptor is free.
    pub(crate) fn new(merged: bool) -> io::Result<(OutputPipes, Self)> {
        let (out, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (err, stderr) = if merged {
            (None, stdout.try_clone()?)
        } else {
            let (err, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
            (Some(err), stderr)
        };
        let ours = OutputPipes::new([Some(out), err])?;
        Ok((ours, Self { stdout, stderr }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than one read.
    const LONG: usize = 3 * limits::READ_CHUNK;

    fn write(pipe: &OwnedFd, bytes: &[u8]) {
        assert_eq!(rustix::io::write(pipe, bytes).unwrap(), bytes.len());
    }

    /// Writes a byte to the pipe of each of these sources.
    fn write_to(pipes: &Pipes, sources: &[Source]) {
        for source in sources {
            match source {
                Source::Stdout => write(&pipes.stdout, b"x"),
                Source::Stderr => write(&pipes.stderr, b"x"),
            }
        }
    }

    fn output(source: Source, bytes: &'static str) -> Option<(Source, Bytes)> {
        Some((source, Bytes::from_static(bytes.as_bytes())))
    }

    #[tokio::test]
    async fn output_that_waits_in_both_pipes_is_read_in_the_order_of_its_arrival() {
        use Source::{Stderr, Stdout};
        let (mut ours, theirs) = Pipes::new(false).unwrap();
        // Each order follows itself and the other one, because the kernel's list outlives a read.
        for [first, second] in [
            [Stderr, Stdout],
            [Stderr, Stdout],
            [Stdout, Stderr],
            [Stdout, Stderr],
            [Stderr, Stdout],
        ] {
            write_to(&theirs, &[first, second, first]);
            assert_eq!(ours.read().await, output(first, "xx"));
            assert_eq!(ours.read().await, output(second, "x"));
        }
    }

    #[tokio::test]
    async fn a_pipe_that_was_read_empty_counts_from_its_next_output() {
        use Source::{Stderr, Stdout};
        let (mut ours, theirs) = Pipes::new(false).unwrap();
        for [first, second] in [[Stderr, Stdout], [Stdout, Stderr]] {
            write_to(&theirs, &[first]);
            assert_eq!(ours.read().await, output(first, "x"));
            write_to(&theirs, &[second, first]);
            assert_eq!(ours.read().await, output(second, "x"));
            assert_eq!(ours.read().await, output(first, "x"));
        }
    }

    #[tokio::test]
    async fn older_output_is_read_completely_and_newer_output_after_that_of_the_other_pipe() {
        use Source::{Stderr, Stdout};
        let (mut ours, theirs) = Pipes::new(false).unwrap();
        rustix::pipe::fcntl_setpipe_size(&theirs.stderr, 2 * LONG).unwrap();
        write(&theirs.stderr, &vec![b'e'; LONG]);
        write(&theirs.stdout, b"out");
        let mut read = 0;
        while read < LONG {
            let (source, bytes) = ours.read().await.unwrap();
            assert_eq!(source, Stderr, "after {read} bytes");
            if read == 0 {
                assert!(bytes.len() < LONG);
                write(&theirs.stderr, b"newer");
            }
            read += bytes.len();
        }
        assert_eq!(read, LONG);
        assert_eq!(ours.read().await, output(Stdout, "out"));
        assert_eq!(ours.read().await, output(Stderr, "newer"));
    }

    #[tokio::test]
    async fn the_end_of_one_pipe_leaves_the_other_open() {
        use Source::{Stderr, Stdout};
        for merged in [false, true] {
            let (mut ours, theirs) = Pipes::new(merged).unwrap();
            write(&theirs.stdout, b"last");
            drop(theirs.stdout);
            assert_eq!(ours.read().await, output(Stdout, "last"));
            for text in ["more", "and more"] {
                write(&theirs.stderr, text.as_bytes());
                let source = if merged { Stdout } else { Stderr };
                assert_eq!(ours.read().await, output(source, text));
                assert!(ours.is_open());
            }
            drop(theirs.stderr);
            assert_eq!(ours.read().await, None);
            assert!(!ours.is_open());
            assert_eq!(ours.read().await, None);
        }
    }

    #[tokio::test]
    async fn output_wakes_a_reader_that_waits() {
        let (mut ours, theirs) = Pipes::new(false).unwrap();
        for source in [Source::Stdout, Source::Stderr, Source::Stderr] {
            let (read, ()) = tokio::join!(ours.read(), async { write_to(&theirs, &[source]) });
            assert_eq!(read, output(source, "x"));
        }
    }

    #[tokio::test]
    async fn the_rest_is_read_in_order_and_does_not_wait_for_the_end() {
        use Source::{Stderr, Stdout};
        for order in [[Stderr, Stdout], [Stdout, Stderr]] {
            let (mut ours, theirs) = Pipes::new(false).unwrap();
            assert_eq!(ours.read_rest(&mut ours.waiting()), None);
            write_to(&theirs, &order);
            let mut rest = ours.waiting();
            assert_eq!(rest, [1, 1]);
            assert_eq!(ours.read_rest(&mut rest), output(order[0], "x"));
            assert_eq!(ours.read_rest(&mut rest), output(order[1], "x"));
            assert_eq!(ours.read_rest(&mut rest), None);
        }
    }

    #[tokio::test]
    async fn a_child_that_writes_on_does_not_hide_the_rest_of_the_other_pipe() {
        use Source::{Stderr, Stdout};
        let (mut ours, theirs) = Pipes::new(false).unwrap();
        write(&theirs.stdout, b"x");
        ours.ask().unwrap();
        // The process ends at the turn of stdout, with output in both pipes.
        write(&theirs.stderr, b"rest");
        let mut rest = ours.waiting();
        assert_eq!(rest, [1, 4]);
        write(&theirs.stdout, b" and output of a child");
        let read = ours.read_rest(&mut rest);
        assert_eq!(read, output(Stdout, "x and output of a child"));
        write(&theirs.stdout, b"more");
        assert_eq!(ours.read_rest(&mut rest), output(Stderr, "rest"));
        assert_eq!(ours.read_rest(&mut rest), None);
    }

    #[tokio::test]
    async fn the_rest_is_read_even_if_the_kernel_reports_no_pipe() {
        let (mut ours, theirs) = Pipes::new(false).unwrap();
        for pipe in ours.pipes.iter().flatten() {
            epoll::delete(ours.arrivals.get_ref(), pipe).unwrap();
        }
        write_to(&theirs, &SOURCES);
        let mut rest = ours.waiting();
        for source in SOURCES {
            assert_eq!(ours.read_rest(&mut rest), output(source, "x"));
        }
        assert_eq!(ours.read_rest(&mut rest), None);
    }
}
