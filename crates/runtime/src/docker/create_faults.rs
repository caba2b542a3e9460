//! Creates on an engine that fails at one step (contract: lifecycle §17.12).

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, TcpListener},
    sync::{Arc, Mutex},
    time::Duration,
};

use osb_protocol::resources::GpuCount;
use serde_json::{Value, json};

use super::{
    DockerConfig, DockerRuntime, EgressConfig, NetworkMode, SidecarConfig,
    fake_engine::{self, CUT, FakeEngine},
    labels,
};
use crate::{CreateSpec, NetworkPolicy, PullFault, Role, Runtime, RuntimeError, Stage};

/// How an engine fails.
#[derive(Clone, Debug)]
struct Fault {
    /// Beginning of the request that fails.
    request: &'static str,
    /// Which of these requests fail, from 0.
    which: std::ops::Range<usize>,
    status: u16,
    message: &'static str,
    /// Whether the request has its effect, and only its response is lost.
    takes_effect: bool,
}

impl Fault {
    fn new(request: &'static str, nth: usize, message: &'static str) -> Self {
        Self {
            request,
            which: nth..nth + 1,
            status: 500,
            message,
            takes_effect: false,
        }
    }

    fn lost(request: &'static str, nth: usize) -> Self {
        Self {
            status: CUT,
            takes_effect: true,
            ..Self::new(request, nth, "")
        }
    }
}

/// What an engine has.
#[derive(Debug, Default)]
struct Contents {
    has_network: bool,
    has_image: bool,
    /// Whether the image declares volumes.
    declares_volumes: bool,
    /// Names of containers, by id.
    containers: BTreeMap<String, String>,
    made: usize,
    /// The server's build of execd.
    build: String,
    faults: Vec<(Fault, usize)>,
}

impl Contents {
    /// execd's volume, as the server filled it.
    fn volume(&self) -> Value {
        let labels = json!({labels::EXECD_BUILD: self.build});
        json!({
            "Name": "v", "Driver": "local", "Mountpoint": "/v", "Scope": "local",
            "Labels": labels, "Options": null,
        })
    }

    fn respond(&mut self, request: &str) -> (u16, String) {
        let mut failed = None;
        for (fault, seen) in &mut self.faults {
            if request.starts_with(fault.request) {
                let is_due = fault.which.contains(seen);
                *seen += 1;
                if is_due {
                    failed = Some(fault.clone());
                }
            }
        }
        let Some(fault) = failed else {
            return self.serve(request);
        };
        if fault.takes_effect {
            self.serve(request);
        }
        let body = match fault.status {
            200 => fault.message.to_owned(),
            _ => json!({"message": fault.message}).to_string(),
        };
        (fault.status, body)
    }

