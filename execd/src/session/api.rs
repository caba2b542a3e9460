//! Routes of shell sessions.

use axum::{
    Json, Router,
    extract::{FromRef, Path, Request, State},
    response::Response,
    routing::{delete, post},
};
use osb_protocol::execd::session::{NewSession, RunInSession, SessionCreated};

use super::{
    ShellSessions, run,
    store::{ShellSession, ShellState},
};
use crate::{
    base::Base,
    blocking::{blocking, start_in_place},
    error::{ApiError, ApiResult},
    json, limits, output, request,
};

/// All routes.
pub(crate) fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Base: FromRef<S>,
    ShellSessions: FromRef<S>,
{
    Router::new()
        .route("/session", post(create))
        .route("/session/{sessionId}", delete(remove))
        .route("/session/{sessionId}/run", post(run_in))
}

async fn create(
    State(base): State<Base>,
    State(sessions): State<ShellSessions>,
    request: Request,
) -> ApiResult<Json<SessionCreated>> {
    let body = json::bytes(request.into_body()).await?;
    let wanted: NewSession = if body.iter().all(u8::is_ascii_whitespace) {
        NewSession::default()
    } else {
        json::object(&body)?
    };
    let variables = base.environment.for_user();
    let cwd = match wanted.cwd.filter(|cwd| !cwd.is_empty()) {
        Some(cwd) => {
            request::no_nul(&cwd)?;
            let failed = |why: String| {
                ApiError::runtime(format!("error creating working directory {cwd}: {why}"))
            };
            let path = || request::expanded(&cwd, &variables, &base.environment);
            let path = start_in_place(path).await?.map_err(failed)?;
            let made = path.clone();
            blocking(move || Ok(std::fs::create_dir_all(made)))
                .await?
                .map_err(|error| failed(error.to_string()))?;
            Some(path)
        }
        None => None,
    };
    let state = ShellState { variables, cwd };
    let session_id = sessions.add(|id, activity| ShellSession::new(id, activity, state))?;
    Ok(Json(SessionCreated { session_id }))
}

async fn run_in(
    State(base): State<Base>,
    State(sessions): State<ShellSessions>,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    let body = json::bytes(request.into_body()).await?;
    let session = sessions.get(&id)?;
    let wanted: RunInSession = json::object(&body)?;
    let command = wanted
        .command
        .filter(|command| !command.is_empty())
        .ok_or_else(|| ApiError::invalid("command is required"))?;
    request::no_nul(&command)?;
    let variables = session.state().variables;
    let cwd = wanted.cwd.as_deref();
    let cwd = || request::working_directory(cwd, &variables, &base.environment);
    let cwd = start_in_place(cwd).await??;
    let order = run::Order {
        command,
        cwd,
        timeout: request::timeout(wanted.timeout)?.unwrap_or(limits::SESSION_RUN),
    };
    Ok(output::response(run::start(&base, session, order)))
}

async fn remove(State(sessions): State<ShellSessions>, Path(id): Path<String>) -> ApiResult<()> {
    sessions.delete(&id)
}
