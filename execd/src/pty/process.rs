//! Process of a terminal session, on a terminal or on three pipes.
#![expect(
    unsafe_code,
    reason = "a controlling terminal can only be taken between fork and exec"
)]

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use rustix::{
    fs::{Mode, OFlags, open},
    pipe::{PipeFlags, pipe_with},
    process::{Signal, ioctl_tiocsctty, setsid},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{InputModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize},
};
use tokio::io::unix::AsyncFd;

use super::scrollback::Stream;
use crate::{
    base::Base,
    env::Variables,
    process::{Exit, Process, Program, tree},
};

/// Size of a terminal until a client sets it.
const SIZE: Winsize = Winsize {
    ws_row: 24,
    ws_col: 80,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// How the process of a session starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    /// Working directory; `None`: that of the daemon.
    pub(super) cwd: Option<PathBuf>,
    /// Command for the shell; `None`: an interactive shell.
    pub(super) command: Option<String>,
    /// Whether a process without a locale gets one with UTF-8. `None`: if the image has it.
    pub(super) utf8: Option<bool>,
}

/// Process of a session, with the daemon's ends of its terminal or pipes.
#[derive(Debug)]
pub(super) struct PtyProcess {
    pub(super) process: Process,
    pub(super) input: AsyncDescriptor,
    pub(super) outputs: Vec<(Stream, AsyncDescriptor)>,
    terminal: bool,
}

/// Non-blocking descriptor.
pub(super) type AsyncDescriptor = Arc<AsyncFd<OwnedFd>>;

impl PtyProcess {
    /// Starts an interactive shell, or one that runs a command.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn start(base: &Base, start: &Start, terminal: bool) -> io::Result<Self> {
        let cwd = start.cwd.as_deref();
        let text = start.command.as_deref();
        let mut variables = base.environment.for_user();
        if terminal
            && variables
                .get("TERM")
                .is_none_or(|term| term.is_empty() || term == "dumb")
        {
            variables.set("TERM", "xterm-256color");
        }
        let wants_utf8 = || start.utf8.unwrap_or_else(|| has_utf8(Path::new("/")));
        if locale(&variables).is_none() && wants_utf8() {
            variables.set("LANG", "C.UTF-8");
        }
        let erases_characters =
            start.utf8.unwrap_or(true) && locale(&variables).is_some_and(is_utf8);
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
            on_terminal(base, command, erases_characters)
        } else {
            on_pipes(base, command)
        }
    }

    /// Sets the size of the terminal, if there is one.
    pub(super) fn resize(&self, cols: u16, rows: u16) {
        if self.terminal {
            let size = Winsize {
                ws_col: cols,
                ws_row: rows,
                ..SIZE
            };
            // Fails if the process has just ended.
            let _ended = tcsetwinsize(self.input.get_ref(), size);
        }
    }

    /// Signals a process group: on a terminal the one in the foreground, except for SIGKILL.
    pub(super) fn signal(&self, signal: Signal) {
        if self.terminal
            && signal != Signal::KILL
            && let Ok(group) = rustix::termios::tcgetpgrp(self.input.get_ref())
            && self.process.ended().is_none()
        {
            let _ended = rustix::process::kill_process_group(group, signal);
            return;
        }
        self.process.signal_group(signal);
    }

    /// Whether the shell waits for a command: on a terminal, another group is in the foreground;
    /// otherwise, the shell has children.
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

    /// Exit of the process, if it has ended.
    pub(super) fn ended(&self) -> Option<Exit> {
        self.process.ended()
    }
}

/// The locale that sets the encoding of text. Empty variables do not count (POSIX, XBD 8.2).
fn locale(variables: &Variables) -> Option<&OsStr> {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let mut values = names.iter().filter_map(|name| variables.get(name));
    values.find(|value| !value.is_empty())
}

fn is_utf8(locale: &OsStr) -> bool {
    let name = locale.to_string_lossy().to_ascii_lowercase();
    name.contains("utf-8") || name.contains("utf8")
}

