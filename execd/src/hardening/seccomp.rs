//! Filter of system calls (contract: execd A6.5, A9.4). The BPF program is assembled by hand: a few
//! instructions do not justify a compiler.
#![expect(
    unsafe_code,
    reason = "the kernel takes the filter through a raw pointer"
)]

use std::{collections::BTreeSet, io};

use nix::libc::{self, c_ulong, sock_filter, sock_fprog};

use super::syscalls::number;
use crate::config::DENIED;

/// New namespaces of any kind, as flags of `clone`.
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Flag of the x32 ABI, which repeats the same calls with other argument layouts.
const X32: u32 = 0x4000_0000;

/// Offsets into `seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
/// The lower half of the first argument; both architectures are little-endian.
const FIRST_ARGUMENT: u32 = 16;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

fn instruction(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn refuse(errno: i32) -> sock_filter {
    let errno = u32::try_from(errno).expect("errors are positive");
    instruction(RETURN, libc::SECCOMP_RET_ERRNO | errno, 0, 0)
}

/// BPF program in the kernel's format.
#[derive(Clone)]
pub(crate) struct Filter(Vec<sock_filter>);

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filter({} instructions)", self.0.len())
    }
}

impl Filter {
    /// Builds a filter that refuses these calls, and new namespaces through any call. Names that
    /// this architecture lacks are skipped, see [`unknown`].
    #[must_use]
    pub(crate) fn new(deny: &[String]) -> Self {
        Self(program(deny))
    }

    /// Installs the filter for this process and its descendants. Needs `no_new_privs`. Allocates
    /// nothing, so it may run between fork and exec.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub(crate) fn install(&self) -> io::Result<()> {
        let len = u16::try_from(self.0.len()).expect("there are a few hundred calls to refuse");
        let filter = sock_fprog {
            len,
            filter: self.0.as_ptr().cast_mut(),
        };
        // SAFETY: the kernel copies `len` instructions from the pointer and writes nothing there.
        let done = unsafe {
            libc::prctl(
                libc::PR_SET_SECCOMP,
                c_ulong::from(libc::SECCOMP_MODE_FILTER),
                &raw const filter,
            )
        };
        match done {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Names that no system call has. Names on the default list are left out: they belong to other
/// architectures.
pub(super) fn unknown(deny: &[String]) -> Vec<&str> {
    let odd = |name: &&str| number(name).is_none() && !DENIED.contains(name);
    deny.iter().map(String::as_str).filter(odd).collect()
}

fn program(deny: &[String]) -> Vec<sock_filter> {
    // Two instructions each: the jump skips the return unless the condition holds.
    let mut program = vec![
        instruction(LOAD, ARCH, 0, 0),
        instruction(EQUAL, ARCHITECTURE, 1, 0),
        refuse(libc::ENOSYS),
        instruction(LOAD, NUMBER, 0, 0),
        instruction(AT_LEAST, X32, 0, 1),
        refuse(libc::ENOSYS),
    ];
    // The kernel accepts 4096 instructions, so duplicates are dropped.
    let mut said = BTreeSet::new();
    let mut when = |name: &str, answer: sock_filter| {
        if let Some(number) = number(name).filter(|number| said.insert(*number)) {
            program.extend([instruction(EQUAL, number, 0, 1), answer]);
        }
    };
    // A filter cannot read the flags of `clone3`; C libraries fall back to `clone`.
    when("clone3", refuse(libc::ENOSYS));
    for name in deny {
        when(name, refuse(libc::EPERM));
    }
    // Refused with namespace flags like `clone`, whatever the list contains.
    for name in ["unshare", "setns"] {
        when(name, refuse(libc::EPERM));
    }
    let clone = number("clone").expect("every architecture has it");
    program.extend([
        instruction(EQUAL, clone, 0, 3),
        instruction(LOAD, FIRST_ARGUMENT, 0, 0),
        instruction(ANY_BIT, NEW_NAMESPACES, 0, 1),
        refuse(libc::EPERM),
        instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    ]);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verdict of the kernel for a call.
    fn answer(program: &[sock_filter], arch: u32, number: u32, argument: u32) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let step = program[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
            match step.code {
                LOAD if step.k == NUMBER => value = number,
                LOAD if step.k == ARCH => value = arch,
                LOAD => value = argument,
                EQUAL => at += jump(value == step.k),
                AT_LEAST => at += jump(value >= step.k),
                ANY_BIT => at += jump(value & step.k != 0),
                _ => return step.k,
            }
        }
    }

    #[test]
    fn only_listed_system_calls_are_refused() {
        let deny: Vec<String> = DENIED.iter().map(|&name| name.to_owned()).collect();
        let program = program(&deny);
        let errno = |errno: i32| libc::SECCOMP_RET_ERRNO | u32::try_from(errno).unwrap();
        let ask =
            |name: &str, argument| answer(&program, ARCHITECTURE, number(name).unwrap(), argument);
        let here = DENIED.iter().filter(|name| number(name).is_some());
        for name in here.clone() {
            assert_eq!(ask(name, 0), errno(libc::EPERM), "{name}");
        }
        assert!(here.count() > 45, "{deny:?}");
        for name in ["read", "execve", "socket", "clone", "exit_group"] {
            assert_eq!(ask(name, 0x11), libc::SECCOMP_RET_ALLOW, "{name}");
        }
        for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS] {
            let flag = u32::try_from(flag).unwrap() | 0x11;
            assert_eq!(ask("clone", flag), errno(libc::EPERM));
        }
        assert_eq!(ask("clone3", 0), errno(libc::ENOSYS));
        let mount = number("mount").unwrap();
        assert_eq!(answer(&program, 0x4000_0003, 6, 0), errno(libc::ENOSYS));
        let x32 = answer(&program, ARCHITECTURE, mount | X32, 0);
        assert_eq!(x32, errno(libc::ENOSYS));
    }

    #[test]
    fn namespaces_are_refused_with_any_list() {
        let program = program(&["mkdir".to_owned()]);
        let refused = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
        for name in ["unshare", "setns"] {
            let number = number(name).unwrap();
            assert_eq!(answer(&program, ARCHITECTURE, number, 0), refused, "{name}");
        }
    }

    #[test]
    fn unknown_names_are_reported() {
        let names =
            |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
        assert_eq!(unknown(&names(DENIED)), [""; 0]);
        let deny = names(&["mkdirat", "no_such_call", "Mount", "read"]);
        assert_eq!(unknown(&deny), ["no_such_call", "Mount"]);
    }

    #[test]
    fn the_longest_list_fits_the_kernel_s_limit() {
        let deny = vec!["mount".to_owned(); 10_000];
        assert_eq!(program(&deny).len(), program(&deny[..1]).len());
    }
}
