//! The compose file: as Docker reads it, and started with images that are built here.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::{
    Outcome, Packaged,
    image::{self, Image},
    output,
};
use crate::{
    host::engine,
    process::{query, run_within},
    step::notice,
    up::{free_port, random_key},
};

/// Longest time until both containers count as healthy. The first check of the server's is made 30
/// seconds after its start.
const UP: Duration = Duration::from_secs(180);

/// Stands in for the official image of PostgreSQL: takes the same variables, and keeps data and socket
/// at the same places.
const POSTGRES: &str = r#"FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends postgresql-15 \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -m 0700 -o postgres -g postgres /var/lib/postgresql/data
COPY start /usr/local/bin/start
ENV PATH=/usr/lib/postgresql/15/bin:$PATH
USER postgres
VOLUME /var/lib/postgresql/data
ENTRYPOINT ["start"]
"#;
const START: &str = r#"#!/bin/sh
set -e
data=/var/lib/postgresql/data
if [ ! -e "$data/PG_VERSION" ]; then
    initdb --pgdata "$data" --username "$POSTGRES_USER" --auth "$POSTGRES_HOST_AUTH_METHOD"
    echo "CREATE DATABASE \"$POSTGRES_DB\";" | postgres --single -D "$data" postgres
fi
exec "$@" -D "$data"
"#;

/// Why compose is not used, if it is not installed.
fn missing() -> Result<Option<Outcome>> {
    if output::of(Command::new("docker").args(["compose", "version"]))?.0 {
        return Ok(None);
    }
    let reason = "docker compose is not installed (a plugin of the docker command)";
    Ok(Some(Outcome::Skipped(reason.to_owned())))
}

pub(super) fn validate(packaged: &Packaged<'_>) -> Result<Outcome> {
    if let Some(outcome) = missing()? {
        return Ok(outcome);
    }
    let file = packaged.context.repo.path("deploy/compose.yaml");
    let config = |variables: &[(&str, &str)]| {
        let mut config = Command::new("docker");
        config
            .args(["compose", "--file"])
            .arg(&file)
            // Not the operator's own.
            .args(["--env-file", "/dev/null", "config", "--quiet"])
            .env_remove("DOCKER_GID")
            .env_remove("OPENSANDBOX_SERVER_API_KEY")
            .envs(variables.iter().copied());
        output::of(&mut config)
    };
    let variables = [("DOCKER_GID", "999"), ("OPENSANDBOX_SERVER_API_KEY", "k")];
    let (succeeded, found) = config(&variables)?;
    ensure!(succeeded, "docker compose finds:\n{found}");
    // Without a key the server would not start; the reason is said before it is tried.
    let (succeeded, found) = config(&variables[..1])?;
    let named = found.contains("OPENSANDBOX_SERVER_API_KEY");
    ensure!(!succeeded && named, "a key is not asked for:\n{found}");
    Ok(Outcome::Passed)
}

/// Containers and volumes of a project, removed when this is dropped.
struct Project {
    name: String,
    folder: PathBuf,
    variables: Vec<(&'static str, String)>,
    /// Removed after the containers.
    _images: [Image; 2],
}

impl Project {
    fn compose(&self, arguments: &[&str]) -> Command {
        let mut compose = Command::new("docker");
        compose
            .args(["compose", "--project-name", &self.name, "--file"])
            .arg(self.folder.join("compose.yaml"))
            .args(["--env-file", "/dev/null"])
            .args(arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        compose
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let mut down = self.compose(&["down", "--volumes", "--timeout", "20"]);
        if let Err(error) = run_within(UP, &mut down) {
            notice(&format!("cannot remove what compose started: {error:#}"));
        }
    }
}

/// Server and database start, and sandboxes are created.
pub(super) fn up(packaged: &Packaged<'_>) -> Result<Outcome> {
    if let Some(outcome) = missing()? {
        return Ok(outcome);
    }
    let Some(socket) = engine::local_socket() else {
        let reason = "the engine is on another machine";
        return Ok(Outcome::Skipped(reason.to_owned()));
    };
    let server = match image::build(packaged, "compose-image")? {
        Ok(image) => image,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let database = postgres(packaged)?;
    let (port, key) = (free_port()?, random_key()?);
    let folder = packaged.folder.join("compose");
    fs::create_dir_all(folder.join("server"))?;
    let text = packaged.context.repo.path("deploy/compose.yaml");
    let text =
        fs::read_to_string(&text).with_context(|| format!("cannot read {}", text.display()))?;
    fs::write(folder.join("compose.yaml"), with_possible_limit(&text)?)?;
    image::configure(packaged, &folder.join("server/config.toml"), port, None)?;
    let group = fs::metadata(&socket)
        .with_context(|| format!("cannot inspect {socket}"))?
        .gid();
    let project = Project {
        name: format!("opensandbox-test-{}", packaged.context.run.to_lowercase()),
        folder,
        variables: vec![
            ("OPENSANDBOX_IMAGE", server.0.clone()),
            ("POSTGRES_IMAGE", database.0.clone()),
            ("DOCKER_GID", group.to_string()),
            ("OPENSANDBOX_SERVER_API_KEY", key.clone()),
        ],
        _images: [server, database],
    };
    let wait = UP.as_secs().to_string();
    let mut up = project.compose(&["up", "--detach", "--wait", "--wait-timeout", &wait]);
    let used = run_within(UP, &mut up).and_then(|()| {
        let container = query(&mut project.compose(&["ps", "--quiet", "server"]))?;
        image::use_server(&container, port, &key)?;
        let check = [
            "exec",
            "--no-TTY",
            "server",
            "opensandbox-server",
            "store",
            "check",
        ];
        let (succeeded, printed) = output::of(&mut project.compose(&check))?;
        ensure!(succeeded, "the store has faults:\n{printed}");
        Ok(())
    });
    if used.is_err() {
        let logs = output::of(&mut project.compose(&["logs", "--no-color"]));
        let logs = logs.map_or_else(|error| error.to_string(), |(_, logs)| logs);
        notice(&format!("the logs of the containers:\n{logs}"));
    }
    used.map(|()| Outcome::Passed)
}

/// The file with a limit of open files that this machine allows. An engine in a container can often
/// not raise its own.
fn with_possible_limit(text: &str) -> Result<String> {
    const LIMIT: (&str, u64) = ("nofile: 65536", 65536);
    ensure!(
        text.contains(LIMIT.0),
        "deploy/compose.yaml has no {:?}",
        LIMIT.0
    );
    let most = query(Command::new("sh").args(["-c", "ulimit -H -n"]))?;
    // It may be "unlimited".
    let most = most.parse().map_or(LIMIT.1, |most| LIMIT.1.min(most));
    Ok(text.replace(LIMIT.0, &format!("nofile: {most}")))
}

/// Builds an image with PostgreSQL. The official one takes a registry.
fn postgres(packaged: &Packaged<'_>) -> Result<Image> {
    let folder = packaged.folder.join("postgres-image");
    fs::create_dir(&folder)?;
    fs::write(folder.join("Dockerfile"), POSTGRES)?;
    let start = folder.join("start");
    fs::write(&start, START)?;
    fs::set_permissions(&start, Permissions::from_mode(0o755))?;
    let name = format!("opensandbox/postgres:test-{}", packaged.context.run);
    Image::build(name, &folder)
}
