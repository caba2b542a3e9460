//! A sandbox of several containers.

use std::time::Duration;

use osb_runtime::{Role, docker::SidecarConfig};
use osb_testkit::wait_until;
use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::stage::{
    IMAGE, Stage, answer, body, containers_with, create, delete, docker, get, ready,
};

pub(super) fn sidecar() -> SidecarConfig {
    SidecarConfig {
        role: Role::Egress,
        image: IMAGE.to_owned(),
        entrypoint: vec!["sleep".to_owned(), "infinity".to_owned()],
        add_capabilities: vec!["NET_ADMIN".to_owned()],
    }
}

#[test]
fn a_sandbox_with_a_sidecar_is_one_group() {
    let mut stage = Stage::set();
    let first = tokio::runtime::Runtime::new().unwrap();
    let (id, egress) = first.block_on(async {
        stage.engine.up().unwrap();
        let server = stage.server_with(vec![sidecar()]).await;
        ready(&server).await;
        let id = create(&server, &body()).await;
        let [main, egress] = containers_with(&format!("opensandbox.io/id={id}"))
            .try_into()
            .unwrap();
        // execd listens in the main container and is published by the sidecar.
        let endpoint = server.request(Method::GET, &format!("/v1/sandboxes/{id}/endpoints/44772"));
        let (status, endpoint) = answer(endpoint).await;
        assert_eq!(status, 200, "{endpoint}");
        let ping = format!("http://{}/ping", endpoint["endpoint"].as_str().unwrap());
        assert_eq!(reqwest::get(ping).await.unwrap().status(), 200);
        let proxied = format!("/v1/sandboxes/{id}/proxy/44772/ping");
        assert_eq!(
            server
                .request(Method::GET, &proxied)
                .send()
                .await
                .unwrap()
                .status(),
            200
        );
        let mode = docker(&["inspect", "--format", "{{.HostConfig.NetworkMode}}", &main]);
        assert_eq!(mode, format!("container:{egress}"));
        (id, egress)
    });
    first.shutdown_timeout(Duration::from_secs(60));
    // The sidecar ends while no server runs.
    docker(&["kill", &egress]);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        let server = stage.server_with(vec![sidecar()]).await;
        ready(&server).await;
        let (_, shown) = get(&server, &id).await;
        assert_eq!(shown["status"]["reason"], "EGRESS_LOST", "{shown}");
        delete(&server, &id).await;
        assert_eq!(stage.containers(), [""; 0]);
        // The sidecar ends while a server runs.
        let id = create(&server, &body()).await;
        let egress = containers_with("opensandbox.io/role=egress");
        docker(&["kill", &egress[0]]);
        let failed = |seen: &(StatusCode, Value)| seen.1["status"]["reason"] == "EGRESS_LOST";
        wait_until("the loss", || get(&server, &id), failed).await;
        delete(&server, &id).await;
        server.stop().await;
    });
    assert_eq!(stage.containers(), [""; 0]);
}
