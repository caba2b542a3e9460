//! `/v1/users`, `/v1/api-keys`, `/v1/sessions`, `/v1/whoami`: who may use the server. Additions of this
//! server, for service administrators, except that every client may ask who it is.

use axum::{Json, extract::State};
use http::StatusCode;
use osb_protocol::{
    ErrorBody,
    error::code,
    identity::{
        ApiKeyList, ConsoleSessionList, Identity, IssuedApiKey, NewApiKey, NewUser, User, UserList,
        UserPatch,
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    AppState,
    account_acts::AccountActs,
    audited::Noted,
    caller::Caller,
    console::session,
    error::ApiError,
    extract::{InPath, JsonBody},
    fields::Fields,
};
use crate::{
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
    let user = acts(&app, &noted).add_user(new).await?;
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
    let user = acts(&app, &noted).change_user(&id, edit).await?;
    Ok(Json(user))
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
    acts(&app, &noted).delete_user(&id).await?;
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
    let issued = acts(&app, &noted).add_key(new).await?;
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
    acts(&app, &noted).revoke_key(&id).await?;
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
    let items = session::list(&*app.store, &app.keys, None).await;
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
    noted: Noted,
) -> Result<StatusCode, ApiError> {
    let revoked = session::revoke(&*app.store, &app.keys, &id, None).await;
    let revoked = revoked.map_err(sandbox::Error::from)?;
    let owner = revoked.ok_or_else(|| missing("no such session"))?;
    noted.note("name", owner);
    Ok(StatusCode::NO_CONTENT)
}

fn acts<'a>(app: &'a AppState, noted: &'a Noted) -> AccountActs<'a> {
    AccountActs {
        accounts: app.keys.accounts(),
        noted,
    }
}

fn missing(message: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, code::NOT_FOUND, message)
}

impl From<AccountError> for ApiError {
    fn from(error: AccountError) -> Self {
        let (code, message) = (error.code(), error.to_string());
        match error {
            AccountError::Invalid(fields) => Self::invalid(fields),
            AccountError::NameTaken(_) => Self::new(StatusCode::CONFLICT, code, message),
            AccountError::NoUser | AccountError::NoKey => missing(&message),
            AccountError::Hash(error) => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Self::new(status, code, "an internal error occurred").because(&error)
            }
            AccountError::Store(error) => sandbox::Error::from(error).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::FieldError;
    use osb_store::{Problem, StoreError};

    use super::{super::account_acts::status_of, *};

    #[test]
    fn the_answer_has_the_status_and_the_code_of_the_error() {
        for make in [
            || AccountError::NoUser,
            || AccountError::NoKey,
            || AccountError::NameTaken("a".to_owned()),
            || AccountError::Invalid(vec![FieldError::body("value_error", ["name"], "a rule")]),
            || {
                AccountError::Store(StoreError::Unavailable {
                    op: "read",
                    problem: Problem::TakenOver,
                    source: None,
                })
            },
        ] {
            let error = make();
            let (status, code) = (status_of(&error), error.code());
            let answer = ApiError::from(error);
            assert_eq!((answer.status(), answer.code()), (status, code));
        }
    }
}
