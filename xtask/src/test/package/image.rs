//! The image of the server, started as the compose file starts it, but with its store in a file.

use std::{
    fs::{self, Permissions},
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::{Outcome, Packaged, output};
use crate::{
    host::engine,
    process::{query, run_within},
    step::notice,
    up::{BASE_IMAGE, free_port, random_key},
    wait::until,
};

/// Longest time to build the image.
const BUILD: Duration = Duration::from_secs(600);
/// Longest time until the container counts as healthy.
const HEALTHY: Duration = Duration::from_secs(120);
/// Longest time of a request. A create pulls nothing.
const REQUEST: Duration = Duration::from_secs(60);
/// Files of the build.
const FILES: [&str; 2] = ["opensandbox-server", "execd"];

/// An image, removed when this is dropped.
pub(super) struct Image(pub(super) String);

impl Image {
    /// Builds one from a folder with a Dockerfile.
    pub(super) fn build(name: String, folder: &Path) -> Result<Self> {
        run_within(
            BUILD,
            Command::new("docker")
                .args(["build", "--network", "host", "--tag", &name])
                .arg(folder)
                // As in `up`: the parent image may be a local one.
                .env("DOCKER_BUILDKIT", "0"),
        )?;
        Ok(Self(name))
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if let Err(error) = query(Command::new("docker").args(["image", "rm", &self.0])) {
            notice(&format!("cannot remove the image {}: {error:#}", self.0));
        }
    }
}

/// A container of the server, removed when this is dropped, before its image.
struct Container {
    name: String,
    image: Image,
}

impl Drop for Container {
    fn drop(&mut self) {
        // There is none if the image does not start.
        let container = ["rm", "--force", "--volumes", &self.name];
        let _ = query(Command::new("docker").args(container));
    }
}

pub(super) fn serve(packaged: &Packaged<'_>) -> Result<Outcome> {
    let Some(socket) = engine::local_socket() else {
        return Ok(Outcome::Skipped(
            "the engine is on another machine".to_owned(),
        ));
    };
    let image = match build(packaged, "image")? {
        Ok(image) => image,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let container = Container {
        name: format!("opensandbox-image-test-{}", packaged.context.run),
        image,
    };
    let (port, key) = (free_port()?, random_key()?);
    start(packaged, &container, &socket, port, &key)?;
    let used = use_server(&container.name, port, &key);
    if used.is_err() {
        let log = output::of(Command::new("docker").args(["logs", &container.name]));
        let log = log.map_or_else(|error| error.to_string(), |(_, log)| log);
        notice(&format!("the log of the server in its container:\n{log}"));
    }
    used.map(|()| Outcome::Passed)
}

/// Builds the image with the programs of the tests, in a folder of this name. Returns the reason if the
/// server cannot run in it, because it is not static as those of releases are.
pub(super) fn build(packaged: &Packaged<'_>, folder: &str) -> Result<Result<Image, String>> {
    let name = format!("opensandbox/server:test-{folder}-{}", packaged.context.run);
    let folder = packaged.folder.join(folder);
    fs::create_dir(&folder)?;
    for name in FILES {
        fs::hard_link(packaged.programs.join(name), folder.join(name))?;
    }
    let dockerfile = packaged.context.repo.path("deploy/server/Dockerfile");
    fs::copy(dockerfile, folder.join("Dockerfile"))?;
    let image = Image::build(name, &folder)?;
    let (succeeded, printed) = output::of(
        Command::new("docker")
            .args(["run", "--rm", "--network", "none", &image.0])
            .arg("--version"),
    )?;
    if !succeeded && printed.contains("GLIBC_") {
        return Ok(Err(format!(
            "the server of the tests needs a newer system: {printed}"
        )));
    }
    ensure!(succeeded, "the image does not start:\n{printed}");
    Ok(Ok(image))
}

/// Starts the container like `deploy/compose.yaml`.
fn start(
    packaged: &Packaged<'_>,
    container: &Container,
    socket: &str,
    port: u16,
    key: &str,
) -> Result<()> {
    let store = "type = \"sqlite\"\npath = \"/var/lib/opensandbox/store.db\"";
    let config = packaged.folder.join("config.toml");
    configure(packaged, &config, port, Some(store))?;
    let state = packaged.folder.join("state");
    fs::create_dir(&state)?;
    // The user of the image is not one of this machine.
    fs::set_permissions(&state, Permissions::from_mode(0o777))?;
    let group = fs::metadata(socket)
        .with_context(|| format!("cannot inspect {socket}"))?
        .gid();
    let mount = |from: &Path, to: &str| format!("{}:{to}", from.display());
    query(
        Command::new("docker")
            .args(["run", "--detach", "--name", &container.name])
            .args(["--network", "host", "--read-only", "--cap-drop", "ALL"])
            .args(["--security-opt", "no-new-privileges"])
            .args(["--health-interval", "2s", "--group-add", &group.to_string()])
            .args(["--env", "OPENSANDBOX_SERVER_API_KEY"])
            .args([
                "--volume",
                &mount(&config, "/etc/opensandbox/config.toml:ro"),
            ])
            .args([
                "--volume",
                &mount(Path::new(socket), "/var/run/docker.sock"),
            ])
            .args(["--volume", &mount(&state, "/var/lib/opensandbox")])
            .arg(&container.image.0)
            .env("OPENSANDBOX_SERVER_API_KEY", key),
    )?;
    Ok(())
}

/// Writes the configuration of the compose file, with another port and perhaps another store: one
/// that this run finds among its reports.
pub(super) fn configure(
    packaged: &Packaged<'_>,
    file: &Path,
    port: u16,
    store: Option<&str>,
) -> Result<()> {
    let text = packaged.context.repo.path("deploy/server/config.toml");
    let mut text =
        fs::read_to_string(&text).with_context(|| format!("cannot read {}", text.display()))?;
    let port = ("\nport = 8080\n", format!("\nport = {port}\n"));
    let store = store.map(|store| ("type = \"postgresql\"", store.to_owned()));
    for (line, other) in [port].into_iter().chain(store) {
        ensure!(
            text.contains(line),
            "deploy/server/config.toml has no {line:?}"
        );
        text = text.replace(line, &other);
    }
    fs::write(file, text)?;
    fs::set_permissions(file, Permissions::from_mode(0o644))?;
    Ok(())
}

/// Creates a sandbox by the server in a container, uses its execd through the server, and deletes it.
pub(super) fn use_server(container: &str, port: u16, key: &str) -> Result<()> {
    let address = &format!("127.0.0.1:{port}");
    let mut state = String::new();
    let template = "{{.State.Status}} {{.State.Health.Status}}";
    let is_healthy = until(HEALTHY, || {
        let mut inspect = Command::new("docker");
        let inspect = inspect.args(["inspect", "--format", template, container]);
        state = query(inspect).unwrap_or_else(|error| error.to_string());
        state != "running starting"
    });
    ensure!(
        is_healthy && state == "running healthy",
        "the container is {state:?}"
    );
    let mut answer = String::new();
    let is_ready = until(HEALTHY, || {
        let mut health = Command::new("docker");
        let health = health.args(["exec", container, "opensandbox-server"]);
        let asked = output::of(health.args(["health", "--ready"]));
        let (succeeded, text) = asked.unwrap_or_else(|error| (false, error.to_string()));
        answer = text;
        succeeded
    });
    ensure!(is_ready, "the server is not ready:\n{answer}");

    let body = json!({
        "image": { "uri": BASE_IMAGE },
        "entrypoint": ["tail", "-f", "/dev/null"],
        "timeout": 600,
        "resourceLimits": { "cpu": "500m", "memory": "256Mi" },
    });
    let created = request(address, key, "POST", "/v1/sandboxes", Some(&body))?;
    let created: Value = serde_json::from_str(&created).context("unexpected answer")?;
    let id = created["id"].as_str().context("the answer has no id")?;
    // The engine filled the volume with execd, and the container has a route to the sandbox.
    let sandbox = format!("/v1/sandboxes/{id}");
    let used = request(
        address,
        key,
        "GET",
        &format!("{sandbox}/proxy/44772/ping"),
        None,
    );
    let deleted = request(address, key, "DELETE", &sandbox, None);
    used.context("execd does not answer through the server")?;
    deleted?;
    let is_gone = until(REQUEST, || {
        request(address, key, "GET", &sandbox, None).is_err()
    });
    ensure!(is_gone, "the sandbox is not removed");
    Ok(())
}

/// Sends a request; returns the body of the answer, and an error unless it succeeded.
fn request(
    address: &str,
    key: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<String> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut stream =
        TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(REQUEST))?;
    // HTTP/1.0: the answer ends with the connection, not with a last chunk.
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nOPEN-SANDBOX-API-KEY: {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, content) = answer
        .split_once("\r\n\r\n")
        .context("the answer has no head")?;
    match head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
    {
        Some(200..=299_u16) => Ok(content.to_owned()),
        _ => bail!("{method} {path}: {answer}"),
    }
}
