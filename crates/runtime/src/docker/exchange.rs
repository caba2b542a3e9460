//! Short HTTP exchanges with the programs inside sandboxes.

use std::io;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, ToSocketAddrs},
};

/// Most bytes of an answer that are read.
const ANSWER: u64 = 4096;

/// A request with a JSON body.
pub(super) struct Exchange<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    /// Name and value of the header with the token.
    pub(super) token: Option<(&'a str, &'a str)>,
    pub(super) body: &'a str,
}

/// An answer.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Exchange<'_> {
    /// Sends the request on a connection of its own. `None` if the answer is no HTTP.
    ///
    /// # Errors
    /// When there is no connection, or it ends.
    pub(super) async fn send(self, to: impl ToSocketAddrs) -> io::Result<Option<Answer>> {
        let mut stream = TcpStream::connect(to).await?;
        let Self {
            method,
            path,
            token,
            body,
        } = self;
        let token = token.map(|(name, value)| format!("{name}: {value}\r\n"));
        let (token, length) = (token.unwrap_or_default(), body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: sandbox\r\n{token}Content-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(ANSWER).read_to_end(&mut answer).await?;
        Ok(Answer::read(&String::from_utf8_lossy(&answer)))
    }
}

impl Answer {
    fn read(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let body = body.trim().to_owned();
        Some(Self { status, body })
    }

    /// The answer as the reason of a failure.
    pub(super) fn into_reason(self) -> String {
        let Self { status, body } = self;
        format!("it answers {status}: {body}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_a_status_and_a_reason() {
        let answer =
            Answer::read("HTTP/1.1 409 Conflict\r\nA: b\r\n\r\nclaimed already\n").unwrap();
        assert_eq!(answer.status, 409);
        assert_eq!(answer.into_reason(), "it answers 409: claimed already");
        for text in ["", "HTTP/1.1 200 OK\r\n", "x\r\n\r\n", "HTTP/1.1 x\r\n\r\n"] {
            assert!(Answer::read(text).is_none(), "{text:?}");
        }
    }
}
