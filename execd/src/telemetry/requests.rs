//! Duration of requests, up to the last byte of the response.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use axum::{
    body::Body,
    extract::{MatchedPath, Request},
    response::Response,
};
use bytes::Bytes;
use http::StatusCode;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::{Active, routes};
use crate::http::Unrouted;

/// Timer of a request. Dropping it records the request, if there was a response.
#[derive(Debug)]
pub(crate) struct Timing {
    to: Arc<Active>,
    began: Instant,
    method: &'static str,
    route: Arc<str>,
    /// File operation, if the request is one.
    operation: Option<&'static str>,
    status: Option<StatusCode>,
    broke_off: bool,
}

impl Timing {
    pub(super) fn begin(to: Arc<Active>, request: &Request) -> Self {
        let began = Instant::now();
        let matched = request.extensions().get::<MatchedPath>();
        let (method, path) = (request.method(), request.uri().path());
        let templates = &to.instruments.routes;
        Self {
            began,
            method: routes::method(method),
            route: templates.template(matched.map(MatchedPath::as_str), method, path),
            operation: routes::operation(method, path),
            status: None,
            broke_off: false,
            to,
        }
    }

    /// Attaches the timer to the response body.
    pub(crate) fn follow(mut self, response: Response) -> Response {
        self.status = Some(response.status());
        if response.extensions().get::<Unrouted>().is_some() {
            self.route = self.to.instruments.routes.unknown();
            self.operation = None;
        }
        if response.status() == StatusCode::UNAUTHORIZED {
            self.operation = None;
        }
        if response.body().is_end_stream() {
            return response;
        }
        response.map(|body| Body::new(Timed { body, timing: self }))
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        let Some(status) = self.status else {
            return;
        };
        let took = self.began.elapsed();
        let to = &self.to.instruments;
        if let Some(operation) = self.operation {
            let succeeded = !self.broke_off && status.as_u16() < 400;
            to.file(operation, succeeded, took);
        }
        to.request(self.method, Arc::clone(&self.route), status.as_u16(), took);
    }
}

/// Response body with a timer.
struct Timed {
    body: Body,
    timing: Timing,
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.timing.broke_off |= matches!(frame, Some(Err(_)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
