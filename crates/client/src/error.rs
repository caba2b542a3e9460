//! Errors of calls.

use reqwest::StatusCode;
use serde_json::Value;

use crate::frames::FrameTooLong;

/// Code of an error answer that has none of its own, as in the other SDKs.
pub(crate) const UNEXPECTED_RESPONSE: &str = "UNEXPECTED_RESPONSE";

/// Most characters of a body that is not JSON which become the message.
const MESSAGE_MAX: usize = 512;

/// A failed call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with an error.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The exchange failed or timed out.
    #[error("the exchange with the server failed")]
    Transport(#[source] reqwest::Error),
    /// The answer is not what the contract promises.
    #[error("unexpected answer of the server: {0}")]
    Unexpected(&'static str),
    /// The answer is longer than this client reads, in bytes.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// The body of the answer is not what the contract promises.
    #[error("the body of the answer cannot be decoded")]
    Body(#[source] serde_json::Error),
    /// An event of a stream is too long.
    #[error(transparent)]
    Frame(#[from] FrameTooLong),
    /// The WebSocket broke.
    #[error("the WebSocket failed")]
    WebSocket(#[source] Box<tokio_tungstenite::tungstenite::Error>),
    /// An argument is invalid; nothing was sent.
    #[error("{what} is not valid: {rule}")]
    Argument {
        /// Which argument.
        what: &'static str,
        /// The rule it breaks.
        rule: String,
    },
}

impl Error {
    /// Stable code of the server, if it sent one.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.api().map(|error| error.code.as_str())
    }

    /// HTTP status of the answer, if there was one.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.api().map(|error| error.status)
    }

    /// Id under which the server's log knows this request.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.api()?.request_id.as_deref()
    }

    /// Whether the same call may succeed a little later: the server is busy or not reachable.
    /// Timeouts are not retryable, because the call may have had its effect.
    /// contract: clients §3.8
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Api(error) => matches!(error.status.as_u16(), 429 | 502 | 503),
            Self::Transport(error) => error.is_connect() && !error.is_timeout(),
            Self::Unexpected(_)
            | Self::TooLong(_)
            | Self::Body(_)
            | Self::Frame(_)
            | Self::WebSocket(_)
            | Self::Argument { .. } => false,
        }
    }

    fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error) => Some(error),
            _ => None,
        }
    }

    pub(crate) fn argument(what: &'static str, rule: impl ToString) -> Self {
        let rule = rule.to_string();
        Self::Argument { what, rule }
    }
}

impl From<reqwest::Error> for Error {
    fn from(error: reqwest::Error) -> Self {
        // URLs may carry signatures, and errors end up in logs.
        Self::Transport(error.without_url())
    }
}

impl From<tokio_tungstenite::tungstenite::Error> for Error {
    fn from(error: tokio_tungstenite::tungstenite::Error) -> Self {
        Self::WebSocket(Box::new(error))
    }
}

/// An error answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code}, HTTP {})", status.as_u16())]
pub struct ApiError {
    /// HTTP status.
    pub status: StatusCode,
    /// Stable code; `UNEXPECTED_RESPONSE` where the body has none.
    pub code: String,
    /// Text for people.
    pub message: String,
    /// Value of `X-Request-ID`.
    pub request_id: Option<String>,
}

impl ApiError {
    /// Reads any error body: ours, those with the error nested under `detail` or `error`, plain
    /// text, and none at all.
    pub(crate) fn read(status: StatusCode, request_id: Option<String>, body: &[u8]) -> Self {
        let json: Option<Value> = serde_json::from_slice(body).ok();
        let object = json.as_ref().map(|json| {
            let nested = ["detail", "error"].iter().find_map(|name| {
                let nested = json.get(name)?;
                nested.is_object().then_some(nested)
            });
            nested
                .filter(|_| json.get("code").is_none())
                .unwrap_or(json)
        });
        let text = |names: &[&str]| {
            let member = |name| object?.get(name)?.as_str().filter(|text| !text.is_empty());
            names.iter().copied().find_map(member).map(str::to_owned)
        };
        Self {
            status,
            code: text(&["code"]).unwrap_or_else(|| UNEXPECTED_RESPONSE.to_owned()),
            message: text(&["message", "detail", "error"])
                .unwrap_or_else(|| fallback_message(status, body)),
            request_id,
        }
    }
}

fn fallback_message(status: StatusCode, body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body);
    let body = body.trim();
    if body.is_empty() {
        status.to_string()
    } else {
        body.chars().take(MESSAGE_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, body: &str) -> (String, String) {
        let status = StatusCode::from_u16(status).unwrap();
        let error = ApiError::read(status, None, body.as_bytes());
        (error.code, error.message)
    }

    fn pair(code: &str, message: &str) -> (String, String) {
        (code.to_owned(), message.to_owned())
    }

    #[test]
    fn every_known_shape_of_error_bodies_is_read() {
        let ours = pair("A::B", "no");
        assert_eq!(read(400, r#"{"code":"A::B","message":"no"}"#), ours);
        assert_eq!(
            read(
                422,
                r#"{"code":"A::B","message":"no","detail":[{"loc":["body"]}]}"#
            ),
            ours
        );
        assert_eq!(
            read(400, r#"{"detail":{"code":"A::B","message":"no"}}"#),
            ours
        );
        assert_eq!(
            read(400, r#"{"error":{"code":"A::B","message":"no"}}"#),
            ours
        );
        let without_code = pair(UNEXPECTED_RESPONSE, "no");
        assert_eq!(read(401, r#"{"error":"no"}"#), without_code);
        assert_eq!(read(404, r#"{"detail":"no"}"#), without_code);
        assert_eq!(read(502, "no\n"), without_code);
        assert_eq!(read(416, r#"{"code":"A::B"}"#).0, "A::B");
        assert_eq!(
            read(503, ""),
            pair(UNEXPECTED_RESPONSE, "503 Service Unavailable")
        );
        assert_eq!(read(500, &"é".repeat(5000)).1.chars().count(), MESSAGE_MAX);
        assert_eq!(read(500, "[1]"), pair(UNEXPECTED_RESPONSE, "[1]"));
    }

    #[test]
    fn busy_servers_are_worth_another_try() {
        for (status, retryable) in [
            (429, true),
            (502, true),
            (503, true),
            (500, false),
            (404, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let error = Error::from(ApiError::read(status, None, b""));
            assert_eq!(error.retryable(), retryable, "{status}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_body_breaks_the_reader(body: Vec<u8>) {
            let error = ApiError::read(StatusCode::BAD_GATEWAY, None, &body);
            assert!(!error.message.is_empty() && !error.code.is_empty());
        }
    }
}
