//! The first byte on the socket: 0 when the worker has become whom it should, else why not.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// What a worker says about its attempt.
pub(super) fn to_wire(assumed: rustix::io::Result<()>) -> u8 {
    match assumed {
        Ok(()) => 0,
        // Error numbers of Linux end at 133.
        Err(errno) => u8::try_from(errno.raw_os_error()).unwrap_or(u8::MAX),
    }
}

/// Waits for what the worker says.
///
/// # Errors
/// Why it could not become whom it should; or `UnexpectedEof` when it ended before.
pub(super) async fn ready(socket: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    match socket.read_u8().await? {
        0 => Ok(()),
        number => {
            let error = io::Error::from_raw_os_error(number.into());
            let hint = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    ": it takes the capabilities SETUID and SETGID, which the server may have \
                     dropped (docker.drop_capabilities)"
                }
                _ => "",
            };
            Err(io::Error::new(error.kind(), format!("{error}{hint}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[tokio::test]
    async fn what_is_told_arrives() {
        let arrives = async |told: &[u8]| ready(&mut &*told).await.map_err(|error| error.kind());
        assert_eq!(arrives(&[to_wire(Ok(()))]).await, Ok(()));
        assert_eq!(
            arrives(&[to_wire(Err(Errno::PERM))]).await,
            Err(io::ErrorKind::PermissionDenied)
        );
        assert_eq!(arrives(&[]).await, Err(io::ErrorKind::UnexpectedEof));
    }
}
