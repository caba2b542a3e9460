//! An engine with sidecars that answer, for tests.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use serde_json::{Value, json};

use super::super::{
    DockerConfig, DockerRuntime, EgressConfig, NetworkMode,
    fake_engine::{self, FakeEngine},
};

/// Words of Docker 20.10.
const WITHOUT_IPV6: &str = "failed to create shim task: OCI runtime create failed: runc create failed: \
    unable to start container process: error during container init: open \
    /proc/sys/net/ipv6/conf/all/disable_ipv6: no such file or directory: unknown";

/// What an engine and its containers do.
#[derive(Debug, Default)]
struct Contents {
    /// By id.
    containers: BTreeMap<String, Container>,
    made: usize,
    /// Failures that are still to come, by the beginning of the request.
    faults: Vec<(&'static str, u16, &'static str)>,
    /// What fails of main containers: `create` or `start`.
    main_fails: Option<(&'static str, u16, String)>,
    /// How many of the next sidecars with settings for IPv6 do not start, as the kernel has none.
    without_ipv6: usize,
    /// Status of claims.
    claims_fail: Option<u16>,
    /// Whether sidecars know no claims.
    is_of_another_release: bool,
    /// Policies that were claimed, with the sandbox.
    claimed: Vec<(String, String)>,
}

#[derive(Debug)]
struct Container {
    name: String,
    body: Value,
    status: &'static str,
    sidecar: Option<Arc<AtomicBool>>,
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Some(is_gone) = &self.sidecar {
            is_gone.store(true, Relaxed);
        }
    }
}

/// An engine with the containers that were created.
pub(super) struct FakeHost {
    pub(super) engine: FakeEngine,
    contents: Arc<Mutex<Contents>>,
}

/// Settings with one warm sidecar.
pub(super) fn config() -> DockerConfig {
    DockerConfig {
        network: NetworkMode::Named("n".to_owned()),
        // Published ports are the way to the API.
        has_route: false,
        egress: Some(EgressConfig {
            image: "egress".to_owned(),
            mode: "dns+nft".to_owned(),
            disable_ipv6: true,
            otlp_endpoint: None,
            dns_upstreams: vec!["192.0.2.53".to_owned()],
            readiness_timeout: std::time::Duration::from_secs(60),
            warm: 1,
        }),
        ..fake_engine::config()
    }
}

impl FakeHost {
    pub(super) async fn start() -> Self {
        let contents = Arc::<Mutex<Contents>>::default();
        let shared = Arc::clone(&contents);
        let engine =
            FakeEngine::start_reading(move |request, body| respond(&shared, request, body)).await;
        Self { engine, contents }
    }

    pub(super) fn runtime(&self) -> Arc<DockerRuntime> {
        Arc::new(self.engine.runtime_with(config()))
    }

    /// Has the next request that begins like this fail.
    pub(super) fn fail(&self, request: &'static str, status: u16, message: &'static str) {
        let mut contents = self.contents.lock().unwrap();
        contents.faults.push((request, status, message));
    }

    /// Has all main containers fail at a step: `create` or `start`.
    pub(super) fn fail_main(&self, step: &'static str) {
        self.fail_main_with(Some((step, 400, "broken".to_owned())));
    }

