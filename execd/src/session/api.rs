//! The routes of shell sessions.

use axum::{
    Json, Router,
    extract::{Path, Request, State},
    response::Response,
    routing::{delete, post},
};
use osb_protocol::execd::session::{NewSession, RunInSession, SessionCreated};

use super::{run, store};
use crate::{
    app::App,
    blocking::blocking,
    error::{ApiError, ApiResult},
    json, limits, output, request,
};

/// All of them.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/session", post(create))
        .route("/session/{sessionId}", delete(remove))
        .route("/session/{sessionId}/run", post(run_in))
}

async fn create(State(app): State<App>, request: Request) -> ApiResult<Json<SessionCreated>> {
    let body = json::bytes(request.into_body()).await?;
    let wanted: NewSession = match body.iter().all(u8::is_ascii_whitespace) {
        true => NewSession::default(),
        false => json::object(&body)?,
    };
    let variables = app.environment.for_user();
    let cwd = match wanted.cwd.filter(|cwd| !cwd.is_empty()) {
        Some(cwd) => {
            request::no_nul(&cwd)?;
            let failed = |why: String| {
                ApiError::runtime(format!("error creating working directory {cwd}: {why}"))
            };
            let path = request::expanded(&cwd, &variables, &app).map_err(failed)?;
            let made = path.clone();
            blocking(move || Ok(std::fs::create_dir_all(made)))
                .await?
                .map_err(|error| failed(error.to_string()))?;
            Some(path)
        }
        None => None,
    };
    let session_id = app.sessions.add(store::State { variables, cwd })?;
    Ok(Json(SessionCreated { session_id }))
}

async fn run_in(
    State(app): State<App>,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    let body = json::bytes(request.into_body()).await?;
    let session = app.sessions.get(&id)?;
    let wanted: RunInSession = json::object(&body)?;
    let command = wanted.command.filter(|command| !command.is_empty());
    let command = command.ok_or_else(|| ApiError::invalid("command is required"))?;
    request::no_nul(&command)?;
    let variables = session.state().variables;
    let order = run::Order {
        command,
        cwd: request::working_directory(wanted.cwd.as_deref(), &variables, &app)?,
        timeout: request::timeout(wanted.timeout)?.unwrap_or(limits::SESSION_RUN),
    };
    Ok(output::response(run::start(&app, session, order)))
}

async fn remove(State(app): State<App>, Path(id): Path<String>) -> ApiResult<()> {
    app.sessions.delete(&id)
}
