//! Simulated sandboxes whose programs the test provides.

use std::net::{IpAddr, SocketAddr};

use jiff::Timestamp;
use osb_protocol::WireTime;
use osb_runtime::{Address, Observed, Origin, Phase, Source, Status};
use osb_service::Supervisor;
use secrecy::SecretString;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// Creates a running sandbox with this address and execd token. On any address of the loopback
/// network, a test can both listen and connect as the sandbox.
#[must_use]
pub fn running_at(id: &str, ip: IpAddr, token: Option<&str>) -> Observed {
    let now = WireTime::new(Timestamp::now());
    let origin = Origin {
        token: token.map(SecretString::from),
        ..Origin::new(id, Source::Image("debian:12".into()), now)
    };
    let address = Address {
        ip: Some(ip),
        ..Address::default()
    };
    let status = Status {
        address,
        ..Status::new(Phase::Running, now)
    };
    Observed { origin, status }
}

/// A program that reads a request head from each connection, answers with fixed bytes, and closes.
#[derive(Debug)]
pub struct CannedProgram {
    /// Address it listens on.
    pub address: SocketAddr,
    tasks: Supervisor,
}

impl CannedProgram {
    /// Listens on a free port.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn start(ip: IpAddr, answer: impl Into<Vec<u8>>) -> std::io::Result<Self> {
        Self::start_at((ip, 0).into(), answer).await
    }

    /// Listens on an address.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn start_at(
        address: SocketAddr,
        answer: impl Into<Vec<u8>>,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let (address, answer) = (listener.local_addr()?, answer.into());
        let tasks = Supervisor::new();
        let each = tasks.clone();
        tasks.spawn_abortable("program", async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let answer = answer.clone();
                each.spawn_abortable("exchange", async move {
                    let mut head = Vec::new();
                    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                        match stream.read_buf(&mut head).await {
                            Ok(1..) => {}
                            Ok(0) | Err(_) => return,
                        }
                    }
                    // The server may have disconnected, which its side of the test checks.
                    let _ = stream.write_all(&answer).await;
                });
            }
        });
        Ok(Self { address, tasks })
    }
}

impl Drop for CannedProgram {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}
