//! The process of a session, on a terminal or on three pipes.
#![expect(
    unsafe_code,
    reason = "a controlling terminal can only be taken between fork and exec"
)]

use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use rustix::{
    fs::{Mode, OFlags, open},
    pipe::{PipeFlags, pipe_with},
    process::{Signal, ioctl_tiocsctty, setsid},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tokio::io::unix::AsyncFd;

use super::screen::Stream;
use crate::{
    base::Base,
    process::{Exit, Process, Program, tree},
};

const SIZE: Winsize = Winsize {
    ws_row: 24,
    ws_col: 80,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// A running process and the ends that belong to us.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) process: Process,
    pub(super) input: End,
    pub(super) outputs: Vec<(Stream, End)>,
    terminal: bool,
}

/// A descriptor that never blocks.
pub(super) type End = Arc<AsyncFd<OwnedFd>>;

impl Running {
    /// Starts a shell, interactive or with a command.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn start(
        base: &Base,
        cwd: Option<&Path>,
        text: Option<&str>,
        terminal: bool,
    ) -> io::Result<Self> {
        let mut variables = base.environment.for_user();
        if terminal
            && variables
                .get("TERM")
                .is_none_or(|term| term.is_empty() || term == "dumb")
        {
            variables.set("TERM", "xterm-256color");
        }
        if let Some(cwd) = cwd {
            variables.set("PWD", cwd);
        }
        let shell = crate::process::shell(variables.get("PATH"))?;
        let mut argv: Vec<OsString> = vec![shell.clone().into()];
        if shell.ends_with("bash") {
            argv.extend(["--norc".into(), "--noprofile".into()]);
        }
        argv.extend(text.into_iter().flat_map(|text| ["-c".into(), text.into()]));
        let mut command = Program::direct(argv, &variables, None)?.command(&variables);
        if let Some(cwd) = cwd {
            command.current_dir(cwd);
        }
        if terminal {
            on_terminal(base, command)
        } else {
            on_pipes(base, command)
        }
    }

    /// Changes the size of the terminal; without one nothing happens.
    pub(super) fn resize(&self, cols: u16, rows: u16) {
        if self.terminal {
            let size = Winsize {
                ws_col: cols,
                ws_row: rows,
                ..SIZE
            };
            // The process may just have ended.
            let _gone = tcsetwinsize(self.input.get_ref(), size);
        }
    }

    /// Signals the group that the user means: on a terminal the one in the foreground.
    pub(super) fn signal(&self, signal: Signal) {
        if self.terminal
            && signal != Signal::KILL
            && let Ok(group) = rustix::termios::tcgetpgrp(self.input.get_ref())
            && self.process.ended().is_none()
        {
            let _gone = rustix::process::kill_process_group(group, signal);
            return;
        }
        self.process.signal_group(signal);
    }

    /// Whether its shell waits for a command: on a terminal another group is in the foreground, without
    /// one the shell has children.
    pub(super) fn has_foreground_job(&self) -> bool {
        if self.process.ended().is_some() {
            return false;
        }
        let shell = self.process.pid();
        if self.terminal {
            rustix::termios::tcgetpgrp(self.input.get_ref())
                .is_ok_and(|foreground| foreground != shell)
        } else {
            tree::has_children(shell)
        }
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether and how it ended.
    pub(super) fn ended(&self) -> Option<Exit> {
        self.process.ended()
    }
}

fn ours(fd: OwnedFd) -> io::Result<End> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    // SAFETY: the descriptor is owned by what it is registered in, and is closed with it only.
    let registered = unsafe { AsyncFd::register(fd) };
    Ok(Arc::new(registered.map_err(|error| error.into_parts().1)?))
}

fn on_terminal(base: &Base, mut command: Command) -> io::Result<Running> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = open(ptsname(&master, Vec::new())?, flags, Mode::empty())?;
    tcsetwinsize(&slave, SIZE)?;
    command.stdin(Stdio::from(slave.try_clone()?));
    command.stdout(Stdio::from(slave.try_clone()?));
    command.stderr(Stdio::from(slave));
    let take_terminal = || {
        setsid()?;
        ioctl_tiocsctty(io::stdin().as_fd())?;
        Ok(())
    };
    // SAFETY: the closure makes two raw system calls; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(take_terminal);
    }
    let end = ours(master)?;
    let process = base.processes.spawn(&mut command)?;
    let outputs = vec![(Stream::Stdout, Arc::clone(&end))];
    Ok(Running {
        process,
        input: end,
        outputs,
        terminal: true,
    })
}

fn on_pipes(base: &Base, mut command: Command) -> io::Result<Running> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC);
    let ((stdin, input), (out, stdout), (err, stderr)) = (pipe()?, pipe()?, pipe()?);
    command
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0);
    // Before the start: a process must not run while the other ends are unread.
    let (input, out, err) = (ours(input)?, ours(out)?, ours(err)?);
    let process = base.processes.spawn(&mut command)?;
    let outputs = vec![(Stream::Stdout, out), (Stream::Stderr, err)];
    Ok(Running {
        process,
        input,
        outputs,
        terminal: false,
    })
}

/// Reads available output; `None` at the end. On a terminal the end is an error: no process has it
/// open.
pub(super) async fn read(end: &End, buffer: &mut [u8]) -> Option<usize> {
    loop {
        let mut ready = end.readable().await.ok()?;
        match ready.try_io(|fd| Ok(rustix::io::read(fd, &mut *buffer)?)) {
            Ok(Ok(0) | Err(_)) => return None,
            Ok(Ok(len)) => return Some(len),
            Err(_would_block) => {}
        }
    }
}

/// Reads available output without waiting.
pub(super) fn read_now(end: &End, buffer: &mut [u8]) -> Option<usize> {
    debug_assert!(end.as_raw_fd() >= 0);
    rustix::io::read(end.get_ref(), buffer)
        .ok()
        .filter(|len| *len > 0)
}

/// Writes what the process has room for; waits while it has none. Safe to cancel.
///
/// # Errors
/// When no process reads the input any more.
pub(super) async fn write(end: &End, bytes: &[u8]) -> io::Result<usize> {
    loop {
        let mut ready = end.writable().await?;
        if let Ok(written) = ready.try_io(|fd| Ok(rustix::io::write(fd, bytes)?)) {
            return written;
        }
    }
}
