//! First byte on the socket: 0 once the worker has assumed its identity, else an error number.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::identity::refusal_hint;

/// Encodes the result of the worker's attempt.
pub(super) fn to_wire(assumed: rustix::io::Result<()>) -> u8 {
    match assumed {
        Ok(()) => 0,
        // Linux error numbers end at 133.
        Err(errno) => u8::try_from(errno.raw_os_error()).unwrap_or(u8::MAX),
    }
}

/// Waits for the worker's result.
///
/// # Errors
/// The error of the worker's attempt, or `UnexpectedEof` if the worker ended before it.
pub(super) async fn ready(socket: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    match socket.read_u8().await? {
        0 => Ok(()),
        number => {
            let error = io::Error::from_raw_os_error(number.into());
            let text = match error.kind() {
                io::ErrorKind::PermissionDenied => format!("{error}: {}", refusal_hint()),
                _ => error.to_string(),
            };
            Err(io::Error::new(error.kind(), text))
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[tokio::test]
    async fn ready_is_received() {
        let arrives = async |sent: &[u8]| ready(&mut &*sent).await.map_err(|error| error.kind());
        assert_eq!(arrives(&[to_wire(Ok(()))]).await, Ok(()));
        assert_eq!(
            arrives(&[to_wire(Err(Errno::PERM))]).await,
            Err(io::ErrorKind::PermissionDenied)
        );
        assert_eq!(arrives(&[]).await, Err(io::ErrorKind::UnexpectedEof));
    }
}
