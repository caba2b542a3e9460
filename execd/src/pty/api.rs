//! Routes of terminal sessions.

use axum::{
    Json, Router,
    extract::{
        FromRef, FromRequestParts, Path, Request, State,
        ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::StatusCode;
use osb_protocol::execd::pty::{NewPty, PtyCreated, PtyMode, PtyStatus};

use super::{
    attach::Attach,
    process::Start,
    session::{HolderGuard, PtySession, PtySessions},
};
use crate::{
    base::Base,
    blocking::blocking,
    error::{ApiError, ApiResult},
    http::Query,
    json, kernel_path, limits, path,
};

/// Routes under `/pty`.
pub(crate) fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Base: FromRef<S>,
    PtySessions: FromRef<S>,
{
    Router::new()
        .route("/pty", post(create))
        .route("/pty/{sessionId}", get(status).delete(delete))
        .route("/pty/{sessionId}/ws", get(attach))
}

async fn create(
    State(base): State<Base>,
    State(sessions): State<PtySessions>,
    request: Request,
) -> ApiResult<Response> {
    let body = json::bytes(request.into_body()).await?;
    let wanted: NewPty = if body.iter().all(u8::is_ascii_whitespace) {
        NewPty::default()
    } else {
        json::object(&body)?
    };
    let environment = base.environment.clone();
    let cwd = blocking(move || {
        let Some(cwd) = wanted.cwd.filter(|cwd| !cwd.is_empty()) else {
            return Ok(None);
        };
        let failed = |error: &dyn std::fmt::Display| {
            ApiError::runtime(format!("error creating working directory {cwd}: {error}"))
        };
        let path = path::resolve(&cwd, &environment).map_err(|error| failed(&error))?;
        kernel_path::create_directories(&path).map_err(|error| failed(&error))?;
        Ok(Some(path))
    });
    let start = Start {
        command: wanted.command.filter(|command| !command.is_empty()),
        utf8: wanted.utf8,
        cwd: cwd.await?,
    };
    let session_id = sessions.add(|id, activity| PtySession::new(id, activity, start))?;
    Ok((StatusCode::CREATED, Json(PtyCreated { session_id })).into_response())
}

async fn status(
    State(sessions): State<PtySessions>,
    Path(id): Path<String>,
) -> ApiResult<Json<PtyStatus>> {
    Ok(Json(sessions.get(&id)?.status()))
}

async fn delete(State(sessions): State<PtySessions>, Path(id): Path<String>) -> ApiResult<()> {
    sessions.delete(&id)
}

/// Handles `GET /pty/{id}/ws`. All errors are returned before the upgrade. A request that is not a
/// WebSocket handshake evicts no client.
async fn attach(
    State(base): State<Base>,
    State(sessions): State<PtySessions>,
    Path(id): Path<String>,
    query: Query,
    request: Request,
) -> ApiResult<Response> {
    let session = sessions.get(&id)?;
    let viewer = query.get("mode") == Some("viewer");
    let (mut parts, _) = request.into_parts();
    let upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection> =
        WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    let takeover = query.get("takeover") == Some("1") && upgrade.is_ok();
    let hold: Option<HolderGuard> = if viewer { None } else { session.try_hold() };
    if viewer && session.run().is_none() {
        return Err(ApiError::NothingToView(id));
    }
    if !viewer && hold.is_none() && !takeover {
        return Err(ApiError::AlreadyConnected(id));
    }
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => {
            let text = format!("Bad Request: {}", rejection.body_text());
            return Ok((StatusCode::BAD_REQUEST, text).into_response());
        }
    };
    let mode = match query.get("pty") {
        Some("0") => PtyMode::Pipe,
        _ => PtyMode::Pty,
    };
    let since = query
        .get("since")
        .and_then(|since| since.parse().ok())
        .unwrap_or(0);
    let window = query.get("window").and_then(|window| window.parse().ok());
    let window =
        window.map(|it: u64| it.clamp(*limits::PTY_WINDOW.start(), *limits::PTY_WINDOW.end()));
    let tasks = base.tasks.clone();
    let used = session.activity.begin();
    let attach = Attach {
        base,
        session,
        mode,
        since,
        window,
    };
    let upgrade = upgrade
        .max_message_size(limits::PTY_MESSAGE)
        .max_frame_size(limits::PTY_MESSAGE);
    Ok(upgrade.on_upgrade(move |socket| async move {
        // In a supervised task, so that the shutdown waits for it.
        let connection = async move {
            if viewer {
                attach.view(socket).await
            } else {
                attach.hold(socket, hold).await
            }
            drop(used);
        };
        if let Err(error) = tasks.spawn("pty connection", connection).await {
            tracing::error!(%error, "pty connection failed");
        }
    }))
}