    fn serve(&mut self, request: &str) -> (u16, String) {
        let missing = |what: &str| {
            (
                404,
                json!({"message": format!("no such {what}")}).to_string(),
            )
        };
        let (method, path) = request.split_once(' ').unwrap();
        let mut parts = path.split(['/', '?']).skip(1);
        let (kind, name) = (parts.next().unwrap(), parts.next().unwrap_or_default());
        match (method, kind, name) {
            (_, "info", _) => (200, json!({"LoggingDriver": "json-file"}).to_string()),
            (_, "version", _) => (200, json!({"Os": "linux", "Arch": "amd64"}).to_string()),
            ("POST", "networks", _) => {
                self.has_network = true;
                (201, json!({"Id": "n", "Warning": ""}).to_string())
            }
            ("GET", "networks", "opensandbox") if self.has_network => {
                let icc = json!({"com.docker.network.bridge.enable_icc": "false"});
                let network = json!({"Name": "opensandbox", "Driver": "bridge", "Options": icc});
                (200, network.to_string())
            }
            ("GET", "networks", "opensandbox") => missing("network"),
            ("GET", "networks", _) => (200, "[]".to_owned()),
            ("POST", "images", _) => {
                self.has_image = true;
                (
                    200,
                    json!({"status": "Pulling fs layer", "id": "a"}).to_string() + "\r\n",
                )
            }
            ("GET", "images", _) if self.has_image && self.declares_volumes => {
                let volumes = json!({"/opt/opensandbox/.dist/execd": {}});
                (200, json!({"Config": {"Volumes": volumes}}).to_string())
            }
            ("GET", "images", _) if self.has_image => (200, "{}".to_owned()),
            ("GET", "images", _) => missing("image"),
            ("HEAD", ..) => (404, String::new()),
            ("GET", "volumes", _) => (200, self.volume().to_string()),
            ("PUT", ..) | ("POST", "volumes", _) => FakeEngine::with_volumes(request),
            ("POST", "containers", "create") if !self.has_image => missing("image"),
            ("POST", "containers", "create") => {
                self.made += 1;
                let id = format!("c{}", self.made);
                let (_, name) = path.split_once("name=").unwrap();
                let name = name.split('&').next().unwrap_or_default();
                self.containers.insert(id.clone(), name.to_owned());
                (201, json!({"Id": id, "Warnings": []}).to_string())
            }
            ("GET", "containers", "json") => {
                let ours = self.containers.iter().filter(|(_, name)| !is_helper(name));
                // The first container is a helper, and sidecars come before the main container.
                let list = ours.map(|(id, _)| {
                    let role = if id == "c2" { "egress" } else { "" };
                    json!({"Id": id, "Labels": labels_of(role)})
                });
                (200, json!(list.collect::<Vec<_>>()).to_string())
            }
            ("DELETE", "containers", name) => {
                let before = self.containers.len();
                self.containers
                    .retain(|id, known| id != name && known != name);
                match self.containers.len() < before {
                    true => (204, String::new()),
                    false => missing("container"),
                }
            }
            ("GET", "containers", id) if self.containers.contains_key(id) => {
                let container = json!({
                    "Id": id,
                    "Created": "2031-05-01T10:00:00Z",
                    "Config": {"Labels": labels_of("")},
                    "State": {"Running": true, "StartedAt": "2031-05-01T10:00:01Z"},
                });
                (200, container.to_string())
            }
            ("POST", "containers", id) if self.containers.contains_key(id) => (204, String::new()),
            _ => missing(kind),
        }
    }
}

fn is_helper(name: &str) -> bool {
    name.starts_with("opensandbox-helper-")
}

fn labels_of(role: &str) -> Value {
    json!({labels::ID: "a", labels::SERVER: "us", labels::ROLE: role})
}

struct Case {
    engine: FakeEngine,
    contents: Arc<Mutex<Contents>>,
    runtime: DockerRuntime,
}

impl Case {
    async fn new(config: DockerConfig, faults: impl IntoIterator<Item = Fault>) -> Self {
        let contents = Arc::new(Mutex::new(Contents {
            faults: faults.into_iter().map(|fault| (fault, 0)).collect(),
            ..Contents::default()
        }));
        let shared = Arc::clone(&contents);
        let engine =
            FakeEngine::start(move |request| shared.lock().unwrap().respond(request)).await;
        let runtime = engine.runtime_with(config);
        runtime
            .execd
            .build()
            .clone_into(&mut contents.lock().unwrap().build);
        Self {
            engine,
            contents,
            runtime,
        }
    }

    async fn create(&self, spec: CreateSpec) -> Result<crate::Observed, RuntimeError> {
        self.runtime.create(spec, &|_: Stage| {}).await
    }

    /// Containers on the engine, helpers included.
    fn containers(&self) -> Vec<String> {
        let contents = self.contents.lock().unwrap();
        contents.containers.values().cloned().collect()
    }

    /// Ports that the requests to create containers publish.
    fn published(&self) -> Vec<u16> {
        let bodies = self.engine.bodies("POST /containers/create");
        let bindings = bodies.iter().filter_map(|body| {
            let bindings = body["HostConfig"]["PortBindings"].as_object()?;
            Some(bindings.values().map(|ports| {
                let port = ports[0]["HostPort"].as_str().unwrap();
                port.parse().unwrap()
            }))
        });
        bindings.flatten().collect()
    }
}

