//! Terminals over a real WebSocket (contract: execd §9, A10).

mod flow;

use futures::{SinkExt, StreamExt};
use osb_protocol::execd::pty::{PtyMode, PtyRole, REPLAY, STDERR, STDIN, STDOUT, ServerFrame};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, client_async, connect_async,
    tungstenite::{
        Error, Message,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

use crate::support::{Daemon, LONG, daemon, eventually};

/// A client of a terminal session.
pub(crate) struct Terminal {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// Live output and replays, without offsets.
    seen: Vec<u8>,
    stderr: Vec<u8>,
}

/// A message other than live output.
#[derive(Debug, PartialEq)]
enum Received {
    Frame(ServerFrame),
    Replay(u64),
    Closed(u16),
}

impl Terminal {
    pub(crate) async fn open(daemon: &Daemon, id: &str, query: &str) -> Result<Self, u16> {
        let address = format!("ws://127.0.0.1:{}/pty/{id}/ws?{query}", daemon.port());
        match connect_async(address).await {
            Ok((socket, _)) => Ok(Self {
                socket,
                seen: Vec::new(),
                stderr: Vec::new(),
            }),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Connects and reads up to the `connected` frame.
    pub(crate) async fn attach(daemon: &Daemon, id: &str, query: &str) -> Self {
        let mut terminal = Self::open(daemon, id, query).await.unwrap();
        loop {
            match terminal.next().await {
                Received::Frame(ServerFrame::Connected {
                    session_id,
                    mode,
                    role,
                    ..
                }) => {
                    assert_eq!(session_id, id);
                    let viewer = query.contains("mode=viewer");
                    assert_eq!(role == PtyRole::Viewer, viewer);
                    // Later clients get the mode that the first one chose.
                    assert!(mode == PtyMode::Pipe || !query.contains("pty=0"));
                    return terminal;
                }
                Received::Replay(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Returns the next message that is not live output.
    async fn next(&mut self) -> Received {
        loop {
            if let Some(received) = self.step().await {
                return received;
            }
        }
    }

    /// Returns the next message that is neither live output nor a replay.
    async fn answer(&mut self) -> Received {
        loop {
            match self.next().await {
                Received::Replay(_) => {}
                received => return received,
            }
        }
    }

    async fn step(&mut self) -> Option<Received> {
        let message = tokio::time::timeout(LONG, self.socket.next())
            .await
            .unwrap();
        match message.unwrap().unwrap() {
            Message::Text(text) => {
                assert!(text.ends_with('\n'));
                Some(Received::Frame(serde_json::from_str(&text).unwrap()))
            }
            Message::Binary(bytes) => match bytes[0] {
                STDOUT => {
                    self.seen.extend_from_slice(&bytes[1..]);
                    None
                }
                STDERR => {
                    self.stderr.extend_from_slice(&bytes[1..]);
                    None
                }
                REPLAY => {
                    self.seen.extend_from_slice(&bytes[9..]);
                    Some(Received::Replay(u64::from_be_bytes(
                        bytes[1..9].try_into().unwrap(),
                    )))
                }
                other => panic!("tag {other}"),
            },
            Message::Close(frame) => Some(Received::Closed(frame.unwrap().code.into())),
            _ => None,
        }
    }

    pub(crate) async fn until(&mut self, text: &str) {
        let deadline = tokio::time::Instant::now() + LONG;
        while !String::from_utf8_lossy(&self.seen).contains(text) {
            let step = tokio::time::timeout_at(deadline, self.step()).await;
            if !matches!(
                step,
                Ok(None | Some(Received::Frame(_) | Received::Replay(_)))
            ) {
                let seen = String::from_utf8_lossy(&self.seen);
                panic!("{step:?} before {text:?}: {seen}");
            }
        }
    }

    pub(crate) async fn type_in(&mut self, text: &str) {
        let frame = [&[STDIN], text.as_bytes()].concat();
        self.socket
            .send(Message::Binary(frame.into()))
            .await
            .unwrap();
    }

    async fn send_control(&mut self, frame: serde_json::Value) {
        self.socket
            .send(Message::Text(frame.to_string().into()))
            .await
            .unwrap();
    }
}

pub(crate) async fn session(daemon: &Daemon, body: serde_json::Value) -> String {
    let made = daemon.post("/pty", body).await;
    assert_eq!(made.status, 201);
    made.json()["session_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_terminal_has_size_signals_and_replay() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let id = session(&daemon, json!({ "cwd": place.path().join("made") })).await;
    assert_eq!(
        daemon.get(&format!("/pty/{id}")).await.json()["running"],
        false
    );
    let mut terminal = Terminal::attach(&daemon, &id, "").await;
    terminal
        .send_control(json!({ "type": "resize", "cols": 120, "rows": 40 }))
        .await;
    terminal
        .type_in("stty size; echo $TERM; basename \"$PWD\"\n")
        .await;
    terminal.until("40 120\r\n").await;
    terminal.until("xterm").await;
    terminal.until("made\r\n").await;
    terminal.type_in("(echo go''ing; exec sleep 1000)\n").await;
    terminal.until("going").await;
    terminal
        .send_control(json!({ "type": "signal", "signal": "SIGINT" }))
        .await;
    terminal.type_in("echo sta''tus=$?\n").await;
    terminal.until("status=130").await;
    terminal.send_control(json!({ "type": "ping" })).await;
    assert_eq!(terminal.next().await, Received::Frame(ServerFrame::Pong));
    terminal.send_control(json!({ "type": "dance" })).await;
    assert!(
        matches!(terminal.next().await, Received::Frame(ServerFrame::Error { code, .. }) if code == "INVALID_FRAME")
    );

    // A viewer reads all output, past and future, and may not write.
    let mut viewer = Terminal::attach(&daemon, &id, "mode=viewer").await;
    viewer.until("status=130").await;
    terminal.type_in("echo fo''r all\n").await;
    viewer.until("for all").await;
    viewer.type_in("echo no\n").await;
    loop {
        match viewer.next().await {
            Received::Replay(_) => {}
            Received::Frame(ServerFrame::Error { code, .. }) => {
                break assert_eq!(code, "READ_ONLY");
            }
            other => panic!("{other:?}"),
        }
    }

    // After a reconnect the shell is the same, and its output continues where the client stopped.
    drop(terminal);
    let offset = daemon.get(&format!("/pty/{id}")).await.json()["output_offset"]
        .as_u64()
        .unwrap();
    let mut again = eventually("the session is free", async || {
        Terminal::open(&daemon, &id, &format!("since={}", offset - 5))
            .await
            .ok()
    })
    .await;
    assert_eq!(again.next().await, Received::Replay(offset - 5));
    assert!(matches!(
        again.next().await,
        Received::Frame(ServerFrame::Connected { .. })
    ));
    again.type_in("exit 42\n").await;
    assert_eq!(
        again.next().await,
        Received::Frame(ServerFrame::Exit { exit_code: 42 })
    );
    assert_eq!(again.next().await, Received::Closed(1000));
}

#[tokio::test]
async fn a_terminal_has_a_utf8_locale_unless_the_client_refuses_it() {
    // The shell deletes the second character, which has two bytes.
    const TYPED: &str = "echo =${LANG-none},${LC_CTYPE-none}= @äö\u{7f}ü@\n";
    const ASKED: &str = "echo =${LANG-none},${LC_CTYPE-none}=\n";
    let start = |locale: &'static [(&str, &str)]| {
        Daemon::start(&["--port", "0"], move |command| {
            for name in ["LC_ALL", "LC_CTYPE", "LANG"] {
                command.env_remove(name);
            }
            command.envs(locale.iter().copied());
        })
    };
    let without = start(&[]);
    // By default, if the image has the locale, as the machine of these tests does.
    for wanted in [json!({ "utf8": true }), json!({})] {
        let id = session(&without, wanted).await;
        let mut terminal = Terminal::attach(&without, &id, "").await;
        terminal.type_in(TYPED).await;
        terminal.until("=C.UTF-8,none= @äü@\r\n").await;
        // The kernel's line editing, for programs without their own, erases characters as well.
        terminal.type_in("stty -a | grep -o '.iutf8'\n").await;
        terminal.until(" iutf8\r\n").await;
    }
    let id = session(&without, json!({ "utf8": false })).await;
    let mut terminal = Terminal::attach(&without, &id, "").await;
    terminal.type_in(ASKED).await;
    terminal.until("=none,none=").await;
    terminal.type_in("stty -a | grep -o '.iutf8'\n").await;
    terminal.until("-iutf8\r\n").await;
    for (locale, seen) in [
        (&[("LANG", "C")][..], "=C,none="),
        (&[("LANG", ""), ("LC_CTYPE", "POSIX")], "=,POSIX="),
        (&[("LANG", ""), ("LC_ALL", "")], "=C.UTF-8,none="),
    ] {
        let daemon = start(locale);
        for wanted in [json!({ "utf8": true }), json!({})] {
            let id = session(&daemon, wanted).await;
            let mut terminal = Terminal::attach(&daemon, &id, "").await;
            terminal.type_in(ASKED).await;
            terminal.until(seen).await;
        }
    }
}

#[tokio::test]
async fn viewers_read_everything_and_write_nothing() {
    let daemon = daemon();
    let id = session(&daemon, json!({})).await;
    let path = format!("/pty/{id}/ws?mode=viewer");
    let upgrade = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let early = daemon.get_with(&path, &upgrade).await;
    assert_eq!(
        (early.status.as_u16(), early.code().as_str()),
        (409, "VIEWER_REQUIRES_RUNNING_SESSION")
    );

    let mut holder = Terminal::attach(&daemon, &id, "").await;
    holder.type_in("stty rows 30 cols 90; echo rea''dy\n").await;
    holder.until("ready").await;
    let mut viewer = Terminal::attach(&daemon, &id, "mode=viewer").await;
    let mut other = Terminal::attach(&daemon, &id, "mode=viewer").await;
    viewer.send_control(json!({ "type": "ping" })).await;
    assert_eq!(viewer.answer().await, Received::Frame(ServerFrame::Pong));
    viewer.type_in("exit 9\n").await;
    for frame in [
        json!({ "type": "resize", "cols": 11, "rows": 12 }),
        json!({ "type": "signal", "signal": "SIGKILL" }),
        json!({ "type": "stdin", "data": "exit 9\n" }),
        json!({ "type": "stdin", "data": "exit 9\n" }),
    ] {
        viewer.send_control(frame).await;
    }
    for _ in 0..5 {
        let answer = viewer.answer().await;
        assert!(
            matches!(&answer, Received::Frame(ServerFrame::Error { code, .. }) if code == "READ_ONLY"),
            "{answer:?}"
        );
    }
    assert_eq!(viewer.answer().await, Received::Closed(1008));

    holder.type_in("stty size; exit 7\n").await;
    let exit = Received::Frame(ServerFrame::Exit { exit_code: 7 });
    assert_eq!(holder.answer().await, exit);
    assert_eq!(other.answer().await, exit);
    for seen in [&holder.seen, &other.seen] {
        assert!(String::from_utf8_lossy(seen).contains("30 90"));
    }
}

#[tokio::test]
async fn the_exit_frame_follows_the_last_byte() {
    let daemon = daemon();
    let id = session(
        &daemon,
        json!({ "command": "seq 1 20000; echo the end; exit 3" }),
    )
    .await;
    let mut terminal = Terminal::attach(&daemon, &id, "").await;
    assert_eq!(
        terminal.next().await,
        Received::Frame(ServerFrame::Exit { exit_code: 3 })
    );
    let seen = String::from_utf8_lossy(&terminal.seen).into_owned();
    assert!(
        seen.ends_with("20000\r\nthe end\r\n"),
        "{}",
        &seen[seen.len().saturating_sub(100)..]
    );
    assert_eq!(terminal.next().await, Received::Closed(1000));
    let refused = Terminal::open(&daemon, &id, "mode=viewer").await;
    assert_eq!(refused.err(), Some(409));
}

#[tokio::test]
async fn pipes_separate_stdout_and_stderr() {
    let daemon = daemon();
    let id = session(
        &daemon,
        json!({ "command": "read line; echo got $line; echo err >&2" }),
    )
    .await;
    let mut terminal = Terminal::attach(&daemon, &id, "pty=0").await;
    terminal
        .send_control(json!({ "type": "stdin", "data": "this\n" }))
        .await;
    assert_eq!(
        terminal.next().await,
        Received::Frame(ServerFrame::Exit { exit_code: 0 })
    );
    assert_eq!(
        (&terminal.seen[..], &terminal.stderr[..]),
        (&b"got this\n"[..], &b"err\n"[..])
    );
}

#[tokio::test]
async fn a_client_waits_while_its_input_is_not_read() {
    const FRAMES: usize = 6000;
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let go = place.path().join("go");
    let (go_text, line) = (go.display(), "x".repeat(199) + "\n");
    let text = format!("while ! test -e {go_text}; do sleep 0.05; done; head -n {FRAMES} | wc -c");
    let id = session(&daemon, json!({ "command": text })).await;
    let mut terminal = Terminal::attach(&daemon, &id, "pty=0").await;
    for _ in 0..FRAMES {
        terminal.type_in(&line).await;
    }
    std::fs::write(go, "").unwrap();
    terminal.until(&(FRAMES * line.len()).to_string()).await;
    assert_eq!(
        terminal.next().await,
        Received::Frame(ServerFrame::Exit { exit_code: 0 })
    );
}

#[tokio::test]
async fn one_client_at_a_time_holds_a_terminal() {
    let daemon = daemon();
    let id = session(&daemon, json!({})).await;
    let mut first = Terminal::attach(&daemon, &id, "takeover=1").await;
    first.type_in("MARK=kept\n").await;
    assert_eq!(Terminal::open(&daemon, &id, "").await.err(), Some(409));
    let plain = daemon.get(&format!("/pty/{id}/ws?takeover=1")).await;
    assert_eq!(
        (plain.status.as_u16(), plain.code().as_str()),
        (409, "ALREADY_CONNECTED")
    );
    let mut second = Terminal::attach(&daemon, &id, "takeover=1").await;
    assert_eq!(first.next().await, Received::Closed(4001));
    second.type_in("echo still $MARK\n").await;
    second.until("still kept").await;
    // Some clients are evicted before they are connected.
    let many = (0..6).map(async |_| {
        let mut terminal = Terminal::open(&daemon, &id, "takeover=1").await.unwrap();
        loop {
            match terminal.next().await {
                Received::Replay(_) => {}
                Received::Frame(ServerFrame::Connected { .. }) => return Some(terminal),
                Received::Closed(4001) => return None,
                other => panic!("{other:?}"),
            }
        }
    });
    let many = futures::future::join_all(many).await;
    let mut answers = 0;
    for mut terminal in many.into_iter().flatten() {
        terminal.send_control(json!({ "type": "ping" })).await;
        match terminal.next().await {
            Received::Frame(ServerFrame::Pong) => answers += 1,
            Received::Closed(4001) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(answers, 1, "one client holds the terminal");
}

#[tokio::test]
async fn a_holder_that_reads_nothing_can_be_evicted() {
    let daemon = daemon();
    let id = session(&daemon, json!({ "command": "yes" })).await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let address = ([127, 0, 0, 1], daemon.port()).into();
    let stream = socket.connect(address).await.unwrap();
    let url = format!("ws://127.0.0.1:{}/pty/{id}/ws?pty=0", daemon.port());
    let (stalled, _) = client_async(url, stream).await.unwrap();
    // More than the kernel's 4 MiB buffer and all queues: the holder is behind, and a send is
    // pending.
    eventually("the holder is far behind", async || {
        let status = daemon.get(&format!("/pty/{id}")).await.json();
        (status["output_offset"].as_u64().unwrap() > 9 << 19).then_some(())
    })
    .await;
    let mut second = Terminal::attach(&daemon, &id, "takeover=1").await;
    second.until("y\ny\n").await;
    drop(stalled);
}

#[tokio::test]
async fn deleting_ends_everything() {
    let daemon = daemon();
    let id = session(&daemon, json!({})).await;
    let mut terminal = Terminal::attach(&daemon, &id, "").await;
    assert_eq!(daemon.delete(&format!("/pty/{id}")).await.status, 200);
    let received = terminal.next().await;
    assert!(
        matches!(
            received,
            Received::Closed(_) | Received::Frame(ServerFrame::Exit { .. })
        ),
        "{received:?}"
    );
    let again = daemon.delete(&format!("/pty/{id}")).await;
    assert_eq!(
        (again.status.as_u16(), again.code().as_str()),
        (404, "CONTEXT_NOT_FOUND")
    );
    assert_eq!(Terminal::open(&daemon, &id, "").await.err(), Some(404));
    assert_eq!(
        daemon
            .post("/pty", json!({ "cwd": "/dev/null/x" }))
            .await
            .status,
        500
    );
}

#[tokio::test]
async fn a_close_is_answered_with_its_code() {
    let daemon = daemon();
    let id = session(&daemon, json!({ "command": "cat" })).await;
    for code in [1000, 1001, 4444] {
        let mut terminal = Terminal::attach(&daemon, &id, "takeover=1").await;
        let close = CloseFrame {
            code: CloseCode::from(code),
            reason: "".into(),
        };
        terminal.socket.close(Some(close)).await.unwrap();
        assert_eq!(terminal.answer().await, Received::Closed(code));
    }
}

/// Opens a WebSocket to a new session, sends these bytes, and returns the code of the close frame
/// that precedes the end of the connection.
async fn close_code_after(daemon: &Daemon, bytes: &[u8]) -> u16 {
    let id = session(daemon, json!({ "command": "cat" })).await;
    let mut socket = TcpStream::connect(("127.0.0.1", daemon.port()))
        .await
        .unwrap();
    let handshake = format!(
        "GET /pty/{id}/ws?pty=0 HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let mut head = Vec::new();
    let talk = async {
        socket.write_all(handshake.as_bytes()).await.unwrap();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        socket.write_all(bytes).await.unwrap();
        loop {
            let [first, len] = [
                socket.read_u8().await.unwrap(),
                socket.read_u8().await.unwrap(),
            ];
            let mut payload = vec![0; usize::from(len)];
            socket.read_exact(&mut payload).await.unwrap();
            if first == 0x88 {
                assert_eq!(socket.read(&mut [0]).await.unwrap(), 0, "no reset");
                return u16::from_be_bytes(payload[..2].try_into().unwrap());
            }
        }
    };
    tokio::time::timeout(LONG, talk).await.unwrap()
}

#[tokio::test]
async fn protocol_errors_are_answered_with_a_close() {
    const MASK: [u8; 4] = [0; 4];
    let daemon = daemon();
    let masked = |head: [u8; 2], payload: &[u8]| [&head[..], &MASK, payload].concat();
    for (name, bytes, code) in [
        ("an unmasked frame", vec![0x82, 2, STDIN, b'x'], 1002),
        ("a reserved bit", masked([0xc2, 0x80], b""), 1002),
        ("an unknown data frame", masked([0x83, 0x80], b""), 1002),
        ("an unknown control frame", masked([0x8b, 0x80], b""), 1002),
        ("a ping in pieces", masked([0x09, 0x80], b""), 1002),
        ("half a close code", masked([0x88, 0x81], b"\x03"), 1002),
        (
            "text that is not UTF-8",
            masked([0x81, 0x81], b"\xff"),
            1007,
        ),
    ] {
        assert_eq!(close_code_after(&daemon, &bytes).await, code, "{name}");
    }
}

#[tokio::test]
async fn a_large_message_is_delivered_and_a_larger_one_refused() {
    const LARGE: usize = 1_500_000;
    const LIMIT: usize = 16 << 20;
    let daemon = daemon();
    let command = format!("head -c {LARGE} | wc -c; cat > /dev/null");
    let id = session(&daemon, json!({ "command": command })).await;
    let mut terminal = Terminal::attach(&daemon, &id, "pty=0").await;
    terminal.type_in(&"x".repeat(LARGE)).await;
    terminal.until(&LARGE.to_string()).await;
    let mut frame = vec![0x82, 0xff];
    frame.extend_from_slice(&(LIMIT as u64 + 1).to_be_bytes());
    // All of it: the answer comes while it is still being sent.
    frame.resize(frame.len() + 4 + LIMIT + 1, STDIN);
    assert_eq!(close_code_after(&daemon, &frame).await, 1009);
}
