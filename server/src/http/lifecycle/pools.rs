//! `/pools`, on runtimes that have them (contract: lifecycle §10).

use axum::Json;
use http::StatusCode;
use osb_protocol::{
    ErrorBody, FieldError,
    error::Loc,
    lifecycle::{
        CreatePoolRequest, ListPoolsResponse, PoolCapacity, PoolResponse, UpdatePoolRequest,
    },
};
use serde_json::{Map, Value};

use super::super::{
    caller::Caller,
    error::ApiError,
    extract::{InPath, JsonBody, Query},
};
use crate::sandbox::{Service, validate::whole_number};

/// Add a pool.
///
/// The pool fills up by itself. A create with `extensions.poolRef` gets one of its sandboxes, whose
/// entry point starts then, with the environment of that create. Pools belong to the tenant of the key.
/// Runtimes without the feature answer 501.
#[utoipa::path(
    post, path = "/pools", tag = "pools", operation_id = "createPool",
    request_body = CreatePoolRequest,
    responses(
        (status = 201, description = "It is added", body = PoolResponse),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it, or the tenant has as many pools as it may have", body = ErrorBody),
        (status = 409, description = "There is a pool of this name", body = ErrorBody),
        (status = 422, description = "A member is missing, wrong, or not available here", body = ErrorBody),
        (status = 501, description = "The runtime has no pools", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
pub(super) async fn create(
    Caller { service, .. }: Caller,
    body: JsonBody,
) -> Result<(StatusCode, Json<PoolResponse>), ApiError> {
    let members = body.into_members()?;
    let mut wrong = Vec::new();
    let name = match members.get("name") {
        Some(Value::String(name)) => name.clone(),
        given => {
            wrong.push(mistyped(
                &["name"],
                given,
                "string_type",
                "must be a string",
            ));
            String::new()
        }
    };
    let template = template(&members);
    if template.is_none() {
        let given = members.get("template");
        wrong.push(mistyped(
            &["template"],
            given,
            "dict_type",
            "must be an object",
        ));
    }
    let capacity = capacity(&members, &mut wrong);
    let (Some(template), Some(capacity), true) = (template, capacity, wrong.is_empty()) else {
        return Err(ApiError::invalid(wrong));
    };
    let pool = service.create_pool(name, template, capacity).await?;
    Ok((StatusCode::CREATED, Json(pool)))
}

/// List the pools, by name.
#[utoipa::path(
    get, path = "/pools", tag = "pools", operation_id = "listPools",
    params(("tenant" = Option<String>, Query, description = "Whose pools; only for keys without a tenant")),
    responses(
        (status = 200, description = "All pools of the tenant", body = ListPoolsResponse),
        (status = 400, description = "The key has another tenant", body = ErrorBody),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 501, description = "The runtime has no pools", body = ErrorBody),
    ),
)]
pub(super) async fn list(
    Caller { service, .. }: Caller,
    query: Query,
) -> Result<Json<ListPoolsResponse>, ApiError> {
    let items = of_tenant(service, &query)?.list_pools()?;
    Ok(Json(ListPoolsResponse { items }))
}

/// One pool.
#[utoipa::path(
    get, path = "/pools/{name}", tag = "pools", operation_id = "getPool",
    params(
        ("name" = String, Path, description = "Name of the pool"),
        ("tenant" = Option<String>, Query, description = "Whose pools; only for keys without a tenant"),
    ),
    responses(
        (status = 200, description = "The pool", body = PoolResponse),
        (status = 400, description = "The key has another tenant", body = ErrorBody),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 404, description = "No such pool", body = ErrorBody),
        (status = 501, description = "The runtime has no pools", body = ErrorBody),
    ),
)]
pub(super) async fn get(
    Caller { service, .. }: Caller,
    InPath(name): InPath<String>,
    query: Query,
) -> Result<Json<PoolResponse>, ApiError> {
    Ok(Json(of_tenant(service, &query)?.pool(&name)?))
}

