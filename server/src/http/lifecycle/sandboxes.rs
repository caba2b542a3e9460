//! `/sandboxes` (contract: lifecycle §5).

use std::collections::BTreeMap;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header::CONTENT_TYPE};
use osb_protocol::{
    ErrorBody, FieldError, headers,
    labels::MetadataFilter,
    lifecycle::{
        CreateSandboxRequest, CreateSandboxResponse, ListSandboxesResponse, RenewRequest,
        RenewResponse, Sandbox,
    },
};
use serde_json::Value;

use super::super::{
    caller::Caller,
    delivery::Recipient,
    error::ApiError,
    extract::{InPath, JsonBody, Query, sandbox_id},
};
use crate::sandbox::{
    Error, IdempotencyKey, ListQuery, Page, Record,
    list::{PAGE_SIZE, PAGE_SIZE_MAX},
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Make a sandbox.
///
/// Answers once its execd can be used. When it cannot be made, nothing of it is left, nor when the
/// client is gone before it has the answer and sent no `Idempotency-Key`.
#[utoipa::path(
    post, path = "/sandboxes", tag = "sandboxes", operation_id = "createSandbox",
    params((
        "Idempotency-Key" = Option<String>, Header,
        description = "The same key with the same body is answered with the first one's sandbox, for 24 hours",
        min_length = 1, max_length = 255,
    )),
    request_body = CreateSandboxRequest,
    responses(
        (status = 202, description = "The sandbox runs", body = CreateSandboxResponse),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it, or a quota is used up", body = ErrorBody),
        (status = 404, description = "There is no such snapshot, or no snapshots at all", body = ErrorBody),
        (status = 409, description = "The sandbox of this key is gone, or the snapshot is not ready", body = ErrorBody),
        (status = 422, description = "Fields have the wrong type or range, or the key was used for another body", body = ErrorBody),
        (status = 500, description = "The runtime cannot make it", body = ErrorBody),
        (status = 503, description = "The runtime or the store is away", body = ErrorBody),
    ),
)]
pub(super) async fn create(
    caller: Caller,
    recipient: Recipient,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Response {
    let hold = recipient.hold();
    let made = make(&caller, recipient, &headers, body).await;
    let wait = caller.service.pool_acquisition();
    let made = made.map_err(|error| error.after_pool(wait));
    let mut response = made.unwrap_or_else(IntoResponse::into_response);
    if let Some(hold) = hold {
        response.extensions_mut().insert(hold);
    }
    response
}

async fn make(
    Caller { principal, service }: &Caller,
    recipient: Recipient,
    headers: &HeaderMap,
    body: Value,
) -> Result<Response, ApiError> {
    let answer = |record: &Record| {
        let answer = CreateSandboxResponse::from(record.sandbox.clone());
        serde_json::to_vec(&answer).expect("maps have string keys, so this serialises")
    };
    let body = if let Some(key) = idempotency_key(headers, principal.scope.tenant())? {
        let record = service.create_once(body, key).await?;
        Body::from(answer(&record))
    } else {
        let (record, unanswered) = service.create_for_answer(body).await?;
        Body::new(recipient.answer(answer(&record).into(), unanswered))
    };
    Ok((StatusCode::ACCEPTED, [(CONTENT_TYPE, JSON)], body).into_response())
}

fn idempotency_key(
    headers: &HeaderMap,
    tenant: Option<&str>,
) -> Result<Option<IdempotencyKey>, Error> {
    let mut keys = headers.get_all(headers::IDEMPOTENCY_KEY).iter();
    let Some(key) = keys.next() else {
        return Ok(None);
    };
    if keys.next().is_some() {
        return Err(Error::rule("Idempotency-Key", "must not be sent twice"));
    }
    let api_key = headers.get(headers::API_KEY).map(HeaderValue::as_bytes);
    IdempotencyKey::new(api_key.unwrap_or_default(), tenant, key.as_bytes()).map(Some)
}

/// List sandboxes, newest first.
#[utoipa::path(
    get, path = "/sandboxes", tag = "sandboxes", operation_id = "listSandboxes",
    params(
        ("state" = Option<Vec<String>>, Query, description = "Wanted states; any of them"),
        ("metadata" = Option<String>, Query, description = "`k=v` pairs joined by `&`; all of them"),
        ("page" = Option<u32>, Query, description = "From 1", minimum = 1),
        ("pageSize" = Option<u32>, Query, description = "20 when absent", minimum = 1, maximum = 200),
    ),
    responses(
        (status = 200, description = "A page", body = ListSandboxesResponse),
        (status = 400, description = "The metadata filter has no `=`", body = ErrorBody),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 422, description = "A parameter is out of range", body = ErrorBody),
        (status = 503, description = "The runtime is away", body = ErrorBody),
    ),
)]
pub(super) async fn list(
    Caller { service, .. }: Caller,
    query: Query,
) -> Result<Response, ApiError> {
    let page = service.list(&list_query(&query)?)?;
    Ok(json(page_body(&page)))
}

fn list_query(query: &Query) -> Result<ListQuery, ApiError> {
    let (page, page_size) = query.page(PAGE_SIZE, PAGE_SIZE_MAX)?;
    let metadata = MetadataFilter::parse(query.last("metadata").unwrap_or_default());
    let metadata = metadata.map_err(|error| {
        let code = osb_protocol::error::code::INVALID_METADATA_FORMAT;
        ApiError::new(StatusCode::BAD_REQUEST, code, error.to_string())
    })?;
    let states = query
        .all("state")
        .into_iter()
        .filter(|state| !state.is_empty())
        .collect();
    Ok(ListQuery {
        states,
        metadata,
        page,
        page_size,
    })
}

