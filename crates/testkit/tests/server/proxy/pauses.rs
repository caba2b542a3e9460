//! Exchanges with a sandbox that is paused.

use std::{sync::Arc, time::Duration};

use osb_runtime::sim::SimRuntime;
use osb_testkit::{TestServer, patience, running_at, scaled, wait_until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::support::{BOX, in_seconds, shown};

/// Lets time pass in which nothing happens.
async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
    // What is due acts now.
    tokio::time::sleep(scaled(Duration::from_millis(100))).await;
}

async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn a_silent_stream_outlives_a_pause() {
    let program = TcpListener::bind((BOX, 0)).await.unwrap();
    let port = program.local_addr().unwrap().port();
    for pauses in [true, false] {
        let mut sandbox = running_at("a", BOX, None);
        sandbox.status.since = in_seconds(-3600);
        let sim = Arc::new(SimRuntime::with([sandbox]));
        let folder = tempfile::tempdir().unwrap();
        let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), "");
        let server = server.await.unwrap();
        let state = async || shown(&server, "a").await["status"]["state"].clone();
        wait_until("the sandbox is known", &state, |state| state == "Running").await;

        let mut client = TcpStream::connect(server.address).await.unwrap();
        let request = format!(
            "GET /sandboxes/a/proxy/{port}/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let (mut inside, _) = program.accept().await.unwrap();
        head(&mut inside).await;
        let begin = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
        inside.write_all(begin).await.unwrap();
        head(&mut client).await;

        if pauses {
            sim.freeze_by_operator(&"a".into(), true).await;
            wait_until("the pause", &state, |state| state == "Paused").await;
        }
        for _ in 0..3 {
            pass(170).await;
        }
        if pauses {
            sim.freeze_by_operator(&"a".into(), false).await;
            wait_until("the resume", &state, |state| state == "Running").await;
            pass(170).await;
        }
        if pauses {
            inside.write_all(b"late").await.unwrap();
        }
        let mut rest = String::new();
        // Without a pause, the proxy has cut it short.
        let read = timeout(patience(), client.read_to_string(&mut rest)).await;
        read.expect("an end").ok();
        assert_eq!(rest, if pauses { "late" } else { "" });
        server.stop().await;
    }
}