/// A sandbox with published ports.
fn spec() -> CreateSpec {
    let mut spec = labels::tests::spec();
    spec.origin.secure_access = None;
    spec
}

fn bridge() -> DockerConfig {
    DockerConfig {
        network: NetworkMode::Bridge,
        ..fake_engine::config()
    }
}

fn with_sidecar() -> DockerConfig {
    DockerConfig {
        sidecars: vec![SidecarConfig {
            role: Role::Egress,
            image: "egress".to_owned(),
            entrypoint: Vec::new(),
            add_capabilities: Vec::new(),
        }],
        ..bridge()
    }
}

fn image_pull(fault: PullFault) -> impl Fn(&RuntimeError) -> bool {
    move |error| matches!(error, RuntimeError::ImagePull { fault: seen, .. } if *seen == fault)
}

fn start(error: &RuntimeError) -> bool {
    matches!(error, RuntimeError::Start { .. })
}

fn other(error: &RuntimeError) -> bool {
    matches!(error, RuntimeError::Other { .. })
}

fn execd(error: &RuntimeError) -> bool {
    matches!(error, RuntimeError::Execd { .. })
}

fn unavailable(error: &RuntimeError) -> bool {
    matches!(error, RuntimeError::Unavailable { .. })
}

/// The engine creates the sandbox's container while the sidecar starts.
#[tokio::test]
async fn what_was_made_beside_a_sidecar_that_fails_is_removed() {
    let config = DockerConfig {
        egress: Some(EgressConfig {
            image: "egress".to_owned(),
            mode: "dns".to_owned(),
            disable_ipv6: false,
            otlp_endpoint: None,
            dns_upstreams: Vec::new(),
            readiness_timeout: Duration::from_millis(20),
            warm: 0,
        }),
        ..bridge()
    };
    let silent = Fault::new("POST /nothing", 0, "");
    for fault in [Fault::new("POST /containers/c2/start", 0, "broken"), silent] {
        let case = Case::new(config.clone(), [fault.clone()]).await;
        let mut spec = spec();
        spec.network_policy = Some(NetworkPolicy {
            rules: "{}".to_owned(),
            variables: BTreeMap::new(),
        });
        let error = case.create(spec).await.unwrap_err();
        assert!(start(&error) || other(&error), "{fault:?}: {error:?}");
        assert_eq!(case.engine.bodies("POST /containers/create").len(), 3);
        assert!(case.containers().is_empty(), "{fault:?}");
    }
}

