//! Routes of isolated sessions.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{FromRef, Path, Request, State},
    response::{IntoResponse, Response},
    routing::{any, delete, get, post},
};
use http::{StatusCode, header};
use osb_protocol::{
    execd::isolated::{
        IsolatedRun, IsolatedSession, IsolatedSessionCreated, IsolatedSessions,
        IsolationCapabilities, NewIsolatedSession, RunIsolated,
    },
    headers::ISOLATED_TAIL_CURSOR,
};

use super::{
    Isolation, background, capabilities, changes, environment, files,
    link::StartError,
    plan::Refusal,
    quota,
    request::SessionSpec,
    run::{self, Code},
    session::{Session, StartContext},
    store::unavailable,
};
use crate::{
    blocking::blocking,
    error::{ApiError, ApiResult},
    http::Query,
    identity::Credentials,
    json, output,
    request::no_nul,
};

/// All routes.
pub(crate) fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Isolation: FromRef<S>,
{
    Router::new()
        .route("/v1/isolated/capabilities", get(capabilities_of))
        .route("/v1/isolated/sessions", get(list))
        .route("/v1/isolated/session", post(create))
        .route("/v1/isolated/session/{id}", get(state).delete(remove))
        .route("/v1/isolated/session/{id}/run", post(run_in))
        .route("/v1/isolated/session/{id}/runs/{run}", get(run_status))
        .route("/v1/isolated/session/{id}/runs/{run}/logs", get(run_logs))
        .route("/v1/isolated/session/{id}/diff", get(changes::get_diff))
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

async fn capabilities_of(State(isolation): State<Isolation>) -> Json<IsolationCapabilities> {
    Json(capabilities::report(&isolation).await)
}

async fn list(State(isolation): State<Isolation>) -> Json<IsolatedSessions> {
    let sessions = isolation.sessions.list();
    Json(IsolatedSessions {
        sessions: sessions.iter().map(|session| session.entry()).collect(),
    })
}

async fn create(State(isolation): State<Isolation>, request: Request) -> ApiResult<Response> {
    let body = json::bytes(request.into_body()).await?;
    let request: NewIsolatedSession = json::object(&body)?;
    let own = Credentials::own();
    let outside = (own.uid, own.gid);
    let config = isolation.sessions.config().clone();
    let wanted = blocking(move || SessionSpec::new(request, &config, outside)).await?;
    let probed = capabilities::probe(&isolation).await;
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
    let admission = isolation.sessions.admit()?;
    quota::measure(&isolation).await;
    quota::check(&isolation).await?;
    let rule = wanted.echo.env_passthrough.clone().unwrap_or_default();
    let config = isolation.sessions.config();
    let making = StartContext {
        variables: environment::passed(&isolation.base.variables_of(wanted.uid), &rule),
        deny: config.seccomp.deny.clone(),
        upper_root: config.upper_root.clone(),
        outside,
    };
    let upper_root = config.upper_root.clone();
    let wanted = blocking(move || wanted.make_directories(&upper_root)).await?;
    // A session that was started is listed, whether or not the client waits for it.
    let task = isolation.clone();
    let started = isolation
        .base
        .tasks
        .spawn("isolated session start", async move {
            let started = Session::start(&task.base, wanted, making).await;
            let session = started.map_err(|error| refused(&error))?;
            let live = task.sessions.add(&session);
            drop(admission);
            if !live {
                session.deleted.cancel();
            }
            let sessions = task.sessions.clone();
            let life = Arc::clone(&session);
            let forget = {
                let session = Arc::clone(&session);
                move |by_itself| sessions.forget(&session, by_itself)
            };
            let tasks = &task.base.tasks;
            let life = life.run_to_end(tasks.stopping().clone(), forget);
            tasks.spawn("isolated session", life);
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
    ApiError::NotSupported(message.into())
}

/// Response for a session that did not start (contract: execd A4.2).
fn refused(error: &StartError) -> ApiError {
    let message = error.to_string();
    match capabilities::refusal(error) {
        Some(Refusal::Namespaces) => unavailable(message),
        Some(Refusal::Identity) => not_supported(message),
        Some(Refusal::Missing) => ApiError::NotAllowed(message),
        None => ApiError::runtime(message),
    }
}

async fn state(
    State(isolation): State<Isolation>,
    Path(id): Path<String>,
) -> ApiResult<Json<IsolatedSession>> {
    Ok(Json(isolation.sessions.get(&id)?.to_wire()))
}

async fn remove(State(isolation): State<Isolation>, Path(id): Path<String>) -> ApiResult<()> {
    if isolation.sessions.get(&id)?.end().await {
        Ok(())
    } else {
        Err(ApiError::runtime(
            "the session's processes do not end; delete it again",
        ))
    }
}

async fn run_in(
    State(isolation): State<Isolation>,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    let body = json::bytes(request.into_body()).await?;
    let session = isolation.sessions.get(&id)?;
    let wanted: RunIsolated = json::object(&body)?;
    let background = wanted.background;
    let code = code(wanted)?;
    if background {
        let started = background::start(&isolation, session, code).await?;
        return Ok((StatusCode::ACCEPTED, Json(started)).into_response());
    }
    Ok(output::response(run::start(&isolation, session, code)))
}

fn code(wanted: RunIsolated) -> ApiResult<Code> {
    let text = wanted
        .code
        .filter(|code| !code.is_empty())
        .ok_or_else(|| ApiError::invalid("code is required"))?;
    no_nul(&text)?;
    let timeout = match u64::try_from(wanted.timeout_seconds.unwrap_or(0)) {
        Ok(0) => None,
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => return Err(ApiError::invalid("timeout_seconds must not be negative")),
    };
    let envs = wanted.envs.into_iter().map(|(name, value)| {
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
    State(isolation): State<Isolation>,
    Path((id, run)): Path<(String, String)>,
) -> ApiResult<Json<IsolatedRun>> {
    Ok(Json(isolation.sessions.run(&id, &run)?.status()))
}

async fn run_logs(
    State(isolation): State<Isolation>,
    Path((id, run)): Path<(String, String)>,
    query: Query,
) -> ApiResult<Response> {
    let run = isolation.sessions.run(&id, &run)?;
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
