//! The routes of isolated sessions.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, Request, State},
    response::{IntoResponse, Response},
    routing::{any, delete, get, post},
};
use http::{StatusCode, header};
use osb_protocol::{
    execd::{
        code,
        isolated::{
            IsolatedRun, IsolatedSession, IsolatedSessionCreated, IsolatedSessions,
            IsolationCapabilities, NewIsolatedSession, RunIsolated,
        },
    },
    headers::ISOLATED_TAIL_CURSOR,
};

use super::{
    background, capabilities, changes, environment, files,
    link::StartError,
    plan::Refusal,
    quota,
    request::Wanted,
    run::{self, Code},
    session::{Making, Session},
    store::unavailable,
};
use crate::{
    app::App,
    blocking::blocking,
    error::{ApiError, ApiResult},
    http::Query,
    identity::Credentials,
    json, output,
    request::no_nul,
};

/// All of them.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/isolated/capabilities", get(capabilities_of))
        .route("/v1/isolated/sessions", get(list))
        .route("/v1/isolated/session", post(create))
        .route("/v1/isolated/session/{id}", get(state).delete(remove))
        .route("/v1/isolated/session/{id}/run", post(run_in))
        .route("/v1/isolated/session/{id}/runs/{run}", get(run_status))
        .route("/v1/isolated/session/{id}/runs/{run}/logs", get(run_logs))
        .route("/v1/isolated/session/{id}/diff", get(changes::tell))
        .route("/v1/isolated/session/{id}/commit", post(changes::commit))
        .route("/v1/isolated/session/{id}/discard", post(changes::discard))
        .route("/v1/isolated/session/{id}/files", delete(files::serve))
        .route("/v1/isolated/session/{id}/files/{*path}", any(files::serve))
        .route("/v1/isolated/session/{id}/directories", any(files::serve))
        .route(
            "/v1/isolated/session/{id}/directories/list",
            get(files::serve),
        )
}

async fn capabilities_of(State(app): State<App>) -> Json<IsolationCapabilities> {
    Json(capabilities::told(&app).await)
}

async fn list(State(app): State<App>) -> Json<IsolatedSessions> {
    let sessions = app.isolated.list();
    Json(IsolatedSessions {
        sessions: sessions.iter().map(|session| session.entry()).collect(),
    })
}

async fn create(State(app): State<App>, request: Request) -> ApiResult<Response> {
    let body = json::bytes(request.into_body()).await?;
    let request: NewIsolatedSession = json::object(&body)?;
    let own = Credentials::own();
    let outside = (own.uid, own.gid);
    let config = app.isolated.config().clone();
    let wanted = blocking(move || Wanted::new(request, &config, outside)).await?;
    let probed = capabilities::probe(&app).await;
    if let Some(why) = probed.why() {
        return Err(unavailable(format!("isolation unavailable: {why}")));
    }
    let mode = if wanted.userns {
        &probed.userns
    } else {
        &probed.setpriv
    };
    if let Err(why) = mode {
        return Err(not_supported(format!("uid_mode is not available: {why}")));
    }
    let admission = app.isolated.admit()?;
    quota::measure(&app).await;
    quota::check(&app).await?;
    let rule = wanted.echo.env_passthrough.clone().unwrap_or_default();
    let config = app.isolated.config();
    let making = Making {
        variables: environment::passed(&app.environment.for_user(), &rule),
        deny: config.seccomp.deny.clone(),
        upper_root: config.upper_root.clone(),
        outside,
    };
    let wanted = blocking(move || wanted.make_directories().map(|()| wanted)).await?;
    // Whether or not the client waits for it, a session that was started is listed.
    let task = app.clone();
    let started = app.tasks.spawn("isolated session start", async move {
        let session = Session::start(&task, wanted, making).await;
        let session = session.map_err(|error| refused(&error))?;
        let live = task.isolated.add(&session);
        drop(admission);
        if !live {
            session.deleted.cancel();
        }
        let sessions = task.isolated.clone();
        let life = Arc::clone(&session);
        let forget = {
            let session = Arc::clone(&session);
            move |by_itself| sessions.forget(&session, by_itself)
        };
        task.tasks.spawn(
            "isolated session",
            life.attend(task.tasks.stopping().clone(), forget),
        );
        Ok::<_, ApiError>(session)
    });
    let started = started.await;
    let session = started.unwrap_or_else(|_| Err(ApiError::runtime("internal error")))?;
    let created = IsolatedSessionCreated {
        session_id: session.id.clone(),
        created_at: session.created_at,
    };
    Ok((StatusCode::CREATED, Json(created)).into_response())
}