    /// Has all main containers fail at a step with this status and message, or none.
    pub(super) fn fail_main_with(&self, failure: Option<(&'static str, u16, String)>) {
        self.contents.lock().unwrap().main_fails = failure;
    }

    /// Has the start of the next sidecars with settings for IPv6 fail.
    pub(super) fn lose_ipv6(&self, times: usize) {
        self.contents.lock().unwrap().without_ipv6 = times;
    }

    /// Has all claims fail.
    pub(super) fn fail_claims(&self, status: u16) {
        self.contents.lock().unwrap().claims_fail = Some(status);
    }

    /// Has all sidecars know no claims.
    pub(super) fn become_another_release(&self) {
        self.contents.lock().unwrap().is_of_another_release = true;
    }

    /// Sandboxes that claimed their sidecars, with their policies.
    pub(super) fn claimed(&self) -> Vec<(String, String)> {
        self.contents.lock().unwrap().claimed.clone()
    }

    /// Create requests of the containers that exist, by id, without helpers.
    pub(super) fn containers(&self) -> BTreeMap<String, Value> {
        let contents = self.contents.lock().unwrap();
        let all = contents.containers.iter();
        let all = all.filter(|(_, it)| !it.name.starts_with("opensandbox-helper-"));
        all.map(|(id, it)| (id.clone(), it.body.clone())).collect()
    }

    /// Ids of the containers of a role that exist.
    pub(super) fn of_role(&self, role: &str) -> Vec<String> {
        let all = self.containers().into_iter();
        let of = |body: &Value| body["Labels"]["opensandbox.io/role"] == role;
        all.filter(|(_, body)| of(body)).map(|(id, _)| id).collect()
    }
}

fn respond(contents: &Arc<Mutex<Contents>>, request: &str, body: &[u8]) -> (u16, String) {
    let mut locked = contents.lock().unwrap();
    let fault = locked
        .faults
        .iter()
        .position(|(start, ..)| request.starts_with(start));
    if let Some((_, status, message)) = fault.map(|at| locked.faults.remove(at)) {
        return (status, json!({"message": message}).to_string());
    }
    let (method, path) = request.split_once(' ').unwrap();
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let missing = (404, json!({"message": "no such container"}).to_string());
    match (method, parts.as_slice()) {
        ("POST", ["containers", "create"]) => {
            locked.made += 1;
            let id = format!("c{}", locked.made);
            let name = query.split_once("name=").unwrap().1;
            let name = name.split('&').next().unwrap().to_owned();
            let body: Value = serde_json::from_slice(body).unwrap();
            if let Some(("create", status, message)) = &locked.main_fails
                && is_main(&body)
            {
                return (*status, json!({"message": message}).to_string());
            }
            let sidecar = sidecar(contents, &body);
            let status = "created";
            let container = Container {
                name,
                body,
                status,
                sidecar,
            };
            locked.containers.insert(id.clone(), container);
            (201, json!({"Id": id, "Warnings": []}).to_string())
        }
        ("GET", ["containers", "json"]) => {
            let filters = filters(query);
            let all = locked.containers.iter();
            let listed = all.filter(|(_, it)| matches(it, &filters));
            let listed = listed.map(|(id, it)| {
                json!({
                    "Id": id, "Names": [format!("/{}", it.name)], "ImageID": it.body["Image"],
                    "Created": 1, "State": it.status, "Labels": it.body["Labels"],
                    "HostConfig": {"NetworkMode": it.body["HostConfig"]["NetworkMode"]},
                })
            });
            (200, Value::from_iter(listed).to_string())
        }
        ("POST", ["containers", id, "start"])
            if matches!(locked.main_fails, Some(("start", ..)))
                && locked
                    .containers
                    .get(*id)
                    .is_some_and(|it| is_main(&it.body)) =>
        {
            let (_, status, message) = locked.main_fails.as_ref().unwrap();
            (*status, json!({"message": message}).to_string())
        }
        ("POST", ["containers", id, "start"])
            if locked.without_ipv6 > 0
                && locked
                    .containers
                    .get(*id)
                    .is_some_and(|it| it.body["HostConfig"]["Sysctls"].is_object()) =>
        {
            locked.without_ipv6 -= 1;
            (400, json!({"message": WITHOUT_IPV6}).to_string())
        }
        ("POST", ["containers", id, action]) => match locked.containers.get_mut(*id) {
            Some(container) if *action == "start" => {
                container.status = "running";
                (204, String::new())
            }
            Some(_) => (204, String::new()),
            None => missing,
        },
        ("GET", ["containers", id, "json"]) => match locked.containers.get(*id) {
            Some(it) => {
                let state = json!({
                    "Running": it.status == "running", "Status": it.status,
                    "StartedAt": "2031-05-01T10:00:01Z",
                });
                let container = json!({
                    "Id": id, "Created": "2031-05-01T10:00:00Z", "Image": it.body["Image"],
                    "Config": {"Labels": it.body["Labels"], "Env": it.body["Env"]},
                    "HostConfig": it.body["HostConfig"], "State": state,
                });
                (200, container.to_string())
            }
            None => missing,
        },
        ("DELETE", ["containers", name]) => {
            let before = locked.containers.len();
            locked
                .containers
                .retain(|id, it| id != name && it.name != *name);
            match locked.containers.len() < before {
                true => (204, String::new()),
                false => missing,
            }
        }
        _ => FakeEngine::with_volumes(request),
    }
}

fn is_main(body: &Value) -> bool {
    body["Labels"]["opensandbox.io/role"] == ""
}

/// The filters of a list.
fn filters(query: &str) -> Value {
    let mut parts = query.split('&');
    let encoded = parts.find_map(|part| part.strip_prefix("filters="));
    let mut bytes = Vec::new();
    let mut rest = encoded.unwrap_or("{}").bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits: String = rest.by_ref().take(2).map(char::from).collect();
                u8::from_str_radix(&digits, 16).unwrap()
            }
            byte => byte,
        });
    }
    serde_json::from_slice(&bytes).unwrap()
}

