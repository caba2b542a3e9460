//! Signals that stop the process, or ask it to read files again.

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
