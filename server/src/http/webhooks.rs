//! `/v1/webhooks`: who is informed of what happens to sandboxes. An addition of this server, for
//! service administrators.

use axum::{Json, extract::State};
use http::StatusCode;
use osb_protocol::{
    ErrorBody, FieldError,
    error::code,
    webhook::{
        IssuedWebhook, NewWebhook, Webhook, WebhookDelivery, WebhookDeliveryList, WebhookList,
        WebhookTest,
    },
};
use osb_store::DeliveryStatus;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    AppState,
    audited::Noted,
    caller::Caller,
    error::ApiError,
    extract::{InPath, JsonBody, Query},
    fields::Fields,
};
use crate::{sandbox, webhooks::WebhookError};

/// Deliveries of a list when the request does not say.
const LIST: usize = 50;
/// Most deliveries of a list.
const LIST_MAX: usize = 200;

/// The routes, which exist under `/v1` only.
pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list, add))
        .routes(routes!(get, delete))
        .routes(routes!(enable))
        .routes(routes!(test))
        .routes(routes!(deliveries))
        .routes(routes!(redeliver))
}

/// List webhooks, without their secrets.
#[utoipa::path(
    get, path = "/webhooks", tag = "webhooks", operation_id = "listWebhooks",
    responses(
        (status = 200, description = "All webhooks", body = WebhookList),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
    ),
)]
async fn list(State(app): State<AppState>, caller: Caller) -> Json<WebhookList> {
    let items = app.webhooks.list(&caller.principal.scope);
    Json(WebhookList { items })
}

/// Add a webhook. No other answer contains its secret.
#[utoipa::path(
    post, path = "/webhooks", tag = "webhooks", operation_id = "addWebhook",
    request_body = NewWebhook,
    responses(
        (status = 201, description = "The webhook, with its secret if it was made", body = IssuedWebhook),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 409, description = "The name is taken, or there are as many as there may be", body = ErrorBody),
        (status = 422, description = "Fields break rules", body = ErrorBody),
        (status = 503, description = "The store or the runtime is away", body = ErrorBody),
    ),
)]
async fn add(
    State(app): State<AppState>,
    caller: Caller,
    noted: Noted,
    body: JsonBody,
) -> Result<(StatusCode, Json<IssuedWebhook>), ApiError> {
    let mut fields = Fields::of(body)?;
    let new = NewWebhook {
        name: fields.required("name"),
        url: fields.required("url"),
        events: fields.texts("events"),
        tenant: fields.text("tenant"),
        secret: fields.text("secret"),
    };
    fields.finish()?;
    let issued = app.webhooks.add(&caller.principal.scope, new).await?;
    note(&noted, &issued.webhook);
    Ok((StatusCode::CREATED, Json(issued)))
}

/// Get a webhook, without its secret.
#[utoipa::path(
    get, path = "/webhooks/{id}", tag = "webhooks", operation_id = "getWebhook",
    params(("id" = String, Path, description = "Webhook id")),
    responses(
        (status = 200, description = "The webhook", body = Webhook),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such webhook", body = ErrorBody),
    ),
)]
async fn get(
    State(app): State<AppState>,
    caller: Caller,
    InPath(id): InPath<String>,
) -> Result<Json<Webhook>, ApiError> {
    Ok(Json(app.webhooks.get(&caller.principal.scope, &id)?))
}

