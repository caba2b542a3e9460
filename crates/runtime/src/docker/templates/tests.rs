use std::{io::Read, sync::Mutex};

use serde_json::{Value, json};

use super::*;
use crate::docker::fake_engine::{CUT, FakeEngine};

const NAME: &str = "opensandbox-templates/us:t";

/// Makes template `t` and returns what the build wrote, too.
async fn make(
    engine: &FakeEngine,
    recipe: Recipe,
) -> (Result<StoredTemplate, RuntimeError>, String) {
    let log = Mutex::new(String::new());
    let write = |text: &str| log.lock().unwrap().push_str(text);
    let made = engine.runtime().make("t", &recipe, &write).await;
    (made, log.into_inner().unwrap())
}

fn dockerfile() -> Recipe {
    Recipe::Build(Context::Dockerfile("FROM debian:12\nRUN true\n".to_owned()))
}

/// An engine that answers to a build, and has its image then.
async fn builder(status: u16, answer: &[Value]) -> FakeEngine {
    let answer: String = answer.iter().map(|line| format!("{line}\r\n")).collect();
    FakeEngine::start(move |request| match request {
        _ if request.starts_with("POST /build") => (status, answer.clone()),
        _ if request.starts_with(&format!("GET /images/{NAME}/json")) => {
            let labels = json!({labels::TEMPLATE: "t"});
            let image = json!({"Id": "sha256:1", "Size": 7, "Config": {"Labels": labels}});
            (200, image.to_string())
        }
        _ => (404, json!({"message": request}).to_string()),
    })
    .await
}

#[tokio::test]
async fn an_image_that_is_there_gets_a_name_and_no_pull() {
    let engine = FakeEngine::start(|request| match request {
        _ if request.starts_with("GET /images/debian:12/json") => (200, "{}".to_owned()),
        _ if request.starts_with("POST /images/debian:12/tag") => (201, String::new()),
        _ => (404, json!({"message": request}).to_string()),
    })
    .await;
    let (made, log) = make(&engine, Recipe::Image("debian:12".to_owned())).await;
    let want = StoredTemplate {
        image: NAME.to_owned(),
        size_bytes: None,
    };
    assert_eq!(made.unwrap(), want);
    assert_eq!(log, "");
    let named = engine.requests("POST");
    assert_eq!(named.len(), 1, "{named:?}");
    let query = named[0].split_once('?').unwrap().1;
    assert!(query.contains("repo=opensandbox-templates%2Fus"), "{query}");
    assert!(query.contains("tag=t"), "{query}");
}

