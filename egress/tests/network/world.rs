//! Two network namespaces: one for the sandbox with its sidecar, one for the internet.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::AsFd,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    sched::{CloneFlags, setns},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::internet::Internet;

/// Generous bound for what must happen, which only keeps a failure from hanging the run.
pub(crate) const SOON: Duration = Duration::from_secs(120);
/// Token of the sidecar's API.
pub(crate) const TOKEN: &str = "token";
/// The internet's name server.
pub(crate) const RESOLVER: &str = "192.0.2.53";
/// Gateway of the sandbox: the internet's end of the cable.
pub(crate) const GATEWAY: &str = "10.99.0.1";

/// A sandbox, its sidecar and the internet.
pub(crate) struct World {
    sandbox: Namespace,
    /// Names and services.
    pub(crate) internet: Internet,
    sidecar: Option<Sidecar>,
    outside: Namespace,
}

struct Sidecar {
    child: Child,
    is_supervised: bool,
    log: Arc<Mutex<Vec<String>>>,
}

impl World {
    /// A world whose sidecar enforces a policy.
    pub(crate) fn new(mode: &str, policy: &str) -> Self {
        Self::with(mode, policy, &[])
    }

    /// The same with more variables for the sidecar.
    pub(crate) fn with(mode: &str, policy: &str, variables: &[(&str, &str)]) -> Self {
        let mut world = Self::without_sidecar();
        world.start(mode, policy, variables);
        world
    }

    /// A world without a sidecar.
    pub(crate) fn without_sidecar() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let id = format!(
            "{:x}{:x}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let sandbox = Namespace::new(format!("osbe{id}s"));
        let internet = Namespace::new(format!("osbe{id}i"));
        let [inside, outside] = ["s", "i"].map(|end| format!("oe{id}{end}"));
        run(
            "ip",
            &[
                "link", "add", &inside, "type", "veth", "peer", "name", &outside,
            ],
        );
        run("ip", &["link", "set", &inside, "netns", &sandbox.name]);
        run("ip", &["link", "set", &outside, "netns", &internet.name]);
        for (namespace, device, v4, v6) in [
            (&sandbox, &inside, "10.99.0.2/24", "fd99::2/64"),
            (&internet, &outside, "10.99.0.1/24", "fd99::1/64"),
        ] {
            namespace.ip(&["link", "set", "lo", "up"]);
            namespace.ip(&["addr", "add", v4, "dev", device]);
            namespace.ip(&["addr", "add", v6, "dev", device, "nodad"]);
            namespace.ip(&["link", "set", device, "up"]);
        }
        sandbox.ip(&["route", "add", "default", "via", GATEWAY]);
        sandbox.ip(&["-6", "route", "add", "default", "via", "fd99::1"]);
        let internet_thread = Internet::start(&internet);
        Self {
            sandbox,
            internet: internet_thread,
            sidecar: None,
            outside: internet,
        }
    }

    /// Starts the sidecar and waits until it enforces.
    pub(crate) fn start(&mut self, mode: &str, policy: &str, variables: &[(&str, &str)]) {
        self.start_program(&[], mode, policy, variables);
    }

    /// The same with a supervisor that has these flags.
    pub(crate) fn start_supervised(&mut self, flags: &[&str], mode: &str, policy: &str) {
        let worker = ["--", env!("CARGO_BIN_EXE_egress")];
        let args = [&["supervise"], flags, &worker].concat();
        self.start_program(&args, mode, policy, &[]);
    }

