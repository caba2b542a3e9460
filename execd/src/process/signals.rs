//! Signal dispositions of child processes.
#![expect(
    unsafe_code,
    reason = "a handler that exec undoes is installed with raw calls: real-time signals have no names"
)]

use std::{io, mem::MaybeUninit, ptr};

use nix::{
    libc::{self, c_int},
    sys::signal::SigSet,
};

/// Highest signal number of Linux.
const LAST: c_int = 64;

/// Makes all children start with default signal dispositions and no blocked signals, independently
/// of how the daemon was started (`nohup`, or in the background of a shell, which ignores SIGINT
/// and SIGQUIT). The daemon itself still ignores what it inherited as ignored.
///
/// # Errors
/// When signals cannot be unblocked.
pub fn reset_for_children() -> io::Result<()> {
    for number in 1..=LAST {
        // The standard library ignores SIGPIPE for the daemon, and resets it in children.
        if number != libc::SIGPIPE && is_ignored(number) {
            pass_over(number);
        }
    }
    Ok(SigSet::empty().thread_set_mask()?)
}

/// `false` also for signals that cannot be ignored, and for the C library's own.
fn is_ignored(number: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the call changes nothing, and writes the current action to memory of that type.
    let asked = unsafe { libc::sigaction(number, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call wrote it on success.
    asked == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Replaces "ignored" by an empty handler: `execve` keeps the former and resets the latter.
fn pass_over(number: c_int) {
    extern "C" fn nothing(_: c_int) {}
    let handler: extern "C" fn(c_int) = nothing;
    // SAFETY: all zeros are a valid action: the default, without flags.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler accesses nothing, so it may run at any time.
    let set = unsafe { libc::sigaction(number, &raw const action, ptr::null_mut()) };
    debug_assert_eq!(set, 0, "what can be asked for can be set, for {number}");
}
