//! TCP connections to programs of the sandbox through a WebSocket.

use futures::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_tungstenite::{
    connect_async,
    tungstenite::{Error, Message},
};

use crate::support::Daemon;

fn address(daemon: &Daemon, port: &str) -> String {
    format!("ws://127.0.0.1:{}/tunnel/{port}", daemon.port())
}

#[tokio::test]
async fn bytes_travel_both_ways_until_the_program_ends() {
    let daemon = Daemon::start(&["--port", "0"], |_| {});
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let program = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"RFB 003.008\n").await.unwrap();
        let mut read = vec![0; sent.len()];
        stream.read_exact(&mut read).await.unwrap();
        stream.write_all(&read).await.unwrap();
    };
    let client = async {
        let (mut socket, _) = connect_async(address(&daemon, &port)).await.unwrap();
        let first = socket.next().await.unwrap().unwrap();
        assert_eq!(first.into_data(), "RFB 003.008\n");
        let (mut to, mut from) = socket.split();
        let write = async {
            for piece in sent.chunks(100_000) {
                to.send(Message::binary(piece.to_vec())).await.unwrap();
            }
        };
        let read = async {
            let mut read = Vec::new();
            loop {
                match from.next().await.unwrap().unwrap() {
                    Message::Binary(bytes) => read.extend_from_slice(&bytes),
                    Message::Close(close) => break (read, close.unwrap().code),
                    other => panic!("{other:?}"),
                }
            }
        };
        let ((), (read, code)) = tokio::join!(write, read);
        assert!(read == sent, "{} of {} bytes", read.len(), sent.len());
        assert_eq!(u16::from(code), 1000);
    };
    tokio::join!(program, client);
}

#[tokio::test]
async fn a_program_learns_that_its_client_left() {
    let daemon = Daemon::start(&["--port", "0"], |_| {});
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let (mut socket, _) = connect_async(address(&daemon, &port)).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    socket.close(None).await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn what_cannot_be_connected_has_a_status_and_text_is_refused() {
    let daemon = Daemon::start(&["--port", "0"], |_| {});
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    let plain = daemon.get(&format!("/tunnel/{port}")).await;
    assert_eq!(plain.status, 400, "{}", plain.text());
    drop(free);
    for (port, status) in [(port.as_str(), 502), ("0", 400), ("65536", 400), ("x", 400)] {
        match connect_async(address(&daemon, port)).await {
            Err(Error::Http(answer)) => assert_eq!(answer.status(), status, "{port}"),
            other => panic!("{port}: {other:?}"),
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let (mut socket, _) = connect_async(address(&daemon, &port)).await.unwrap();
    socket.send(Message::text("hello")).await.unwrap();
    match socket.next().await.unwrap().unwrap() {
        Message::Close(Some(close)) => assert_eq!(u16::from(close.code), 1003),
        other => panic!("{other:?}"),
    }
}