    fn start_program(
        &mut self,
        args: &[&str],
        mode: &str,
        policy: &str,
        variables: &[(&str, &str)],
    ) {
        let mut command = self.sandbox.command(env!("CARGO_BIN_EXE_egress"));
        command
            .args(args)
            .env("OPENSANDBOX_EGRESS_MODE", mode)
            .env("OPENSANDBOX_EGRESS_RULES", policy)
            .env("OPENSANDBOX_EGRESS_TOKEN", TOKEN)
            .env("OPENSANDBOX_EGRESS_DNS_UPSTREAM", RESOLVER)
            .env("OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT", "2")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("the sidecar starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let kept = Arc::clone(&log);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().unwrap().push(line);
            }
        });
        self.sidecar = Some(Sidecar {
            child,
            is_supervised: !args.is_empty(),
            log,
        });
        let begin = Instant::now();
        while self
            .call("GET", "/healthz", "")
            .is_none_or(|(status, _)| status != 200)
        {
            let sidecar = self.sidecar.as_mut().unwrap();
            if let Some(status) = sidecar.child.try_wait().unwrap() {
                let log = sidecar.log.lock().unwrap().join("\n");
                panic!("the sidecar ended: {status}\n{log}");
            }
            assert!(begin.elapsed() < SOON, "{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the sidecar without a chance to clean up.
    pub(crate) fn kill(&mut self) {
        let mut sidecar = self.sidecar.take().expect("it runs");
        sidecar.child.kill().unwrap();
        sidecar.child.wait().unwrap();
    }

    /// Limits the file descriptors of the sidecar from now on.
    pub(crate) fn limit_files(&self, most: u32) {
        let pid = self.sidecar.as_ref().expect("it runs").pid().to_string();
        let limit = format!("--nofile={most}:{most}");
        run("prlimit", &["--pid", &pid, &limit]);
    }

    /// Asks the sidecar to stop, and waits for it.
    pub(crate) fn stop(&mut self) {
        let mut sidecar = self.sidecar.take().expect("it runs");
        kill(sidecar.pid(), Signal::SIGTERM).unwrap();
        assert!(sidecar.child.wait().unwrap().success());
    }

    /// Kills the worker of a supervisor, and waits until it is gone.
    pub(crate) fn kill_worker(&self) {
        let supervisor = self.sidecar.as_ref().expect("it runs").pid();
        let worker = child_of(supervisor).expect("it has a worker");
        kill(worker, Signal::SIGKILL).unwrap();
        // A dead first thread is no end: others may still hold the ports. All are gone when the
        // supervisor has waited for it.
        wait_until("the worker is gone", || {
            !fs::exists(format!("/proc/{worker}")).unwrap()
        });
    }

    /// Waits for a line of the sidecar's log with these parts, and returns it as JSON.
    pub(crate) fn logged(&self, parts: &[&str]) -> serde_json::Value {
        let found = || {
            let log = self.log();
            let mut lines = log.lines();
            let line = lines.find(|line| parts.iter().all(|part| line.contains(part)))?;
            Some(serde_json::from_str(line).unwrap())
        };
        wait_until(&format!("the log has {parts:?}"), || found().is_some());
        found().expect("it is there")
    }

    /// Lines that the sidecar logged.
    pub(crate) fn log(&self) -> String {
        let sidecar = self.sidecar.as_ref();
        sidecar
            .map(|it| {
                it.log
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .join("\n")
            })
            .unwrap_or_default()
    }

    /// Runs a closure in the sandbox.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.sandbox.inside(work)
    }

    /// Runs a closure on the internet's side.
    pub(crate) fn outside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.outside.inside(work)
    }

    /// The same while the test goes on.
    pub(crate) fn beside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let enter = self.outside.borrowed();
        thread::spawn(move || {
            enter();
            work()
        })
    }

    /// Counts the packets for an IPv6 address that arrive at the internet from now on.
    pub(crate) fn count_arrivals(&self, address: &str) {
        let rules = format!(
            "table inet seen {{ chain seen {{ type filter hook input priority 0; \
             ip6 daddr {address} counter; }}; }}"
        );
        let output = self.outside.command("nft").arg(rules).output();
        let output = output.expect("it starts");
        assert!(output.status.success(), "{output:?}");
    }

    /// How many have arrived.
    pub(crate) fn arrived(&self) -> u64 {
        let mut list = self.outside.command("nft");
        let output = list.args(["list", "table", "inet", "seen"]).output();
        let text = String::from_utf8(output.expect("it starts").stdout).unwrap();
        let mut words = text.split_whitespace();
        words.find(|word| *word == "packets").expect("it counts");
        words.next().expect("it follows").parse().unwrap()
    }

    /// Runs a program in the sandbox. Returns whether it succeeded, and its output.
    pub(crate) fn run(&self, program: &str, args: &[&str]) -> (bool, String) {
        let output = self
            .sandbox
            .command(program)
            .args(args)
            .output()
            .expect("it starts");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    /// Sends a request to the sidecar's API from within the sandbox. `None` if nothing answers.
    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        self.inside(|| http(([127, 0, 0, 1], 18080).into(), method, path, body))
    }

    /// The same from another machine, as the server does.
    pub(crate) fn call_from_outside(&self, method: &str, path: &str) -> Option<(u16, String)> {
        let to = ([10, 99, 0, 2], 18080).into();
        self.outside.inside(|| http(to, method, path, ""))
    }

    /// Changes the policy.
    pub(crate) fn policy(&self, method: &str, body: &str) -> String {
        let (status, text) = self.call(method, "/policy", body).expect("it answers");
        assert_eq!(status, 200, "{text}");
        text
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- log of the sidecar\n{}", self.log());
            let (_, rules) = self.run("nft", &["list", "ruleset"]);
            eprintln!("--- rules\n{rules}");
        }
        if let Some(mut sidecar) = self.sidecar.take() {
            // A supervisor that is killed leaves its worker behind.
            let _ended = match sidecar.is_supervised {
                true => kill(sidecar.pid(), Signal::SIGTERM).is_ok(),
                false => sidecar.child.kill().is_ok(),
            };
            let _ended = sidecar.child.wait();
        }
    }
}