/// Whether an image has the locale C.UTF-8. Programs warn about a locale that is missing.
fn has_utf8(root: &Path) -> bool {
    // musl needs no files for it.
    let musl = format!("lib/ld-musl-{}.so.1", std::env::consts::ARCH);
    ["usr/lib/locale/C.utf8", "usr/lib/locale/C.UTF-8", &musl]
        .iter()
        .any(|path| root.join(path).exists())
}

/// Registers the daemon's end with the runtime.
fn register(fd: OwnedFd) -> io::Result<AsyncDescriptor> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    // SAFETY: `AsyncFd` owns the descriptor and is the only one to close it.
    let registered = unsafe { AsyncFd::register(fd) };
    Ok(Arc::new(registered.map_err(|error| error.into_parts().1)?))
}

/// Starts a command on a terminal, whose line editing erases whole characters of UTF-8 or bytes.
fn on_terminal(
    base: &Base,
    mut command: Command,
    erases_characters: bool,
) -> io::Result<PtyProcess> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = open(ptsname(&master, Vec::new())?, flags, Mode::empty())?;
    tcsetwinsize(&slave, SIZE)?;
    if erases_characters {
        let mut modes = tcgetattr(&slave)?;
        modes.input_modes |= InputModes::IUTF8;
        tcsetattr(&slave, OptionalActions::Now, &modes)?;
    }
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
    let end = register(master)?;
    let process = base.processes.spawn(&mut command)?;
    let outputs = vec![(Stream::Stdout, Arc::clone(&end))];
    Ok(PtyProcess {
        process,
        input: end,
        outputs,
        terminal: true,
    })
}

fn on_pipes(base: &Base, mut command: Command) -> io::Result<PtyProcess> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC);
    let ((stdin, input), (out, stdout), (err, stderr)) = (pipe()?, pipe()?, pipe()?);
    command
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0);
    // Registered before the start, because a failure must not leave a process without readers.
    let (input, out, err) = (register(input)?, register(out)?, register(err)?);
    let process = base.processes.spawn(&mut command)?;
    let outputs = vec![(Stream::Stdout, out), (Stream::Stderr, err)];
    Ok(PtyProcess {
        process,
        input,
        outputs,
        terminal: false,
    })
}

/// Waits for output. `None` at the end, which a terminal reports as an error once no process has it
/// open.
pub(super) async fn read(end: &AsyncDescriptor, buffer: &mut [u8]) -> Option<usize> {
    loop {
        let mut ready = end.readable().await.ok()?;
        match ready.try_io(|fd| Ok(rustix::io::read(fd, &mut *buffer)?)) {
            Ok(Ok(0) | Err(_)) => return None,
            Ok(Ok(len)) => return Some(len),
            Err(_would_block) => {}
        }
    }
}

/// Reads available output without waiting. `None` if there is none.
pub(super) fn read_now(end: &AsyncDescriptor, buffer: &mut [u8]) -> Option<usize> {
    debug_assert!(end.as_raw_fd() >= 0);
    rustix::io::read(end.get_ref(), buffer)
        .ok()
        .filter(|len| *len > 0)
}

/// Writes as many bytes as fit, after waiting for room. Safe to cancel.
///
/// # Errors
/// When the process reads no more input.
pub(super) async fn write(end: &AsyncDescriptor, bytes: &[u8]) -> io::Result<usize> {
    loop {
        let mut ready = end.writable().await?;
        if let Ok(written) = ready.try_io(|fd| Ok(rustix::io::write(fd, bytes)?)) {
            return written;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn images_with_and_without_the_locale_are_distinguished() {
        let image = |file: Option<&str>| {
            let root = tempfile::tempdir().unwrap();
            if let Some(file) = file {
                let path = root.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "").unwrap();
            }
            has_utf8(root.path())
        };
        let musl = format!("lib/ld-musl-{}.so.1", std::env::consts::ARCH);
        for file in ["usr/lib/locale/C.utf8", "usr/lib/locale/C.UTF-8", &musl] {
            assert!(image(Some(file)), "{file}");
        }
        for file in [None, Some("usr/lib/locale/locale-archive")] {
            assert!(!image(file), "{file:?}");
        }
    }
}
