//! A receiver of webhooks that keeps every message and answers as a test wants.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use osb_service::Supervisor;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    sync::watch,
};
use tokio_rustls::TlsAcceptor;

/// The answer of a receiver that accepts.
const ACCEPTED: &str = "204 No Content";

/// A message as it arrived.
#[derive(Clone, Debug)]
pub struct ReceivedWebhook {
    /// Path and query.
    pub path: String,
    /// Headers by lower-case name.
    pub headers: HashMap<String, String>,
    /// The body, byte for byte.
    pub body: String,
}

impl ReceivedWebhook {
    /// Reads the body; null if it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// Returns the type of the event.
    #[must_use]
    pub fn kind(&self) -> String {
        self.json()["type"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns a header; empty without it.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

#[derive(Debug, Default)]
struct State {
    received: Vec<ReceivedWebhook>,
    /// Status lines, and headers, of the next answers.
    next: VecDeque<String>,
    /// Those of all others; `None` for no answer at all.
    always: Option<String>,
}

/// A receiver on a port of loopback. It ends with the runtime that it was started in, or when it is
/// dropped.
#[derive(Debug)]
pub struct WebhookReceiver {
    /// Address that it listens on.
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// Whether answers are held back.
    is_held: watch::Sender<bool>,
    tasks: Supervisor,
}

impl WebhookReceiver {
    /// Starts a receiver that accepts everything.
    ///
    /// # Errors
    /// When there is no port.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(None).await
    }

    /// Starts a receiver behind HTTPS, with a certificate and its key in PEM.
    ///
    /// # Errors
    /// When there is no port, or the certificate cannot be used.
    pub async fn start_tls(certificate: &str, key: &str) -> io::Result<Self> {
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
        let chain = chain.map_err(io::Error::other)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(io::Error::other)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
        let config = config.map_err(io::Error::other)?;
        Self::start_with(Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn start_with(tls: Option<TlsAcceptor>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let receiver = Self {
            address: listener.local_addr()?,
            state: Arc::default(),
            is_held: watch::Sender::new(false),
            tasks: Supervisor::new(),
        };
        receiver.answer_always(ACCEPTED);
        let (state, tasks) = (Arc::clone(&receiver.state), receiver.tasks.clone());
        let is_held = receiver.is_held.clone();
        receiver.tasks.spawn_abortable("receiver", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, tls, held) = (Arc::clone(&state), tls.clone(), is_held.subscribe());
                tasks.spawn_abortable("receiver connection", async {
                    // A client that disconnects, or wants another certificate, is no failure of the
                    // receiver.
                    let _ = match tls {
                        None => serve(stream, state, held).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, state, held).await,
                            Err(error) => Err(error),
                        },
                    };
                });
            }
        });
        Ok(receiver)
    }

    /// Returns its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Answers the next messages with these status lines, and headers after a line break.
    pub fn answer_next<'a>(&self, answers: impl IntoIterator<Item = &'a str>) {
        let answers = answers.into_iter().map(str::to_owned);
        locked(&self.state).next.extend(answers);
    }

    /// Answers all other messages with this status line.
    pub fn answer_always(&self, answer: &str) {
        locked(&self.state).always = Some(answer.to_owned());
    }

    /// Holds the answers back, or no longer.
    pub fn hold(&self, is_held: bool) {
        self.is_held.send_replace(is_held);
    }

    /// Answers nothing from now on.
    pub fn be_silent(&self) {
        locked(&self.state).always = None;
    }

    /// Returns what has arrived so far.
    #[must_use]
    pub fn received(&self) -> Vec<ReceivedWebhook> {
        locked(&self.state).received.clone()
    }

    /// Returns the types of the events that have arrived so far.
    #[must_use]
    pub fn kinds(&self) -> Vec<String> {
        let received = self.received();
        received.iter().map(ReceivedWebhook::kind).collect()
    }
}

impl Drop for WebhookReceiver {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    state: Arc<Mutex<State>>,
    mut held: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut read = Vec::new();
    while let Some(message) = next(&mut stream, &mut read).await? {
        let answer = {
            let mut state = locked(&state);
            state.received.push(message);
            state.next.pop_front().or_else(|| state.always.clone())
        };
        let Some(answer) = answer else {
            return std::future::pending().await;
        };
        // The receiver ends with its sender, and then no one waits for the answer.
        let _ = held.wait_for(|is_held| !is_held).await;
        let length = if answer.starts_with("204") {
            ""
        } else {
            "content-length: 0\r\n"
        };
        let answer = format!("HTTP/1.1 {answer}\r\n{length}\r\n");
        stream.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

async fn next(
    stream: &mut (impl AsyncRead + Unpin),
    read: &mut Vec<u8>,
) -> io::Result<Option<ReceivedWebhook>> {
    let end = loop {
        if let Some(at) = read.windows(4).position(|end| end == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(read).await? == 0 {
            return Ok(None);
        }
    };
    let head: Vec<u8> = read.drain(..end).collect();
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1));
    let path = path.unwrap_or_default().to_owned();
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers: HashMap<_, _> = headers
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length");
    let length: usize = length.and_then(|it| it.parse().ok()).unwrap_or(0);
    while read.len() < length {
        if stream.read_buf(read).await? == 0 {
            return Ok(None);
        }
    }
    let body: Vec<u8> = read.drain(..length).collect();
    Ok(Some(ReceivedWebhook {
        path,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    }))
}
