//! Extractors that answer in the contract's form when a request cannot be read.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, FromRequestParts, Path, Request},
};
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use osb_protocol::{FieldError, SandboxId, error::code};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::error::ApiError;
use crate::sandbox::validate::whole_number_in;

/// Largest JSON body of the lifecycle API, in bytes.
const JSON_BODY_MAX: usize = 1 << 20;

/// Longest time that the body of an API request may take.
const JSON_BODY_TIME: Duration = Duration::from_secs(30);
/// Longest time to read the rest of a refused request.
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// A JSON body of any shape; the domain says what is wrong with it.
pub(super) struct JsonBody(pub(super) Value);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = json_text(&parts.headers, body).await?;
        parse(&bytes).map(Self)
    }
}

/// A JSON body that may be absent, which is the same as an empty object. So is a null.
pub(super) struct OptionalJsonBody(JsonBody);

impl OptionalJsonBody {
    /// The members of the object.
    ///
    /// # Errors
    /// 422 when the body is anything else.
    pub(super) fn into_members(self) -> Result<Map<String, Value>, ApiError> {
        self.0.into_members()
    }
}

impl<S: Send + Sync> FromRequest<S> for OptionalJsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = read(body, JSON_BODY_MAX, JSON_BODY_TIME).await?;
        let value = match bytes.trim_ascii() {
            b"" => Value::Null,
            _ => parse(&json_text(&parts.headers, Body::from(bytes)).await?)?,
        };
        Ok(Self(JsonBody(match value {
            Value::Null => Value::Object(Map::new()),
            value => value,
        })))
    }
}

fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        // The library distinguishes this error from others by its message only.
        let what = match error.to_string().starts_with("recursion limit") {
            true => "nested deeper than 127 levels",
            false => "not valid JSON",
        };
        let message = format!("the body is {what} (line {line}, column {column})");
        whole_body("json_invalid", message)
    })
}

/// The text of a JSON body, which need not be valid.
///
/// # Errors
/// 422 when the headers call it something else or it is empty, and those of [`read`].
pub(super) async fn json_text(headers: &HeaderMap, body: Body) -> Result<Bytes, ApiError> {
    json_text_within(headers, body, JSON_BODY_MAX).await
}

/// Reads a JSON body that may have `more` bytes than others.
///
/// # Errors
/// 422 when it is not JSON, and those of [`read`].
pub(super) async fn larger_json(request: Request, more: usize) -> Result<JsonBody, ApiError> {
    let (parts, body) = request.into_parts();
    let most = JSON_BODY_MAX.saturating_add(more);
    let bytes = json_text_within(&parts.headers, body, most).await?;
    parse(&bytes).map(JsonBody)
}

async fn json_text_within(headers: &HeaderMap, body: Body, most: usize) -> Result<Bytes, ApiError> {
    let is_json = headers.get(CONTENT_TYPE).is_some_and(|value| {
        let essence = value
            .to_str()
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default();
        let essence = essence.trim().to_ascii_lowercase();
        essence == "application/json" || essence.ends_with("+json")
    });
    if !is_json {
        drain(body).await;
        let message = "the body must be JSON with Content-Type: application/json";
        return Err(whole_body("json_invalid", message));
    }
    let bytes = read(body, most, JSON_BODY_TIME).await?;
    if bytes.trim_ascii().is_empty() {
        return Err(whole_body("json_invalid", "the body is empty"));
    }
    Ok(bytes)
}

impl JsonBody {
    /// The members of an object.
    ///
    /// # Errors
    /// 422 when the body is anything else.
    pub(super) fn into_members(self) -> Result<Map<String, Value>, ApiError> {
        match self.0 {
            Value::Object(members) => Ok(members),
            _ => Err(whole_body("dict_type", "must be an object")),
        }
    }
}

/// Reads and forgets the rest of a request that is refused. hyper closes a connection whose request
/// was not read, and a client that reuses it then finds it closed under its next request.
pub(super) async fn drain(body: Body) {
    let mut body = Limited::new(body, JSON_BODY_MAX);
    let rest = async { while let Some(Ok(_)) = body.frame().await {} };
    // Beyond either bound the connection may as well be closed.
    let _ = timeout(DRAIN_TIME, rest).await;
}

/// Reads a whole body.
///
/// # Errors
/// 413 when it has more than `most` bytes, 408 when it takes longer than `time`, 422 when it breaks
/// off.
pub(super) async fn read(body: Body, most: usize, time: Duration) -> Result<Bytes, ApiError> {
    let whole = timeout(time, Limited::new(body, most).collect());
    match whole.await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("the body is larger than {most} bytes");
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            Err(ApiError::new(status, code::BODY_TOO_LARGE, message))
        }
        Ok(Err(_)) => Err(whole_body("json_invalid", "the body ended early")),
        Err(_) => {
            let message = format!("the body took longer than {} s", time.as_secs());
            let status = StatusCode::REQUEST_TIMEOUT;
            Err(ApiError::new(status, code::REQUEST_TIMEOUT, message))
        }
    }
}

fn whole_body(kind: &str, message: impl Into<String>) -> ApiError {
    ApiError::invalid(vec![FieldError::body(kind, [""; 0], message)])
}

