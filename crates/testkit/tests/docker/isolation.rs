//! The extension for isolated sessions.

use osb_testkit::TestServer;
use reqwest::Method;
use serde_json::{Value, json};

use super::stage::{Stage, ask, body, create, delete, docker, get, ready};

async fn capabilities(server: &TestServer, id: &str) -> Value {
    let path = "/v1/isolated/capabilities";
    let (status, body) = ask(server, id, Method::GET, path, None).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn isolated_sessions_take_the_extension() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let mut asking = body();
    asking["extensions"] =
        json!({"bootstrap.execd.isolation": "enable", "opensandbox.extensions.kept": "yes"});
    let id = create(&server, &asking).await;
    let reported = capabilities(&server, &id).await;
    assert_eq!(reported["available"], true, "{reported}");
    let session = json!({"workspace": {"path": "/workspace"}});
    let path = "/v1/isolated/session";
    let (status, made) = ask(&server, &id, Method::POST, path, Some(session)).await;
    assert_eq!(status, 201, "{made}");
    let made: Value = serde_json::from_str(&made).unwrap();
    let path = format!("{path}/{}/run", made["session_id"].as_str().unwrap());
    let code = json!({"code": "touch here; echo $(hostname) $(pwd) $$"});
    let (status, events) = ask(&server, &id, Method::POST, &path, Some(code)).await;
    assert_eq!(status, 200, "{events}");
    assert!(
        events.contains("\"text\":\"sandbox /workspace "),
        "{events}"
    );
    assert!(events.contains("execution_complete"), "{events}");
    let look = json!({"command": "ls /workspace | wc -l"});
    let (_, events) = ask(&server, &id, Method::POST, "/command", Some(look)).await;
    assert!(events.contains("\"text\":\"0\""), "{events}");
    let name = stage.container_of(&id);
    let format = "{{.HostConfig.CapAdd}} {{.HostConfig.CapDrop}} {{.HostConfig.SecurityOpt}} \
                  {{.HostConfig.MaskedPaths}} {{.HostConfig.ReadonlyPaths}} {{.HostConfig.Tmpfs}}";
    let seen = docker(&["inspect", "--format", format, &name]);
    // Older engines prefix the names of capabilities, newer ones do not.
    assert_eq!(
        seen.replace("CAP_", ""),
        "[SYS_ADMIN] [NET_RAW] \
         [no-new-privileges=true apparmor=unconfined seccomp=unconfined] \
         [] [] map[/var/lib/execd/isolation:]"
    );
    // The extension shows nowhere else: neither in the labels nor in the API.
    let labels = docker(&["inspect", "--format", "{{json .Config.Labels}}", &name]);
    assert!(!labels.contains("isolation"), "{labels}");
    let (_, sandbox) = get(&server, &id).await;
    assert_eq!(
        sandbox["extensions"],
        json!({"opensandbox.extensions.kept": "yes"})
    );
    delete(&server, &id).await;
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_extension_only_isolated_sessions_are_missing() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let id = create(&server, &body()).await;
    let reported = capabilities(&server, &id).await;
    assert_eq!(reported["available"], false, "{reported}");
    let why = reported["message"].as_str().unwrap();
    assert!(why.contains("bootstrap.execd.isolation"), "{why}");
    let session = json!({"workspace": {"path": "/workspace"}});
    let path = "/v1/isolated/session";
    let (status, reply) = ask(&server, &id, Method::POST, path, Some(session)).await;
    assert_eq!(status, 503, "{reply}");
    let command = json!({"command": "test ! -e /workspace && echo fine"});
    let (_, events) = ask(&server, &id, Method::POST, "/command", Some(command)).await;
    assert!(events.contains("\"text\":\"fine\""), "{events}");
    let format = "{{.HostConfig.CapAdd}} {{.HostConfig.SecurityOpt}} {{.HostConfig.Tmpfs}}";
    let seen = docker(&["inspect", "--format", format, &stage.container_of(&id)]);
    assert_eq!(seen, "[] [no-new-privileges=true] map[]");
    delete(&server, &id).await;
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}
