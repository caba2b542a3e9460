//! `/v1/users`, `/v1/api-keys`, `/v1/sessions`, `/v1/whoami`: who may use the server. Additions of this
//! server, for service administrators, except that every client may ask who it is.

use axum::{Json, extract::State};
use http::StatusCode;
use osb_protocol::{
    ErrorBody,
    error::code,
    identity::{
        ApiKey, ApiKeyList, ConsoleSessionList, Identity, IssuedApiKey, NewApiKey, NewUser, User,
        UserList, UserPatch,
    },
};
use serde_json::json;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    AppState,
    audited::Noted,
    caller::Caller,
    console::session,
    error::ApiError,
    extract::{InPath, JsonBody},
    fields::Fields,
};
use crate::{
    audit,
    identity::{AccountError, accounts::UserEdit},
    sandbox,
};

/// The routes, which exist under `/v1` only.
pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(whoami))
        .routes(routes!(list_users, add_user))
        .routes(routes!(change_user, delete_user))
        .routes(routes!(list_keys, add_key))
        .routes(routes!(revoke_key))
        .routes(routes!(list_sessions))
        .routes(routes!(revoke_session))
}

/// Who the request acts as.
#[utoipa::path(
    get, path = "/whoami", tag = "access", operation_id = "whoAmI",
    responses(
        (status = 200, description = "The principal of the request", body = Identity),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
    ),
)]
async fn whoami(caller: Caller) -> Json<Identity> {
    Json(caller.principal.identity())
}

/// List users.
#[utoipa::path(
    get, path = "/users", tag = "access", operation_id = "listUsers",
    responses(
        (status = 200, description = "All users", body = UserList),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
    ),
)]
async fn list_users(State(app): State<AppState>) -> Json<UserList> {
    let items = app.keys.accounts().users();
    Json(UserList { items })
}

