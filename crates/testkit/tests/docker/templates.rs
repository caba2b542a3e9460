//! Templates as images of the engine.

use base64::{Engine, prelude::BASE64_STANDARD};
use osb_testkit::{TestServer, wait_until};
use reqwest::Method;
use serde_json::{Value, json};

use super::stage::{IMAGE, Stage, answer, ask, delete, docker, get, ready};

const BUILDS: &str = "[templates]\nallow_builds = true\nbuild_timeout_seconds = 120";

async fn template(server: &TestServer, method: Method, id: &str) -> (u16, Value) {
    let path = format!("/v1/templates/{id}");
    let (status, body) = answer(server.request(method, &path)).await;
    (status.as_u16(), body)
}

/// Adds a template and returns it when it is made, or has failed.
async fn ended(server: &TestServer, body: &Value) -> Value {
    let request = server.request(Method::POST, "/v1/templates").json(body);
    let (status, added) = answer(request).await;
    assert_eq!(status, 201, "{added}");
    let id = added["templateId"].as_str().unwrap().to_owned();
    let look = async || template(server, Method::GET, &id).await.1;
    let is_over = |seen: &Value| {
        let phase = &seen["status"]["phase"];
        phase == "Succeeded" || phase == "Failed"
    };
    wait_until("the template", look, is_over).await
}

async fn made(server: &TestServer, body: &Value) -> Value {
    let seen = ended(server, body).await;
    assert_eq!(seen["status"]["phase"], "Succeeded", "{seen}");
    seen
}

async fn sandbox(server: &TestServer, template: &Value) -> String {
    let body = json!({"templateId": template["templateId"], "timeout": 600});
    let request = server.request(Method::POST, "/v1/sandboxes").json(&body);
    let (status, made) = answer(request).await;
    assert_eq!(status, 202, "{made}");
    made["id"].as_str().unwrap().to_owned()
}

async fn run(server: &TestServer, id: &str, command: &str) -> String {
    let body = json!({"command": command});
    let (status, text) = ask(server, id, Method::POST, "/command", Some(body)).await;
    assert_eq!(status, 200, "{text}");
    text
}