/// Parts of the path, decoded. What is not text names nothing that is there.
pub(super) struct InPath<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for InPath<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Ok(Path(parts)) = Path::from_request_parts(parts, state).await else {
            let message = "no such sandbox: the address is not UTF-8";
            let status = StatusCode::NOT_FOUND;
            return Err(ApiError::new(status, code::SANDBOX_NOT_FOUND, message));
        };
        Ok(Self(parts))
    }
}

/// The decoded query, in order, repeated names included.
pub(super) struct Query(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self(
            url::form_urlencoded::parse(query.as_bytes())
                .into_owned()
                .collect(),
        ))
    }
}

impl Query {
    /// A query of these pairs.
    pub(super) fn of_pairs(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }

    /// The last value of a name.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// All values of a name.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        self.0
            .iter()
            .filter(|(key, _)| key == name)
            .map(|(_, value)| value.clone())
            .collect()
    }

    /// Number and size of the wanted page.
    ///
    /// # Errors
    /// 422 with what is out of range.
    pub(super) fn page(&self, size: usize, size_max: usize) -> Result<(usize, usize), ApiError> {
        let page = self.number("page", 1, 1..=usize::MAX);
        let page_size = self.number("pageSize", size, 1..=size_max);
        match (page, page_size) {
            (Ok(page), Ok(page_size)) => Ok((page, page_size)),
            (page, page_size) => {
                let errors = [page.err(), page_size.err()].into_iter().flatten();
                Err(ApiError::invalid(errors.collect()))
            }
        }
    }

    /// A whole number within bounds; `default` when absent.
    pub(super) fn number(
        &self,
        name: &str,
        default: usize,
        bounds: std::ops::RangeInclusive<usize>,
    ) -> Result<usize, FieldError> {
        let Some(text) = self.last(name) else {
            return Ok(default);
        };
        let number = whole_number_in(text)
            .ok_or_else(|| FieldError::query("int_parsing", name, "must be a whole number"))?;
        let (least, most) = (*bounds.start(), *bounds.end());
        match usize::try_from(number) {
            Ok(number) if number > most => Err(FieldError::query(
                "less_than_equal",
                name,
                format!("must be at most {most}"),
            )),
            Ok(number) if number >= least => Ok(number),
            _ => {
                let message = format!("must be at least {least}");
                Err(FieldError::query("greater_than_equal", name, message))
            }
        }
    }

    /// A switch; off when absent.
    pub(super) fn switch(&self, name: &str) -> Result<bool, FieldError> {
        match self.last(name).map(str::to_ascii_lowercase).as_deref() {
            None | Some("false" | "0" | "no" | "off" | "f" | "n") => Ok(false),
            Some("true" | "1" | "yes" | "on" | "t" | "y") => Ok(true),
            Some(_) => Err(FieldError::query(
                "bool_parsing",
                name,
                "must be true or false",
            )),
        }
    }
}

/// A sandbox id and a port from the path.
pub(super) fn port(text: &str) -> Result<u16, ApiError> {
    if !is_integer(text) {
        let error = FieldError::path("int_parsing", "port", "must be a whole number");
        return Err(ApiError::invalid(vec![error]));
    }
    let port = text.trim().parse().ok().filter(|port: &u16| *port > 0);
    port.ok_or_else(|| crate::sandbox::Error::Port.into())
}

/// Whether this is an integer, however large: such a number is out of range, not unreadable.
pub(super) fn is_integer(text: &str) -> bool {
    let text = text.trim();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A sandbox id from the path, whatever its shape.
pub(super) fn sandbox_id(text: String) -> SandboxId {
    SandboxId::new(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        Query(
            url::form_urlencoded::parse(text.as_bytes())
                .into_owned()
                .collect(),
        )
    }

    #[test]
    fn numbers_are_bounded_and_switches_spelled_many_ways() {
        let q = query(
            "page=2&page=3&size=0&big=999&huge=99999999999999999999&bad=x&neg=-1&on=YES&off=0&odd=maybe",
        );
        assert_eq!(q.number("page", 1, 1..=100).unwrap(), 3);
        assert_eq!(q.number("none", 7, 1..=100).unwrap(), 7);
        for (name, kind) in [
            ("size", "greater_than_equal"),
            ("big", "less_than_equal"),
            ("huge", "less_than_equal"),
            ("bad", "int_parsing"),
            ("neg", "greater_than_equal"),
        ] {
            assert_eq!(q.number(name, 1, 1..=100).unwrap_err().kind, kind, "{name}");
        }
        assert!(q.switch("on").unwrap() && !q.switch("off").unwrap() && !q.switch("none").unwrap());
        assert!(q.switch("odd").is_err());
        assert_eq!(q.all("page"), ["2", "3"]);
    }

    #[test]
    fn ports_tell_garbage_from_out_of_range() {
        assert_eq!(port("8080").unwrap(), 8080);
        let status = |text| port(text).unwrap_err().status().as_u16();
        for garbage in ["x", "", "1.5", "8080x", "-", "--1"] {
            assert_eq!(status(garbage), 422, "{garbage}");
        }
        for out_of_range in ["0", "65536", "-1", "99999999999999999999"] {
            assert_eq!(status(out_of_range), 400, "{out_of_range}");
        }
    }
}
