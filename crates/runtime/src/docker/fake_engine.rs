//! An engine with scripted responses, for situations that a real one does not produce on request.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bollard::{API_DEFAULT_VERSION, Docker};
use osb_service::Supervisor;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use super::{DockerConfig, DockerRuntime, LogLimit, NetworkMode, StorageConfig};

/// Seconds after which a call fails as unanswered.
const TIMEOUT: u64 = 60;

/// Status of a response that succeeds and is cut off before its body.
pub(super) const CUT: u16 = 0;
/// Status of a response that succeeds and ends [`FakeEngine::HELD`] after its body was sent.
pub(super) const HOLD: u16 = 1;
/// Status of a response that never comes.
pub(super) const HANG: u16 = 2;
/// Status of a response that succeeds and whose body never ends.
pub(super) const STALL: u16 = 3;
/// Status of a response that succeeds and leaves the connection open, but unread.
pub(super) const HALF_OPEN: u16 = 4;

/// Responds to a request with this body.
type Respond = dyn Fn(&str, &[u8]) -> (u16, String) + Send + Sync;

/// Requests to a [`FakeEngine`].
#[derive(Debug, Default)]
struct Record {
    requests: Mutex<Vec<String>>,
    /// Head and body of each request, in lower case up to the body.
    whole: Mutex<Vec<(String, String, Vec<u8>)>>,
    /// Requests without a complete response, now and at most.
    open: Mutex<(usize, usize)>,
}

/// Responds over HTTP and records the requests.
#[derive(Debug)]
pub(super) struct FakeEngine {
    address: String,
    record: Arc<Record>,
    tasks: Supervisor,
}

impl FakeEngine {
    /// Duration of a held response.
    pub(super) const HELD: Duration = Duration::from_millis(400);

    /// Starts an engine. `respond` takes the method and the path with its query, without the API
    /// version, and returns a status and a body.
    pub(super) async fn start(
        respond: impl Fn(&str) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        Self::start_reading(move |request, _| respond(request)).await
    }

