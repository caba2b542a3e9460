//! Waiting until execd answers.
//!
//! The answer to a create is held until then: SDKs ask execd at once, and a refused connection
//! costs them half a second and more (contract: clients §3.4). No event announces that
//! a port will answer, so the server retries, quickly at first.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout_at},
};

use crate::trace;

/// First pause between attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Longest pause between attempts while a client waits.
pub(super) const QUICK: Duration = Duration::from_millis(50);
/// Longest pause between attempts that no client waits for.
pub(super) const SLOW: Duration = Duration::from_secs(1);

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// execd answers.
    Ready,
    /// It did not in time.
    TooSlow,
    /// The wait was no longer needed.
    Unwanted,
}

/// Waits until execd at `authority` answers, until `deadline` at most, with pauses up to
/// `longest_pause`. `still_wanted` ends the wait early, for a sandbox that has ended meanwhile.
pub(super) async fn wait(
    authority: &str,
    deadline: Instant,
    longest_pause: Duration,
    still_wanted: impl Fn() -> bool,
) -> Wait {
    let mut pause = FIRST_PAUSE;
    let mut in_time = true;
    let context = trace::context();
    let context = context
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"));
    let request = format!(
        "GET /ping HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n{}\r\n",
        context.collect::<String>()
    );
    while still_wanted() {
        if !in_time {
            return Wait::TooSlow;
        }
        match timeout_at(deadline, ping(authority, &request)).await {
            Ok(Ok(true)) => return Wait::Ready,
            Ok(_) => in_time = Instant::now() + pause < deadline,
            Err(_) => in_time = false,
        }
        if in_time {
            sleep(pause).await;
            pause = (pause * 2).min(longest_pause);
        }
    }
    Wait::Unwanted
}

async fn ping(authority: &str, request: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(authority).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    Ok(head.starts_with(b"HTTP/1.1 2"))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn waits_for_a_late_listener_and_gives_up_on_none() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let serve = async {
            let mut answers = 0;
            for reply in ["HTTP/1.1 503 No\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(reply.as_bytes()).await.unwrap();
                answers += 1;
            }
            answers
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        let (ready, served) = tokio::join!(wait(&authority, deadline, QUICK, || true), serve);
        assert_eq!((ready, served), (Wait::Ready, 2));
        drop(listener);
        let late = wait(&authority, Instant::now(), QUICK, || true).await;
        assert_eq!(late, Wait::TooSlow);
    }

    #[tokio::test]
    async fn a_sandbox_that_has_ended_is_not_slow() {
        // The listener is gone, so connections are refused.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        drop(listener);
        let deadline = Instant::now() + Duration::from_secs(30);
        assert_eq!(
            wait(&authority, deadline, QUICK, || false).await,
            Wait::Unwanted
        );
        // It ends during the last attempt.
        let asked = Cell::new(false);
        let ends_meanwhile = || !asked.replace(true);
        let ended = wait(&authority, Instant::now(), QUICK, ends_meanwhile).await;
        assert_eq!(ended, Wait::Unwanted);
    }
}
