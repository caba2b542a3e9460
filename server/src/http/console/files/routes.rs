//! Downloads, images and uploads: what is no page and no server function.

use std::{io, time::Duration};

use axum::{
    Extension, Router,
    body::Body,
    extract::{Path, Query},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures::StreamExt;
use osb_client::{
    ExecdClient,
    execd::{Portion, Upload},
};
use osb_forward::Lease;
use osb_protocol::{
    SandboxId,
    execd::file::{FileKind, Permission},
};
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    super::{ConsoleState, daemons::DaemonFailure, for_request::Backend},
    ANSWER, SandboxFiles, archive, info, part,
};

/// Largest image that pages show, in bytes.
const IMAGE_MAX: u64 = 32 * 1024 * 1024;
/// Levels of a folder that an archive has.
const DEPTH: u32 = 256;
/// Longest pause of a body that is uploaded.
const PAUSE: Duration = Duration::from_secs(60);
/// What images begin with, and their types.
const IMAGES: [(&[u8], &str); 5] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
    (b"RIFF", "image/webp"),
];

/// Which file.
#[derive(Debug, Deserialize)]
pub(in super::super) struct OfPath {
    path: String,
}

/// Routes of what is read.
pub(in super::super) fn router() -> Router<ConsoleState> {
    Router::new()
        .route("/console/sandboxes/{id}/files/download", get(download))
        .route("/console/sandboxes/{id}/files/image", get(image))
}

/// Routes of what is written: their bodies are as large as they are.
pub(in super::super) fn uploads() -> Router<ConsoleState> {
    Router::new().route("/console/sandboxes/{id}/files/upload", post(upload))
}

/// Sends a file, or a folder as a tar archive.
async fn download(
    Backend(files): Backend<SandboxFiles>,
    Path(id): Path<SandboxId>,
    Query(OfPath { path }): Query<OfPath>,
    lease: Option<Extension<Lease>>,
) -> Result<Response, DaemonFailure> {
    let execd = files.execd(&id, &path)?;
    let info = timeout(ANSWER, info(&execd, &path)).await??;
    let name = path
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    match info.kind {
        FileKind::Other => Err(DaemonFailure::Words(format!(
            "{path} is a device, a pipe or a socket, and not sent."
        ))),
        // The kernel's own folders have no end.
        FileKind::Directory if name.is_empty() => Err(DaemonFailure::Words(
            "path: choose a folder below the root".to_owned(),
        )),
        FileKind::Directory => {
            let entries = timeout(4 * ANSWER, execd.list_links(&path, DEPTH)).await??;
            let name = format!("{name}.tar");
            let archive = archive::of(execd, &path, entries);
            let held = archive.map(move |chunk| {
                let _held = &lease;
                chunk
            });
            Ok((
                attachment(&name, "application/x-tar"),
                Body::from_stream(held),
            )
                .into_response())
        }
        FileKind::File | FileKind::Symlink => {
            let download = timeout(ANSWER, execd.download(&path, Portion::Whole)).await??;
            let length = download.length();
            let held = download.map(move |chunk| {
                let _held = &lease;
                chunk
            });
            let headers = attachment(name, "application/octet-stream");
            let mut response = (headers, Body::from_stream(held)).into_response();
            if let Some(length) = length {
                response
                    .headers_mut()
                    .insert(header::CONTENT_LENGTH, length.into());
            }
            Ok(response)
        }
    }
}

/// Headers that make a browser keep what is sent under this name, and never show it.
fn attachment(name: &str, kind: &str) -> [(header::HeaderName, String); 2] {
    let escaped: String = name
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._ ".contains(c);
    let simple: String = name
        .chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect();
    let disposition = format!("attachment; filename=\"{simple}\"; filename*=UTF-8''{escaped}");
    [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::CONTENT_DISPOSITION, disposition),
    ]
}

/// Sends an image for the page. What it is follows from its content alone.
async fn image(
    Backend(files): Backend<SandboxFiles>,
    Path(id): Path<SandboxId>,
    Query(OfPath { path }): Query<OfPath>,
) -> Result<Response, DaemonFailure> {
    let execd = files.execd(&id, &path)?;
    let first = timeout(ANSWER, begin(&execd, &path)).await??;
    let kind = IMAGES.iter().find(|(magic, _)| first.starts_with(magic));
    let Some((_, kind)) = kind else {
        return Err(DaemonFailure::Words(format!(
            "{path} is no image that is shown here."
        )));
    };
    let download = timeout(ANSWER, execd.download(&path, Portion::Whole)).await??;
    if download.length().is_none_or(|length| length > IMAGE_MAX) {
        return Err(DaemonFailure::Words(format!(
            "{path} is too large to be shown."
        )));
    }
    // Also an image that a browser opens as a page may do nothing.
    let policy = "default-src 'none'; sandbox";
    let headers = [
        (header::CONTENT_TYPE, *kind),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    Ok((headers, Body::from_stream(download)).into_response())
}

/// What a file begins with.
async fn begin(execd: &ExecdClient, path: &str) -> Result<bytes::BytesMut, osb_client::Error> {
    let download = execd.download(path, Portion::Bytes(0..=15)).await?;
    part::read(download, 16).await
}

/// Writes the body of the request into a file; folders on the way are made.
async fn upload(
    Backend(files): Backend<SandboxFiles>,
    Path(id): Path<SandboxId>,
    Query(OfPath { path }): Query<OfPath>,
    body: Body,
) -> Result<StatusCode, DaemonFailure> {
    let execd = files.execd(&id, &path)?;
    let body = tokio_stream::StreamExt::timeout(body.into_data_stream(), PAUSE);
    let body = body.map(|chunk| match chunk {
        Ok(chunk) => chunk.map_err(io::Error::other),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the browser stopped sending",
        )),
    });
    let upload = Upload {
        path,
        permission: Permission::default(),
        content: reqwest::Body::wrap_stream(body),
    };
    execd.upload([upload]).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_downloads_cannot_break_the_header() {
        let [_, (_, disposition)] = attachment("a\"; x=\r\né.txt", "text/plain");
        assert_eq!(
            disposition,
            "attachment; filename=\"a__ x____.txt\"; filename*=UTF-8''a%22%3B%20x%3D%0D%0A%C3%A9.txt"
        );
    }
}
