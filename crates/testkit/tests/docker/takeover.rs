//! Sandboxes that another server made, as the contract describes them (contract: lifecycle §17.2,
//! §17.11, §19).

use std::{fs, path::Path};

use osb_testkit::wait_until;
use reqwest::{Method, StatusCode};
use serde_json::json;
use uuid::Uuid;

use super::stage::{IMAGE, Stage, answer, delete, docker, get, ready};

/// Held by a test whose servers take over: a sandbox has one owner on an engine.
static ONE_OWNER: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A sandbox with a network policy: its sidecar, its volume and its main container.
struct Foreign {
    id: String,
}

impl Foreign {
    fn start() -> Self {
        let id = Uuid::new_v4().to_string();
        let foreign = Self { id: id.clone() };
        let (sidecar, volume) = (format!("sandbox-egress-{id}"), foreign.volume());
        docker(&[
            "volume",
            "create",
            "--label",
            "opensandbox.io/volume-managed-by=server",
            &volume,
        ]);
        let label = format!("opensandbox.io/egress-sidecar-for={id}");
        let run = ["run", "--detach", "--entrypoint", "sleep", "--name"];
        let command = [IMAGE, "infinity"];
        let words = [&run[..], &[&sidecar, "--label", &label], &command].concat();
        docker(&words);
        let labels = [
            format!("opensandbox.io/id={id}"),
            "opensandbox.io/expires-at=2098-01-01T02:00:00+02:00".to_owned(),
            format!("opensandbox.io/volume-managed-by=[\"{volume}\"]"),
            "team=labels".to_owned(),
        ];
        let (name, network) = (format!("sandbox-{id}"), format!("container:{sidecar}"));
        let mount = format!("{volume}:/opt/opensandbox");
        let mut words = [
            &run[..],
            &[&name, "--network", &network, "--volume", &mount],
        ]
        .concat();
        words.extend(labels.iter().flat_map(|label| ["--label", label.as_str()]));
        words.extend(command);
        docker(&words);
        foreign
    }

    fn volume(&self) -> String {
        format!("opensandbox-runtime-{}", self.id)
    }

    /// Name of the volume that records its owner; empty if there is none.
    fn record(&self) -> String {
        let filter = format!("label=opensandbox.io/owner-of={}", self.id);
        docker(&["volume", "ls", "--quiet", "--filter", &filter])
    }

    /// Names of its containers.
    fn names(&self) -> Vec<String> {
        let filters = ["id", "egress-sidecar-for"];
        let list = |label| {
            let filter = format!("label=opensandbox.io/{label}={}", self.id);
            docker(&["ps", "--all", "--filter", &filter, "--format", "{{.Names}}"])
        };
        let lists = filters.map(list).join("\n");
        lists
            .lines()
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Writes the files that the other server keeps.
    fn write_files(&self, folder: &Path) {
        fs::create_dir_all(folder.join("_expiration")).unwrap();
        let metadata = json!({"team": "file"}).to_string();
        fs::write(folder.join(format!("{}.json", self.id)), metadata).unwrap();
        let expiry = json!({"expires_at": "2099-01-01T00:00:00+00:00"}).to_string();
        fs::write(folder.join(format!("_expiration/{}.json", self.id)), expiry).unwrap();
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        for name in self.names() {
            docker(&["rm", "--force", "--volumes", &name]);
        }
        docker(&["volume", "rm", "--force", &self.volume()]);
        let record = self.record();
        if !record.is_empty() {
            docker(&["volume", "rm", "--force", &record]);
        }
    }
}

#[tokio::test]
async fn a_sandbox_of_another_server_is_taken_over_with_all_that_belongs_to_it() {
    let _alone = ONE_OWNER.lock().await;
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let foreign = Foreign::start();
    let files = tempfile::tempdir().unwrap();
    foreign.write_files(files.path());
    let import = format!("[store]\nimport_path = '{}'", files.path().display());
    for is_first in [true, false] {
        let server = stage.server_that_takes_over(&import).await;
        ready(&server).await;
        let (status, found) = get(&server, &foreign.id).await;
        assert_eq!(status, StatusCode::OK, "{found}");
        assert_eq!(found["status"]["state"], "Running", "{found}");
        assert_eq!(found["expiresAt"], "2099-01-01T00:00:00Z");
        assert_eq!(found["metadata"], json!({"team": "file"}));
        let renamed = async || foreign.names();
        wait_until("new names", renamed, |names| {
            names.len() == 2 && names.iter().all(|name| name.starts_with("osb-"))
        })
        .await;
        for (action, state) in [("pause", "Paused"), ("resume", "Running")] {
            let path = format!("/v1/sandboxes/{}/{action}", foreign.id);
            let (status, error) = answer(server.request(Method::POST, &path)).await;
            assert_eq!(status, StatusCode::ACCEPTED, "{action}: {error}");
            let (_, seen) = get(&server, &foreign.id).await;
            assert_eq!(seen["status"]["state"], state);
        }
        if is_first {
            // The store knows now what the files said.
            fs::remove_dir_all(files.path()).unwrap();
        } else {
            delete(&server, &foreign.id).await;
            assert_eq!(foreign.names(), [""; 0]);
            let filter = format!("name={}", foreign.volume());
            let volumes = docker(&["volume", "ls", "--quiet", "--filter", &filter]);
            assert_eq!(volumes, "");
            assert_eq!(foreign.record(), "", "of its owner");
        }
        server.stop().await;
        drop(server);
    }
}

#[tokio::test]
async fn a_sandbox_of_another_server_has_one_owner_among_several_servers() {
    let _alone = ONE_OWNER.lock().await;
    let (mut one, mut two) = (Stage::set(), Stage::set());
    one.engine.up().unwrap();
    two.engine.up().unwrap();
    let servers = (
        one.server_that_takes_over("").await,
        two.server_that_takes_over("").await,
    );
    let (one, two) = (&servers.0, &servers.1);
    tokio::join!(ready(one), ready(two));
    // Both see it start.
    let foreign = Foreign::start();
    let both = async || {
        let (one, two) = tokio::join!(get(one, &foreign.id), get(two, &foreign.id));
        (one.0, two.0)
    };
    let is_owned = |seen: &(StatusCode, StatusCode)| seen.0 == 200 || seen.1 == 200;
    wait_until("an owner", both, is_owned).await;
    let record = foreign.record();
    assert_ne!(record, "");
    // Time for the other server to make a mistake: it lists again and sweeps.
    for server in [one, two] {
        server.service.reconcile().await;
    }
    let (owner, other) = match both().await {
        (StatusCode::OK, StatusCode::NOT_FOUND) => (one, two),
        (StatusCode::NOT_FOUND, StatusCode::OK) => (two, one),
        seen => panic!("{seen:?}"),
    };
    let path = format!("/v1/sandboxes/{}", foreign.id);
    let refused = answer(other.request(Method::DELETE, &path)).await;
    assert_eq!(refused.0, StatusCode::NOT_FOUND);
    assert_eq!(foreign.names().len(), 2, "both containers are there");
    assert_eq!(foreign.record(), record);
    delete(owner, &foreign.id).await;
    assert_eq!(foreign.names(), [""; 0]);
    assert_eq!(foreign.record(), "");
    servers.0.stop().await;
    servers.1.stop().await;
}
