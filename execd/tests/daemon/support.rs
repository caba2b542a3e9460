//! Helpers that start daemons and send requests to them.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use osb_protocol::execd::event::{Event, EventKind};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::PidfdFlags,
};
use serde_json::Value;

/// Generous deadline, which only keeps a broken daemon from hanging the run.
pub(crate) const LONG: Duration = Duration::from_secs(180);

/// A daemon process; killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    port: u16,
    headers: HeaderMap,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// Starts a daemon without an entry point.
pub(crate) fn daemon() -> Daemon {
    Daemon::start(&["--port", "0"], |_| {})
}

impl Daemon {
    /// Starts a daemon and waits until it reports its port.
    pub(crate) fn start(args: &[&str], prepare: impl FnOnce(&mut Command)) -> Self {
        // The default port is one that the kernel also gives to connections.
        assert!(args.contains(&"--port"), "a test chooses no fixed port");
        let mut command = Command::new(env!("CARGO_BIN_EXE_execd"));
        command.args(args);
        Self::launch(command, prepare)
    }

    /// Starts a daemon that may not inspect other processes, as in a container; root could
    /// otherwise.
    pub(crate) fn confined(args: &[&str], prepare: impl FnOnce(&mut Command)) -> Self {
        let program = env!("CARGO_BIN_EXE_execd");
        if !rustix::process::geteuid().is_root() {
            return Self::start(args, prepare);
        }
        // On newer kernels the second and the third also allow reading memory.
        const CAPABILITIES: &str = "-sys_ptrace,-perfmon,-sys_admin";
        let mut command = Command::new("setpriv");
        command
            .args(["--bounding-set", CAPABILITIES, "--inh-caps", CAPABILITIES])
            .arg(program)
            .args(args);
        Self::launch(command, prepare)
    }

    /// Starts a daemon without some capabilities, in the syntax of `setpriv`. Needs root.
    pub(crate) fn without_capabilities(capabilities: &str, args: &[&str]) -> Self {
        let mut command = Command::new("setpriv");
        command
            .args(["--bounding-set", capabilities, "--inh-caps", capabilities])
            .arg(env!("CARGO_BIN_EXE_execd"))
            .args(args);
        Self::launch(command, |_| {})
    }

    pub(crate) fn launch(mut command: Command, prepare: impl FnOnce(&mut Command)) -> Self {
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command
            .env_remove("EXECD_ACCESS_TOKEN")
            .env_remove("EXECD_ENVS")
            .env_remove("HOST_IP")
            .env_remove("OTEL_EXPORTER_OTLP_ENDPOINT")
            .env_remove("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT");
        prepare(&mut command);
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (sender, receiver) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                let port = serde_json::from_str::<Value>(&line).ok().and_then(|line| {
                    line["address"]
                        .as_str()?
                        .rsplit(':')
                        .next()?
                        .parse::<u16>()
                        .ok()
                });
                if let Some(port) = port {
                    // Only the first port is received.
                    let _sent = sender.try_send(port);
                }
                eprintln!("{line}");
            }
        });
        let port = receiver
            .recv_timeout(LONG)
            .expect("the daemon reports its port");
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self {
            child,
            port,
            headers: HeaderMap::new(),
            client,
        }
    }

    /// Adds a header to every request.
    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Sends a request; the body of the response is still unread.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let uri = format!("http://127.0.0.1:{}{path}", self.port);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        tokio::time::timeout(LONG, self.client.request(request))
            .await
            .unwrap()
            .unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.send(Method::GET, path, &[], "").await).await
    }

    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        Answer::of(self.send(Method::GET, path, headers, "").await).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        Answer::of(self.send(Method::DELETE, path, &[], "").await).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.send(Method::POST, path, &[], body.to_string()).await).await
    }

    /// Runs a command and returns all its events.
    pub(crate) async fn run(&self, request: Value) -> Vec<Event> {
        let answer = self.post("/command", request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.headers["content-type"], "text/event-stream");
        events(&answer.body)
    }

    /// Waits until the daemon exits.
    pub(crate) async fn wait(mut self) -> ExitStatus {
        eventually("the daemon ended", async || self.child.try_wait().unwrap()).await
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_some() {
            return;
        }
        let pid = rustix::process::Pid::from_raw(self.pid()).unwrap();
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap();
        self.signal(rustix::process::Signal::TERM);
        let limit = Timespec::try_from(LONG).unwrap();
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        if poll(&mut ended, Some(&limit)).unwrap() == 0 {
            // The test fails anyway, but must not hang.
            self.child.kill().unwrap();
        }
        self.child.wait().unwrap();
    }
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) async fn of(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let body = tokio::time::timeout(LONG, body.collect())
            .await
            .unwrap()
            .unwrap()
            .to_bytes();
        Self {
            status: head.status,
            headers: head.headers,
            body,
        }
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Parses the body, and checks that the content type is the contract's (contract: execd §2.2).
    pub(crate) fn json(&self) -> Value {
        let kind = self.headers.get("content-type");
        let kind = kind.and_then(|kind| kind.to_str().ok());
        assert_eq!(
            kind,
            Some("application/json; charset=utf-8"),
            "{}",
            self.text()
        );
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// Returns the code of an error, and checks that it has a message too.
    pub(crate) fn code(&self) -> String {
        let body = self.json();
        assert!(!body["message"].as_str().unwrap().is_empty());
        body["code"].as_str().unwrap().to_owned()
    }
}

/// Parses events as the official SDK does: bare JSON, separated by two newlines.
pub(crate) fn events(body: &[u8]) -> Vec<Event> {
    let text = std::str::from_utf8(body).unwrap();
    let frames = text.split_terminator("\n\n");
    frames
        .map(|frame| serde_json::from_str(frame).unwrap_or_else(|error| panic!("{error}: {frame}")))
        .collect()
}

/// Returns the texts of one kind of event.
pub(crate) fn texts(events: &[Event], kind: EventKind) -> Vec<&str> {
    events
        .iter()
        .filter(|event| event.kind == kind)
        .map(|event| event.text.as_str())
        .collect()
}

/// Waits for a condition that another process makes true.
pub(crate) async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a file ends in a newline, and returns its content.
pub(crate) async fn written(path: &Path) -> String {
    eventually("the file was written", async || {
        fs::read_to_string(path)
            .ok()
            .filter(|text| text.ends_with('\n'))
    })
    .await
}

/// Whether a process exists and is not a zombie.
pub(crate) fn alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// Process that outlives its daemon; killed when dropped.
pub(crate) struct KillOnDrop(pub(crate) i32);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.0).unwrap();
        let _gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
