//! The page about settings and health.

use std::{path::PathBuf, sync::Arc};

use axum::http::StatusCode;
use osb_protocol::identity::Role;
use osb_runtime::{
    SecureKind,
    sim::{Options, SimRuntime},
};
use osb_store::Location;
use tokio::time::timeout;

use super::{Console, PATIENCE, accounts::PASSWORD, routes};
use crate::{config, http::console::Installation, maintenance::RunningInstallation};

const PAGE: &str = "/console/settings";
const FILE: &str = "\
[server]
port = 9
api_key = 'hunter2hunter2'
api_kye = 'typo'
[runtime]
type = 'sim'
";

impl Console {
    /// Lets it know a configuration over its store.
    fn with_configuration(mut self) -> Self {
        let path = self.folder().join("config.toml");
        let store = self.folder().join("state.db");
        let text = format!("{FILE}[store]\npath = '{}'\n", store.display());
        std::fs::write(&path, text).unwrap();
        let loaded = config::load(Some(&path), &|_| None).unwrap();
        let Location::Sqlite(location) = loaded.config.store.location() else {
            panic!("a file");
        };
        assert_eq!(location, store);
        let installation = RunningInstallation::new(Arc::new(loaded), "1.2.3 (test)".to_owned());
        let installation: Arc<dyn Installation> = Arc::new(installation);
        self.state.domains.installation = Some(installation.into());
        self.router = routes(&self.state, self.store.clone(), false);
        self
    }

    fn folder(&self) -> PathBuf {
        self._dir.path().to_owned()
    }
}

#[tokio::test]
async fn an_administrator_sees_health_and_configuration_without_secrets() {
    let runtime = SimRuntime::with_options(Options {
        powers: true,
        secure: Some(SecureKind::Gvisor),
        ..Options::default()
    });
    let console = Console::open_over(runtime).await.with_configuration();
    let page = console.get(PAGE).await;
    assert_eq!(page.status(), StatusCode::OK);
    let page = page.body;
    assert_eq!(page.matches("<h1>").count(), 1);
    for part in [
        "<h1>Settings &amp; health</h1>",
        "Sandboxes can be created.",
        "It takes writes.",
        "sim answers.",
        "gVisor (runsc)",
        "60 GiB of 100 GiB are free for images and sandboxes.",
        "1.2.3 (test)",
        "config.toml",
        "server.port",
        "line 2",
        "SQLite, ",
        "api_kye",
        "No receiver is informed of events.",
        "/console/settings/bundle",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("hunter2"), "{page}");
    assert!(!page.contains("No damage was found."), "only on request");
    let checked = console.get(&format!("{PAGE}?check=store")).await.body;
    assert!(checked.contains("No damage was found."), "{checked}");
    assert!(checked.contains("audit_entries"), "{checked}");
}

#[tokio::test]
async fn a_support_bundle_is_an_archive_without_secrets() {
    let console = Console::open().await.with_configuration();
    let bundle = console.get("/console/settings/bundle").await;
    assert_eq!(bundle.status(), StatusCode::OK, "{}", bundle.body);
    assert_eq!(bundle.header("content-type"), "application/gzip");
    let name = bundle.header("content-disposition");
    assert!(
        name.contains("opensandbox-support-") && name.ends_with(".tar.gz\""),
        "{name}"
    );
    let installation = console.state.domains.installation.as_ref().unwrap();
    let made = installation.installation.support_bundle().await.unwrap();
    let mut text = String::new();
    let unpacked = flate2::read::GzDecoder::new(&made.1[..]);
    for entry in tar::Archive::new(unpacked).entries().unwrap() {
        let mut entry = entry.unwrap();
        std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
    }
    assert!(text.contains("server.port = 9"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    // The store is read by one at a time.
    let held = installation.turn.lock().await;
    let busy = console.get("/console/settings/bundle").await;
    assert_eq!(busy.status(), StatusCode::SERVICE_UNAVAILABLE);
    let page = console.get(&format!("{PAGE}?check=store")).await.body;
    assert!(page.contains("is under way"), "{page}");
    drop(held);
}

#[tokio::test]
async fn other_roles_see_health_and_learn_why_no_more() {
    let mut console = Console::start().await.with_configuration();
    console.add_user(Role::Operator, None).await;
    console.sign_in("operator", PASSWORD).await;
    let page = console.get(&format!("{PAGE}?check=store")).await.body;
    assert!(page.contains("Sandboxes can be created."), "{page}");
    assert!(
        page.contains("Your role is operator: the configuration"),
        "{page}"
    );
    for part in [
        "config.toml",
        "state.db",
        "GiB are free",
        "No damage",
        "1.2.3 (test)",
        "api_kye",
    ] {
        assert!(!page.contains(part), "{part} in {page}");
    }
    let bundle = console.get("/console/settings/bundle").await;
    assert_eq!(bundle.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn health_says_what_is_wrong() {
    let runtime = Arc::new(SimRuntime::new());
    let console = Console::open_over(Arc::clone(&runtime)).await;
    runtime.go_down("the socket is gone").await;
    let mut health = console.service.registry().watch_health();
    let down = health.wait_for(|health| *health != crate::sandbox::RuntimeHealth::Up);
    drop(timeout(PATIENCE, down).await.unwrap());
    let page = console.get(PAGE).await.body;
    assert!(page.contains("the socket is gone"), "{page}");
    assert!(page.contains("It takes writes."), "{page}");
    assert!(!page.contains("Sandboxes can be created."), "{page}");
}
