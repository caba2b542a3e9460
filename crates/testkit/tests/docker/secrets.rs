//! What neither neighbours nor the log may show.

use std::sync::{Arc, Mutex};

use osb_service::telemetry;
use osb_testkit::wait_until;
use reqwest::Method;
use serde_json::json;

use super::stage::{Stage, ask, body, create, delete, docker, ready};

/// Collects the log.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_log_level_shows_a_secret() {
    let output = Output::default();
    let writer = output.clone();
    telemetry::init_with_writer("trace", false, move || writer.clone()).unwrap();
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let mut secretive = body();
    secretive["env"] = json!({"PASSWORD": "s3cret-value-of-the-environment"});
    let id = create(&server, &secretive).await;
    let label = r#"{{index .Config.Labels "opensandbox.io/execd-access-token"}}"#;
    let token = docker(&["inspect", "--format", label, &stage.container_of(&id)]);
    assert!(token.len() > 16, "{token}");
    let command = json!({"command": "echo $PASSWORD"});
    let (_, events) = ask(&server, &id, Method::POST, "/command", Some(command)).await;
    assert!(events.contains("s3cret-value"), "{events}");
    let mut secured = body();
    secured["secureAccess"] = json!(true);
    let secured = create(&server, &secured).await;
    let label = r#"{{index .Config.Labels "opensandbox.io/secure-access-token"}}"#;
    let access = docker(&["inspect", "--format", label, &stage.container_of(&secured)]);
    assert!(access.len() > 16, "{access}");
    let ping = format!("/sandboxes/{secured}/proxy/44772/ping");
    let ping = server.bare(Method::GET, &ping);
    let ping = ping.header("OpenSandbox-Secure-Access", &access).send();
    assert_eq!(ping.await.unwrap().status(), 200);
    for id in [&id, &secured] {
        delete(&server, id).await;
    }
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
    let log = String::from_utf8_lossy(&output.0.lock().unwrap()).into_owned();
    assert!(log.contains("sandbox removed"), "nothing was logged: {log}");
    for secret in [&token, &access, "s3cret-value", osb_testkit::API_KEY] {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "a secret is in the log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbours_cannot_learn_a_sandboxs_id() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let (id, neighbour) = (
        create(&server, &body()).await,
        create(&server, &body()).await,
    );
    let container = stage.container_of(&id);
    let inspect = |format: &str| docker(&["inspect", "--format", format, &container]);
    let names = "{{.Name}} {{.Config.Hostname}} {{json .NetworkSettings.Networks}}";
    assert!(!inspect(names).contains(&id), "{}", inspect(names));
    let mut address = inspect("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}");
    let look_up = async |address: &str| {
        let command = json!({"command": format!("getent hosts {address}; hostname")});
        let (status, events) =
            ask(&server, &neighbour, Method::POST, "/command", Some(command)).await;
        assert_eq!(status, 200, "{events}");
        events
    };
    let events = look_up(&address).await;
    assert!(!events.contains(&id), "{events}");
    assert!(events.contains(&inspect("{{.Name}}")[1..]), "{events}");
    // Earlier builds put the id into the name.
    docker(&["rename", &container, &format!("sandbox-{id}")]);
    let events = look_up(&address).await;
    assert!(events.contains(&id), "the test would not see it: {events}");
    stage.engine.cut().unwrap();
    stage.engine.up().unwrap();
    let renamed = |name: &String| name.starts_with("/osb-");
    wait_until("the new name", || async { inspect("{{.Name}}") }, renamed).await;
    ready(&server).await;
    address = inspect("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}");
    let events = look_up(&address).await;
    assert!(!events.contains(&id), "{events}");
    for id in [&id, &neighbour] {
        delete(&server, id).await;
    }
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
}
