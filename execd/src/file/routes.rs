//! Routes of files and directories.

use std::{io, path::Path};

use axum::{
    Json, Router,
    extract::{FromRef, Request, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use osb_protocol::execd::file::{FileInfo, Found, Move, Permission, Replaced, Replacement};
use serde_json::{Map, Value};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use super::{
    download,
    entries::{self, Links},
    find::{self, Wanted},
    info,
    permission::{self, Change},
    query::{path_of, paths},
    relocate, replace, upload,
};
use crate::{
    base::Base,
    blocking::{blocking, blocking_while_wanted},
    error::{ApiError, ApiResult, client_message},
    http::Query,
    json,
    kernel_path::create_directories_with,
    limits, path,
};

/// Turns of `GET /files/find`.
static FINDS: Semaphore = Semaphore::const_new(limits::FINDS);

/// All routes, relative to the prefix.
pub(crate) fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Base: FromRef<S>,
{
    Router::new()
        .route("/files/info", get(info_of))
        .route("/files", axum::routing::delete(delete_files))
        .route("/files/mv", post(move_files))
        .route("/files/permissions", post(set_permissions))
        .route("/files/replace", post(replace_text))
        .route("/files/search", get(search))
        .route("/files/find", get(find_below))
        .route("/files/upload", post(upload::upload))
        .route("/files/download", get(download::download))
        .route(
            "/directories",
            post(make_directories).delete(delete_directories),
        )
        .route("/directories/list", get(list))
}

async fn info_of(State(base): State<Base>, query: Query) -> ApiResult<Response> {
    let paths = paths(&query);
    blocking(move || {
        let names = base.accounts.names();
        let mut infos = Map::new();
        for given in paths {
            let path = path::resolve(&given, &base.environment)?;
            let info = info::of(&path, &names).map_err(|error| ApiError::file(&path, &error))?;
            let value = serde_json::to_value(info).expect("file infos are JSON");
            infos.insert(given.to_string_lossy().into_owned(), value);
        }
        Ok(Json(Value::Object(infos)).into_response())
    })
    .await
}

async fn delete_files(State(base): State<Base>, query: Query) -> ApiResult<()> {
    let paths = paths(&query);
    blocking(move || {
        let environment = &base.environment;
        paths
            .iter()
            .try_for_each(|path| relocate::delete_file(&path::resolve(path, environment)?))
    })
    .await
}

async fn move_files(State(base): State<Base>, request: Request) -> ApiResult<()> {
    let moves: Vec<Move> = json::list(&json::bytes(request.into_body()).await?)?;
    blocking(move || {
        let resolve = |path: &str| path::resolve(path, &base.environment);
        moves
            .iter()
            .try_for_each(|entry| relocate::rename(&resolve(&entry.src)?, &resolve(&entry.dest)?))
    })
    .await
}

async fn set_permissions(State(base): State<Base>, request: Request) -> ApiResult<()> {
    let wanted: Vec<(String, Permission)> = json::map(&json::bytes(request.into_body()).await?)?;
    blocking(move || {
        let names = base.accounts.names();
        wanted.iter().try_for_each(|(given, permission)| {
            let path = path::resolve(given, &base.environment)?;
            permission::apply(&path, permission, &names)
        })
    })
    .await
}

async fn replace_text(
    State(base): State<Base>,
    query: Query,
    request: Request,
) -> ApiResult<Response> {
    let verbose = query.get("verbose") == Some("true");
    let wanted: Vec<(String, Replacement)> = json::map(&json::bytes(request.into_body()).await?)?;
    let counts = blocking(move || {
        let mut counts = Map::new();
        for (given, replacement) in wanted {
            let path = path::resolve(&given, &base.environment)?;
            let count = replace::replace(&path, &replacement)?;
            let replaced = serde_json::to_value(Replaced { count }).expect("a number is JSON");
            counts.insert(given, replaced);
        }
        Ok(counts)
    })
    .await?;
    Ok(if verbose {
        Json(Value::Object(counts)).into_response()
    } else {
        ().into_response()
    })
}

async fn search(State(base): State<Base>, query: Query) -> ApiResult<Json<Vec<FileInfo>>> {
    let given = path_of(&query)?;
    let pattern = query.get("pattern").unwrap_or_default().to_owned();
    let found = blocking_while_wanted(move |unwanted| {
        let root = path::resolve(&given, &base.environment)?;
        entries::search(&root, &pattern, &base.accounts.names(), unwanted)
    });
    Ok(Json(found.await?))
}

async fn find_below(State(base): State<Base>, query: Query) -> ApiResult<Json<Found>> {
    let given = path_of(&query)?;
    let wanted = Wanted::of(&query)?;
    let turn = turn(&FINDS).await?;
    let found = blocking_while_wanted(move |unwanted| {
        // The search may outlive the request.
        let _turn = turn;
        let root = path::resolve(&given, &base.environment)?;
        find::find(&root, &wanted, unwanted)
    });
    Ok(Json(found.await?))
}

/// Waits for a turn to search.
///
/// # Errors
/// 503 with `Retry-After` when none becomes free within [`limits::FIND_WAIT`].
async fn turn(finds: &Semaphore) -> ApiResult<SemaphorePermit<'_>> {
    match timeout(limits::FIND_WAIT, finds.acquire()).await {
        Ok(turn) => Ok(turn.expect("the semaphore is never closed")),
        Err(_) => Err(ApiError::Busy(format!(
            "{} searches of files were under way for {} s; retry later",
            limits::FINDS,
            limits::FIND_WAIT.as_secs()
        ))),
    }
}

async fn list(State(base): State<Base>, query: Query) -> ApiResult<Json<Vec<FileInfo>>> {
    let given = path_of(&query)?;
    let depth = match query.get("depth").filter(|depth| !depth.is_empty()) {
        None => 1,
        Some(depth) => depth
            .parse()
            .map_err(|_| ApiError::invalid(format!("invalid query parameter 'depth': {depth}")))?,
    };
    let links = match query.get("links") {
        Some("true") => Links::Resolved,
        _ => Links::Opaque,
    };
    let found = blocking_while_wanted(move |unwanted| {
        let root = path::resolve(&given, &base.environment)?;
        entries::list(&root, depth, links, &base.accounts.names(), unwanted)
    });
    Ok(Json(found.await?))
}

async fn make_directories(State(base): State<Base>, request: Request) -> ApiResult<()> {
    let wanted: Vec<(String, Permission)> = json::map(&json::bytes(request.into_body()).await?)?;
    blocking(move || {
        let names = base.accounts.names();
        for (given, permission) in &wanted {
            let path = path::resolve(given, &base.environment)?;
            // An existing directory keeps mode and owner (contract: execd A3.2).
            if !path.is_dir() {
                let wanted = Change::new(permission, &names)?;
                make_directory(&path, wanted).map_err(|error| {
                    ApiError::runtime(format!(
                        "error creating directory: {}: {}",
                        path.display(),
                        client_message(&error)
                    ))
                })?;
            }
        }
        Ok(())
    })
    .await
}

/// Creates a directory, with its missing parents, which get the owner but not the mode.
fn make_directory(path: &Path, wanted: Change) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        let owner = wanted.of_parents();
        create_directories_with(parent, |new| owner.apply_to_held(new))?;
    }
    create_directories_with(path, |new| wanted.apply_to_held(new))
}

async fn delete_directories(State(base): State<Base>, query: Query) -> ApiResult<()> {
    let paths = paths(&query);
    blocking(move || {
        for given in paths.iter().filter(|path| !path.is_empty()) {
            relocate::must_be_deletable_by_name(given)?;
            relocate::delete_tree(&path::resolve(given, &base.environment)?)?;
        }
        Ok(())
    })
    .await
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_search_waits_for_its_turn_but_not_for_ever() {
        let finds = Semaphore::new(1);
        let first = turn(&finds).await.unwrap();
        let began = Instant::now();
        let error = turn(&finds).await.unwrap_err();
        assert_eq!(began.elapsed(), limits::FIND_WAIT);
        let message = "4 searches of files were under way for 5 s; retry later";
        assert_eq!(error, ApiError::Busy(message.to_owned()));
        let (next, ()) = tokio::join!(turn(&finds), async { drop(first) });
        assert!(next.is_ok());
    }
}
