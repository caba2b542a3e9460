//! `EXECD_CLONE3_COMPAT`: making `clone3` look as if the kernel did not know it (contract: execd
//! §1.2), for tracers and emulators that do not. The C library then uses `clone`.
#![expect(
    unsafe_code,
    reason = "the kernel takes the filter through a raw pointer"
)]

use std::{io, os::unix::process::CommandExt, process::Command};

use nix::libc::{self, c_ulong, sock_filter, sock_fprog};

/// Says whether, and how.
const ENV_MODE: &str = "EXECD_CLONE3_COMPAT";
/// Set for the second start in mode `reexec`, so that there is no third.
pub const ENV_APPLIED: &str = "_EXECD_CLONE3_COMPAT_APPLIED";

/// Why `clone3` could not be hidden.
#[derive(Debug, thiserror::Error)]
pub enum Clone3Error {
    /// The variable has a value that means nothing.
    #[error("{ENV_MODE}: expected one of 1, true, yes, on, reexec, 0, false, no, off")]
    Mode,
    /// The kernel refused the filter.
    #[error("{ENV_MODE}: cannot install the filter")]
    Filter(#[source] io::Error),
    /// The program could not be started again.
    #[error("{ENV_MODE}: cannot start again")]
    Restart(#[source] io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Off,
    Filter,
    /// For what of the C library made up its mind before `main`.
    FilterAndRestart,
}

fn mode(value: &str) -> Result<Mode, Clone3Error> {
    match value.trim().to_ascii_lowercase().as_str() {
        "" | "0" | "false" | "off" | "no" => Ok(Mode::Off),
        "1" | "true" | "yes" | "on" => Ok(Mode::Filter),
        "reexec" => Ok(Mode::FilterAndRestart),
        _ => Err(Clone3Error::Mode),
    }
}

/// Does what the environment asks for, to the whole process and all its descendants. In mode
/// `reexec` it returns only in the second start, or when there is none.
///
/// # Errors
/// See [`Clone3Error`].
pub fn apply(variable: impl Fn(&str) -> Option<String>) -> Result<(), Clone3Error> {
    let mode = mode(&variable(ENV_MODE).unwrap_or_default())?;
    let again = variable(ENV_APPLIED).as_deref() == Some("1");
    if mode == Mode::Off || (mode == Mode::FilterAndRestart && again) {
        return Ok(());
    }
    install(&program()).map_err(Clone3Error::Filter)?;
    if mode == Mode::FilterAndRestart {
        let mut args = std::env::args_os();
        let name = args.next().unwrap_or_else(|| "execd".into());
        let mut command = Command::new("/proc/self/exe");
        command.arg0(name).args(args).env(ENV_APPLIED, "1");
        return Err(Clone3Error::Restart(command.exec()));
    }
    Ok(())
}

/// Refuses `clone3` as unknown and allows the rest. Its number is the same on all architectures,
/// so that 32-bit programs are served too.
fn program() -> [sock_filter; 4] {
    const NUMBER: u32 = 0;
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const CLONE3: u32 = libc::SYS_clone3 as u32;
    const UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let instruction = |code, jf, k| sock_filter { code, jt: 0, jf, k };
    [
        instruction(LOAD, 0, NUMBER),
        instruction(EQUAL, 1, CLONE3),
        instruction(RETURN, 0, UNKNOWN),
        instruction(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

/// Installs a filter in all threads of the process, which then can gain no privileges by starting a
/// program.
fn install(filter: &[sock_filter]) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    let program = sock_fprog {
        len: u16::try_from(filter.len()).expect("a filter is short"),
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel reads the program, which points to as many instructions as it says, and
    // keeps a copy of its own. With this flag it answers with the thread that it could not reach.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            c_ulong::from(libc::SECCOMP_SET_MODE_FILTER),
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    match done {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!("thread {thread} cannot follow"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_values_mean_something() {
        let mode = |value| mode(value).ok();
        for off in ["", "0", "false", "OFF", "no"] {
            assert_eq!(mode(off), Some(Mode::Off), "{off}");
        }
        for on in ["1", "True", "yes", " on "] {
            assert_eq!(mode(on), Some(Mode::Filter), "{on}");
        }
        assert_eq!(mode("reexec"), Some(Mode::FilterAndRestart));
        for bad in ["2", "maybe", "re-exec"] {
            assert_eq!(mode(bad), None, "{bad}");
        }
    }
}