impl Sidecar {
    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap())
    }
}

/// A living child of a process.
fn child_of(parent: Pid) -> Option<Pid> {
    let want = parent.to_string();
    let processes = fs::read_dir("/proc").unwrap();
    let mut numbers = processes.filter_map(|it| it.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let found = numbers.find(|number| {
        let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
        let has = |name: &str, value: &str| {
            let mut lines = status.lines();
            lines.any(|line| line.strip_prefix(name).is_some_and(|it| it.trim() == value))
        };
        has("PPid:", &want) && !status.contains("State:\tZ")
    });
    found.map(Pid::from_raw)
}

/// Waits for a condition that comes true soon.
pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        assert!(begin.elapsed() < SOON, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// One request over a connection of its own.
pub(crate) fn http(to: SocketAddr, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    use std::io::{Read, Write};
    let mut stream = TcpStream::connect_timeout(&to, SOON).ok()?;
    stream.set_read_timeout(Some(SOON)).ok()?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: sidecar\r\nOPENSANDBOX-EGRESS-AUTH: {TOKEN}\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// A network namespace, removed when it is dropped.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    fn new(name: String) -> Self {
        run("ip", &["netns", "add", &name]);
        Self { name }
    }

    fn ip(&self, args: &[&str]) {
        run("ip", &[&["-n", &self.name], args].concat());
    }

    /// Adds an address to the loopback device: the machine then answers for it on every interface.
    pub(crate) fn add_address(&self, address: IpAddr) {
        let length = if address.is_ipv4() { 32 } else { 128 };
        let address = format!("{address}/{length}");
        let mut args = vec!["addr", "add", &address, "dev", "lo"];
        if length == 128 {
            // It is in use at once.
            args.push("nodad");
        }
        self.ip(&args);
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs a closure in a thread that is in this namespace.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let joined = scope.spawn(|| {
                self.enter();
                work()
            });
            joined
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread into this namespace.
    pub(crate) fn enter(&self) {
        let file = File::open(format!("/run/netns/{}", self.name)).expect("it is there");
        setns(file.as_fd(), CloneFlags::CLONE_NEWNET).expect("tests run as root");
    }

    /// Another handle that does not own it.
    pub(crate) fn borrowed(&self) -> impl Fn() + Send + 'static {
        let name = self.name.clone();
        move || std::mem::ManuallyDrop::new(Self { name: name.clone() }).enter()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let removed = Command::new("ip")
            .args(["netns", "del", &self.name])
            .status();
        if !removed.is_ok_and(|status| status.success()) {
            eprintln!("the namespace {} remains", self.name);
        }
    }
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program)
        .args(args)
        .output()
        .expect("it starts");
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
