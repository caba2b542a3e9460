//! Request ids, and the log line of what failed (contract: lifecycle §1.2).

use axum::{extract::Request, response::Response};
use http::{HeaderName, HeaderValue, Method, Uri};
use osb_protocol::headers;
use tracing::{error, warn};
use uuid::Uuid;

use super::error::Cause;

const REQUEST_ID: HeaderName = HeaderName::from_static(headers::REQUEST_ID);
/// Longest id that is taken over from a client.
const LONGEST: usize = 256;

/// Extension of requests: their id.
#[derive(Clone, Debug)]
pub(super) struct RequestId(HeaderValue);

impl RequestId {
    /// The id as a text.
    pub(super) fn text(&self) -> String {
        self.0.to_str().unwrap_or_default().to_owned()
    }
}

/// The id of a request, and what the log says about it.
pub(super) struct RequestTag {
    id: HeaderValue,
    method: Method,
    uri: Uri,
}

impl RequestTag {
    /// Takes over the client's id or makes one, and puts it into the request's extensions.
    pub(super) fn of(request: &mut Request) -> Self {
        let id = given(request).unwrap_or_else(fresh);
        request.extensions_mut().insert(RequestId(id.clone()));
        Self {
            id,
            method: request.method().clone(),
            uri: request.uri().clone(),
        }
    }

    /// The id as text.
    pub(super) fn id(&self) -> &str {
        // Both kinds of ids are visible ASCII.
        self.id.to_str().unwrap_or_default()
    }

    pub(super) fn method(&self) -> &Method {
        &self.method
    }

    pub(super) fn path(&self) -> &str {
        self.uri.path()
    }

    /// Puts the id on the answer, whatever it is, and logs errors of ours under it.
    pub(super) fn put_on(self, response: &mut Response) {
        let status = response.status();
        // A sandbox's own errors are its own affair.
        if let (true, Some(Cause(cause))) = (status.is_server_error(), response.extensions().get())
        {
            let request_id = self.id();
            let (method, path, status) = (&self.method, self.uri.path(), status.as_u16());
            if status == 500 {
                error!(request_id, %method, path, status, cause, "request failed");
            } else {
                warn!(request_id, %method, path, status, cause, "request not served");
            }
        }
        response.headers_mut().insert(REQUEST_ID, self.id);
    }
}

fn given(request: &Request) -> Option<HeaderValue> {
    let text = request.headers().get(REQUEST_ID)?.to_str().ok()?.trim();
    if text.is_empty() || text.len() > LONGEST {
        return None;
    }
    HeaderValue::from_str(text).ok()
}

fn fresh() -> HeaderValue {
    let mut text = Uuid::encode_buffer();
    let text = Uuid::new_v4().simple().encode_lower(&mut text);
    HeaderValue::from_str(text).expect("hex digits are valid in headers")
}