    /// Starts an engine whose responses depend on the bodies of requests as well.
    pub(super) async fn start_reading(
        respond: impl Fn(&str, &[u8]) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap());
        let (record, respond) = (Arc::<Record>::default(), Arc::new(respond));
        let (tasks, shared) = (Supervisor::new(), Arc::clone(&record));
        let each = tasks.clone();
        tasks.spawn_abortable("fake engine", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (respond, record) = (Arc::clone(&respond), Arc::clone(&shared));
                each.spawn_abortable("fake engine's connection", async move {
                    // Clients may close the connection before the response.
                    let _ = serve(stream, &*respond, &record).await;
                });
            }
        });
        Self {
            address,
            record,
            tasks,
        }
    }

    /// Stops the engine. Nothing listens at its address afterwards.
    pub(super) async fn stop(&self) {
        self.tasks.drain(Duration::from_secs(TIMEOUT)).await;
    }

    /// Responds like an engine with every image and empty volumes, on which every call succeeds.
    pub(super) fn with_volumes(request: &str) -> (u16, String) {
        let (method, path) = request.split_once(' ').unwrap();
        let body = match (method, path.split('/').nth(1)) {
            // The file does not exist yet.
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

    /// Connects a client.
    pub(super) fn docker(&self) -> Docker {
        Docker::connect_with_http(&self.address, TIMEOUT, API_DEFAULT_VERSION).unwrap()
    }

    /// Creates a back end on this engine, as installation `us`.
    pub(super) fn runtime(&self) -> DockerRuntime {
        self.runtime_with(config())
    }

    /// Creates a back end with other settings.
    pub(super) fn runtime_with(&self, config: DockerConfig) -> DockerRuntime {
        let docker = self.docker();
        let mut runtime = DockerRuntime::over(config, move || Ok(docker.clone())).unwrap();
        runtime.ports.trust_fixed();
        runtime
    }

    /// Returns the requests so far that begin with `start`.
    pub(super) fn requests(&self, start: &str) -> Vec<String> {
        let all = self.record.requests.lock().unwrap();
        let matching = all.iter().filter(|request| request.starts_with(start));
        matching.cloned().collect()
    }

    /// Returns the heads of the requests so far that begin with `start`, in lower case.
    pub(super) fn heads(&self, start: &str) -> Vec<String> {
        let all = self.record.whole.lock().unwrap();
        let matching = all.iter().filter(|whole| whole.0.starts_with(start));
        matching.map(|whole| whole.1.clone()).collect()
    }

    /// Returns the JSON bodies of the requests so far that begin with `start`.
    pub(super) fn bodies(&self, start: &str) -> Vec<Value> {
        let all = self.record.whole.lock().unwrap();
        let matching = all.iter().filter(|whole| whole.0.starts_with(start));
        matching
            .map(|whole| serde_json::from_slice(&whole.2).unwrap())
            .collect()
    }

    /// Returns how many requests were open at the same time at most.
    pub(super) fn most_open(&self) -> usize {
        self.record.open.lock().unwrap().1
    }
}

/// Volumes of an engine, with their labels.
#[derive(Debug, Default)]
pub(super) struct FakeVolumes(Mutex<BTreeMap<String, Value>>);

impl FakeVolumes {
    /// Adds a volume.
    pub(super) fn add(&self, name: &str, labels: Value) {
        self.0.lock().unwrap().insert(name.to_owned(), labels);
    }

    /// Returns the names of all volumes.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }

    /// Responds to a request about volumes. `None` for any other request. A list is of volumes with a
    /// label.
    pub(super) fn respond(&self, request: &str, body: &[u8]) -> Option<(u16, String)> {
        let (method, path) = request.split_once(' ')?;
        let path = path.split('?').next()?;
        let name = path.strip_prefix("/volumes")?.trim_start_matches('/');
        let mut volumes = self.0.lock().unwrap();
        let missing = || (404, json!({"message": "no such volume"}).to_string());
        let shown = |name: &str, labels: &Value| {
            json!({
                "Name": name, "Driver": "local", "Mountpoint": "/v", "Scope": "local",
                "Labels": labels, "Options": {},
            })
        };
        Some(match (method, name) {
            ("POST", _) => {
                let body: Value = serde_json::from_slice(body).unwrap();
                let name = body["Name"].as_str().unwrap();
                // An existing volume stays as it is.
                let labels = volumes.entry(name.to_owned());
                let labels = labels.or_insert_with(|| body["Labels"].clone());
                (201, shown(name, labels).to_string())
            }
            ("GET", "") => {
                let is_wanted = |labels: &Value| {
                    let mut keys = labels.as_object().into_iter().flatten();
                    keys.any(|(key, _)| request.contains(&key.replace('/', "%2F")))
                };
                let all = volumes.iter().filter(|(_, labels)| is_wanted(labels));
                let all = all.map(|(name, labels)| shown(name, labels));
                (200, json!({"Volumes": all.collect::<Vec<_>>()}).to_string())
            }
            ("GET", _) => match volumes.get(name) {
                Some(labels) => (200, shown(name, labels).to_string()),
                None => missing(),
            },
            _ => match volumes.remove(name) {
                Some(_) => (204, String::new()),
                None => missing(),
            },
        })
    }
}

/// A request without a complete response.
struct Open<'a>(&'a Record);

impl<'a> Open<'a> {
    fn count(record: &'a Record) -> Self {
        let mut open = record.open.lock().unwrap();
        open.0 += 1;
        open.1 = open.1.max(open.0);
        Self(record)
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
        // Any file will do: the fake engine does not run it.
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
        egress: None,
        storage: StorageConfig::default(),
        take_over: true,
        secure_runtime: None,
    }
}

async fn serve(stream: TcpStream, respond: &Respond, record: &Record) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut request_line = String::new();
    stream.read_line(&mut request_line).await?;
    let mut length = 0;
    let mut head = request_line.to_ascii_lowercase();
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await?;
        let header = header.trim().to_ascii_lowercase();
        head.push_str(&header);
        head.push('\n');
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        assert_ne!(
            header, "transfer-encoding: chunked",
            "not supported by the fake engine"
        );
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let mut words = request_line.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    // The version is an optional prefix.
    let versionless = target
        .strip_prefix("/v1.")
        .and_then(|rest| rest.find('/').map(|at| &rest[at..]));
    let path = versionless.unwrap_or(target);
    let request = format!("{method} {path}");
    let _open = Open::count(record);
    let (status, response) = respond(&request, &body);
    let whole = (request.clone(), head, body);
    record.whole.lock().unwrap().push(whole);
    let body = response;
    record.requests.lock().unwrap().push(request);
    if status == CUT {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        return stream.write_all(head.as_bytes()).await;
    }
    if status == HANG {
        return std::future::pending().await;
    }
    if status == HALF_OPEN {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        return std::future::pending().await;
    }
    if status == HOLD || status == STALL {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        // An engine sends each event as a chunk of its own.
        for line in body.split_inclusive('\n') {
            let chunk = format!("{:x}\r\n{line}\r\n", line.len());
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
        "HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body.as_bytes()[..length]).await?;
    stream.shutdown().await
}