/// Puts the records' own JSON together: nothing is serialised again.
fn page_body(page: &Page) -> Bytes {
    let pagination = serde_json::to_vec(&page.pagination).expect("numbers always serialise");
    let items: usize = page.items.iter().map(|record| record.json.len() + 1).sum();
    let mut body = BytesMut::with_capacity(items + pagination.len() + 32);
    body.put_slice(b"{\"items\":[");
    for (index, record) in page.items.iter().enumerate() {
        if index > 0 {
            body.put_u8(b',');
        }
        body.put_slice(&record.json);
    }
    body.put_slice(b"],\"pagination\":");
    body.put_slice(&pagination);
    body.put_u8(b'}');
    body.freeze()
}

fn json(body: Bytes) -> Response {
    ([(CONTENT_TYPE, JSON)], body).into_response()
}

/// One sandbox.
#[utoipa::path(
    get, path = "/sandboxes/{id}", tag = "sandboxes", operation_id = "getSandbox",
    params(("id" = String, Path, description = "Sandbox id")),
    responses(
        (status = 200, description = "The sandbox", body = Sandbox),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 404, description = "No such sandbox", body = ErrorBody),
        (status = 503, description = "The runtime is away", body = ErrorBody),
    ),
)]
pub(super) async fn get(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
) -> Result<Response, ApiError> {
    Ok(json(service.get(&sandbox_id(id))?.json.clone()))
}

/// Delete a sandbox.
///
/// Answers once the intent is kept; the sandbox is `Stopping` until it is gone. `Prefer: wait`
/// answers only then.
#[utoipa::path(
    delete, path = "/sandboxes/{id}", tag = "sandboxes", operation_id = "deleteSandbox",
    params(("id" = String, Path, description = "Sandbox id")),
    responses(
        (status = 204, description = "It is being removed, or gone with `Prefer: wait`"),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such sandbox", body = ErrorBody),
        (status = 503, description = "The runtime is away", body = ErrorBody),
    ),
)]
pub(super) async fn delete(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    let wait = headers.get_all("prefer").iter().any(|value| {
        let value = value.to_str().unwrap_or_default();
        value
            .split(',')
            .any(|preference| preference.trim().eq_ignore_ascii_case("wait"))
    });
    service.delete(&sandbox_id(id), wait).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Change metadata: a JSON Merge Patch of strings.
#[utoipa::path(
    patch, path = "/sandboxes/{id}/metadata", tag = "sandboxes",
    operation_id = "patchSandboxMetadata",
    params(("id" = String, Path, description = "Sandbox id")),
    request_body(
        content = BTreeMap<String, Option<String>>,
        description = "A value adds or replaces, null deletes",
    ),
    responses(
        (status = 200, description = "The sandbox", body = Sandbox),
        (status = 400, description = "An entry breaks the label grammar", body = ErrorBody),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such sandbox", body = ErrorBody),
        (status = 422, description = "Not an object of strings", body = ErrorBody),
        (status = 503, description = "The runtime or the store is away", body = ErrorBody),
    ),
)]
pub(super) async fn patch_metadata(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let record = service
        .patch_metadata(&sandbox_id(id), patch(body)?)
        .await?;
    Ok(json(record.json.clone()))
}

fn patch(body: JsonBody) -> Result<BTreeMap<String, Option<String>>, ApiError> {
    let members = body.into_members()?;
    let mut patch = BTreeMap::new();
    let mut wrong = Vec::new();
    for (key, value) in members {
        match value {
            Value::String(text) => drop(patch.insert(key, Some(text))),
            Value::Null => drop(patch.insert(key, None)),
            _ => wrong.push(FieldError::body(
                "string_type",
                [key],
                "must be a string or null",
            )),
        }
    }
    if wrong.is_empty() {
        Ok(patch)
    } else {
        Err(ApiError::invalid(wrong))
    }
}

/// Move the expiry.
#[utoipa::path(
    post, path = "/sandboxes/{id}/renew-expiration", tag = "sandboxes",
    operation_id = "renewSandboxExpiration",
    params(("id" = String, Path, description = "Sandbox id")),
    request_body = RenewRequest,
    responses(
        (status = 200, description = "The new expiry", body = RenewResponse),
        (status = 400, description = "The time has passed", body = ErrorBody),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such sandbox", body = ErrorBody),
        (status = 409, description = "It never expires, or is being removed", body = ErrorBody),
        (status = 422, description = "Not a time", body = ErrorBody),
        (status = 503, description = "The runtime or the store is away", body = ErrorBody),
    ),
)]
pub(super) async fn renew(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
    body: JsonBody,
) -> Result<axum::Json<RenewResponse>, ApiError> {
    let body = body.into_members()?;
    let wrong = |kind, message: &str| {
        ApiError::invalid(vec![FieldError::body(kind, ["expiresAt"], message)])
    };
    let given = body.get("expiresAt").or_else(|| body.get("expires_at"));
    let given = given
        .ok_or_else(|| wrong("missing", "is required"))?
        .clone();
    let at = serde_json::from_value(given)
        .map_err(|error| wrong("datetime_parsing", &error.to_string()))?;
    let expires_at = service.renew(&sandbox_id(id), at).await?;
    Ok(axum::Json(RenewResponse { expires_at }))
}
