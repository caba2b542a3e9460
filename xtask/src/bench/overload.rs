//! A keyed request while clients without a key hold everything they can: idle connections, login
//! bodies that never end, HTTP/2 streams that never end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{Options, report::Report, stats::Samples, subject::Subject};
use crate::repo::Repo;

/// Connections that send nothing.
const IDLE: usize = 5_000;
/// Requests to log in whose bodies do not arrive.
const LOGINS: usize = 1_030;
/// HTTP/2 connections, and streams on each whose bodies do not arrive.
const HTTP2: (usize, u32) = (6, 190);
/// File descriptors that this needs beside those of the flood.
const SPARE: u64 = 512;
/// Pause between two measured requests.
const PAUSE: Duration = Duration::from_millis(20);

/// Measures requests before and during the flood.
pub(super) async fn measure(repo: &Repo, options: &Options, report: &mut Report) -> Result<()> {
    raise_limit()?;
    let subject = Subject::start(repo, "bench-overload", "sim")?;
    let measured = async {
        let quiet = requests(&subject, options).await?;
        report.outcomes("keyed request", &quiet.0, quiet.1);
        let flood = Flood::start(subject.client().address()).await?;
        let crowded = requests(&subject, options).await?;
        let name = format!(
            "keyed request, {} connections without a key",
            flood.connections()
        );
        report.outcomes(&name, &crowded.0, crowded.1);
        drop(flood);
        Ok(())
    };
    let measured = measured.await;
    subject.stop().and(measured)
}

/// The server inherits this limit, too.
fn raise_limit() -> Result<()> {
    let needed = (IDLE + LOGINS + HTTP2.0) as u64 + SPARE;
    let limit = getrlimit(Resource::Nofile);
    ensure!(
        limit.maximum.is_none_or(|most| most >= needed),
        "needs {needed} file descriptors: raise the hard limit (ulimit -Hn)"
    );
    if limit.current.is_some_and(|now| now < needed) {
        let raised = Rlimit {
            current: Some(needed),
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, raised).context("cannot raise the limit of open files")?;
    }
    Ok(())
}

/// Durations of requests over new connections, and how many were not answered with 200.
async fn requests(subject: &Subject, options: &Options) -> Result<(Samples, usize)> {
    let mut samples = Samples::default();
    let mut refused = 0;
    let end = Instant::now() + Duration::from_secs(options.seconds);
    while Instant::now() < end {
        let start = Instant::now();
        let answer = async {
            let mut connection = subject.client().connect().await?;
            connection.send("GET", "/v1/sandboxes", None).await
        };
        match answer.await {
            Ok(reply) if reply.status == 200 => samples.add(start.elapsed()),
            Ok(_) | Err(_) => refused += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok((samples, refused))
}

/// Connections that are held until this is dropped.
struct Flood(Vec<TcpStream>);

impl Flood {
    async fn start(address: &str) -> Result<Self> {
        let mut held = Vec::with_capacity(IDLE + LOGINS + HTTP2.0);
        for _ in 0..IDLE {
            held.push(TcpStream::connect(address).await?);
        }
        let login = format!(
            "POST /console/login HTTP/1.1\r\nHost: {address}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nk="
        );
        for _ in 0..LOGINS {
            held.push(sent(address, login.as_bytes()).await?);
        }
        for _ in 0..HTTP2.0 {
            held.push(sent(address, &unfinished_streams(address, HTTP2.1)).await?);
        }
        Ok(Self(held))
    }

    fn connections(&self) -> usize {
        self.0.len()
    }
}

async fn sent(address: &str, bytes: &[u8]) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    // A server that refuses right away closes the connection.
    let _ = stream.write_all(bytes).await;
    let mut start = [0; 1];
    // Reads what the server says at once, if anything: HTTP/2 servers send their settings.
    let answer = stream.read(&mut start);
    let _ = tokio::time::timeout(Duration::from_millis(1), answer).await;
    Ok(stream)
}

/// An HTTP/2 connection with prior knowledge whose streams send headers and no body (RFC 9113 §3.4,
/// §4.1, §6.2; header fields without compression by RFC 7541 §6.2.2).
fn unfinished_streams(authority: &str, streams: u32) -> Vec<u8> {
    const SETTINGS: u8 = 0x4;
    const HEADERS: u8 = 0x1;
    const END_HEADERS: u8 = 0x4;
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut bytes, SETTINGS, 0, 0, &[]);
    let mut headers = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/console/login"),
        (":authority", authority),
        ("content-type", "application/x-www-form-urlencoded"),
    ] {
        headers.push(0);
        for text in [name, value] {
            // Below 127 a length is one byte.
            headers.push(u8::try_from(text.len()).unwrap_or_default());
            headers.extend(text.as_bytes());
        }
    }
    for stream in 0..streams {
        frame(&mut bytes, HEADERS, END_HEADERS, stream * 2 + 1, &headers);
    }
    bytes
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len())
        .unwrap_or_default()
        .to_be_bytes();
    bytes.extend(&length[1..]);
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
}
