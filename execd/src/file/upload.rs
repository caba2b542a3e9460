//! `POST /files/upload` (contract: execd §10.10).

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Seek, Write},
};

use axum::{
    body::BodyDataStream,
    extract::{Request, State},
};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, header};
use osb_protocol::execd::file::UploadMetadata;
use tokio::task::JoinHandle;

use super::{
    multipart::{Multipart, MultipartError},
    permission::Change,
    target::{Sealed, Target},
};
use crate::{
    base::Base,
    blocking::{blocking, thread},
    error::{ApiError, ApiResult, client_message},
    json, limits, path, scratch,
};

/// Header that requests the content on disk before the response.
const DURABLE: &str = "x-durable";

/// Handles an upload.
pub(super) async fn upload(State(base): State<Base>, request: Request) -> ApiResult<()> {
    let (head, body) = request.into_parts();
    let mut body = body.into_data_stream();
    let received = Upload::new(base, &head.headers)
        .receive(&head.headers, &mut body)
        .await;
    discard(body).await;
    received
}

/// Reads and drops the rest of a body, up to a limit: of a rejected upload, or after the last part.
/// The connection cannot carry another request before that.
async fn discard(mut body: BodyDataStream) {
    let mut left = limits::REFUSED_BODY;
    while let Some(Ok(bytes)) = body.next().await {
        left = left.saturating_sub(bytes.len() as u64);
        if left == 0 {
            return;
        }
    }
}

fn no_form(error: &MultipartError) -> ApiError {
    ApiError::UploadForm(format!("multipart form is empty: {error}"))
}

/// Pairs of metadata and file in one request. The i-th metadata belongs to the i-th file in either
/// order; a file that comes first waits on disk. Files are placed only after the whole form was
/// read, so that a rejected form changes no file, except files that can only be written in place.
struct Upload {
    base: Base,
    durable: bool,
    metadata: VecDeque<UploadMetadata>,
    waiting: VecDeque<File>,
    /// Path from the request, and its content.
    sealed: Vec<(String, Sealed)>,
    metadata_count: usize,
    file_count: usize,
}

impl Upload {
    fn new(base: Base, headers: &HeaderMap) -> Self {
        Self {
            base,
            durable: headers.get(DURABLE).is_some_and(|value| value == "1"),
            metadata: VecDeque::new(),
            waiting: VecDeque::new(),
            sealed: Vec::new(),
            metadata_count: 0,
            file_count: 0,
        }
    }

    async fn receive(mut self, headers: &HeaderMap, body: &mut BodyDataStream) -> ApiResult<()> {
        let kind = headers
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let mut form =
            Multipart::new(kind.unwrap_or_default(), body).map_err(|error| no_form(&error))?;
        let mut parts = 0;
        while let Some(part) = form.next_part().await.map_err(|error| no_form(&error))? {
            parts += 1;
            if parts > limits::UPLOAD_PARTS {
                let message = format!(
                    "multipart form is empty: more than {} parts",
                    limits::UPLOAD_PARTS
                );
                return Err(ApiError::UploadForm(message));
            }
            match part.name.as_str() {
                "metadata" if part.has_filename => self.take_metadata(&mut form).await?,
                "file" if part.has_filename => self.take_file(&mut form).await?,
                _ => {}
            }
        }
        match (self.metadata_count, self.file_count) {
            (0, _) => Err(ApiError::UploadMetadata(
                "metadata file is missing".to_owned(),
            )),
            (_, 0) => Err(ApiError::UploadContent("file is missing".to_owned())),
            (metadata, files) if metadata != files => {
                let message = format!("metadata and file count mismatch: {metadata} vs {files}");
                Err(ApiError::UploadForm(message))
            }
            _ => self.place().await,
        }
    }

    async fn take_metadata(&mut self, form: &mut Multipart<&mut BodyDataStream>) -> ApiResult<()> {
        self.metadata_count += 1;
        let mut text = Vec::new();
        while let Some(chunk) = form.chunk().await.map_err(|error| no_form(&error))? {
            if text.len() + chunk.len() > limits::METADATA {
                return Err(ApiError::UploadMetadata("metadata is too long".to_owned()));
            }
            text.extend_from_slice(&chunk);
        }
        let refuse = |error: ApiError| ApiError::UploadMetadata(error.to_string());
        let metadata: UploadMetadata = json::object(&text).map_err(refuse)?;
        if metadata.path.is_empty() {
            return Err(ApiError::UploadMetadata(
                "metadata path is empty".to_owned(),
            ));
        }
        match self.waiting.pop_front() {
            Some(file) => self.take_waiting(metadata, file).await,
            None => {
                self.metadata.push_back(metadata);
                Ok(())
            }
        }
    }