#[tokio::test]
async fn a_create_that_fails_at_any_step_leaves_nothing() {
    type IsRight = Box<dyn Fn(&RuntimeError) -> bool>;
    let (create, containers) = ("POST /containers/create", "POST /containers/c");
    let denied = r#"{"errorDetail":{"message":"pull access denied for debian"}}"#;
    let denied = Fault {
        status: 200,
        ..Fault::new("POST /images/create", 0, denied)
    };
    let steps: Vec<(Fault, IsRight)> = vec![
        (Fault::new("GET /networks/", 0, "broken"), Box::new(other)),
        (
            Fault::new("POST /networks/create", 0, "broken"),
            Box::new(other),
        ),
        (Fault::new("GET /images/", 0, "broken"), Box::new(other)),
        (denied, Box::new(image_pull(PullFault::Denied))),
        (
            Fault::new("POST /images/create", 0, "no space left on device"),
            Box::new(image_pull(PullFault::DiskFull)),
        ),
        (Fault::lost("POST /images/create", 0), Box::new(unavailable)),
        (
            Fault::new("POST /volumes/create", 0, "broken"),
            Box::new(execd),
        ),
        (Fault::new(create, 0, "no helper"), Box::new(execd)),
        (
            Fault::new("HEAD /containers/", 0, "broken"),
            Box::new(execd),
        ),
        (
            Fault::new("PUT /containers/", 0, "disk full"),
            Box::new(execd),
        ),
        (Fault::new("GET /info", 0, "broken"), Box::new(other)),
        (Fault::new(create, 1, "no sidecar"), Box::new(start)),
        (Fault::lost(create, 1), Box::new(unavailable)),
        (Fault::new(create, 2, "no main"), Box::new(start)),
        (Fault::lost(create, 2), Box::new(unavailable)),
        // The second container is the sidecar.
        (
            Fault::new("POST /containers/c2/start", 0, "broken"),
            Box::new(start),
        ),
        (
            Fault::new("POST /containers/c3/start", 0, "broken"),
            Box::new(start),
        ),
        (
            Fault::new("GET /containers/c3/json", 0, "broken"),
            Box::new(other),
        ),
    ];
    assert!(
        steps
            .iter()
            .any(|(fault, _)| fault.request.starts_with(containers))
    );
    for (fault, is_right) in steps {
        let case = Case::new(with_sidecar(), [fault.clone()]).await;
        let error = case.create(spec()).await.unwrap_err();
        assert!(is_right(&error), "{fault:?}: {error:?}");
        let left = case.containers();
        assert!(left.is_empty(), "{fault:?}: {left:?}");
        assert!(case.runtime.creating.is_empty(), "{fault:?}");
        assert_eq!(case.runtime.ports.reserved(), 0, "{fault:?}");
        // Nothing of the failure stays in memory either.
        let again = case.create(spec()).await;
        again.unwrap_or_else(|error| panic!("{fault:?}: {error:?}"));
        let roles = case.containers().len();
        assert_eq!(roles, 2, "{fault:?}");
    }
}

#[tokio::test]
async fn parallel_creates_never_publish_one_port_twice() {
    // Ports of other programs in the range are passed over.
    let (min, max) = (47_000, 47_120);
    let taken: Vec<TcpListener> = (min..max)
        .step_by(10)
        .filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok())
        .collect();
    let config = DockerConfig {
        port_min: min,
        port_max: max,
        ..bridge()
    };
    let case = Case::new(config, []).await;
    let creates = (0..25).map(|n| {
        let mut spec = spec();
        spec.origin.id = osb_protocol::SandboxId::new(format!("s{n}"));
        case.create(spec)
    });
    for made in futures::future::join_all(creates).await {
        made.unwrap();
    }
    let mut ports = case.published();
    assert_eq!(ports.len(), 50);
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 50, "each port once");
    for listener in &taken {
        let port = listener.local_addr().unwrap().port();
        assert!(!ports.contains(&port), "{port} is another program's");
    }
}

#[tokio::test]
async fn a_port_that_is_taken_meanwhile_is_replaced() {
    let conflict = |times| Fault {
        which: 0..times,
        ..Fault::new(
            "POST /containers/c",
            0,
            "driver failed programming external connectivity: Bind for 127.0.0.1:40000 failed: \
             port is already allocated",
        )
    };
    // The request to create begins in the same way and must not count.
    let starts = |mut fault: Fault| {
        fault.request = "POST /containers/c2/start";
        fault
    };
    let case = Case::new(bridge(), [starts(conflict(1))]).await;
    case.create(spec()).await.unwrap();
    assert_eq!(
        case.published().len(),
        4,
        "new ports for the second attempt"
    );
    assert_eq!(case.containers().len(), 1);
    let all = ["c2", "c3", "c4"].map(|_| conflict(1));
    let requests = [
        "POST /containers/c2/start",
        "POST /containers/c3/start",
        "POST /containers/c4/start",
    ];
    let faults = all.into_iter().zip(requests).map(|(mut fault, request)| {
        fault.request = request;
        fault
    });
    let case = Case::new(bridge(), faults).await;
    let error = case.create(spec()).await.unwrap_err();
    assert!(start(&error), "{error:?}");
    assert!(error.to_string().contains("already allocated"), "{error}");
    assert!(case.containers().is_empty());
}

