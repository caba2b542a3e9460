//! Accesses that extend the life of sandboxes.

use std::sync::Arc;

use osb_protocol::WireTime;
use osb_runtime::{Observed, sim::SimRuntime};
use osb_testkit::{RedisServer, TestServer, wait_until};
use serde_json::json;
use tokio_tungstenite::connect_async;

use super::support::{expiring, expiry, in_seconds, program, proxied};

const ENABLED: &str = "[renew_intent]\nenabled = true\n";

/// A sandbox that expires in ten minutes, and that accesses extend to so many seconds.
fn extended_by(id: &str, seconds: u32) -> Observed {
    let mut sandbox = expiring(id, 600);
    sandbox.origin.renew_extend_seconds = Some(seconds);
    sandbox
}

/// Waits until a sandbox expires an hour from now or later.
async fn renewed(server: &TestServer, id: &str) -> WireTime {
    let late = in_seconds(3000);
    wait_until(
        "the renewal",
        async || expiry(server, id).await,
        |at| *at > late,
    )
    .await
}

#[tokio::test]
async fn an_access_renews_a_sandbox_that_asks_for_it() {
    let program = program().await;
    let port = program.address.port();
    let sandboxes = [
        extended_by("a", 3600),
        extended_by("b", 3600),
        extended_by("c", 3600),
        expiring("plain", 600),
    ];
    let server = TestServer::around(sandboxes, ENABLED).await.unwrap();
    let before = expiry(&server, "a").await;
    for (header, value) in [
        ("OpenSandbox-Access-Renew", "skip"),
        ("OpenSandbox-Access-Renew", "skip"),
    ] {
        let answer = proxied(&server, "a", port).header(header, value).send();
        assert_eq!(answer.await.unwrap().status(), 200);
    }
    // None of these is an access: they do not reach a program.
    assert_eq!(
        proxied(&server, "none", port)
            .send()
            .await
            .unwrap()
            .status(),
        404
    );
    for id in ["plain", "b"] {
        let answer = proxied(&server, id, port).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
    renewed(&server, "b").await;
    assert_eq!(expiry(&server, "a").await, before, "skipped");
    let plain = expiry(&server, "plain").await;
    assert!(plain < in_seconds(700), "{plain}");
    // Any other value of the header means nothing.
    let answer = proxied(&server, "a", port).header("OpenSandbox-Access-Renew", "Skip");
    assert_eq!(answer.send().await.unwrap().status(), 200);
    renewed(&server, "a").await;

    let url = format!("ws://{}/v1/sandboxes/c/proxy/{port}/", server.address);
    // The program speaks no WebSocket, but the connection was an access.
    let (socket, _) = connect_async(url).await.unwrap();
    drop(socket);
    renewed(&server, "c").await;
    server.stop().await;
}

#[tokio::test]
async fn accesses_do_not_renew_unless_it_is_enabled() {
    let program = program().await;
    let server = TestServer::around([extended_by("a", 3600)], "")
        .await
        .unwrap();
    let before = expiry(&server, "a").await;
    for _ in 0..20 {
        let answer = proxied(&server, "a", program.address.port()).send().await;
        assert_eq!(answer.unwrap().status(), 200);
    }
    assert_eq!(expiry(&server, "a").await, before);
    server.stop().await;
}

#[tokio::test]
async fn an_access_never_shortens_a_life() {
    let program = program().await;
    let mut long = expiring("long", 6000);
    long.origin.renew_extend_seconds = Some(300);
    let sandboxes = [long, extended_by("other", 3600)];
    let server = TestServer::around(sandboxes, ENABLED).await.unwrap();
    let before = expiry(&server, "long").await;
    for id in ["long", "other"] {
        let answer = proxied(&server, id, program.address.port()).send().await;
        assert_eq!(answer.unwrap().status(), 200);
    }
    // Renewals happen in order, so the first one has been decided.
    renewed(&server, "other").await;
    assert_eq!(expiry(&server, "long").await, before);
    server.stop().await;
}

#[tokio::test]
async fn many_accesses_are_one_renewal_which_survives_a_restart() {
    let program = program().await;
    let port = program.address.port();
    let sim = Arc::new(SimRuntime::with([extended_by("a", 3600)]));
    let folder = tempfile::tempdir().unwrap();
    let start = async || {
        let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), ENABLED);
        let server = server.await.unwrap();
        let lists = async || {
            let list = server.request(reqwest::Method::GET, "/v1/sandboxes");
            list.send().await.unwrap().status().as_u16()
        };
        wait_until("the server is up", lists, |status| *status == 200).await;
        server
    };
    let server = start().await;
    assert_eq!(
        proxied(&server, "a", port).send().await.unwrap().status(),
        200
    );
    let first = renewed(&server, "a").await;
    let mut changes = server.service.subscribe();
    for _ in 0..200 {
        let answer = proxied(&server, "a", port).send().await;
        assert_eq!(answer.unwrap().status(), 200);
    }
    assert_eq!(expiry(&server, "a").await, first);
    assert!(changes.try_recv().is_err(), "nothing was written");
    server.stop().await;
    // It holds the store.
    drop(server);
    let server = start().await;
    assert_eq!(expiry(&server, "a").await, first);
    server.stop().await;
}

#[tokio::test]
async fn accesses_that_gateways_report_renew() {
    let Some(mut redis) = RedisServer::start().unwrap() else {
        return;
    };
    let sandboxes = [
        extended_by("a", 3600),
        extended_by("b", 3600),
        extended_by("c", 3600),
    ];
    let more = format!(
        "{ENABLED}[renew_intent.redis]\nenabled = true\ndsn = '{}'\nqueue_key = 'q'\n\
         consumer_concurrency = 2\n",
        redis.url()
    );
    let server = TestServer::around(sandboxes, &more).await.unwrap();
    let intent = |id: &str, at: WireTime| {
        json!({"sandbox_id": id, "observed_at": at.to_string(), "port": 8080}).to_string()
    };
    redis.push("q", "{").await.unwrap();
    redis
        .push("q", &intent("none", in_seconds(0)))
        .await
        .unwrap();
    redis
        .push("q", &intent("b", in_seconds(-301)))
        .await
        .unwrap();
    redis
        .push("q", &intent("a", in_seconds(-200)))
        .await
        .unwrap();
    renewed(&server, "a").await;
    let stale = expiry(&server, "b").await;
    assert!(stale < in_seconds(700), "{stale}");

    // Redis may go and come back.
    redis.restart().unwrap();
    redis.push("q", &intent("c", in_seconds(0))).await.unwrap();
    renewed(&server, "c").await;
    server.stop().await;
}
