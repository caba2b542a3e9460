//! Filters of the list, and lists at once.

use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::calls::{answer, get, made};

/// Numbers of the listed sandboxes, as their metadata has them.
async fn listed(server: &TestServer, query: &[(&str, &str)]) -> (StatusCode, Value) {
    let request = server.request(Method::GET, "/v1/sandboxes").query(query);
    let (status, body) = answer(request).await;
    match status {
        StatusCode::OK => {
            let items = body["items"].as_array().unwrap().iter();
            let numbers: Vec<_> = items.map(|item| item["metadata"]["n"].clone()).collect();
            (status, Value::Array(numbers))
        }
        _ => (status, body),
    }
}

#[tokio::test]
async fn a_filter_that_cannot_be_read_names_the_part_at_fault() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    for (filter, part) in [
        ("novalue", "novalue"),
        ("team=core&env", "env"),
        ("team=core&=&bad part", "bad part"),
    ] {
        let (status, body) = listed(&server, &[("metadata", filter)]).await;
        let seen = (status.as_u16(), &body["code"]);
        assert_eq!(seen, (400, &json!("INVALID_METADATA_FORMAT")), "{filter}");
        let message = body["message"].as_str().unwrap();
        assert!(message.contains(&format!("{part:?}")), "{message}");
    }
    server.stop().await;
}

#[tokio::test]
async fn blank_values_repeated_keys_and_encodings_of_filters_count() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    for (n, note) in [("0", Some("")), ("1", Some("x_y")), ("2", None)] {
        made(&server, |body| {
            body["metadata"] = json!({"n": n, "example.com/team": "core"});
            if let Some(note) = note {
                body["metadata"]["note"] = json!(note);
            }
        })
        .await;
    }
    for (filter, want) in [
        ("", json!(["2", "1", "0"])),
        ("note=", json!(["0"])),
        ("note=x_y", json!(["1"])),
        ("note=a&note=x_y", json!(["1"])),
        ("example.com%2Fteam=core&note=", json!(["0"])),
        ("note=x", json!([])),
    ] {
        let (status, numbers) = listed(&server, &[("metadata", filter)]).await;
        assert_eq!((status.as_u16(), numbers), (200, want), "{filter}");
    }
    server.stop().await;
}

#[tokio::test]
async fn states_are_alternatives_in_any_case() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let mut ids = Vec::new();
    for n in ["0", "1", "2"] {
        ids.push(made(&server, |body| body["metadata"] = json!({"n": n})).await);
    }
    for (id, code, state) in [(&ids[1], 0, "Terminated"), (&ids[2], 3, "Failed")] {
        sim.exit(&id.as_str().into(), code).await;
        let has_ended = |seen: &(StatusCode, Value)| seen.1["status"]["state"] == state;
        wait_until("the end", || get(&server, id), has_ended).await;
    }
    for (states, want) in [
        (&["running"][..], json!(["0"])),
        (&["TERMINATED", "Failed"], json!(["2", "1"])),
        (&["Running", "running", ""], json!(["0"])),
        (&["Paused"], json!([])),
        (&["unheard-of"], json!([])),
    ] {
        let query: Vec<_> = states.iter().map(|state| ("state", *state)).collect();
        let (status, numbers) = listed(&server, &query).await;
        assert_eq!((status.as_u16(), numbers), (200, want), "{states:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn lists_do_not_wait_for_a_slow_runtime() {
    let (server, sim) = TestServer::sim().await.unwrap();
    made(&server, |body| body["metadata"] = json!({"n": "0"})).await;
    // Nothing that the runtime does ends before the lists do.
    let gate = std::sync::Arc::default();
    sim.set_faults(osb_runtime::sim::Faults {
        image_gate: Some(std::sync::Arc::clone(&gate)),
        ..Default::default()
    });
    let lists = async {
        let pending = || answer(server.request(Method::GET, "/v1/sandboxes"));
        let is_there = |seen: &(StatusCode, Value)| seen.1["pagination"]["totalItems"] == 2;
        wait_until("the create", pending, is_there).await;
        let lists = (0..8).map(|_| listed(&server, &[]));
        for (status, numbers) in futures::future::join_all(lists).await {
            assert_eq!((status.as_u16(), numbers), (200, json!(["1", "0"])));
        }
        gate.notify_one();
    };
    let (id, ()) = tokio::join!(
        made(&server, |body| body["metadata"] = json!({"n": "1"})),
        lists
    );
    assert_eq!(get(&server, &id).await.0, 200);
    server.stop().await;
}
