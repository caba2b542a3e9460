//! A Unix socket in front of the Docker engine that can be taken away and given back.

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
/// Most bytes that are forwarded at once.
const PIECE: usize = 16 << 10;

/// Forwards to the engine until it is cut.
#[derive(Debug)]
pub struct EngineProxy {
    socket: PathBuf,
    running: Option<Supervisor>,
    gate: watch::Sender<Gate>,
}

/// Which connections carry bytes. Connections are numbered in their order.
#[derive(Clone, Copy, Debug, Default)]
struct Gate {
    /// None does.
    is_shut: bool,
    /// Those before this one never do again.
    first_alive: u64,
    /// The number of the next one.
    next: u64,
}

impl Gate {
    fn passes(self, connection: u64) -> bool {
        !self.is_shut && connection >= self.first_alive
    }
}

impl EngineProxy {
    /// A proxy that is not up yet, as if the engine were down.
    #[must_use]
    pub fn down(folder: &Path) -> Self {
        Self {
            socket: folder.join("docker.sock"),
            running: None,
            gate: watch::Sender::default(),
        }
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// The engine answers from now on.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn up(&mut self) -> io::Result<()> {
        let listener = UnixListener::bind(&self.socket)?;
        let tasks = Supervisor::new();
        let each = tasks.clone();
        let gate = self.gate.clone();
        tasks.spawn_abortable("engine proxy", async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut number = 0;
                gate.send_modify(|gate| {
                    number = gate.next;
                    gate.next += 1;
                });
                let gate = gate.subscribe();
                each.spawn_abortable("engine connection", async move {
                    // Either side may hang up; that is what is being tested.
                    let _ = forward(client, number, gate).await;
                });
            }
        });
        self.running = Some(tasks);
        Ok(())
    }

    /// The engine is gone: connections break, new ones are refused.
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

    /// The engine hangs: connections stay and new ones are accepted, but no byte comes or goes.
    pub fn hang(&self) {
        self.gate.send_modify(|gate| gate.is_shut = true);
    }

    /// The engine goes on where it hung.
    pub fn go_on(&self) {
        self.gate.send_modify(|gate| gate.is_shut = false);
    }

    /// Connections that are open now are dead without an end; new ones work.
    pub fn forget_connections(&self) {
        self.gate.send_modify(|gate| gate.first_alive = gate.next);
    }
}

async fn forward(
    mut client: UnixStream,
    number: u64,
    gate: watch::Receiver<Gate>,
) -> io::Result<()> {
    let mut engine = UnixStream::connect(ENGINE).await?;
    let (from_client, to_client) = client.split();
    let (from_engine, to_engine) = engine.split();
    let other = gate.clone();
    tokio::select! {
        done = pump(from_client, to_engine, number, gate) => done,
        done = pump(from_engine, to_client, number, other) => done,
    }
}

/// Forwards one direction to its end, while the connection passes the gate.
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