fn not_supported(message: impl Into<String>) -> ApiError {
    let code = code::NOT_SUPPORTED;
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
}

/// The answer for a session that did not start (contract: execd A4.2).
fn refused(error: &StartError) -> ApiError {
    let message = error.to_string();
    match capabilities::refusal(error) {
        Some(Refusal::Namespaces) => unavailable(message),
        Some(Refusal::Identity) => not_supported(message),
        Some(Refusal::Missing) => {
            ApiError::new(StatusCode::BAD_REQUEST, code::RUNTIME_ERROR, message)
        }
        None => ApiError::runtime(message),
    }
}

async fn state(State(app): State<App>, Path(id): Path<String>) -> ApiResult<Json<IsolatedSession>> {
    Ok(Json(app.isolated.get(&id)?.told()))
}

async fn remove(State(app): State<App>, Path(id): Path<String>) -> ApiResult<()> {
    match app.isolated.get(&id)?.end().await {
        true => Ok(()),
        false => Err(ApiError::runtime(
            "the session's processes do not end; delete it again",
        )),
    }
}

async fn run_in(
    State(app): State<App>,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    let body = json::bytes(request.into_body()).await?;
    let session = app.isolated.get(&id)?;
    let wanted: RunIsolated = json::object(&body)?;
    let background = wanted.background;
    let code = code(wanted)?;
    if background {
        let started = background::start(&app, session, code).await?;
        return Ok((StatusCode::ACCEPTED, Json(started)).into_response());
    }
    Ok(output::response(run::start(&app, session, code)))
}

fn code(wanted: RunIsolated) -> ApiResult<Code> {
    let text = wanted.code.filter(|code| !code.is_empty());
    let text = text.ok_or_else(|| ApiError::invalid("code is required"))?;
    no_nul(&text)?;
    let timeout = match u64::try_from(wanted.timeout_seconds.unwrap_or(0)) {
        Ok(0) => None,
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => return Err(ApiError::invalid("timeout_seconds must not be negative")),
    };
    let envs = wanted.envs.into_iter();
    let envs = envs.map(|(name, value)| {
        let value = value.unwrap_or_default();
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let message = format!("envs: invalid environment variable {name:?}");
            return Err(ApiError::invalid(message));
        }
        Ok((name, value))
    });
    Ok(Code {
        text,
        envs: envs.collect::<ApiResult<_>>()?,
        timeout,
    })
}

async fn run_status(
    State(app): State<App>,
    Path((id, run)): Path<(String, String)>,
) -> ApiResult<Json<IsolatedRun>> {
    Ok(Json(app.isolated.run(&id, &run)?.status()))
}

async fn run_logs(
    State(app): State<App>,
    Path((id, run)): Path<(String, String)>,
    query: Query,
) -> ApiResult<Response> {
    let run = app.isolated.run(&id, &run)?;
    let cursor = match query.get("cursor").filter(|cursor| !cursor.is_empty()) {
        None => 0,
        Some(cursor) => cursor
            .parse::<i64>()
            .map_err(|_| ApiError::invalid("cursor must be an integer"))?,
    };
    let cursor =
        u64::try_from(cursor).map_err(|_| ApiError::invalid("cursor cannot be negative"))?;
    let read = run.read(cursor).await;
    let (text, next) =
        read.map_err(|error| ApiError::runtime(format!("error reading the log: {error}")))?;
    let headers = [
        (
            header::CONTENT_TYPE.as_str(),
            "text/plain; charset=utf-8".to_owned(),
        ),
        (ISOLATED_TAIL_CURSOR, next.to_string()),
    ];
    Ok((headers, text).into_response())
}
