//! An engine that answers what a test wants: for moments that a real one does not show on request.

use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bollard::{API_DEFAULT_VERSION, Docker};
use osb_service::Supervisor;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use super::{DockerConfig, DockerRuntime, LogLimit, NetworkMode};

/// Seconds after which a call counts as hanging.
const TIMEOUT: u64 = 60;

/// Status of an answer that succeeds and breaks off before its body.
pub(super) const CUT: u16 = 0;

/// Status of an answer that succeeds, and ends [`FakeEngine::HELD`] after its body was sent.
pub(super) const HOLD: u16 = 1;
/// Status of an answer that never comes.
pub(super) const HANG: u16 = 2;
/// Status of an answer that succeeds and whose body never ends.
pub(super) const STALL: u16 = 3;
/// Status of an answer that succeeds and leaves the connection open, but unread.
pub(super) const HALF_OPEN: u16 = 4;

#[derive(Debug, Default)]
struct Seen {
    requests: Mutex<Vec<String>>,
    /// Requests without a complete answer, now and at most.
    open: Mutex<(usize, usize)>,
}

/// Answers over HTTP and remembers what it was asked.
#[derive(Debug)]
pub(super) struct FakeEngine {
    address: String,
    seen: Arc<Seen>,
    tasks: Supervisor,
}

impl FakeEngine {
    /// How long a held answer takes.
    pub(super) const HELD: Duration = Duration::from_millis(400);

    /// `answer` gets method and path with query, without the API version, and gives status and
    /// body.
    pub(super) async fn start(
        answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap());
        let (seen, answer) = (Arc::<Seen>::default(), Arc::new(answer));
        let (tasks, shared) = (Supervisor::new(), Arc::clone(&seen));
        let each = tasks.clone();
        tasks.spawn_abortable("fake engine", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&shared));
                each.spawn_abortable("fake engine's connection", async move {
                    // A client that hangs up has what it wanted.
                    let _ = serve(stream, &*answer, &seen).await;
                });
            }
        });
        Self {
            address,
            seen,
            tasks,
        }
    }

    /// Ends it: nothing listens at its address any more.
    pub(super) async fn stop(&self) {
        self.tasks.drain(Duration::from_secs(TIMEOUT)).await;
    }

    /// Answers of an engine with every image and empty volumes, on which every call succeeds.
    pub(super) fn with_volumes(request: &str) -> (u16, String) {
        let (method, path) = request.split_once(' ').unwrap();
        let body = match (method, path.split('/').nth(1)) {
            // The file is not there yet.
            ("HEAD", _) => return (404, String::new()),
            ("DELETE", _) => return (204, String::new()),
            ("POST", Some("volumes")) => json!({
                "Name": "v", "Driver": "local", "Mountpoint": "/v", "Scope": "local",
                "Labels": {}, "Options": {},
            }),
            ("POST", Some("containers")) => json!({"Id": "c", "Warnings": []}),
            _ => json!({}),
        };
        (200, body.to_string())
    }

    /// A client of this engine.
    pub(super) fn docker(&self) -> Docker {
        Docker::connect_with_http(&self.address, TIMEOUT, API_DEFAULT_VERSION).unwrap()
    }

    /// The back end over this engine, as installation `us`.
    pub(super) fn runtime(&self) -> DockerRuntime {
        self.runtime_with(config())
    }

    /// The same with other settings.
    pub(super) fn runtime_with(&self, config: DockerConfig) -> DockerRuntime {
        let docker = self.docker();
        DockerRuntime::over(config, move || Ok(docker.clone())).unwrap()
    }

    /// What was asked so far that begins with `start`.
    pub(super) fn asked(&self, start: &str) -> Vec<String> {
        let all = self.seen.requests.lock().unwrap();
        let matching = all.iter().filter(|request| request.starts_with(start));
        matching.cloned().collect()
    }

    /// The most requests that were open at the same time.
    pub(super) fn most_open(&self) -> usize {
        self.seen.open.lock().unwrap().1
    }
}

/// A request without a complete answer.
struct Open<'a>(&'a Seen);

impl<'a> Open<'a> {
    fn count(seen: &'a Seen) -> Self {
        let mut open = seen.open.lock().unwrap();
        open.0 += 1;
        open.1 = open.1.max(open.0);
        Self(seen)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.lock().unwrap().0 -= 1;
    }
}

/// Settings of installation `us`.
pub(super) fn config() -> DockerConfig {
    DockerConfig {
        instance: "us".to_owned(),
        // Any file will do: nothing is run.
        execd: concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into(),
        network: NetworkMode::Host,
        has_route: true,
        api_timeout: Duration::from_secs(TIMEOUT),
        drop_capabilities: Vec::new(),
        apparmor_profile: None,
        seccomp_profile: None,
        no_new_privileges: true,
        log_limit: Some(LogLimit {
            max_size: "10m".to_owned(),
            max_files: 2,
        }),
        pids_limit: 256,
        port_min: 40000,
        port_max: 60000,
        publish_host: Ipv4Addr::LOCALHOST,
        sandbox_env: [].into(),
        sandbox_binds: Vec::new(),
        sidecars: Vec::new(),
        oci_runtime: None,
    }
}

async fn serve(
    stream: TcpStream,
    answer: &(dyn Fn(&str) -> (u16, String) + Send + Sync),
    seen: &Seen,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut first = String::new();
    stream.read_line(&mut first).await?;
    let mut length = 0;
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        assert_ne!(header, "transfer-encoding: chunked", "not understood here");
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    // The version may come first.
    let versionless = target
        .strip_prefix("/v1.")
        .and_then(|rest| rest.find('/').map(|at| &rest[at..]));
    let path = versionless.unwrap_or(target);
    let request = format!("{method} {path}");
    let _open = Open::count(seen);
    let (status, body) = answer(&request);
    seen.requests.lock().unwrap().push(request);
    if status == CUT {
        let head = "HTTP/1.1 200 As asked\r\nTransfer-Encoding: chunked\r\n\r\n";
        return stream.write_all(head.as_bytes()).await;
    }
    if status == HANG {
        return std::future::pending().await;
    }
    if status == HALF_OPEN {
        let head = format!(
            "HTTP/1.1 200 As asked\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        return std::future::pending().await;
    }
    if status == HOLD || status == STALL {
        let head = "HTTP/1.1 200 As asked\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        if !body.is_empty() {
            let chunk = format!("{:x}\r\n{body}\r\n", body.len());
            stream.write_all(chunk.as_bytes()).await?;
        }
        if status == STALL {
            return std::future::pending().await;
        }
        tokio::time::sleep(FakeEngine::HELD).await;
        return stream.write_all(b"0\r\n\r\n").await;
    }
    let length = if method == "HEAD" { 0 } else { body.len() };
    let head = format!(
        "HTTP/1.1 {status} As asked\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body.as_bytes()[..length]).await?;
    stream.shutdown().await
}
