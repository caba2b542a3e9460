//! `/snapshots` and `/sandboxes/{id}/snapshots`, on runtimes that have them (contract: lifecycle §9).

use axum::{Json, response::IntoResponse};
use http::{StatusCode, header::LOCATION};
use osb_protocol::{
    ErrorBody, FieldError,
    lifecycle::{CreateSnapshotRequest, ListSnapshotsResponse, Snapshot},
};
use serde_json::Value;

use super::super::{
    caller::Caller,
    error::ApiError,
    extract::{InPath, OptionalJsonBody, Query, sandbox_id},
};
use crate::sandbox::{
    SnapshotListQuery,
    list::{PAGE_SIZE, PAGE_SIZE_MAX},
    snapshots::NAME_MAX,
};

/// Take a snapshot of a sandbox.
///
/// Answers at once; the snapshot is `Creating` until it is `Ready` or `Failed`. The sandbox is frozen
/// while its file system is stored. Volumes, memory, environment and tokens are not part of it.
/// Snapshots outlive their sandbox and have no expiry. Runtimes without the feature answer 501.
#[utoipa::path(
    post, path = "/sandboxes/{id}/snapshots", tag = "snapshots", operation_id = "createSnapshot",
    params(("id" = String, Path, description = "Sandbox id")),
    request_body(content = Option<CreateSnapshotRequest>, description = "May be absent"),
    responses(
        (status = 202, description = "It is being taken", body = Snapshot, headers(
            ("Location" = String, description = "Path of the snapshot"),
        )),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it, a quota for disk is used up, or the tenant has as many snapshots as it may have", body = ErrorBody),
        (status = 404, description = "No such sandbox", body = ErrorBody),
        (status = 409, description = "It does not run, or several snapshots of it are being taken", body = ErrorBody),
        (status = 422, description = "The name is not a text of at least one character", body = ErrorBody),
        (status = 501, description = "The runtime has no snapshots", body = ErrorBody),
        (status = 503, description = "The runtime or the store is away", body = ErrorBody),
    ),
)]
pub(super) async fn take(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
    body: OptionalJsonBody,
) -> Result<impl IntoResponse, ApiError> {
    let name = name(body)?;
    let snapshot = service.take_snapshot(&sandbox_id(id), name).await?;
    let location = [(LOCATION, format!("/v1/snapshots/{}", snapshot.id))];
    Ok((StatusCode::ACCEPTED, location, Json(snapshot)))
}

fn name(body: OptionalJsonBody) -> Result<Option<String>, ApiError> {
    let wrong = |kind, rule: String| {
        Err(ApiError::invalid(vec![FieldError::body(
            kind,
            ["name"],
            rule,
        )]))
    };
    match body.into_members()?.remove("name") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) if name.is_empty() => wrong(
            "string_too_short",
            "must have at least 1 character".to_owned(),
        ),
        Some(Value::String(name)) if name.chars().count() > NAME_MAX => wrong(
            "string_too_long",
            format!("must have at most {NAME_MAX} characters"),
        ),
        Some(Value::String(name)) => Ok(Some(name)),
        Some(_) => wrong("string_type", "must be a string".to_owned()),
    }
}

/// List snapshots, newest first.
#[utoipa::path(
    get, path = "/snapshots", tag = "snapshots", operation_id = "listSnapshots",
    params(
        ("sandboxId" = Option<String>, Query, description = "Only those of this sandbox"),
        ("name" = Option<String>, Query, description = "Only those with exactly this name"),
        ("state" = Option<Vec<String>>, Query, description = "Wanted states, compared with case; any of them"),
        ("page" = Option<u32>, Query, description = "From 1", minimum = 1),
        ("pageSize" = Option<u32>, Query, description = "20 when absent", minimum = 1, maximum = 200),
    ),
    responses(
        (status = 200, description = "A page", body = ListSnapshotsResponse),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 422, description = "A parameter is out of range", body = ErrorBody),
        (status = 501, description = "The runtime has no snapshots", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
pub(super) async fn list(
    Caller { service, .. }: Caller,
    query: Query,
) -> Result<Json<ListSnapshotsResponse>, ApiError> {
    let (page, page_size) = query.page(PAGE_SIZE, PAGE_SIZE_MAX)?;
    let given = |name: &str| query.last(name).filter(|text| !text.is_empty());
    let states = query.all("state").into_iter();
    let page = service
        .list_snapshots(SnapshotListQuery {
            sandbox_id: given("sandboxId").map(str::to_owned),
            name: given("name").map(str::to_owned),
            states: states.filter(|state| !state.is_empty()).collect(),
            page,
            page_size,
        })
        .await?;
    Ok(Json(ListSnapshotsResponse {
        items: page.items,
        pagination: page.pagination,
    }))
}

/// One snapshot.
#[utoipa::path(
    get, path = "/snapshots/{id}", tag = "snapshots", operation_id = "getSnapshot",
    params(("id" = String, Path, description = "Snapshot id")),
    responses(
        (status = 200, description = "The snapshot", body = Snapshot),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 404, description = "No such snapshot", body = ErrorBody),
        (status = 501, description = "The runtime has no snapshots", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
pub(super) async fn get(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
) -> Result<Json<Snapshot>, ApiError> {
    Ok(Json(service.snapshot_by_id(&id).await?))
}

/// Delete a snapshot.
///
/// While sandboxes exist that were created from it, the runtime may refuse: then the snapshot stays
/// `Deleting`, no further sandbox can be created from it, and it is removed when they are gone. The
/// request may be repeated.
#[utoipa::path(
    delete, path = "/snapshots/{id}", tag = "snapshots", operation_id = "deleteSnapshot",
    params(("id" = String, Path, description = "Snapshot id")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such snapshot", body = ErrorBody),
        (status = 409, description = "It is being taken, or in use", body = ErrorBody),
        (status = 500, description = "The runtime cannot remove it; it stays Deleting", body = ErrorBody),
        (status = 501, description = "The runtime has no snapshots", body = ErrorBody),
        (status = 503, description = "The runtime or the store is away", body = ErrorBody),
    ),
)]
pub(super) async fn delete(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
) -> Result<StatusCode, ApiError> {
    service.delete_snapshot(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
