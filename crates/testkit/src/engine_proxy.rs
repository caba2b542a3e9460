//! A Unix socket in front of the Docker engine that can be taken away and given back.

use std::path::{Path, PathBuf};

use osb_service::Supervisor;
use tokio::net::{UnixListener, UnixStream};

/// The engine's own socket.
const ENGINE: &str = "/var/run/docker.sock";

/// Forwards to the engine until it is cut.
#[derive(Debug)]
pub struct EngineProxy {
    socket: PathBuf,
    running: Option<Supervisor>,
}

impl EngineProxy {
    /// A proxy that is not up yet, as if the engine were down.
    #[must_use]
    pub fn down(folder: &Path) -> Self {
        Self {
            socket: folder.join("docker.sock"),
            running: None,
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
    pub fn up(&mut self) -> std::io::Result<()> {
        let listener = UnixListener::bind(&self.socket)?;
        let tasks = Supervisor::new();
        let each = tasks.clone();
        tasks.spawn_abortable("engine proxy", async move {
            while let Ok((mut client, _)) = listener.accept().await {
                each.spawn_abortable("engine connection", async move {
                    if let Ok(mut engine) = UnixStream::connect(ENGINE).await {
                        // Either side may hang up; that is what is being tested.
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut engine).await;
                    }
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
    pub fn cut(&mut self) -> std::io::Result<()> {
        if let Some(tasks) = self.running.take() {
            tasks.stop();
            std::fs::remove_file(&self.socket)?;
        }
        Ok(())
    }
}