/// Delete a webhook with its deliveries.
#[utoipa::path(
    delete, path = "/webhooks/{id}", tag = "webhooks", operation_id = "deleteWebhook",
    params(("id" = String, Path, description = "Webhook id")),
    responses(
        (status = 204, description = "The webhook is gone"),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such webhook", body = ErrorBody),
        (status = 409, description = "The configuration names it", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
async fn delete(
    State(app): State<AppState>,
    caller: Caller,
    InPath(id): InPath<String>,
    noted: Noted,
) -> Result<StatusCode, ApiError> {
    note(&noted, &app.webhooks.get(&caller.principal.scope, &id)?);
    app.webhooks.delete(&caller.principal.scope, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Enable a webhook again whose receiver answered 410.
#[utoipa::path(
    post, path = "/webhooks/{id}/enable", tag = "webhooks", operation_id = "enableWebhook",
    params(("id" = String, Path, description = "Webhook id")),
    responses(
        (status = 200, description = "The webhook", body = Webhook),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such webhook", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
async fn enable(
    State(app): State<AppState>,
    caller: Caller,
    InPath(id): InPath<String>,
    noted: Noted,
) -> Result<Json<Webhook>, ApiError> {
    let enabled = app.webhooks.enable(&caller.principal.scope, &id).await?;
    note(&noted, &enabled);
    Ok(Json(enabled))
}

/// Send a message of the type `webhook.test`.
#[utoipa::path(
    post, path = "/webhooks/{id}/test", tag = "webhooks", operation_id = "testWebhook",
    params(("id" = String, Path, description = "Webhook id")),
    responses(
        (status = 202, description = "The message will be sent", body = WebhookTest),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such webhook", body = ErrorBody),
        (status = 409, description = "The webhook is disabled, or too many messages wait", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
async fn test(
    State(app): State<AppState>,
    caller: Caller,
    InPath(id): InPath<String>,
    noted: Noted,
) -> Result<(StatusCode, Json<WebhookTest>), ApiError> {
    note(&noted, &app.webhooks.get(&caller.principal.scope, &id)?);
    let test = app.webhooks.test(&caller.principal.scope, &id).await?;
    Ok((StatusCode::ACCEPTED, Json(test)))
}

/// List the messages of a webhook, newest first.
#[utoipa::path(
    get, path = "/webhooks/{id}/deliveries", tag = "webhooks", operation_id = "listWebhookDeliveries",
    params(
        ("id" = String, Path, description = "Webhook id"),
        ("status" = Option<String>, Query, description = "`pending`, `delivered` or `dead`"),
        ("before" = Option<i64>, Query, description = "Only deliveries with smaller ids", minimum = 1),
        ("limit" = Option<u32>, Query, description = "Most of them: 50 when absent", minimum = 1, maximum = 200),
    ),
    responses(
        (status = 200, description = "Deliveries", body = WebhookDeliveryList),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such webhook", body = ErrorBody),
        (status = 422, description = "A parameter breaks a rule", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
async fn deliveries(
    State(app): State<AppState>,
    caller: Caller,
    InPath(id): InPath<String>,
    query: Query,
) -> Result<Json<WebhookDeliveryList>, ApiError> {
    let asked = Asked::of(&query).map_err(ApiError::invalid)?;
    let Asked {
        status,
        before,
        limit,
    } = asked;
    let scope = &caller.principal.scope;
    let items: Vec<WebhookDelivery> = app
        .webhooks
        .deliveries(scope, &id, status, before, limit)
        .await?;
    Ok(Json(WebhookDeliveryList { items }))
}

/// Send a message again that was delivered or given up.
#[utoipa::path(
    post, path = "/webhooks/{id}/deliveries/{delivery}/redeliver", tag = "webhooks",
    operation_id = "redeliverWebhook",
    params(
        ("id" = String, Path, description = "Webhook id"),
        ("delivery" = String, Path, description = "Delivery id"),
    ),
    responses(
        (status = 202, description = "The message will be sent again"),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such webhook, or it has no such delivery that has ended", body = ErrorBody),
        (status = 409, description = "The webhook is disabled, or too many messages wait", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
async fn redeliver(
    State(app): State<AppState>,
    caller: Caller,
    InPath((id, delivery)): InPath<(String, String)>,
    noted: Noted,
) -> Result<StatusCode, ApiError> {
    let scope = &caller.principal.scope;
    note(&noted, &app.webhooks.get(scope, &id)?);
    let delivery = delivery.parse().map_err(|_| WebhookError::NoDelivery)?;
    app.webhooks.redeliver(scope, &id, delivery).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Notes which webhook it is. Its URL may contain a secret.
fn note(noted: &Noted, webhook: &Webhook) {
    noted.set_object(&webhook.id, webhook.tenant.as_deref());
    noted.note("name", webhook.name.as_str());
}

/// Which deliveries a list has.
struct Asked {
    status: Option<DeliveryStatus>,
    before: Option<i64>,
    limit: u32,
}

impl Asked {
    /// All parameters, or all that are wrong.
    fn of(query: &Query) -> Result<Self, Vec<FieldError>> {
        let mut wrong = Vec::new();
        let status = query.last("status").and_then(|name| {
            let status = DeliveryStatus::of(name);
            if status.is_none() {
                let rule = "must be pending, delivered or dead";
                wrong.push(FieldError::query("enum", "status", rule));
            }
            status
        });
        let before = query.last("before").and_then(|text| {
            let before = text.trim().parse().ok().filter(|id| *id > 0);
            if before.is_none() {
                let rule = "must be the id of a delivery";
                wrong.push(FieldError::query("int_parsing", "before", rule));
            }
            before
        });
        let limit = query.number("limit", LIST, 1..=LIST_MAX);
        let limit = limit.map_err(|rule| wrong.push(rule)).unwrap_or(LIST);
        match wrong.is_empty() {
            true => Ok(Self {
                status,
                before,
                limit: u32::try_from(limit).unwrap_or(u32::MAX),
            }),
            false => Err(wrong),
        }
    }
}

impl From<WebhookError> for ApiError {
    fn from(error: WebhookError) -> Self {
        let message = error.to_string();
        match error {
            WebhookError::Invalid(fields) => Self::invalid(fields),
            WebhookError::NoWebhook | WebhookError::NoDelivery => {
                Self::new(StatusCode::NOT_FOUND, code::NOT_FOUND, message)
            }
            WebhookError::Configured
            | WebhookError::Disabled(_)
            | WebhookError::NameTaken(_)
            | WebhookError::Full(_)
            | WebhookError::Backlog(_) => Self::new(StatusCode::CONFLICT, code::CONFLICT, message),
            WebhookError::Unavailable(error) => error.into(),
            WebhookError::Store(error) => sandbox::Error::from(error).into(),
        }
    }
}
