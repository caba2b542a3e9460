//! `health`: whether the running server answers. For supervisors that have no other client, such as
//! the health check of a container.

use std::time::Duration;

use anyhow::{Context, bail};

use super::local_server;
use crate::config::Config;

/// Longest wait for the answer. `/ready` asks the engine and the store.
const WAIT: Duration = Duration::from_secs(10);
/// Characters of a bad answer that are printed.
const SHOWN: usize = 500;

/// Asks the running server whether it serves requests or, with `ready`, whether sandboxes can be
/// created.
///
/// # Errors
/// When it does not answer, or answers that it is not.
pub async fn health(config: &Config, ready: bool) -> anyhow::Result<()> {
    let path = if ready { "/ready" } else { "/health" };
    let url = format!("{}{path}", local_server::base_url(&config.server));
    let response = local_server::client(WAIT)?.get(&url).send().await;
    let response = response
        .map_err(reqwest::Error::without_url)
        .with_context(|| format!("{url} does not answer"))?;
    let status = response.status();
    if status.is_success() {
        println!("{url} answers {status}");
        return Ok(());
    }
    let answer = response.text().await.unwrap_or_default();
    let answer: String = answer.chars().take(SHOWN).collect();
    bail!("{url} answers {status}: {answer}")
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    /// Listens for one request, and answers it with this status.
    fn answer_once(status: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            assert!(stream.read(&mut head).unwrap() > 0);
            let body = "the engine is away";
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n");
            write!(stream, "{head}connection: close\r\n\r\n{body}").unwrap();
        });
        port
    }

    async fn ask(port: u16, ready: bool) -> Result<(), String> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let text = format!("[server]\nport = {port}\n[runtime]\ntype = 'sim'");
        let config: Config = toml::from_str(&text).unwrap();
        let asked = health(&config, ready).await;
        asked.map_err(|error| format!("{error:#}"))
    }

    #[tokio::test]
    async fn a_server_that_answers_otherwise_or_not_at_all_is_not_healthy() {
        assert_eq!(ask(answer_once("200 OK"), false).await, Ok(()));
        let away = ask(answer_once("503 Service Unavailable"), true).await;
        let away = away.unwrap_err();
        assert!(away.contains("/ready answers 503"), "{away}");
        assert!(away.ends_with("the engine is away"), "{away}");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let silent = ask(port, false).await.unwrap_err();
        assert!(silent.contains("/health does not answer"), "{silent}");
    }
}
