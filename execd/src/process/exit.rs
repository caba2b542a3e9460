//! Exit status of processes, in the wording of clients.

use osb_service::signal;
use rustix::process::WaitStatus;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Exited with this code.
    Code(i32),
    /// Terminated by a signal.
    Signal {
        /// Signal number.
        number: i32,
        /// Whether it left a core dump.
        core: bool,
    },
}

impl Exit {
    /// `None` for a process that only stopped.
    pub(crate) fn of(status: WaitStatus) -> Option<Self> {
        const CORE: i32 = 0x80;
        if let Some(code) = status.exit_status() {
            return Some(Self::Code(code));
        }
        status.terminating_signal().map(|number| Self::Signal {
            number,
            core: status.as_raw() & CORE != 0,
        })
    }

    /// Status by the shell's convention: 128 plus the signal.
    #[must_use]
    pub fn shell_code(self) -> u8 {
        match self {
            Self::Code(code) => u8::try_from(code & 0xff).expect("one byte"),
            Self::Signal { number, .. } => u8::try_from(128 + (number & 0x7f)).expect("one byte"),
        }
    }

    /// Status in the wire format: -1 for every signal.
    #[must_use]
    pub fn wire_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal { .. } => -1,
        }
    }
}

/// Wording that clients know: `exit status 3`, `signal: killed`.
impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal { number, core } => {
                match signal::name(number) {
                    Some(name) => write!(f, "signal: {name}")?,
                    None => write!(f, "signal: signal {number}")?,
                }
                f.write_str(if core { " (core dumped)" } else { "" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use nix::libc;

    use super::*;

    #[test]
    fn exits_are_described_as_clients_expect() {
        let signal = |number, core| Exit::Signal { number, core };
        assert_eq!(Exit::Code(3).to_string(), "exit status 3");
        assert_eq!(signal(9, false).to_string(), "signal: killed");
        assert_eq!(signal(6, true).to_string(), "signal: aborted (core dumped)");
        assert_eq!(signal(40, false).to_string(), "signal: signal 40");
        assert_eq!(Exit::Code(255).shell_code(), 255);
        assert_eq!(signal(15, false).shell_code(), 143);
        assert_eq!(signal(15, false).wire_code(), -1);
    }

    /// Name from the C library, which differs in the case of its first letter only.
    fn described(number: i32) -> String {
        #[expect(unsafe_code, reason = "the text belongs to the C library")]
        // SAFETY: the string is static or belongs to this thread, and is copied at once.
        let text = unsafe { CStr::from_ptr(libc::strsignal(number)) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn every_standard_signal_has_its_name_and_every_other_its_number() {
        for number in 1..=31 {
            let name = signal::name(number).unwrap();
            assert!(
                name.eq_ignore_ascii_case(&described(number)),
                "{number}: {name}"
            );
        }
        // Signals whose numbers differ between architectures.
        for (number, name) in [
            (libc::SIGBUS, "bus error"),
            (libc::SIGUSR1, "user defined signal 1"),
            (libc::SIGSTKFLT, "stack fault"),
            (libc::SIGCHLD, "child exited"),
            (libc::SIGURG, "urgent I/O condition"),
            (libc::SIGPWR, "power failure"),
            (libc::SIGSYS, "bad system call"),
        ] {
            assert_eq!(signal::name(number), Some(name));
        }
        for number in [i32::MIN, -1, 0].into_iter().chain(32..=64) {
            assert_eq!(signal::name(number), None, "{number}");
            let exit = Exit::Signal {
                number,
                core: false,
            };
            assert_eq!(exit.to_string(), format!("signal: signal {number}"));
        }
    }
}
