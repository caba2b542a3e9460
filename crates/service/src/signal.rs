//! Signals that stop the process.

use tokio::signal::unix::{SignalKind, signal};

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
