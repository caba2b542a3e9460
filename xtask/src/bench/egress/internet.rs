//! The internet of the bench: a name server, and machines that accept connections.

use std::{
    io,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    task::JoinSet,
};

use super::{dns, namespace::Namespace};
use crate::step::notice;

/// The name server.
pub(super) const RESOLVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 53);
/// Its port.
pub(super) const DNS: u16 = 53;
/// Port on which every machine accepts connections.
pub(super) const PORT: u16 = 7000;
/// Bytes that a machine reads at once.
const CHUNK: usize = 64 << 10;

/// The services, in a thread of their own; they end when this is dropped.
pub(super) struct Internet {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Internet {
    /// Starts the services in a namespace that has their addresses.
    pub(super) fn start(namespace: &Namespace) -> Result<Self> {
        let (names, machines) = namespace.inside(|| {
            let names = UdpSocket::bind((RESOLVER, DNS)).context("the name server's port")?;
            let machines = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))
                .context("the port of the machines")?;
            Ok((names, machines))
        })?;
        names.set_nonblocking(true)?;
        machines.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let services = async move {
            tokio::select! {
                ended = serve_names(names) => ended,
                ended = serve_machines(machines) => ended,
                // Sent or dropped, it means the same.
                _ = stopped => Ok(()),
            }
        };
        let thread = thread::Builder::new()
            .name("internet".to_owned())
            .spawn(move || {
                if let Err(error) = runtime.block_on(services) {
                    notice(&format!("the internet of the bench ended: {error}"));
                }
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, was printed.
            let _ = thread.join();
        }
    }
}

async fn serve_names(socket: UdpSocket) -> io::Result<()> {
    let socket = tokio::net::UdpSocket::from_std(socket)?;
    let (mut query, mut answer) = (vec![0; dns::MESSAGE], Vec::with_capacity(dns::MESSAGE));
    loop {
        let (length, client) = socket.recv_from(&mut query).await?;
        if dns::answer(&query[..length], &mut answer) {
            // The client may be gone.
            let _ = socket.send_to(&answer, client).await;
        }
    }
}

async fn serve_machines(listener: TcpListener) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                connections.spawn(receive(stream));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Reads everything, and confirms it with one byte.
async fn receive(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    while stream.read(&mut buffer).await? > 0 {}
    stream.write_all(b".").await
}
