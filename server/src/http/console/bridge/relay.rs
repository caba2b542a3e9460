//! Passes WebSocket messages between a page and execd, unread.
//!
//! One message per direction is on its way, nothing is queued: a side that does not take its
//! message stops the reads from the other, and TCP carries that back. Pings and pongs stay on
//! their own connection, where the WebSocket library answers them.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes};
use bytes::Bytes;
use futures::{Sink, SinkExt, Stream, StreamExt};
use osb_client::execd::SocketMessage;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

/// Interval of pings to the page: they reveal a page that vanished, and keep the connection open
/// in proxies that close idle ones.
const PING: Duration = Duration::from_secs(30);
/// Longest silence of a page, which at least answers pings; then it is gone.
const SILENCE: Duration = Duration::from_secs(90);
/// Longest time for the page to take one message; then it is gone.
const STUCK: Duration = Duration::from_secs(60);
/// Longest time for either side to take the end.
const CLOSE: Duration = Duration::from_secs(5);

/// Relays until one side ends, and passes the end on to the other.
pub(super) async fn relay<P, E, A, B>(page: P, execd: E)
where
    P: Stream<Item = Result<Message, A>> + Sink<Message>,
    E: Stream<Item = Result<SocketMessage, B>> + Sink<SocketMessage>,
{
    let (mut to_page, mut from_page) = page.split();
    let (mut to_execd, mut from_execd) = execd.split();
    let down = async {
        let mut ping = interval_at(Instant::now() + PING, PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let message = tokio::select! {
                message = from_execd.next() => match message {
                    Some(Ok(message)) => for_page(message),
                    Some(Err(_)) | None => return,
                },
                _ = ping.tick() => Some(Message::Ping(Bytes::new())),
            };
            let Some(message) = message else { continue };
            let is_last = matches!(message, Message::Close(_));
            match timeout(STUCK, to_page.send(message)).await {
                Ok(Ok(())) if !is_last => {}
                _ => return,
            }
        }
    };
    let up = async {
        // The silence counts only while the page is listened to.
        while let Ok(Some(Ok(message))) = timeout(SILENCE, from_page.next()).await {
            match for_execd(message) {
                Relayed::Message(message) => {
                    if to_execd.send(message).await.is_err() {
                        return;
                    }
                }
                Relayed::Nothing => {}
                Relayed::End => return,
            }
        }
    };
    tokio::select! {
        () = down => {}
        () = up => {}
    }
    let close = async {
        // Either may be closed already.
        let _ = futures::join!(to_page.close(), to_execd.close());
    };
    // A side that takes nothing any more is dropped.
    let _ = timeout(CLOSE, close).await;
}

/// What a message of the page becomes.
enum Relayed {
    Message(SocketMessage),
    Nothing,
    End,
}

fn for_execd(message: Message) -> Relayed {
    match message {
        Message::Binary(data) => Relayed::Message(SocketMessage::Binary(data)),
        Message::Text(text) => {
            let text = Bytes::from(text).try_into();
            Relayed::Message(SocketMessage::Text(
                text.expect("checked when it was received"),
            ))
        }
        Message::Ping(_) | Message::Pong(_) => Relayed::Nothing,
        Message::Close(_) => Relayed::End,
    }
}

