//! Keeper: the process that supervises one run. All processes of the run descend from it,
//! daemonised ones too, so that it can end exactly these.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{fs::FileExt, net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Command, Stdio},
};

use nix::{sys::signal::SigSet, unistd::getpid};
use rustix::{
    fs::{Access, accessat},
    process::{
        DumpableBehavior, Pid, Signal, kill_process, set_child_subreaper, set_dumpable_behavior,
    },
};

use super::children::{children, ended, wait};
use crate::{
    isolated::{
        plan::{KeeperEvent, Order},
        shell::{Files, invocation},
        wire,
    },
    limits,
    process::{Exit, shell, tree},
};

/// Executes an order, and stays until no process of the run is left.
pub(super) fn keep(fds: Vec<OwnedFd>) -> io::Result<()> {
    let mut fds = fds.into_iter();
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let order: Order = wire::unpacked(fds.next().ok_or_else(short)?)?;
    let control = UnixStream::from(fds.next().ok_or_else(short)?);
    let (stdout, stderr) = (fds.next().ok_or_else(short)?, fds.next().ok_or_else(short)?);
    set_child_subreaper(Some(rustix::process::getpid()))?;
    // The shell opens its state through the keeper's descriptors in `/proc`, so that its children
    // do not inherit them.
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    let children = children()?;
    if let Some(path) = &order.writable
        && accessat(
            rustix::fs::CWD,
            path,
            Access::WRITE_OK | Access::EXEC_OK,
            rustix::fs::AtFlags::EACCESS,
        )
        .is_err()
    {
        return send_event(&control, &KeeperEvent::NotWritable);
    }
    let (shell, _files) = match start(&order, [stdout, stderr], fds) {
        Ok(started) => started,
        Err(error) => return send_event(&control, &KeeperEvent::NotStarted(error.to_string())),
    };
    send_event(&control, &KeeperEvent::Started)?;
    let mut running = true;
    loop {
        let (message, reap) = wait(&control, &children)?;
        if reap {
            while let Some((pid, status)) = ended() {
                if pid == shell
                    && let Some(event) = Exit::of(status).map(to_wire)
                {
                    running = false;
                    // The daemon may have closed the connection.
                    let _closed = send_event(&control, &event);
                }
            }
        }
        if !running && alone() {
            return Ok(());
        }
        if message {
            match read(&control) {
                Some(wire::INTERRUPT) => signal(Signal::INT),
                Some(wire::TERMINATE) => signal(Signal::TERM),
                Some(wire::KILL) => signal(Signal::KILL),
                // No requests can arrive any more; processes that the run left behind continue.
                None if !running => break,
                None => signal(Signal::KILL),
                Some(_) => {}
            }
        }
    }
    drop(control);
    while !alone() {
        let _one = nix::sys::wait::waitpid(None, None);
    }
    Ok(())
}

fn read(mut control: &UnixStream) -> Option<u8> {
    let mut what = [0];
    control.read_exact(&mut what).ok()?;
    Some(what[0])
}

/// Whether all processes of the run have ended.
fn alone() -> bool {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, flags) == Err(nix::errno::Errno::ECHILD)
}

fn send_event(mut control: &UnixStream, event: &KeeperEvent) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    control.write_all(&line)
}

fn to_wire(exit: Exit) -> KeeperEvent {
    match exit {
        Exit::Code(code) => KeeperEvent::Exited(code),
        Exit::Signal { number, core } => KeeperEvent::Signalled { number, core },
    }
}

/// Signals every process of the run. With SIGKILL it repeats until none is left: a killed process
/// cannot fork again, so the rounds end even for a fork bomb.
fn signal(signal: Signal) {
    loop {
        let all = tree::descendants(rustix::process::getpid());
        for pid in &all {
            let _gone = kill_process(*pid, signal);
        }
        let living = |pid: &&Pid| !is_zombie(**pid);
        if signal != Signal::KILL || all.iter().filter(living).count() == 0 {
            return;
        }
    }
}

fn is_zombie(pid: Pid) -> bool {
    let file = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let stat = std::fs::read_to_string(file).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_none_or(|rest| rest.is_empty() || rest.starts_with(" Z") || rest.starts_with(" X"))
}

/// Starts the shell. The files that it reads stay open as long as it may read them.
fn start(
    order: &Order,
    [stdout, stderr]: [OwnedFd; 2],
    mut fds: impl Iterator<Item = OwnedFd>,
) -> io::Result<(Pid, Vec<File>)> {
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let program = shell(order.search.as_deref())?;
    let bash = program.ends_with("bash");
    let mut before = wire::memory()?;
    if order.restore {
        copy(&File::from(fds.next().ok_or_else(short)?), &mut before)?;
    }
    let state = order
        .report
        .then(|| fds.next().map(File::from).ok_or_else(short))
        .transpose()?;
    let (kept, traps) = (wire::memory()?, wire::memory()?);
    let mut files = Files {
        keeper: getpid().as_raw(),
        before: order.restore.then(|| before.as_raw_fd()),
        kept: kept.as_raw_fd(),
        traps: traps.as_raw_fd(),
        state: state.as_ref().map(AsRawFd::as_raw_fd),
    };
    let injected = files.injected(&order.envs, bash);
    if !injected.is_empty() {
        before.write_all(injected.as_bytes())?;
        files.before = Some(before.as_raw_fd());
    }
    let invocation = invocation(&files, &order.code, bash)?;
    let open = [before, kept, traps]
        .into_iter()
        .chain(state)
        .chain(invocation.code.map(File::from))
        .collect();
    let mut command = Command::new(&program);
    command
        .arg0(if bash { "bash" } else { "sh" })
        .args(invocation.arguments);
    let odd = order
        .envs
        .iter()
        .filter(|(name, _)| !crate::isolated::shell::is_name(name));
    command
        .env_clear()
        .envs(order.variables.iter().map(|(name, value)| (name, value)))
        .envs(odd.map(|(name, value)| (name, value)))
        .current_dir(existing(&order.cwd))
        .stdin(invocation.input.map_or_else(Stdio::null, Stdio::from))
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0);
    without_blocked_signals(&mut command);
    let child = command.spawn()?;
    Ok((Pid::from_child(&child), open))
}

/// Lets the shell receive the signals that this process blocks: not every one unblocks them itself, and
/// then waits in vain for its children.
fn without_blocked_signals(command: &mut Command) {
    #[expect(
        unsafe_code,
        reason = "the signals of a child can only be unblocked between fork and exec"
    )]
    // SAFETY: the closure makes one system call; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(|| Ok(SigSet::empty().thread_set_mask()?));
    }
}

/// Copies a file that other processes read through the same open file description.
fn copy(from: &File, to: &mut File) -> io::Result<()> {
    let mut piece = vec![0; limits::READ_CHUNK];
    let mut at = 0;
    loop {
        let len = from.read_at(&mut piece, at)?;
        if len == 0 {
            return Ok(());
        }
        to.write_all(&piece[..len])?;
        at += len as u64;
    }
}

/// Nearest existing directory, since the requested one may have been deleted.
fn existing(cwd: &Path) -> &Path {
    if cwd.is_dir() { cwd } else { Path::new("/") }
}
