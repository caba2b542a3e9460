//! What becomes of signals in what the daemon starts.
#![expect(
    unsafe_code,
    reason = "a handler that exec undoes is installed with raw calls: real-time signals have no names"
)]

use std::{io, mem::MaybeUninit, ptr};

use nix::{
    libc::{self, c_int},
    sys::signal::SigSet,
};

/// The last signal of Linux.
const LAST: c_int = 64;

/// Makes everything that is started from here begin with all signals at their defaults and none
/// blocked, whatever the daemon itself was started with (`nohup`, or in the background of a shell, which
/// ignores SIGINT and SIGQUIT). The daemon goes on passing over what it was started to ignore.
///
/// # Errors
/// When signals cannot be unblocked.
pub fn reset_for_children() -> io::Result<()> {
    for number in 1..=LAST {
        // The standard library sets it for the daemon, and back in what it starts.
        if number != libc::SIGPIPE && is_ignored(number) {
            pass_over(number);
        }
    }
    Ok(SigSet::empty().thread_set_mask()?)
}

/// `false` also for those that cannot be ignored, and for the C library's own.
fn is_ignored(number: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is changed, and what is there is written to memory of that type.
    let asked = unsafe { libc::sigaction(number, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: after a success it was written.
    asked == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Replaces being ignored by a handler that does nothing: programs inherit the one and not the other.
fn pass_over(number: c_int) {
    extern "C" fn nothing(_: c_int) {}
    let handler: extern "C" fn(c_int) = nothing;
    // SAFETY: all bytes zero is a valid action: the default, without flags.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler touches nothing, so it may run anywhere at any time.
    let set = unsafe { libc::sigaction(number, &raw const action, ptr::null_mut()) };
    debug_assert_eq!(set, 0, "what can be asked for can be set, for {number}");
}
