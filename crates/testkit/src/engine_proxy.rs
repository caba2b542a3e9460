//! A Unix socket in front of the Docker engine that tests can cut, hang and restore.

use std::{
    io,
    path::{Path, PathBuf},
};

use osb_service::Supervisor;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::watch,
};

/// The engine's own socket.
const ENGINE: &str = "/var/run/docker.sock";
/// Size of the forwarding buffer, in bytes.
const PIECE: usize = 16 << 10;

/// A proxy that forwards to the engine until it is cut.
#[derive(Debug)]
pub struct EngineProxy {
    socket: PathBuf,
    engine: PathBuf,
    running: Option<Supervisor>,
    gate: watch::Sender<Gate>,
}

/// Decides which connections carry bytes. Connections are numbered in order.
#[derive(Clone, Copy, Debug, Default)]
struct Gate {
    /// No connection carries bytes.
    is_shut: bool,
    /// Connections before this number never carry bytes again.
    first_alive: u64,
    /// Number of the next connection.
    next: u64,
}

impl Gate {
    fn passes(self, connection: u64) -> bool {
        !self.is_shut && connection >= self.first_alive
    }
}

impl EngineProxy {
    /// Creates a proxy that does not listen yet, as if the engine were down.
    #[must_use]
    pub fn down(folder: &Path) -> Self {
        Self::to(ENGINE.into(), folder)
    }

    /// Creates a proxy for the engine at a socket. It does not listen yet.
    #[must_use]
    pub fn to(engine: PathBuf, folder: &Path) -> Self {
        Self {
            engine,
            socket: folder.join("docker.sock"),
            running: None,
            gate: watch::Sender::default(),
        }
    }

    /// Address for clients, as a `unix://` URL.
    #[must_use]
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Starts to listen and forward.
    ///
    /// # Errors
    /// When the socket cannot be created.
    pub fn up(&mut self) -> io::Result<()> {
        let listener = UnixListener::bind(&self.socket)?;
        let tasks = Supervisor::new();
        let each = tasks.clone();
        let (gate, engine) = (self.gate.clone(), self.engine.clone());
        tasks.spawn_abortable("engine proxy", async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut number = 0;
                gate.send_modify(|gate| {
                    number = gate.next;
                    gate.next += 1;
                });
                let (gate, engine) = (gate.subscribe(), engine.clone());
                each.spawn_abortable("engine connection", async move {
                    // Either side may disconnect, which is what tests provoke.
                    let _ = forward(client, &engine, number, gate).await;
                });
            }
        });
        self.running = Some(tasks);
        Ok(())
    }

    /// Breaks all connections and refuses new ones, as if the engine were gone.
    ///
    /// # Errors
    /// When the socket cannot be removed.
    pub fn cut(&mut self) -> io::Result<()> {
        if let Some(tasks) = self.running.take() {
            tasks.stop();
            std::fs::remove_file(&self.socket)?;
        }
        Ok(())
    }

    /// Stops all bytes but keeps connections and accepts new ones, as if the engine hung.
    pub fn hang(&self) {
        self.gate.send_modify(|gate| gate.is_shut = true);
    }

    /// Resumes after [`hang`](Self::hang).
    pub fn go_on(&self) {
        self.gate.send_modify(|gate| gate.is_shut = false);
    }

    /// Stops all bytes on the open connections for good without closing them; new ones work.
    pub fn forget_connections(&self) {
        self.gate.send_modify(|gate| gate.first_alive = gate.next);
    }
}

async fn forward(
    mut client: UnixStream,
    engine: &Path,
    number: u64,
    gate: watch::Receiver<Gate>,
) -> io::Result<()> {
    let mut engine = UnixStream::connect(engine).await?;
    let (from_client, to_client) = client.split();
    let (from_engine, to_engine) = engine.split();
    let other = gate.clone();
    tokio::select! {
        done = pump(from_client, to_engine, number, gate) => done,
        done = pump(from_engine, to_client, number, other) => done,
    }
}

/// Forwards one direction until its end, while the gate lets the connection pass.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    number: u64,
    mut gate: watch::Receiver<Gate>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let length = from.read(&mut piece).await?;
        if gate.wait_for(|gate| gate.passes(number)).await.is_err() || length == 0 {
            return Ok(());
        }
        to.write_all(&piece[..length]).await?;
    }
}
