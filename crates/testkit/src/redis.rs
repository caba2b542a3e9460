//! A Redis server of its own for a test.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, ensure};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::wait_until;

/// Program of the server.
const PROGRAM: &str = "redis-server";
/// Its password: addresses of Redis often have one.
const PASSWORD: &str = "test-password";

/// A running Redis, which keeps everything in memory. It ends when this is dropped.
#[derive(Debug)]
pub struct RedisServer {
    address: SocketAddr,
    server: Child,
}

impl RedisServer {
    /// Starts a server on a free port. `None`, and a note, if Redis is not installed.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn start() -> anyhow::Result<Option<Self>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        drop(listener);
        match launch(address) {
            Ok(server) => Ok(Some(Self { address, server })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("SKIPPED: Redis is not tested, {PROGRAM} is not installed");
                Ok(None)
            }
            Err(error) => Err(error).context("cannot run redis-server"),
        }
    }

    /// Its address for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://:{PASSWORD}@{}/0", self.address)
    }

    /// Pushes an element to a list, once the server answers.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn push(&self, key: &str, element: &str) -> anyhow::Result<()> {
        let connect = async || TcpStream::connect(self.address).await.ok();
        let connected = wait_until("redis listens", connect, Option::is_some).await;
        let mut stream = connected.context("redis listens")?;
        let commands = [&["AUTH", PASSWORD][..], &["LPUSH", key, element], &["QUIT"]];
        let text: String = commands.iter().map(|words| command(words)).collect();
        stream.write_all(text.as_bytes()).await?;
        let mut answers = String::new();
        stream.read_to_string(&mut answers).await?;
        ensure!(!answers.contains('-'), "redis refused: {answers}");
        Ok(())
    }

    /// Ends the server, which forgets everything, and starts it again.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.server.kill()?;
        self.server.wait()?;
        self.server = launch(self.address)?;
        Ok(())
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn launch(address: SocketAddr) -> std::io::Result<Child> {
    Command::new(PROGRAM)
        .args(["--bind", &address.ip().to_string()])
        .args(["--port", &address.port().to_string()])
        .args(["--requirepass", PASSWORD])
        .args(["--save", "", "--appendonly", "no"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// A command in the protocol of Redis.
fn command(words: &[&str]) -> String {
    let words_text = words
        .iter()
        .map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let start = format!("*{}\r\n", words.len());
    std::iter::once(start).chain(words_text).collect()
}
