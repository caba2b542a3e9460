//! What becomes of signals in what the daemon starts.
#![expect(
    unsafe_code,
    reason = "setting what a signal does is unsafe for functions; there is none here"
)]

use nix::sys::signal::{SigHandler, Signal, signal};

/// Lets SIGINT and SIGQUIT do again what they do by default. A shell that starts the daemon in the
/// background has them ignored, and whatever starts from here would inherit that: nobody could
/// interrupt a command.
///
/// # Errors
/// Never for these signals.
pub fn heed_interrupts() -> nix::Result<()> {
    for number in [Signal::SIGINT, Signal::SIGQUIT] {
        // SAFETY: the default is no function of ours that could do what handlers must not.
        unsafe { signal(number, SigHandler::SigDfl) }?;
    }
    Ok(())
}
