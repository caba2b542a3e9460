//! What a browser gets when a sandbox cannot answer.

use std::sync::Arc;

use osb_runtime::{Phase, sim::Faults};
use osb_testkit::{TestServer, running_at, wait_until};
use reqwest::{Method, Response};
use serde_json::Value;
use tokio::{net::TcpListener, sync::Notify};

use super::support::{BOX, proxied};

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

/// Asserts that an answer is a page of ours, and returns it.
async fn page(answer: Response) -> String {
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert!(header("content-type").starts_with("text/html"));
    assert_eq!(header("cache-control"), "no-store");
    let policy = header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let page = answer.text().await.unwrap();
    // Nothing is loaded from elsewhere, and nothing runs.
    for loads in ["<script", "<link", "<img", "src=", "url("] {
        assert!(!page.contains(loads), "{loads}: {page}");
    }
    page
}

#[tokio::test]
async fn a_browser_gets_a_page_and_a_program_json() {
    let closed = {
        let listener = TcpListener::bind((BOX, 0)).await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let silent = TcpListener::bind((BOX, 0)).await.unwrap();
    let with_phase = |id, phase| {
        let mut sandbox = running_at(id, BOX, None);
        sandbox.status.phase = phase;
        sandbox
    };
    let sandboxes = [
        with_phase("runs", Phase::Running),
        with_phase("paused", Phase::Paused),
        with_phase("ended", Phase::Exited(1)),
    ];
    let server = TestServer::around(sandboxes, "").await.unwrap();
    let breaks = async {
        loop {
            drop(silent.accept().await.unwrap());
        }
    };
    let asks = async {
        for (id, port, status, code, words) in [
            (
                "none",
                8000,
                404,
                "DOCKER::SANDBOX_NOT_FOUND",
                "There is no such sandbox",
            ),
            (
                "paused",
                8000,
                409,
                "DOCKER::SANDBOX_NOT_RUNNING",
                "The sandbox is paused",
            ),
            (
                "ended",
                8000,
                500,
                "DOCKER::NETWORK_MODE_ENDPOINT_UNAVAILABLE",
                "The sandbox does not run",
            ),
            (
                "runs",
                closed,
                502,
                "BACKEND_CONNECTION_FAILED",
                "Nothing listens on this port",
            ),
            (
                "runs",
                silent.local_addr().unwrap().port(),
                502,
                "BACKEND_RESPONSE_FAILED",
                "The program's answer cannot be used",
            ),
        ] {
            let program = proxied(&server, id, port).send().await.unwrap();
            assert_eq!(program.status().as_u16(), status, "{id}");
            let body: Value = program.json().await.unwrap();
            assert_eq!(body["code"], code);
            let browser = proxied(&server, id, port).header("Accept", BROWSER);
            let browser = browser.send().await.unwrap();
            assert_eq!(browser.status().as_u16(), status, "{id}");
            let page = page(browser).await;
            assert!(page.contains(&format!("<h1>{words}</h1>")), "{page}");
            assert!(page.contains(&status.to_string()), "{page}");
            assert!(page.contains(&format!("<dd>{port}</dd>")), "{page}");
            let script = proxied(&server, id, port).header("Accept", BROWSER);
            let script = script
                .header("Sec-Fetch-Mode", "cors")
                .send()
                .await
                .unwrap();
            let body: Value = script.json().await.unwrap();
            assert_eq!(body["code"], code, "a script of a page is a program");
        }
    };
    tokio::select! {
        () = asks => {}
        () = breaks => {}
    }
    server.stop().await;
}

#[tokio::test]
async fn an_address_cannot_write_on_the_page() {
    let server = TestServer::around([], "").await.unwrap();
    let request = server.bare(Method::GET, "/v1/sandboxes/a'b&lt;<b>/proxy/8000/<i>");
    let answer = request.header("Accept", BROWSER).send().await.unwrap();
    assert_eq!(answer.status(), 404);
    let page = page(answer).await;
    assert!(page.contains("<dd>a&#39;b&amp;lt;%3Cb%3E</dd>"), "{page}");
    server.stop().await;
}

#[tokio::test]
async fn the_page_of_a_sandbox_that_starts_reloads() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let gate = Arc::new(Notify::new());
    sim.set_faults(Faults {
        image_gate: Some(Arc::clone(&gate)),
        ..Faults::default()
    });
    let create = server.request(Method::POST, "/v1/sandboxes");
    let create = create.json(&TestServer::good_create()).send();
    let look = async {
        let list = async || {
            let list = server.request(Method::GET, "/v1/sandboxes").send().await;
            let list: Value = list.unwrap().json().await.unwrap();
            list["items"][0]["id"].as_str().map(str::to_owned)
        };
        let id = wait_until("the sandbox is listed", list, Option::is_some).await;
        let request = proxied(&server, &id.unwrap(), 8000).header("Accept", BROWSER);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 404);
        assert_eq!(answer.headers()["refresh"], "2");
        let page = page(answer).await;
        assert!(page.contains("<h1>The sandbox is starting</h1>"), "{page}");
        gate.notify_one();
    };
    let (created, ()) = tokio::join!(create, look);
    assert_eq!(created.unwrap().status(), 202);
    server.stop().await;
}
