//! Response body with the events of a journal: sends events as they arrive and pings while there
//! are none, and ends right after the last event (contract: execd §4).

use std::convert::Infallible;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::stream;
use jiff::Timestamp;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::{
    frame::{self, Stamp},
    journal::EventReader,
};
use crate::{http::stream_headers, limits};

/// Creates the response that streams the reader's events.
pub(crate) fn response(reader: EventReader) -> Response {
    let events = Events::new(reader);
    let body = Body::from_stream(stream::unfold(events, |mut events| async move {
        let bytes = events.next().await?;
        Some((Ok::<_, Infallible>(bytes), events))
    }));
    let mut response = Response::new(body);
    *response.headers_mut() = stream_headers();
    response
}

struct Events {
    reader: EventReader,
    /// Last two bytes sent. Two newlines end an event, and an event contains none.
    last: [u8; 2],
    ping: Interval,
}

impl Events {
    fn new(reader: EventReader) -> Self {
        let mut ping = interval_at(Instant::now() + limits::PING, limits::PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            reader,
            last: *b"\n\n",
            ping,
        }
    }

    /// Waits for the next bytes: events, or a ping between two events. `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            tokio::select! {
                biased;
                bytes = self.reader.next() => {
                    let bytes = bytes?;
                    self.last = match bytes[..] {
                        [.., before, last] => [before, last],
                        [last] => [self.last[1], last],
                        [] => self.last,
                    };
                    return Some(bytes);
                }
                _ = self.ping.tick() => {
                    if self.last == *b"\n\n" {
                        let mut out = Vec::with_capacity(64);
                        let now = Timestamp::now().as_millisecond();
                        frame::text(&mut out, "ping", b"pong", Stamp::unnumbered(now));
                        return Some(Bytes::from(out));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::output::{Outputs, Replay, Writer};

    #[tokio::test(start_paused = true)]
    async fn pings_are_sent_in_silence_but_never_inside_an_event() {
        let outputs = Outputs::new(None);
        let (writer, reader) = Writer::new("id", Replay::Never, &outputs);
        let mut events = Events::new(reader);
        let opening = events.next().await.unwrap();
        assert!(opening.ends_with(b"\n\n"));
        let began = Instant::now();
        for count in 1..=3 {
            let ping = String::from_utf8(events.next().await.unwrap().to_vec()).unwrap();
            assert!(
                ping.starts_with("{\"type\":\"ping\",\"text\":\"pong\",\"timestamp\":"),
                "{ping}"
            );
            assert!(ping.ends_with("}\n\n") && !ping.contains("seq"), "{ping}");
            assert!(began.elapsed() >= limits::PING * count);
        }
        writer.journal().extend(Bytes::from("half"), 3);
        assert_eq!(events.next().await.unwrap(), "half");
        let more = timeout(Duration::from_secs(60), events.next()).await;
        assert!(more.is_err(), "{more:?}");
    }
}