/// Add a user.
#[utoipa::path(
    post, path = "/users", tag = "access", operation_id = "addUser",
    request_body = NewUser,
    responses(
        (status = 201, description = "The user", body = User),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 409, description = "A user has the name", body = ErrorBody),
        (status = 422, description = "Fields break rules", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
async fn add_user(
    State(app): State<AppState>,
    noted: Noted,
    body: JsonBody,
) -> Result<(StatusCode, Json<User>), ApiError> {
    let mut fields = Fields::of(body)?;
    let new = NewUser {
        name: fields.required("name"),
        password: fields.required("password"),
        role: fields.role().unwrap_or_default(),
        tenant: fields.text("tenant"),
    };
    fields.finish()?;
    noted.note("name", new.name.as_str());
    noted.note("role", new.role.as_str());
    let user = app.keys.accounts().add_user(new).await?;
    noted.set_object(&user.id, user.tenant.as_deref());
    Ok((StatusCode::CREATED, Json(user)))
}

/// Change a user. A new password, and `disabled`, end the user's sessions.
#[utoipa::path(
    patch, path = "/users/{id}", tag = "access", operation_id = "changeUser",
    params(("id" = String, Path, description = "User id")),
    request_body = UserPatch,
    responses(
        (status = 200, description = "The user", body = User),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such user", body = ErrorBody),
        (status = 422, description = "Fields break rules", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
async fn change_user(
    State(app): State<AppState>,
    InPath(id): InPath<String>,
    noted: Noted,
    body: JsonBody,
) -> Result<Json<User>, ApiError> {
    let mut fields = Fields::of(body)?;
    let edit = UserEdit {
        password: fields.text("password").map(Into::into),
        role: fields.role(),
        tenant: fields.nullable("tenant"),
        disabled: fields.flag("disabled"),
    };
    fields.finish()?;
    let accounts = app.keys.accounts();
    let before = accounts.users().into_iter().find(|user| user.id == id);
    let sets_password = edit.password.is_some();
    let after = accounts.change_user(&id, edit).await?;
    if let Some(before) = before {
        note_user_change(&noted, &before, &after, sets_password);
    }
    Ok(Json(after))
}

/// Delete a user, whose sessions end.
#[utoipa::path(
    delete, path = "/users/{id}", tag = "access", operation_id = "deleteUser",
    params(("id" = String, Path, description = "User id")),
    responses(
        (status = 204, description = "The user is gone"),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such user", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
async fn delete_user(
    State(app): State<AppState>,
    InPath(id): InPath<String>,
    noted: Noted,
) -> Result<StatusCode, ApiError> {
    let accounts = app.keys.accounts();
    if let Some(user) = accounts.users().iter().find(|user| user.id == id) {
        noted.set_object(&user.id, user.tenant.as_deref());
        noted.note("name", user.name.as_str());
        noted.note("role", user.role.as_str());
    }
    accounts.delete_user(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List stored API keys, revoked and expired ones included.
#[utoipa::path(
    get, path = "/api-keys", tag = "access", operation_id = "listApiKeys",
    responses(
        (status = 200, description = "All stored keys", body = ApiKeyList),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
    ),
)]
async fn list_keys(State(app): State<AppState>) -> Json<ApiKeyList> {
    let items = app.keys.accounts().keys();
    Json(ApiKeyList { items })
}

/// Make an API key. No other answer contains its secret.
#[utoipa::path(
    post, path = "/api-keys", tag = "access", operation_id = "createApiKey",
    request_body = NewApiKey,
    responses(
        (status = 201, description = "The key with its secret", body = IssuedApiKey),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 422, description = "Fields break rules", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
async fn add_key(
    State(app): State<AppState>,
    noted: Noted,
    body: JsonBody,
) -> Result<(StatusCode, Json<IssuedApiKey>), ApiError> {
    let mut fields = Fields::of(body)?;
    let new = NewApiKey {
        name: fields.required("name"),
        role: fields.role().unwrap_or_default(),
        tenant: fields.text("tenant"),
        expires_at: fields.time("expiresAt"),
    };
    fields.finish()?;
    let issued = app.keys.accounts().add_key(new).await?;
    note_key(&noted, &issued.key);
    Ok((StatusCode::CREATED, Json(issued)))
}

/// Revoke an API key. It stays in the list.
#[utoipa::path(
    delete, path = "/api-keys/{id}", tag = "access", operation_id = "revokeApiKey",
    params(("id" = String, Path, description = "Key id")),
    responses(
        (status = 204, description = "The key does not work any more"),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such key", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
async fn revoke_key(
    State(app): State<AppState>,
    InPath(id): InPath<String>,
    noted: Noted,
) -> Result<StatusCode, ApiError> {
    let accounts = app.keys.accounts();
    if let Some(key) = accounts.keys().iter().find(|key| key.id == id) {
        note_key(&noted, key);
    }
    accounts.revoke_key(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the open sessions of the console.
#[utoipa::path(
    get, path = "/sessions", tag = "access", operation_id = "listSessions",
    responses(
        (status = 200, description = "All open sessions", body = ConsoleSessionList),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
async fn list_sessions(State(app): State<AppState>) -> Result<Json<ConsoleSessionList>, ApiError> {
    let items = session::list(&*app.store, &app.keys).await;
    let items = items.map_err(sandbox::Error::from)?;
    Ok(Json(ConsoleSessionList { items }))
}

/// End a session of the console, with its WebSockets.
#[utoipa::path(
    delete, path = "/sessions/{id}", tag = "access", operation_id = "revokeSession",
    params(("id" = String, Path, description = "Public id of the session")),
    responses(
        (status = 204, description = "The session is over"),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such session", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
async fn revoke_session(
    State(app): State<AppState>,
    InPath(id): InPath<String>,
) -> Result<StatusCode, ApiError> {
    let revoked = session::revoke(&*app.store, &app.keys, &id).await;
    match revoked.map_err(sandbox::Error::from)? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(missing("no such session")),
    }
}

fn note_user_change(noted: &Noted, before: &User, after: &User, sets_password: bool) {
    noted.set_object(&after.id, after.tenant.as_deref());
    noted.note("name", after.name.as_str());
    for (name, was, is) in [
        ("role", json!(before.role), json!(after.role)),
        ("tenant", json!(before.tenant), json!(after.tenant)),
        ("disabled", json!(before.disabled), json!(after.disabled)),
    ] {
        if was != is {
            noted.note(name, audit::change(was, is));
        }
    }
    if sets_password {
        noted.note("passwordChanged", true);
    }
}

fn note_key(noted: &Noted, key: &ApiKey) {
    noted.set_object(&key.id, key.tenant.as_deref());
    noted.note("name", key.name.as_str());
    noted.note("prefix", key.prefix.as_str());
    noted.note("role", key.role.as_str());
    if let Some(at) = key.expires_at {
        noted.note("expiresAt", json!(at));
    }
}

fn missing(message: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, code::NOT_FOUND, message)
}

impl From<AccountError> for ApiError {
    fn from(error: AccountError) -> Self {
        let message = error.to_string();
        match error {
            AccountError::Invalid(fields) => Self::invalid(fields),
            AccountError::NameTaken(_) => Self::new(StatusCode::CONFLICT, code::CONFLICT, message),
            AccountError::NoUser | AccountError::NoKey => missing(&message),
            AccountError::Hash(error) => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Self::new(status, code::UNKNOWN_ERROR, "an internal error occurred").because(&error)
            }
            AccountError::Store(error) => sandbox::Error::from(error).into(),
        }
    }
}
