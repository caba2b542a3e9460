//! Bodies of answers: one JSON object and a line break, or an error as plain text.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

/// Success: an object and a line break.
pub(super) struct Object<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Object<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(mut body) => {
                body.push(b'\n');
                let json = HeaderValue::from_static("application/json");
                ([(header::CONTENT_TYPE, json)], Body::from(body)).into_response()
            }
            Err(error) => {
                let text = format!("the answer cannot be written: {error}");
                Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
            }
        }
    }
}

/// Error: a text for people. Clients decide by the status.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let headers = [
            (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ];
        (self.status, headers, self.text + "\n").into_response()
    }
}
