//! `EXECD_CLONE3_COMPAT`: reports `clone3` as unknown (contract: execd §1.2), for tracers and
//! emulators that do not support it. The C library then uses `clone`.
#![expect(
    unsafe_code,
    reason = "the kernel takes the filter through a raw pointer"
)]

use std::{io, os::unix::process::CommandExt, process::Command};

use nix::libc::{self, c_ulong, sock_filter, sock_fprog};

/// Variable that selects the mode.
const ENV_MODE: &str = "EXECD_CLONE3_COMPAT";
/// Set for the re-exec in mode `reexec`, to prevent a second one.
pub const ENV_APPLIED: &str = "_EXECD_CLONE3_COMPAT_APPLIED";

/// Reason why `clone3` could not be hidden.
#[derive(Debug, thiserror::Error)]
pub enum Clone3Error {
    /// The variable has an unknown value.
    #[error("{ENV_MODE}: expected one of 1, true, yes, on, reexec, 0, false, no, off")]
    Mode,
    /// The kernel rejected the filter.
    #[error("{ENV_MODE}: cannot install the filter")]
    Filter(#[source] io::Error),
    /// The re-exec failed.
    #[error("{ENV_MODE}: cannot start again")]
    Restart(#[source] io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Off,
    Filter,
    /// Re-exec, for libc code that ran before `main`.
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

/// Applies the mode to the whole process and all its descendants. In mode `reexec` it returns only
/// in the re-executed process, or without a re-exec.
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

/// Filter that reports `clone3` as unknown and allows all other calls. Its number is the same on
/// all architectures, so the filter covers 32-bit programs too.
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

/// Installs a filter in all threads of the process, which cannot gain privileges through `execve`
/// afterwards.
fn install(filter: &[sock_filter]) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    let program = sock_fprog {
        len: u16::try_from(filter.len()).expect("a filter is short"),
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the program, whose pointer and length match. With this flag it
    // returns the id of a thread that it could not synchronise.
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
