//! Routes of commands.

use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::{Path, Request, State},
    response::{IntoResponse, Response},
};
use futures::stream;
use http::header;
use osb_protocol::{execd::command::RunCommand, headers::COMMAND_TAIL_CURSOR};

use super::{
    interrupt::interrupt,
    once,
    plan::Plan,
    run::{self, NotStarted},
    store::{Commands, Record},
};
use crate::{
    base::Base,
    error::{ApiError, ApiResult},
    http::Query,
    json,
    output::{EventReader, Log, Unavailable, response},
    session::ShellSessions,
};

/// Handles `POST /command`.
pub(crate) async fn start(
    State(base): State<Base>,
    State(commands): State<Commands>,
    request: Request,
) -> ApiResult<Response> {
    let key = once::key(request.headers())?;
    let body = json::bytes(request.into_body()).await?;
    let plan = || Plan::new(json::object::<RunCommand>(&body)?, &base);
    let start = || match key {
        None => Ok(run::start(&base, &commands, plan()?, NotStarted::Forget)?.reader),
        Some(key) => {
            let start = |plan| {
                let run = run::start(&base, &commands, plan, NotStarted::Keep)?;
                Ok((run.id, run.reader))
            };
            let join = |id: &str| reader(commands.get(id).as_deref(), id, 0);
            commands.keys().once(key, &body, plan, start, join)
        }
    };
    Ok(response(commands.starts().run(start).await??))
}

/// Handles `GET /command/{id}/events?since=`: streams the events of the run after that number.
pub(crate) async fn events(
    State(commands): State<Commands>,
    Path(id): Path<String>,
    query: Query,
) -> ApiResult<Response> {
    let since = match query.get("since") {
        None => 0,
        Some(since) => since.parse().map_err(|_| {
            ApiError::invalid("since must be the number of an event, or 0 for all of them")
        })?,
    };
    let record = commands.get(&id).ok_or_else(|| not_found(&id))?;
    Ok(response(reader(Some(&record), &id, since)?))
}

fn reader(record: Option<&Record>, id: &str, since: u64) -> ApiResult<EventReader> {
    let gone =
        |what: &str| ApiError::NoLongerKept(format!("{what} of command {id} are no longer kept"));
    let events = record
        .and_then(|record| record.output().events)
        .ok_or_else(|| gone("the events"))?;
    events
        .reader(since)
        .map_err(|unavailable| match unavailable {
            Unavailable::Forgotten { first } => gone(&format!("the events before number {first}")),
            Unavailable::Ahead { last } => ApiError::invalid(format!(
                "since must not be above {last}, the number of the last event so far"
            )),
        })
}

fn not_found(id: &str) -> ApiError {
    ApiError::NoCommand(id.to_owned())
}

/// Handles `GET /command/status/{id}`.
pub(crate) async fn status(
    State(commands): State<Commands>,
    Path(id): Path<String>,
) -> ApiResult<Response> {
    match commands.get(&id) {
        Some(record) => Ok(Json(record.status()).into_response()),
        None => Err(not_found(&id)),
    }
}

/// Handles `GET /command/{id}/logs?cursor=`.
pub(crate) async fn logs(
    State(commands): State<Commands>,
    Path(id): Path<String>,
    query: Query,
) -> ApiResult<Response> {
    let log = log_of(commands.get(&id).as_deref(), &id)?;
    // An invalid cursor means the beginning.
    let cursor: i64 = query
        .get("cursor")
        .and_then(|cursor| cursor.parse().ok())
        .unwrap_or(0);
    let from =
        u64::try_from(cursor).map_err(|_| ApiError::invalid("cursor must not be negative"))?;
    let end = log.len().max(from);
    let body = Body::from_stream(stream::unfold((log, from), move |(log, at)| async move {
        if at >= end {
            return None;
        }
        match log.read(at, end).await {
            Ok(bytes) if bytes.is_empty() => None,
            Ok(bytes) => {
                let next = at + bytes.len() as u64;
                Some((Ok(bytes), (log, next)))
            }
            Err(error) => Some((Err(error), (log, end))),
        }
    }));
    let headers = [
        (
            header::CONTENT_TYPE.as_str(),
            "text/plain; charset=utf-8".to_owned(),
        ),
        (header::CONTENT_LENGTH.as_str(), (end - from).to_string()),
        (COMMAND_TAIL_CURSOR, end.to_string()),
    ];
    Ok((headers, body).into_response())
}

fn log_of(record: Option<&Record>, id: &str) -> ApiResult<Arc<Log>> {
    let record = record.ok_or_else(|| ApiError::invalid(format!("command not found: {id}")))?;
    if !record.is_background() {
        let message = format!("command {id} is not running in background");
        return Err(ApiError::invalid(message));
    }
    record.output().log.ok_or_else(|| {
        // The only error that clients of this route know (contract: execd §5.7).
        ApiError::invalid(format!("the output of command {id} is no longer kept"))
    })
}

/// Handles `DELETE /command?id=` and `DELETE /code?id=`.
pub(crate) async fn stop(
    State(base): State<Base>,
    State(commands): State<Commands>,
    State(sessions): State<ShellSessions>,
    query: Query,
) -> ApiResult<()> {
    let id = query
        .get("id")
        .filter(|id| !id.is_empty())
        .ok_or_else(|| ApiError::missing_query("id"))?;
    // The text is the contract's, including its spelling.
    let refuse = |why: &str| ApiError::runtime(format!("error interruptting code context. {why}"));
    let Some(record) = commands.get(id) else {
        // A session ends with its run (contract: execd §8).
        return sessions.delete(id).map_err(|_| refuse("no such session"));
    };
    let not_running = || refuse(&format!("command session {id} is not running"));
    let process = record.running().ok_or_else(not_running)?;
    if interrupt(process, &base.tasks).await {
        Ok(())
    } else {
        Err(not_running())
    }
}
