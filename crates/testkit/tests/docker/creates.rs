//! Creates: limits, failures and concurrency.

use std::sync::Arc;

use osb_testkit::wait_until;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::stage::{Stage, answer, body, create, delete, docker, get, ready};

#[tokio::test(flavor = "multi_thread")]
async fn failures_have_reasons_and_leave_nothing() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let mut no_image = body();
    no_image["image"]["uri"] = "no-such-registry.invalid/no/such:image".into();
    let request = server
        .request(Method::POST, "/v1/sandboxes")
        .json(&no_image);
    let (status, reply) = answer(request).await;
    assert_eq!(
        (status.as_u16(), &reply["code"]),
        (500, &json!("DOCKER::SANDBOX_IMAGE_PULL_FAILED"))
    );
    assert!(
        reply["message"]
            .as_str()
            .unwrap()
            .contains("no-such-registry.invalid/no/such:image")
    );
    assert_eq!(stage.containers(), [""; 0]);
    let mut too_small = body();
    too_small["resourceLimits"]["memory"] = "1Ki".into();
    let request = server
        .request(Method::POST, "/v1/sandboxes")
        .json(&too_small);
    let (status, reply) = answer(request).await;
    assert_eq!(
        (status.as_u16(), &reply["code"]),
        (400, &json!("SANDBOX::INVALID_PARAMETER")),
        "{reply}"
    );
    let mut no_command = body();
    no_command["entrypoint"] = json!(["/no/such/command"]);
    let id = create(&server, &no_command).await;
    let failed = |seen: &(StatusCode, Value)| seen.1["status"]["state"] == "Failed";
    let (_, seen) = wait_until("the failure", || get(&server, &id), failed).await;
    assert!(
        seen["status"]["message"].as_str().unwrap().contains("127"),
        "{seen}"
    );
    delete(&server, &id).await;
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_reach_the_container_and_parallel_creates_do_not_collide() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = Arc::new(stage.server().await);
    ready(&server).await;
    let creates = (0..8).map(|_| {
        let server = Arc::clone(&server);
        async move { create(&server, &body()).await }
    });
    let ids = futures::future::join_all(creates).await;
    let name = stage.container_of(&ids[0]);
    let format = "{{.HostConfig.Memory}} {{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}} \
                  {{.HostConfig.SecurityOpt}} {{.HostConfig.NetworkMode}} \
                  {{.HostConfig.LogConfig.Config}}";
    let seen = docker(&["inspect", "--format", format, &name]);
    assert_eq!(
        seen,
        "268435456 500000000 256 [no-new-privileges=true] opensandbox \
         map[max-file:2 max-size:1m]"
    );
    let icc = r#"{{index .Options "com.docker.network.bridge.enable_icc"}}"#;
    assert_eq!(
        docker(&["network", "inspect", "--format", icc, "opensandbox"]),
        "false"
    );
    for id in &ids {
        delete(&server, id).await;
    }
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}
