//! Request bodies that no handler reads completely.
//!
//! The unread bytes would precede the next request on the connection. hyper closes such a connection,
//! but the response does not announce it, and the client's next request, already on its way, fails.
//! So a short rest is read, and otherwise the response says `Connection: close` (RFC 9112 §9.3).

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Buf;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::timeout;

/// Bytes of a body that are read after the response: about what is on its way already.
const DRAIN: u64 = 256 << 10;
/// Longest time that the response waits for these bytes.
const DRAIN_TIME: Duration = Duration::from_millis(250);

/// Calls a handler, and ensures that the request's body is read or its connection closed.
///
/// `wrap` turns the watched body into the handler's type of body. Call it around all handlers, on
/// HTTP/1 and HTTP/2 alike.
pub async fn read_or_close<B, R, A>(
    request: Request<B>,
    wrap: impl FnOnce(WatchedBody<B>) -> B,
    answer: impl FnOnce(Request<B>) -> A,
) -> Response<R>
where
    B: Body + Unpin,
    A: Future<Output = Response<R>>,
{
    // HTTP/2 ends the stream alone.
    if request.body().is_end_stream() || request.version() > Version::HTTP_11 {
        return answer(request).await;
    }
    // The client sends the body only after a `100 Continue`, which a read would trigger.
    let awaits_reading = request.headers().contains_key(header::EXPECT);
    let state = Arc::new(Mutex::new(BodyState::InUse { touched: false }));
    let seen = Arc::clone(&state);
    let watched = request.map(|body| {
        wrap(WatchedBody {
            body: Some(body),
            state,
        })
    });
    let mut response = answer(watched).await;
    let found = std::mem::replace(&mut *lock(&seen), BodyState::InUse { touched: true });
    let is_read = match found {
        BodyState::Ended => true,
        BodyState::Left { touched: false, .. } if awaits_reading => false,
        BodyState::Left { body, .. } => drained(body).await,
        // Still being read while the response is sent, for example by a backend: it may stop anywhere.
        BodyState::InUse { .. } => false,
    };
    if !is_read && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// Reads the rest of the body if it is short and arrives soon.
async fn drained<B: Body + Unpin>(mut body: B) -> bool {
    if body.size_hint().lower() > DRAIN {
        return false;
    }
    let drain = async {
        let mut left = DRAIN;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            let len = frame.data_ref().map_or(0, |data| data.remaining() as u64);
            match left.checked_sub(len) {
                Some(rest) => left = rest,
                None => return false,
            }
        }
        true
    };
    timeout(DRAIN_TIME, drain).await.unwrap_or(false)
}

/// State of a body.
#[derive(Debug)]
enum BodyState<B> {
    /// A handler has it. `touched`: the handler has polled it.
    InUse { touched: bool },
    /// It was read completely.
    Ended,
    /// The handler dropped it unread.
    Left { body: B, touched: bool },
}

fn lock<B>(state: &Mutex<BodyState<B>>) -> std::sync::MutexGuard<'_, BodyState<B>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body that is handed back when it is dropped unread.
#[derive(Debug)]
pub struct WatchedBody<B> {
    /// Absent after its end.
    body: Option<B>,
    state: Arc<Mutex<BodyState<B>>>,
}

impl<B: Body + Unpin> Body for WatchedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        if let BodyState::InUse { touched } = &mut *lock(&this.state) {
            *touched = true;
        }
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        let ended = match &frame {
            None => true,
            Some(Ok(_)) => body.is_end_stream(),
            // The connection is broken, and hyper closes it.
            Some(Err(_)) => true,
        };
        if ended {
            this.body = None;
            *lock(&this.state) = BodyState::Ended;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B> Drop for WatchedBody<B> {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            let mut state = lock(&self.state);
            let touched = matches!(*state, BodyState::InUse { touched: true });
            *state = BodyState::Left { body, touched };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::{Empty, Full, combinators::UnsyncBoxBody};

    use super::*;

    type TestBody = UnsyncBoxBody<Bytes, Infallible>;

    fn full(len: usize) -> TestBody {
        Full::new(Bytes::from(vec![0; len])).boxed_unsync()
    }

    /// A body of unknown length: frames of a kibibyte, then silence without an end.
    struct Endless {
        frames: usize,
    }

    impl Body for Endless {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.frames.checked_sub(1) {
                Some(left) => self.frames = left,
                None => return Poll::Pending,
            }
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0; 1 << 10])))))
        }
    }

    fn endless(frames: usize) -> TestBody {
        Endless { frames }.boxed_unsync()
    }

    fn request(body: TestBody) -> Request<TestBody> {
        Request::new(body)
    }

    /// Whether the response closes the connection.
    async fn closes<A: Future<Output = Response<()>>>(
        request: Request<TestBody>,
        answer: impl FnOnce(Request<TestBody>) -> A,
    ) -> bool {
        let response = read_or_close(request, BodyExt::boxed_unsync, answer).await;
        let connection = response.headers().get(header::CONNECTION);
        assert!(connection.is_none_or(|connection| connection == "close"));
        connection.is_some()
    }

    async fn ignore(_: Request<TestBody>) -> Response<()> {
        Response::new(())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_short_is_read_and_what_is_long_closes() {
        let limit = usize::try_from(DRAIN).unwrap();
        for (len, close) in [(0, false), (1, false), (limit, false), (limit + 1, true)] {
            assert_eq!(closes(request(full(len)), ignore).await, close, "{len}");
        }
        for frames in [0, 1, limit] {
            assert!(closes(request(endless(frames)), ignore).await, "{frames}");
        }
    }

    #[tokio::test]
    async fn a_body_that_was_read_closes_nothing() {
        let read = async |request: Request<TestBody>| {
            let body = request.into_body().collect().await;
            assert_eq!(body.unwrap().to_bytes().len(), 1 << 20);
            Response::new(())
        };
        assert!(!closes(request(full(1 << 20)), read).await);
    }

    #[tokio::test]
    async fn half_a_body_is_read_on() {
        let half = async |request: Request<TestBody>| {
            let mut body = request.into_body();
            body.frame().await;
            drop(body);
            Response::new(())
        };
        assert!(closes(request(endless(2)), half).await);
    }

    #[tokio::test]
    async fn a_body_that_is_still_being_read_closes() {
        let mut kept = None;
        let keep = async |request: Request<TestBody>| {
            kept = Some(request.into_body());
            Response::new(())
        };
        assert!(closes(request(full(1)), keep).await);
        let rest = kept.unwrap().collect().await.unwrap();
        assert_eq!(rest.to_bytes().len(), 1, "the reader goes on");
    }

    #[tokio::test]
    async fn nothing_is_asked_for_to_be_thrown_away() {
        let expecting = |body| {
            let mut request = request(body);
            let expect = HeaderValue::from_static("100-continue");
            request.headers_mut().insert(header::EXPECT, expect);
            request
        };
        assert!(closes(expecting(full(1)), ignore).await);
        let nothing = Empty::new().boxed_unsync();
        assert!(!closes(expecting(nothing), ignore).await);
    }

    #[tokio::test]
    async fn upgrades_and_http2_are_left_alone() {
        let switch = async |_: Request<TestBody>| {
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            response
        };
        assert!(!closes(request(full(1 << 20)), switch).await);
        let mut stream = request(full(1 << 20));
        *stream.version_mut() = Version::HTTP_2;
        assert!(!closes(stream, ignore).await);
    }
}
