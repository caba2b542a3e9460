//! Init of a session: the same executable, alone in new namespaces.
//!
//! ```text
//!   daemon ══socket══▶ outer ──fork──▶ init, process 1 of the session
//!                      │ makes          │ 1. mounts, identity, filter: then it has no rights left
//!                      │ namespaces     │ 2. says that it is ready
//!                      │                ├─fork─▶ keeper ─▶ shell and what it starts    per run
//!                      └─ waits         └─fork─▶ file worker                           per connection
//! ```
//!
//! No process here has more rights than the users' code that it runs. When the socket closes,
//! because the session was deleted or the daemon died, init exits, and the kernel kills every other
//! process in the namespace.

mod children;
mod files;
mod keeper;
mod mounts;
mod network;
mod privileges;
mod serve;
mod trees;

use std::{
    fs, io,
    io::Write,
    os::{fd::AsFd, unix::net::UnixStream},
};

use nix::{
    sys::{
        signal::{SigSet, SigmaskHow},
        wait::{WaitStatus, waitpid},
    },
    unistd::{ForkResult, fork},
};
use rustix::{
    process::{
        DumpableBehavior, Signal, getegid, geteuid, set_dumpable_behavior,
        set_parent_process_death_signal,
    },
    thread::UnshareFlags,
};

use super::{
    plan::{Plan, Ready, Refusal},
    wire,
};

/// First argument of the executable as a session's init.
pub const SUBCOMMAND: &str = "isolated-init";

/// Host name inside (contract: execd A6.2).
const HOST_NAME: &[u8] = b"sandbox";

/// Reason why a session cannot be set up.
#[derive(Debug)]
struct Failure {
    why: Refusal,
    message: String,
}

impl Failure {
    fn new(why: Refusal, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { why, message }
    }
}

/// Sets up the session that the socket at standard input describes, and serves as its init until
/// the socket closes. Must be called while the process is single-threaded.
///
/// # Errors
/// When the socket carries no valid plan. Other errors are reported on the socket.
pub fn run() -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "no plan on standard input");
    let (what, mut fds) = wire::receive(&socket)?.ok_or_else(odd)?;
    let packed = fds.pop().filter(|_| what == wire::PLAN).ok_or_else(odd)?;
    let plan: Plan = wire::unpacked(packed)?;
    silence()?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    if let Err(failure) = make_namespaces(&plan) {
        return tell(&socket, &refused(failure));
    }
    // The daemon signals all its descendants when it stops. This process must stay until the
    // namespace is empty, because its end means that to the daemon.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    #[expect(unsafe_code, reason = "only a child is in the new namespace")]
    // SAFETY: this process is single-threaded, so the child may run any code.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop(socket);
            // No other child exists to reap.
            while !matches!(
                waitpid(child, None),
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
                    | Err(nix::errno::Errno::ECHILD)
            ) {}
            Ok(())
        }
        ForkResult::Child => {
            mask.thread_set_mask()?;
            first(&plan, socket)
        }
    }
}

/// Redirects standard input, so that later processes do not inherit the socket.
fn silence() -> io::Result<()> {
    let null = fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(())
}

/// Runs process 1 of the session.
fn first(plan: &Plan, socket: UnixStream) -> io::Result<()> {
    let ready = match set_up(plan) {
        Ok(without) => Ready::Yes { without },
        Err(failure) => {
            return tell(&socket, &refused(failure));
        }
    };
    tell(&socket, &ready)?;
    serve::serve(&socket)
}

fn refused(Failure { why, message }: Failure) -> Ready {
    Ready::No { why, message }
}

fn tell(mut socket: &UnixStream, ready: &Ready) -> io::Result<()> {
    let mut line = serde_json::to_vec(ready)?;
    line.push(b'\n');
    socket.write_all(&line)
}

fn make_namespaces(plan: &Plan) -> Result<(), Failure> {
    if plan.userns {
        let made = unshare(UnshareFlags::NEWUSER).and_then(|()| map_identity(plan));
        made.map_err(|error| {
            let text = format!("cannot make a user namespace: {error}");
            Failure::new(Refusal::Identity, text)
        })?;
    }
    let mut flags = UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWCGROUP;
    if !plan.share_net {
        flags |= UnshareFlags::NEWNET;
    }
    unshare(flags).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "; it takes the capability SYS_ADMIN and no filter against it \
                 (extension bootstrap.execd.isolation)"
            }
            _ => "",
        };
        let text = format!("cannot make namespaces: {error}{hint}");
        Failure::new(Refusal::Namespaces, text)
    })
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    #[expect(unsafe_code, reason = "there is no other way into new namespaces")]
    // SAFETY: descriptors stay shared; this process is single-threaded.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Maps the outer identity to the requested one inside, and no other.
fn map_identity(plan: &Plan) -> io::Result<()> {
    // Ids read differently inside the namespace, so the plan carries the outer ones; the kernel
    // checks them against the owner of the maps.
    let (uid, gid) = plan.outside;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{} {uid} 1", plan.uid))?;
    fs::write("/proc/self/gid_map", format!("{} {gid} 1", plan.gid))
}

/// Runs every setup step, from the namespaces to the loss of privileges.
fn set_up(plan: &Plan) -> Result<Vec<String>, Failure> {
    let mut without = mounts::set_up(plan)?;
    let failed = |error: rustix::io::Errno| {
        Failure::new(
            Refusal::Namespaces,
            format!("cannot set the host name: {error}"),
        )
    };
    rustix::system::sethostname(HOST_NAME).map_err(failed)?;
    if !plan.share_net
        && let Err(error) = network::loopback_up()
    {
        without.push(format!("the loopback interface is down: {error}"));
    }
    privileges::disarm_root();
    privileges::assume(plan).map_err(|errno| {
        let text = format!(
            "cannot become uid {} and gid {}: {errno}: it takes the capabilities SETUID and SETGID",
            plan.uid, plan.gid
        );
        Failure::new(Refusal::Identity, text)
    })?;
    privileges::drop_all(plan).map_err(|error| {
        let text = format!("cannot give up privileges: {error}");
        Failure::new(Refusal::Namespaces, text)
    })?;
    let hide = || -> rustix::io::Result<()> {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        set_parent_process_death_signal(Some(Signal::KILL))
    };
    hide().map_err(|errno| Failure::new(Refusal::Namespaces, errno.to_string()))?;
    debug_assert_eq!(
        (geteuid().as_raw(), getegid().as_raw()),
        (plan.uid, plan.gid)
    );
    Ok(without)
}