/// Change a pool.
///
/// A template replaces the former one: sandboxes that wait and were made from that are replaced.
#[utoipa::path(
    put, path = "/pools/{name}", tag = "pools", operation_id = "updatePool",
    params(
        ("name" = String, Path, description = "Name of the pool"),
        ("tenant" = Option<String>, Query, description = "Whose pools; only for keys without a tenant"),
    ),
    request_body = UpdatePoolRequest,
    responses(
        (status = 200, description = "It is changed", body = PoolResponse),
        (status = 400, description = "The key has another tenant", body = ErrorBody),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such pool", body = ErrorBody),
        (status = 422, description = "A member is missing, wrong, or not available here", body = ErrorBody),
        (status = 501, description = "The runtime has no pools", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
pub(super) async fn update(
    Caller { service, .. }: Caller,
    InPath(name): InPath<String>,
    query: Query,
    body: JsonBody,
) -> Result<Json<PoolResponse>, ApiError> {
    let service = of_tenant(service, &query)?;
    let members = body.into_members()?;
    let mut wrong = Vec::new();
    let given = members.get("template").filter(|given| !given.is_null());
    let template = template(&members);
    if given.is_some() && template.is_none() {
        wrong.push(mistyped(
            &["template"],
            given,
            "dict_type",
            "must be an object",
        ));
    }
    let capacity = capacity(&members, &mut wrong);
    let (Some(capacity), true) = (capacity, wrong.is_empty()) else {
        return Err(ApiError::invalid(wrong));
    };
    Ok(Json(service.update_pool(&name, capacity, template).await?))
}

/// Remove a pool.
///
/// Sandboxes that wait in it are removed, claimed ones stay.
#[utoipa::path(
    delete, path = "/pools/{name}", tag = "pools", operation_id = "deletePool",
    params(
        ("name" = String, Path, description = "Name of the pool"),
        ("tenant" = Option<String>, Query, description = "Whose pools; only for keys without a tenant"),
    ),
    responses(
        (status = 204, description = "It is gone"),
        (status = 400, description = "The key has another tenant", body = ErrorBody),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such pool", body = ErrorBody),
        (status = 501, description = "The runtime has no pools", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
pub(super) async fn delete(
    Caller { service, .. }: Caller,
    InPath(name): InPath<String>,
    query: Query,
) -> Result<StatusCode, ApiError> {
    let service = of_tenant(service, &query)?;
    service.delete_pool(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The domain for the tenant that the query names, or for the key's own.
fn of_tenant(service: Service, query: &Query) -> Result<Service, ApiError> {
    match query.last("tenant").filter(|tenant| !tenant.is_empty()) {
        Some(tenant) => Ok(service.for_pools_of(tenant)?),
        None => Ok(service),
    }
}

fn template(members: &Map<String, Value>) -> Option<Value> {
    members.get("template").filter(|it| it.is_object()).cloned()
}

fn capacity(members: &Map<String, Value>, wrong: &mut Vec<FieldError>) -> Option<PoolCapacity> {
    const CAPACITY: &str = "capacitySpec";
    let spec = match members.get(CAPACITY) {
        Some(Value::Object(spec)) => spec,
        given => {
            wrong.push(mistyped(
                &[CAPACITY],
                given,
                "dict_type",
                "must be an object",
            ));
            return None;
        }
    };
    let mut number = |name: &str| {
        let given = spec.get(name);
        // As the contract's parser takes it (contract: lifecycle §1.3).
        let number = given.and_then(whole_number);
        let read = number.and_then(|number| u32::try_from(number).ok());
        if read.is_none() {
            let (kind, rule) = match number {
                Some(..0) => ("greater_than_equal", "must be at least 0"),
                Some(_) => ("less_than_equal", "must be at most 4294967295"),
                None => ("int_type", "must be a whole number"),
            };
            wrong.push(mistyped(&[CAPACITY, name], given, kind, rule));
        }
        read
    };
    let numbers = ["bufferMax", "bufferMin", "poolMax", "poolMin"].map(&mut number);
    let [buffer_max, buffer_min, pool_max, pool_min] = numbers;
    Some(PoolCapacity {
        buffer_max: buffer_max?,
        buffer_min: buffer_min?,
        pool_max: pool_max?,
        pool_min: pool_min?,
    })
}

/// An error about a member that is missing or has the wrong type.
fn mistyped(path: &[&str], given: Option<&Value>, kind: &str, rule: &str) -> FieldError {
    let path = path.iter().map(|name| Loc::from(*name));
    match given {
        None => FieldError::body("missing", path, "is required"),
        Some(_) => FieldError::body(kind, path, rule),
    }
}
