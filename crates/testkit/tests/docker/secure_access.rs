//! Sandboxes whose every port needs their token.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use osb_testkit::TestServer;

use super::stage::{Stage, answer, body, create, delete, docker, ready};

/// The endpoint of execd of a sandbox.
async fn endpoint(server: &TestServer, id: &str) -> Value {
    let path = format!("/v1/sandboxes/{id}/endpoints/44772");
    let (status, endpoint) = answer(server.request(Method::GET, &path)).await;
    assert_eq!(status, StatusCode::OK, "{endpoint}");
    endpoint
}

#[tokio::test(flavor = "multi_thread")]
async fn secure_access_publishes_no_port_and_survives_a_restart() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let mut secured = body();
    secured["secureAccess"] = json!(true);
    let id = create(&server, &secured).await;
    let container = stage.container_of(&id);
    let bindings = "{{json .HostConfig.PortBindings}} {{json .NetworkSettings.Ports}}";
    assert_eq!(
        docker(&["inspect", "--format", bindings, &container]),
        "{} {}"
    );

    let before = endpoint(&server, &id).await;
    let headers = before["headers"].as_object().unwrap().clone();
    assert!(
        headers.contains_key("OpenSandbox-Secure-Access"),
        "{before}"
    );
    let runs = async |server: &TestServer, names: &[&str]| {
        let path = format!("/v1/sandboxes/{id}/proxy/44772/command");
        let mut request = server.bare(Method::POST, &path);
        for name in names {
            request = request.header(*name, headers[*name].as_str().unwrap());
        }
        let command = json!({"command": "echo in$((1+1))side"});
        let answer = request.json(&command).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    let both = ["OpenSandbox-Secure-Access", "X-EXECD-ACCESS-TOKEN"];
    let (status, events) = runs(&server, &both).await;
    assert_eq!(status, StatusCode::OK, "{events}");
    assert!(events.contains("in2side"), "{events}");
    for one in both {
        let (status, answer) = runs(&server, &[one]).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{one}: {answer}");
    }
    server.stop().await;
    // It holds the store.
    drop(server);

    let server = stage.server().await;
    ready(&server).await;
    assert_eq!(endpoint(&server, &id).await["headers"], before["headers"]);
    assert_eq!(runs(&server, &both).await.0, StatusCode::OK);
    let without = runs(&server, &[both[1]]).await.0;
    assert_eq!(without, StatusCode::UNAUTHORIZED);
    delete(&server, &id).await;
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
}