#[tokio::test]
async fn an_image_that_is_missing_is_pulled() {
    let engine = FakeEngine::start(|request| match request {
        _ if request.starts_with("POST /images/create") => (
            404,
            json!({
                "message": "manifest unknown",
            })
            .to_string(),
        ),
        _ => (404, json!({"message": "no such image"}).to_string()),
    })
    .await;
    let (made, _) = make(&engine, Recipe::Image("debian:99".to_owned())).await;
    let error = made.unwrap_err();
    assert!(matches!(error, RuntimeError::ImagePull { .. }), "{error:?}");
    assert_eq!(engine.requests("POST /images/create").len(), 1);
    for taken in ["opensandbox-snapshots:s", NAME, "sha256:3f2a"] {
        let (made, _) = make(&engine, Recipe::Image(taken.to_owned())).await;
        let error = made.unwrap_err();
        assert!(matches!(error, RuntimeError::Refused { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_build_is_one_request_with_its_context() {
    let sent = std::sync::Arc::new(Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&sent);
    let engine = FakeEngine::start_reading(move |request, body| match request {
        _ if request.starts_with("POST /build") => {
            seen.lock().unwrap().push(body.to_vec());
            let lines = [
                json!({"status": "Pulling from library/debian", "id": "12"}),
                json!({"status": "Downloading", "progressDetail": {"current": 1, "total": 2}}),
                json!({"stream": "Step 1/2 : FROM debian:12\n"}),
                json!({"aux": {"ID": "sha256:1"}}),
                json!({"stream": "Successfully built 1\n"}),
            ];
            (200, lines.map(|line| format!("{line}\r\n")).concat())
        }
        _ if request.starts_with("GET /images/") => {
            let labels = json!({labels::TEMPLATE: "t"});
            let image = json!({"Id": "sha256:1", "Size": 7, "Config": {"Labels": labels}});
            (200, image.to_string())
        }
        _ => (404, json!({"message": request}).to_string()),
    })
    .await;
    let (made, log) = make(&engine, dockerfile()).await;
    let want = StoredTemplate {
        image: NAME.to_owned(),
        size_bytes: Some(7),
    };
    assert_eq!(made.unwrap(), want);
    assert_eq!(
        log,
        "Pulling from library/debian\nStep 1/2 : FROM debian:12\nSuccessfully built 1\n"
    );
    let archive = Bytes::from_static(b"any bytes: the engine reads them");
    let given = Recipe::Build(Context::Archive(archive.clone()));
    make(&engine, given).await.0.unwrap();
    let sent = sent.lock().unwrap();
    let mut packed = tar::Archive::new(&sent[0][..]);
    let mut files = packed.entries().unwrap();
    let mut file = files.next().unwrap().unwrap();
    assert_eq!(file.path().unwrap().to_str(), Some("Dockerfile"));
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "FROM debian:12\nRUN true\n");
    assert!(files.next().is_none());
    assert_eq!(sent[1], archive);
    let query = &engine.requests("POST /build")[0];
    for part in [
        "t=opensandbox-templates%2Fus%3At",
        "forcerm=true",
        "labels=",
    ] {
        assert!(query.contains(part), "{part}: {query}");
    }
}

#[tokio::test]
async fn a_build_fails_for_the_engines_reason() {
    let failed = json!({
        "errorDetail": {"code": 1, "message": "RUN returned a non-zero code: 1"},
        "error": "RUN returned a non-zero code: 1",
    });
    let syntax = json!({"message": "dockerfile parse error on line 1"});
    for (status, answer, reason) in [(200, failed, "non-zero code"), (400, syntax, "parse error")] {
        let engine = builder(status, &[answer]).await;
        let error = make(&engine, dockerfile()).await.0.unwrap_err();
        let RuntimeError::Build {
            template,
            reason: seen,
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(template, "t");
        assert!(seen.contains(reason), "{seen}");
    }
    let cut = builder(CUT, &[]).await;
    let error = make(&cut, dockerfile()).await.0.unwrap_err();
    assert!(
        matches!(error, RuntimeError::Unavailable { .. }),
        "{error:?}"
    );
    let silent = FakeEngine::start(|request| match request {
        _ if request.starts_with("POST /build") => (200, String::new()),
        _ => (404, json!({"message": request}).to_string()),
    })
    .await;
    let error = make(&silent, dockerfile()).await.0.unwrap_err();
    assert!(error.to_string().contains("built no image"), "{error}");
}

#[tokio::test]
async fn only_this_installations_templates_are_listed() {
    let engine = FakeEngine::start(|request| match request {
        _ if request.starts_with("GET /images/json") => {
            let image = |tags: &[&str]| {
                json!({
                    "Id": "sha256:1", "ParentId": "", "RepoTags": tags, "RepoDigests": [],
                    "Created": 1, "Size": 1, "SharedSize": -1, "Labels": {}, "Containers": -1,
                })
            };
            let list = json!([
                image(&["debian:12", NAME, "opensandbox-templates/us:u"]),
                image(&["opensandbox-templates/us2:x"]),
            ]);
            (200, list.to_string())
        }
        _ => (404, String::new()),
    })
    .await;
    assert_eq!(engine.runtime().list().await.unwrap(), ["t", "u"]);
}

#[tokio::test]
async fn a_template_is_removed_unless_it_is_in_use() {
    for (status, want) in [(200, true), (404, true), (409, false), (500, false)] {
        let body = match status {
            200 => "[]".to_owned(),
            _ => json!({"message": "container c uses it"}).to_string(),
        };
        let engine = FakeEngine::start(move |_| (status, body.clone())).await;
        let removed = engine.runtime().remove("t").await;
        assert_eq!(removed.is_ok(), want, "{status}");
        let is_in_use = matches!(removed, Err(RuntimeError::TemplateInUse { .. }));
        assert_eq!(is_in_use, status == 409, "{removed:?}");
        assert!(engine.requests("DELETE")[0].contains(NAME));
    }
}

#[tokio::test]
async fn an_image_is_found_with_its_size_only_if_it_was_built() {
    for (labels, size) in [
        (json!({labels::TEMPLATE: "t"}), Some(7)),
        // From another template.
        (json!({labels::TEMPLATE: "u"}), None),
        (json!({}), None),
    ] {
        let image = json!({"Id": "sha256:1", "Size": 7, "Config": {"Labels": labels}});
        let engine = FakeEngine::start(move |_| (200, image.to_string())).await;
        let found = engine.runtime().find("t").await.unwrap().unwrap();
        assert_eq!((found.image.as_str(), found.size_bytes), (NAME, size));
    }
    let empty = FakeEngine::start(|_| (404, "{}".to_owned())).await;
    assert_eq!(empty.runtime().find("t").await.unwrap(), None);
}