    async fn take_file(&mut self, form: &mut Multipart<&mut BodyDataStream>) -> ApiResult<()> {
        self.file_count += 1;
        let Some(metadata) = self.metadata.pop_front() else {
            let file = blocking(|| scratch::file().map_err(failed)).await?;
            self.waiting.push_back(write_all(form, file).await?);
            return Ok(());
        };
        let base = self.base.clone();
        let opened = blocking(move || {
            let target = open(&metadata, &base)?;
            Ok((metadata.path, target))
        });
        let (given, target) = opened.await?;
        let target = write_all(form, target).await?;
        self.seal(given, target).await
    }

    async fn take_waiting(&mut self, metadata: UploadMetadata, mut file: File) -> ApiResult<()> {
        let base = self.base.clone();
        let copied = blocking(move || {
            let mut target = open(&metadata, &base)?;
            let mut copy = || {
                file.rewind()?;
                io::copy(&mut file, &mut target)
            };
            copy().map_err(|error| not_written(&metadata.path, &error))?;
            Ok((metadata.path, target))
        });
        let (given, target) = copied.await?;
        self.seal(given, target).await
    }

    async fn seal(&mut self, given: String, target: Target) -> ApiResult<()> {
        let durable = self.durable;
        let sealed = blocking(move || {
            let sealed = target
                .seal(durable)
                .map_err(|error| not_written(&given, &error))?;
            Ok((given, sealed))
        });
        self.sealed.push(sealed.await?);
        Ok(())
    }

    async fn place(self) -> ApiResult<()> {
        let sealed = self.sealed;
        blocking(move || {
            sealed.into_iter().try_for_each(|(given, sealed)| {
                sealed.place().map_err(|error| not_written(&given, &error))
            })
        })
        .await
    }
}

/// Opens the file that the metadata describe.
fn open(metadata: &UploadMetadata, base: &Base) -> ApiResult<Target> {
    let wanted = Change::new(&metadata.permission, &base.accounts.names())?;
    let path = path::resolve(&metadata.path, &base.environment)?;
    Target::open(&path, wanted).map_err(|error| not_written(&metadata.path, &error))
}

fn failed(error: io::Error) -> ApiError {
    ApiError::runtime(format!("error writing file: {}", client_message(&error)))
}

fn not_written(path: &str, error: &io::Error) -> ApiError {
    ApiError::runtime(format!(
        "error writing file: {path}: {}",
        client_message(error)
    ))
}

/// Writes the rest of a part in large pieces, each while the next one arrives. A slow client
/// occupies no thread.
async fn write_all<W: Write + Send + 'static>(
    form: &mut Multipart<&mut BodyDataStream>,
    to: W,
) -> ApiResult<W> {
    let mut writing = Writing::Nothing(to);
    let (mut pieces, mut len) = (Vec::new(), 0);
    while let Some(bytes) = form.chunk().await.map_err(|error| no_form(&error))? {
        len += bytes.len();
        pieces.push(bytes);
        if len >= limits::UPLOAD_WRITE {
            writing = Writing::start(writing.end().await?, std::mem::take(&mut pieces)).await;
            len = 0;
        }
    }
    Writing::start(writing.end().await?, pieces)
        .await
        .end()
        .await
}

/// State of a write.
enum Writing<W> {
    Nothing(W),
    Pieces(JoinHandle<io::Result<W>>),
}

impl<W: Write + Send + 'static> Writing<W> {
    async fn start(mut to: W, pieces: Vec<Bytes>) -> Self {
        if pieces.is_empty() {
            return Self::Nothing(to);
        }
        let thread = thread().await;
        Self::Pieces(tokio::task::spawn_blocking(move || {
            let _thread = thread;
            pieces.iter().try_for_each(|piece| to.write_all(piece))?;
            Ok(to)
        }))
    }

    async fn end(self) -> ApiResult<W> {
        match self {
            Self::Nothing(to) => Ok(to),
            Self::Pieces(write) => {
                let written = write.await.unwrap_or_else(|error| Err(error.into()));
                written.map_err(failed)
            }
        }
    }
}
