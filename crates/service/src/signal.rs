//! Signals that stop the process, or ask it to read files again, and the names of all.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for SIGINT or SIGTERM and returns its name.
///
/// # Errors
/// When the handlers cannot be installed.
pub async fn shutdown() -> std::io::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}

/// Receives SIGHUP, which then no longer ends the process.
///
/// # Errors
/// When the handler cannot be installed.
pub fn hangup() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// Name of a signal for clients: the kernel's for the standard signals, which have the same numbers on
/// all supported architectures. Real-time signals have only numbers.
#[must_use]
pub fn name(number: i32) -> Option<&'static str> {
    const NAMES: [&str; 31] = [
        "hangup",
        "interrupt",
        "quit",
        "illegal instruction",
        "trace/breakpoint trap",
        "aborted",
        "bus error",
        "floating point exception",
        "killed",
        "user defined signal 1",
        "segmentation fault",
        "user defined signal 2",
        "broken pipe",
        "alarm clock",
        "terminated",
        "stack fault",
        "child exited",
        "continued",
        "stopped (signal)",
        "stopped",
        "stopped (tty input)",
        "stopped (tty output)",
        "urgent I/O condition",
        "CPU time limit exceeded",
        "file size limit exceeded",
        "virtual timer expired",
        "profiling timer expired",
        "window changed",
        "I/O possible",
        "power failure",
        "bad system call",
    ];
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    NAMES.get(index).copied()
}
