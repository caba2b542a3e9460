//! Users, keys and sessions, and who is none of them.

use osb_testkit::{API_KEY, TestServer};
use reqwest::Method;
use serde_json::{Value, json};

use super::{answer, entries, entry_of, key, of_request};

#[tokio::test]
async fn accounts_are_recorded_without_secrets() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let zoe = json!({"name": "zoe", "password": "hunter2 hunter2", "tenant": "a"});
    let add = server.request(Method::POST, "/v1/users").json(&zoe);
    let added = entry_of(&server, "add", add).await;
    assert_eq!(
        (&added["changes"]["name"], &added["tenant"]),
        (&json!("zoe"), &json!("a"))
    );
    let path = format!("/v1/users/{}", added["object"]["id"].as_str().unwrap());
    let edit = json!({"role": "operator", "disabled": true, "password": "hunter3 hunter3"});
    let edit = server.request(Method::PATCH, &path).json(&edit);
    let edited = entry_of(&server, "edit", edit).await;
    let changes = json!({
        "name": "zoe",
        "role": {"before": "read_only", "after": "operator"},
        "disabled": {"before": false, "after": true},
        "passwordChanged": true,
    });
    assert_eq!(edited["changes"], changes);
    let delete = server.request(Method::DELETE, &path);
    let deleted = entry_of(&server, "delete", delete).await;
    assert_eq!(deleted["changes"]["name"], "zoe");
    let (id, secret) = key(&server, json!({"name": "ci"})).await;
    let revoke = server.request(Method::DELETE, &format!("/v1/api-keys/{id}"));
    let revoked = entry_of(&server, "revoke", revoke).await;
    assert_eq!(revoked["changes"]["name"], "ci");
    let all = json!(entries(&server, "").await).to_string();
    assert!(!all.contains("hunter") && !all.contains(&secret), "{all}");
    server.stop().await;
}

#[tokio::test]
async fn wrong_keys_are_counted_together_and_the_right_one_reads_unseen() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    for _ in 0..20 {
        let request = server.request_as("hunter2", Method::GET, "/v1/sandboxes");
        assert_eq!(answer(request).await.0, 401);
        answer(server.request(Method::GET, "/v1/sandboxes")).await;
    }
    assert_eq!(
        answer(server.bare(Method::POST, "/v1/sandboxes")).await.0,
        401
    );
    of_request(&server, "last").await;
    let denied = entries(&server, "outcome=denied").await;
    let seen: Vec<_> = denied
        .iter()
        .map(|it| (it["action"].as_str().unwrap(), it["code"].as_str().unwrap()))
        .collect();
    let expected = [
        ("access.denied", "INVALID_API_KEY"),
        ("sandbox.create", "MISSING_API_KEY"),
    ];
    assert_eq!(seen, expected, "the others wait for the end of the window");
    assert_eq!(denied[0]["actor"]["kind"], "unknown");
    assert!(!json!(denied).to_string().contains("hunter"), "{denied:?}");
    server.stop().await;
}

/// A client may send a secret where an id belongs.
#[tokio::test]
async fn the_secret_of_a_key_is_never_the_object() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let (_, secret) = key(&server, json!({"name": "ci"})).await;
    let shown = format!("{}…", &secret[..12]);
    for (number, (method, path)) in [
        (Method::DELETE, "/v1/api-keys/{}"),
        (Method::DELETE, "/v1/sandboxes/{}"),
        (Method::POST, "/v1/sandboxes/{}/pause"),
        (Method::DELETE, "/v1/sessions/{}"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = path.replace("{}", &secret);
        for (name, request) in [
            ("admitted", server.request(method.clone(), &path)),
            ("denied", server.bare(method.clone(), &path)),
        ] {
            let entry = entry_of(&server, &format!("{name}-{number}"), request).await;
            let id = entry["object"]["id"].as_str().unwrap();
            assert!(id == shown || id == "osb_…", "{path}: {entry}");
        }
    }
    let proxied = format!("/v1/sandboxes/{secret}/proxy/44772/command");
    answer(server.request(Method::POST, &proxied)).await;
    let all = json!(entries(&server, "").await).to_string();
    assert!(!all.contains(&secret), "{all}");
    server.stop().await;
}

#[tokio::test]
async fn entries_of_a_session_name_it_and_its_cookie_opens_nothing_else() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let sign_in = async || {
        let request = server.bare(Method::POST, "/console/login");
        let response = request.form(&[("key", API_KEY)]).send().await.unwrap();
        let cookie = response.headers()["set-cookie"].to_str().unwrap();
        let value = cookie.split_once('=').unwrap().1;
        value.split(';').next().unwrap().to_owned()
    };
    let (first, second) = (sign_in().await, sign_in().await);
    let delete = |id: &str| server.request(Method::DELETE, &format!("/v1/sessions/{id}"));
    let mistaken = entry_of(&server, "cookie", delete(&first)).await;
    assert_eq!(mistaken["outcome"], "failed");
    let shown = format!("{}…", &first[..4]);
    assert_eq!(mistaken["object"]["id"], shown);
    let (_, listed) = answer(server.request(Method::GET, "/v1/sessions")).await;
    let opened = entries(&server, "action=session.sign_in").await;
    let mut opened: Vec<_> = opened.iter().map(|it| it["object"]["id"].clone()).collect();
    assert_ne!(opened[0], opened[1]);
    let newest = opened[1].clone();
    let ids = listed["items"].as_array().unwrap().iter();
    let mut ids: Vec<_> = ids.map(|it| it["id"].clone()).collect();
    ids.sort_by_key(Value::to_string);
    opened.sort_by_key(Value::to_string);
    assert_eq!(ids, opened);
    let revoke = delete(newest.as_str().unwrap());
    let revoked = entry_of(&server, "revoke", revoke).await;
    assert_eq!(
        (&revoked["outcome"], &revoked["object"]["id"]),
        (&json!("succeeded"), &newest)
    );
    assert!(revoked["changes"]["name"].is_string(), "{revoked}");
    let all = json!(entries(&server, "").await).to_string();
    assert!(!all.contains(&first) && !all.contains(&second), "{all}");
    server.stop().await;
}