fn matches(container: &Container, filters: &Value) -> bool {
    let labels = &container.body["Labels"];
    let wanted = |filter: &Value| {
        let filter = filter.as_str().unwrap();
        match filter.split_once('=') {
            Some((key, value)) => labels[key] == value,
            None => labels.get(filter).is_some(),
        }
    };
    let all = |key: &str| filters[key].as_array().cloned().unwrap_or_default();
    all("label").iter().all(wanted)
        && (all("status").is_empty() || all("status").contains(&container.status.into()))
}

/// Serves the API of a sidecar until its container is removed. `None` if it is no sidecar.
fn sidecar(contents: &Arc<Mutex<Contents>>, body: &Value) -> Option<Arc<AtomicBool>> {
    let binding = &body["HostConfig"]["PortBindings"]["18080/tcp"][0];
    let port: u16 = binding["HostPort"].as_str()?.parse().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let is_gone = Arc::<AtomicBool>::default();
    let (contents, ended) = (Arc::clone(contents), Arc::clone(&is_gone));
    let env: Vec<String> = serde_json::from_value(body["Env"].clone()).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            if ended.load(Relaxed) {
                return;
            }
            let _closed = answer(stream.unwrap(), &contents, &env);
        }
    });
    Some(is_gone)
}

fn answer(
    mut stream: TcpStream,
    contents: &Mutex<Contents>,
    env: &[String],
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let header = |name: &str| {
        let mut lines = head.iter().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_owned())
    };
    let length = header("content-length").map_or(0, |it| it.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let has = |name: &str, value: &str| env.contains(&format!("OPENSANDBOX_EGRESS_{name}={value}"));
    let first = head.first().map_or("", String::as_str);
    let target = first.split(' ').nth(1).unwrap_or_default();
    let mut contents = contents.lock().unwrap();
    let is_known = |id: &str, all: &[(String, String)]| all.iter().any(|(of, _)| of == id);
    let mut text = "says the sidecar".to_owned();
    let status = match target.strip_prefix("/claim/") {
        None => 200,
        Some(_) if contents.is_of_another_release => 404,
        Some(id) if first.starts_with("GET ") => {
            text = json!({"claimed": is_known(id, &contents.claimed)}).to_string();
            200
        }
        Some(id) => {
            let token = header("opensandbox-egress-auth").unwrap_or_default();
            let is_known = is_known(id, &contents.claimed);
            match contents.claims_fail {
                Some(status) => status,
                None if !has("TOKEN", &token) => 401,
                None if !has("AWAIT_CLAIM", "true") || !has("SANDBOX_ID", id) || is_known => 409,
                None => {
                    let policy = String::from_utf8(body).unwrap();
                    contents.claimed.push((id.to_owned(), policy));
                    200
                }
            }
        }
    };
    drop(contents);
    write!(
        stream,
        "HTTP/1.1 {status} X\r\nConnection: close\r\n\r\n{text}\n"
    )?;
    stream.shutdown(Shutdown::Write)
}