/// The same message for the page; `None` if it concerns only the connection to execd.
fn for_page(message: SocketMessage) -> Option<Message> {
    let text = |text| {
        let text = Utf8Bytes::try_from(Bytes::from(text));
        text.expect("checked when it was received")
    };
    match message {
        SocketMessage::Binary(data) => Some(Message::Binary(data)),
        SocketMessage::Text(message) => Some(Message::Text(text(message))),
        SocketMessage::Close(None) => Some(Message::Close(None)),
        SocketMessage::Close(Some(close)) => Some(Message::Close(Some(CloseFrame {
            code: close.code.into(),
            reason: text(close.reason),
        }))),
        SocketMessage::Ping(_) | SocketMessage::Pong(_) | SocketMessage::Frame(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        pin::Pin,
        task::{Context, Poll},
    };

    use futures::channel::mpsc;
    use osb_service::Supervisor;
    use tokio::task::JoinHandle;
    use tokio_tungstenite::tungstenite::protocol::CloseFrame as PtyClose;

    use super::*;

    /// One end of a connection whose buffers hold a message or two each way.
    struct Peer<M> {
        input: mpsc::Receiver<M>,
        output: mpsc::Sender<M>,
    }

    impl<M> Peer<M> {
        fn pair() -> (Self, Self) {
            let (there, input) = mpsc::channel(1);
            let (output, back) = mpsc::channel(1);
            let other = Self {
                input: back,
                output: there,
            };
            (Self { input, output }, other)
        }
    }

    impl<M> Stream for Peer<M> {
        type Item = Result<M, Infallible>;

        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            self.input.poll_next_unpin(cx).map(|next| next.map(Ok))
        }
    }

    impl<M> Sink<M> for Peer<M> {
        type Error = mpsc::SendError;

        fn poll_ready(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Result<(), Self::Error>> {
            self.output.poll_ready_unpin(cx)
        }

        fn start_send(mut self: Pin<&mut Self>, message: M) -> Result<(), Self::Error> {
            self.output.start_send_unpin(message)
        }

        fn poll_flush(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Result<(), Self::Error>> {
            self.output.poll_flush_unpin(cx)
        }

        fn poll_close(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Result<(), Self::Error>> {
            self.output.poll_close_unpin(cx)
        }
    }

    /// A relay with the far ends of both its connections.
    fn start() -> (Peer<Message>, Peer<SocketMessage>, JoinHandle<()>) {
        let (page, relay_page) = Peer::pair();
        let (execd, relay_execd) = Peer::pair();
        let task = Supervisor::new().spawn("relay", relay(relay_page, relay_execd));
        (page, execd, task)
    }

    #[tokio::test]
    async fn messages_pass_unread_both_ways() {
        let (mut page, mut execd, _relay) = start();
        // No frame that this build knows: what it means is between the page and execd.
        let data = Bytes::from_static(b"\x09later");
        page.send(Message::Binary(data.clone())).await.unwrap();
        page.send(Message::text("no JSON")).await.unwrap();
        let passed = SocketMessage::Binary(data.clone());
        assert_eq!(execd.next().await, Some(Ok(passed)));
        assert_eq!(execd.next().await, Some(Ok(SocketMessage::text("no JSON"))));
        execd
            .send(SocketMessage::Binary(data.clone()))
            .await
            .unwrap();
        execd.send(SocketMessage::Ping("p".into())).await.unwrap();
        execd.send(SocketMessage::text("{}\n")).await.unwrap();
        let Some(Ok(Message::Binary(same))) = page.next().await else {
            panic!("no binary message");
        };
        assert_eq!(same.as_ptr(), data.as_ptr(), "not a copy");
        assert_eq!(page.next().await, Some(Ok(Message::text("{}\n"))));
    }

    #[tokio::test]
    async fn the_close_of_execd_reaches_the_page() {
        for code in [1000, 4001] {
            let (mut page, mut execd, relay) = start();
            let close = PtyClose {
                code: code.into(),
                reason: "why".into(),
            };
            execd.send(SocketMessage::Close(Some(close))).await.unwrap();
            let want = Message::Close(Some(CloseFrame {
                code,
                reason: "why".into(),
            }));
            assert_eq!(page.next().await, Some(Ok(want)));
            assert_eq!(page.next().await, None);
            relay.await.unwrap();
        }
    }

    #[tokio::test]
    async fn the_close_of_the_page_reaches_execd() {
        let (mut page, mut execd, relay) = start();
        page.send(Message::Close(None)).await.unwrap();
        assert_eq!(execd.next().await, None);
        relay.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_page_holds_up_execd() {
        let (page, mut execd, relay) = start();
        let mut taken = 0;
        let output = || SocketMessage::Binary(Bytes::from_static(b"\x01x"));
        while let Ok(sent) = timeout(STUCK / 2, execd.send(output())).await {
            sent.unwrap();
            taken += 1;
        }
        // Those in the two channels, and the one in the relay's hands.
        assert!(taken <= 4, "{taken} messages were taken");
        // The page never reads: the relay gives it up, and lets go of execd.
        relay.await.unwrap();
        drop(page);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_execd_holds_up_the_page_and_not_the_output() {
        let (mut page, mut execd, relay) = start();
        let mut taken = 0;
        let input = || Message::Binary(Bytes::from_static(b"\0x"));
        while let Ok(sent) = timeout(PING / 2, page.send(input())).await {
            sent.unwrap();
            taken += 1;
        }
        assert!(taken <= 4, "{taken} messages were taken");
        execd.send(SocketMessage::text("still here")).await.unwrap();
        assert_eq!(page.next().await, Some(Ok(Message::text("still here"))));
        // The page goes, while execd still takes nothing: the relay ends all the same.
        drop(page);
        relay.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_vanished_lets_go_of_the_terminal() {
        let (mut page, mut execd, relay) = start();
        let begin = Instant::now();
        let mut pings = 0;
        // It takes what the kernel takes for it, and answers nothing.
        while let Some(Ok(Message::Ping(_))) = page.next().await {
            pings += 1;
        }
        assert!(pings >= 2, "{pings} pings");
        assert_eq!(execd.next().await, None);
        assert!(begin.elapsed() >= SILENCE);
        relay.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_answers_pings_stays() {
        let (mut page, execd, relay) = start();
        for _ in 0..10 {
            assert!(matches!(page.next().await, Some(Ok(Message::Ping(_)))));
            page.send(Message::Pong(Bytes::new())).await.unwrap();
        }
        assert!(!relay.is_finished());
        drop(execd);
        relay.await.unwrap();
    }
}