async fn log(server: &TestServer, template: &Value) -> String {
    let id = template["templateId"].as_str().unwrap();
    let path = format!("/v1/templates/{id}/log");
    let log = server.request(Method::GET, &path).send().await.unwrap();
    log.text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_kept_under_a_name_of_its_own() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let body = json!({
        "image": IMAGE, "publish": "p", "env": {"KEY": "of-the-template"},
        "resourceLimits": {"cpu": "1", "memory": "128Mi", "disk": "1Gi"},
    });
    let seen = made(&server, &body).await;
    let kept = stage.template_images();
    assert_eq!(kept, [seen["status"]["manifestRef"].as_str().unwrap()]);
    let id = sandbox(&server, &seen).await;
    let shown = get(&server, &id).await.1;
    assert_eq!(shown["image"]["uri"], seen["templateId"]);
    let text = run(&server, &id, "echo \"[$KEY]\"").await;
    assert!(text.contains("[of-the-template]"), "{text}");
    let made = docker(&[
        "inspect",
        "--format",
        "{{.HostConfig.Memory}}",
        &stage.container_of(&id),
    ]);
    assert_eq!(made.trim(), (128 << 20).to_string());
    // Names of templates are no images, and in no list of them.
    let mut by_name = TestServer::good_create();
    by_name["image"] = json!({"uri": kept[0]});
    let request = server.request(Method::POST, "/v1/sandboxes").json(&by_name);
    let (status, refused) = answer(request).await;
    assert_eq!(status, 400, "{refused}");
    delete(&server, &id).await;
    let gone = template(
        &server,
        Method::DELETE,
        seen["templateId"].as_str().unwrap(),
    )
    .await;
    assert_eq!(gone.0, 204, "{gone:?}");
    assert_eq!(stage.template_images(), [""; 0]);
    assert!(!docker(&["image", "inspect", "--format", "{{.Id}}", IMAGE]).is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_built_from_a_dockerfile_or_a_context() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.configured_server(Vec::new(), BUILDS).await;
    ready(&server).await;
    let dockerfile = format!("FROM {IMAGE}\nRUN echo from-the-build > /built\n");
    let body = json!({"build": {"dockerfile": dockerfile}, "publish": "p"});
    let seen = made(&server, &body).await;
    let text = log(&server, &seen).await;
    assert!(text.contains("from-the-build"), "{text}");
    let id = sandbox(&server, &seen).await;
    let text = run(&server, &id, "cat /built").await;
    assert!(text.contains("from-the-build"), "{text}");
    // The engine has no other name for it, so it stays until the sandbox is gone.
    let path = seen["templateId"].as_str().unwrap();
    let used = template(&server, Method::DELETE, path).await;
    assert_eq!(used.0, 204, "{used:?}");
    assert_eq!(template(&server, Method::GET, path).await.0, 404);
    assert_eq!(stage.template_images().len(), 1);
    let text = run(&server, &id, "cat /built").await;
    assert!(text.contains("from-the-build"), "{text}");
    delete(&server, &id).await;
    server.service.reconcile().await;
    assert_eq!(stage.template_images(), [""; 0]);

    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    file("Dockerfile", &format!("FROM {IMAGE}\nCOPY kept /kept\n"));
    file("kept", "of-the-context");
    let archive = std::process::Command::new("tar")
        .args(["-czf", "-", "-C"])
        .arg(folder.path())
        .arg(".")
        .output()
        .unwrap();
    assert!(archive.status.success(), "{archive:?}");
    let context = BASE64_STANDARD.encode(&archive.stdout);
    let body = json!({"build": {"context": context}, "publish": "p"});
    let seen = made(&server, &body).await;
    let id = sandbox(&server, &seen).await;
    let text = run(&server, &id, "cat /kept").await;
    assert!(text.contains("of-the-context"), "{text}");
    delete(&server, &id).await;
    let path = seen["templateId"].as_str().unwrap();
    assert_eq!(template(&server, Method::DELETE, path).await.0, 204);
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_made_fails_with_its_reason() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.configured_server(Vec::new(), BUILDS).await;
    ready(&server).await;
    let build = |dockerfile: String| json!({"build": {"dockerfile": dockerfile}, "publish": "p"});
    for (image, reason) in [
        ("opensandbox-snapshots:none", "names a snapshot"),
        ("opensandbox-templates/us:none", "names a template"),
        ("sha256:00ff", "id of an image"),
    ] {
        let body = json!({"image": image, "publish": "p"});
        let request = server.request(Method::POST, "/v1/templates").json(&body);
        let (status, refused) = answer(request).await;
        assert_eq!(status, 400, "{refused}");
        assert_eq!(refused["code"], "SANDBOX::INVALID_PARAMETER", "{refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.starts_with("image: "), "{message}");
        assert!(message.contains(reason), "{message}");
    }
    for (body, reason) in [
        (build(format!("FROM {IMAGE}\nRUN exit 7\n")), "7"),
        (build("NONSENSE\n".to_owned()), "NONSENSE"),
    ] {
        let seen = ended(&server, &body).await;
        assert_eq!(seen["status"]["phase"], "Failed", "{seen}");
        let message = seen["status"]["message"].as_str().unwrap();
        assert!(message.contains(reason), "{message}");
        let id = seen["templateId"].as_str().unwrap();
        assert_eq!(template(&server, Method::DELETE, id).await.0, 204);
    }
    assert_eq!(stage.template_images(), [""; 0]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_ends_with_the_deletion_of_its_template() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.configured_server(Vec::new(), BUILDS).await;
    ready(&server).await;
    let dockerfile = format!("FROM {IMAGE}\nRUN echo it-has-begun && sleep 3600\n");
    let body = json!({"build": {"dockerfile": dockerfile}, "publish": "p"});
    let request = server.request(Method::POST, "/v1/templates").json(&body);
    let (status, added) = answer(request).await;
    assert_eq!(status, 201, "{added}");
    let look = async || log(&server, &added).await;
    wait_until("the build", look, |text| text.contains("it-has-begun")).await;
    let id = added["templateId"].as_str().unwrap();
    assert_eq!(template(&server, Method::DELETE, id).await.0, 204);
    let gone = async || server.service.template_entry(id).await.unwrap();
    wait_until("its end", gone, |seen| seen.is_none()).await;
    assert_eq!(stage.template_images(), [""; 0]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_ends_with_its_time() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let more = "[templates]\nallow_builds = true\nbuild_timeout_seconds = 2";
    let server = stage.configured_server(Vec::new(), more).await;
    ready(&server).await;
    let dockerfile = format!("FROM {IMAGE}\nRUN sleep 3600\n");
    let body = json!({"build": {"dockerfile": dockerfile}, "publish": "p"});
    let seen = ended(&server, &body).await;
    let message = seen["status"]["message"].as_str().unwrap();
    assert!(message.contains("did not finish"), "{message}");
    assert_eq!(stage.template_images(), [""; 0]);
    server.stop().await;
}
