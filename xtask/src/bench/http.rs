//! A persistent HTTP/1.1 connection: a minimal client, so that measurements are of the server.

use std::{convert::Infallible, path::Path};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    task::JoinSet,
};

/// Body of a request.
pub(super) type Body = BoxBody<Bytes, Infallible>;

/// A connection; closed when dropped.
pub(super) struct Connection {
    sender: SendRequest<Body>,
    headers: Vec<(String, String)>,
    _driver: JoinSet<()>,
}

/// A complete reply.
pub(super) struct Reply {
    /// Status code.
    pub(super) status: u16,
    /// Body.
    pub(super) body: Bytes,
}

impl Connection {
    /// Connects to `host:port`.
    pub(super) async fn tcp(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        Self::of(stream, address).await
    }

    /// Uses an open connection to `host`.
    pub(super) async fn of(stream: TcpStream, host: &str) -> Result<Self> {
        stream.set_nodelay(true)?;
        Self::over(stream, host).await
    }

    /// Connects to a Unix socket.
    pub(super) async fn unix(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path)
            .await
            .with_context(|| format!("cannot connect to {}", path.display()))?;
        Self::over(stream, "engine").await
    }

    async fn over<S>(stream: S, host: &str) -> Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // A broken connection fails the request that uses it.
            let _ = connection.await;
        });
        let headers = vec![("host".to_owned(), host.to_owned())];
        Ok(Self {
            sender,
            headers,
            _driver: driver,
        })
    }

    /// Adds a header to every request.
    #[must_use]
    pub(super) fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends a request and reads the reply.
    pub(super) async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply> {
        let (kind, content) = match body {
            Some(body) => (Some("application/json"), serde_json::to_vec(body)?),
            None => (None, Vec::new()),
        };
        let content = Full::from(content).boxed();
        let reply = self.open(method, path, kind, content).await?;
        let status = reply.status().as_u16();
        let body = reply.into_body().collect().await?.to_bytes();
        Ok(Reply { status, body })
    }

    /// Sends a request and returns the reply with its body still unread.
    pub(super) async fn open(
        &mut self,
        method: &str,
        path: &str,
        content_type: Option<&str>,
        body: Body,
    ) -> Result<Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(kind) = content_type {
            request = request.header("content-type", kind);
        }
        self.sender.ready().await?;
        Ok(self.sender.send_request(request.body(body)?).await?)
    }

    /// Sends a request and fails unless it succeeds.
    pub(super) async fn call(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply> {
        let reply = self.send(method, path, body).await?;
        if reply.status >= 300 {
            let text = String::from_utf8_lossy(&reply.body);
            bail!("{method} {path} answered {}: {text}", reply.status);
        }
        Ok(reply)
    }
}

impl Reply {
    /// Parses the body as JSON.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body).context("unexpected reply")
    }
}