#[tokio::test]
async fn an_engine_without_a_gpu_runtime_is_named() {
    let message = "could not select device driver \"\" with capabilities: [[gpu]]";
    let fault = Fault::new("POST /containers/c2/start", 0, message);
    let case = Case::new(bridge(), [fault]).await;
    let mut spec = spec();
    spec.limits.gpus = Some(GpuCount::All);
    let error = case.create(spec).await.unwrap_err();
    assert!(start(&error), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("resourceLimits.gpu: the engine has no GPU runtime"),
        "{text}"
    );
    assert!(case.containers().is_empty());
}

/// What Docker 20.10 says where an image has a directory in the place of execd.
const COVERED: &str = "failed to create shim task: OCI runtime create failed: runc create failed: unable to \
    start container process: exec: \"/opt/opensandbox/.dist/execd\": permission denied: unknown";

#[tokio::test]
async fn the_engines_words_do_not_empty_the_volume_that_all_sandboxes_share() {
    let forged = "error mounting \"/v\" to rootfs at \"/etc/hostname/opt/opensandbox/.dist/execd\": not a \
                  directory: unknown";
    for message in [COVERED, forged] {
        let fault = Fault::new("POST /containers/c2/start", 0, message);
        let case = Case::new(bridge(), [fault]).await;
        case.contents.lock().unwrap().declares_volumes = true;
        let mut spec = spec();
        let volume = json!({
            "name": "v", "mountPath": "/etc/hostname/opt/opensandbox/.dist/execd",
            "pvc": {"claimName": "c"},
        });
        spec.origin.volumes = vec![serde_json::from_value(volume).unwrap()];
        let error = case.create(spec).await.unwrap_err();
        assert!(start(&error), "{message}: {error:?}");
        assert!(
            case.engine.requests("DELETE /volumes").is_empty(),
            "{message}"
        );
        assert_eq!(case.engine.requests("PUT").len(), 1, "{message}");
        assert!(case.containers().is_empty(), "{message}");
        assert_eq!(
            case.engine.requests("POST /containers/create").len(),
            2,
            "{message}"
        );
    }
}

#[tokio::test]
async fn an_emptied_volume_is_filled_again() {
    let fault = Fault::new("POST /containers/c2/start", 0, COVERED);
    let case = Case::new(bridge(), [fault]).await;
    case.create(spec()).await.unwrap();
    assert_eq!(case.engine.requests("PUT").len(), 2);
}

#[tokio::test]
async fn an_image_for_another_platform_is_replaced_by_the_hosts() {
    let warning = "The requested image's platform (linux/arm64) does not match the detected host \
                   platform (linux/amd64/v3) and no specific platform was requested";
    let warned = move |request: &str, contents: &mut Contents| {
        let (status, body) = contents.respond(request);
        let is_main = request.starts_with("POST /containers/create") && contents.made == 2;
        match is_main {
            true => (201, json!({"Id": "c2", "Warnings": [warning]}).to_string()),
            false => (status, body),
        }
    };
    for wants in [None, Some("arm64")] {
        let contents = Mutex::new(Contents {
            has_image: true,
            ..Contents::default()
        });
        let engine =
            FakeEngine::start(move |request| warned(request, &mut contents.lock().unwrap())).await;
        let runtime = engine.runtime_with(bridge());
        let mut spec = spec();
        spec.origin.platform = wants.map(|arch| osb_protocol::lifecycle::Platform {
            os: "linux".to_owned(),
            arch: arch.to_owned(),
        });
        runtime.create(spec, &|_: Stage| {}).await.unwrap();
        let pulls = engine.requests("POST /images/create");
        let deletes = engine.requests("DELETE /containers/c2");
        if wants.is_none() {
            assert_eq!((pulls.len(), deletes.len()), (1, 1), "{pulls:?}");
            assert!(pulls[0].contains("platform=linux%2Famd64"), "{pulls:?}");
        } else {
            // The client wants that platform.
            assert_eq!((pulls.len(), deletes.len()), (0, 0), "{pulls:?}");
        }
    }
}
