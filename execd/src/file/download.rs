//! `GET /files/download` (contract: execd §10.11, A3.1).

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    time::{Duration, SystemTime},
};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use rustix::fs::OFlags;
use tokio::task::JoinHandle;

use super::{
    disposition::attachment,
    lines::Lines,
    query::path_of,
    range::{RequestedRange, parse_range},
};
use crate::{
    base::Base,
    blocking::{blocking, thread},
    error::{ApiError, ApiResult, client_message},
    http::Query,
    limits, path,
};

/// Handles a download.
pub(super) async fn download(
    State(base): State<Base>,
    query: Query,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let given = path_of(&query)?;
    let lines = selected_lines(&query)?;
    if lines.is_some() && headers.contains_key(header::RANGE) {
        return Err(ApiError::invalid(
            "a request can ask for a range of bytes or for lines, not for both",
        ));
    }
    let content =
        blocking(move || Content::open(&path::resolve(&given, &base.environment)?)).await?;
    match lines {
        Some(lines) => content.lines(lines).await,
        None => content.answer(&headers).await,
    }
}

/// Line range of a query, if it has one.
fn selected_lines(query: &Query) -> ApiResult<Option<Lines>> {
    let number = |name: &str| {
        let given = query.get(name);
        let parsed = given.map(|given| {
            let number = given.parse().ok().filter(|number| *number >= 1);
            number.ok_or_else(|| {
                ApiError::invalid(format!("invalid query parameter '{name}': {given}"))
            })
        });
        parsed.transpose()
    };
    let (offset, limit): (Option<u64>, Option<u64>) = (number("offset")?, number("limit")?);
    Ok(match (offset, limit) {
        (None, None) => None,
        (offset, limit) => Some(Lines::new(offset.unwrap_or(1), limit)),
    })
}

/// Opened file with its metadata.
struct Content {
    file: File,
    size: u64,
    modified: SystemTime,
    tag: String,
    disposition: String,
}

impl Content {
    fn open(path: &Path) -> ApiResult<Self> {
        let failed = |error: io::Error| ApiError::file(path, &error);
        let mut options = OpenOptions::new();
        // Opening a FIFO must not wait for its writer, and a terminal must not become the daemon's:
        // its end would send SIGHUP to the daemon.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = options
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(path)
            .map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() {
            let message = format!("path is not a regular file: {}", path.display());
            return Err(ApiError::invalid(message));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let nanos = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        Ok(Self {
            file,
            size: meta.len(),
            modified: meta.modified().map_err(failed)?,
            tag: format!("\"{nanos:x}-{:x}\"", meta.len()),
            disposition: attachment(&name),
        })
    }

    async fn answer(self, request: &HeaderMap) -> ApiResult<Response> {
        if let Some(status) = self.precondition(request) {
            let mut response = status.into_response();
            self.validators(response.headers_mut());
            return Ok(response);
        }
        let range = request
            .get(header::RANGE)
            .filter(|_| self.size > 0 && self.same_as_before(request))
            .map(|range| parse_range(range.to_str().unwrap_or_default(), self.size));
        let (status, part) = match range {
            None => (StatusCode::OK, 0..self.size),
            Some(RequestedRange::Part(part)) => (StatusCode::PARTIAL_CONTENT, part),
            Some(RequestedRange::Malformed) => return Err(ApiError::Range("malformed range")),
            Some(RequestedRange::Unsatisfiable) => {
                let mut response = ApiError::Range("range starts beyond the end").into_response();
                let whole = format!("bytes */{}", self.size);
                response
                    .headers_mut()
                    .insert(header::CONTENT_RANGE, text(&whole));
                return Ok(response);
            }
        };
        let mut headers = HeaderMap::new();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        );
        headers.insert(header::CONTENT_DISPOSITION, text(&self.disposition));
        let mut validators = HeaderMap::new();
        self.validators(&mut validators);
        let (first, has_expected_size) = first_piece(self.file, self.size, part.clone()).await?;
        let body = body(first, |bytes| Some(Bytes::from(bytes)));
        if !has_expected_size {
            // The whole file, with unknown length and no validators.
            return Ok((headers, body).into_response());
        }
        headers.extend(validators);
        headers.insert(
            header::CONTENT_LENGTH,
            HeaderValue::from(part.end - part.start),
        );
        if status == StatusCode::PARTIAL_CONTENT {
            let range = format!("bytes {}-{}/{}", part.start, part.end - 1, self.size);
            headers.insert(header::CONTENT_RANGE, text(&range));
        }
        Ok((status, headers, body).into_response())
    }

    async fn lines(self, mut lines: Lines) -> ApiResult<Response> {
        let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
        let first = blocking(move || Piece::read(self.file, u64::MAX).map_err(unreadable));
        let body = body(first.await?, move |bytes| {
            if lines.done() {
                return None;
            }
            let mut out = Vec::new();
            lines.feed(&bytes, &mut out);
            Some(Bytes::from(out))
        });
        Ok((kind, body).into_response())
    }

    fn validators(&self, headers: &mut HeaderMap) {
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(header::ETAG, text(&self.tag));
        if let Some(date) = http_date(self.modified) {
            headers.insert(header::LAST_MODIFIED, text(&date));
        }
    }

    /// Status that a failed precondition demands (RFC 9110 §13.2.2).
    fn precondition(&self, request: &HeaderMap) -> Option<StatusCode> {
        let failed = StatusCode::PRECONDITION_FAILED;
        if let Some(tags) = request.get(header::IF_MATCH) {
            if !self.tagged(tags) {
                return Some(failed);
            }
        } else if date(request.get(header::IF_UNMODIFIED_SINCE))
            .is_some_and(|date| self.seconds() > date)
        {
            return Some(failed);
        }
        let unchanged = match request.get(header::IF_NONE_MATCH) {
            Some(tags) => self.tagged(tags),
            None => date(request.get(header::IF_MODIFIED_SINCE))
                .is_some_and(|date| self.seconds() <= date),
        };
        unchanged.then_some(StatusCode::NOT_MODIFIED)
    }

    /// Whether `If-Range` still matches the file.
    fn same_as_before(&self, request: &HeaderMap) -> bool {
        let Some(known) = request.get(header::IF_RANGE) else {
            return true;
        };
        if known.as_bytes().starts_with(b"\"") {
            known == self.tag.as_str()
        } else {
            date(Some(known)) == Some(self.seconds())
        }
    }

    fn tagged(&self, tags: &HeaderValue) -> bool {
        let mut tags = tags.to_str().unwrap_or_default().split(',').map(str::trim);
        tags.any(|tag| tag == "*" || tag.trim_start_matches("W/") == self.tag)
    }

    /// Modification time in whole seconds, as HTTP dates express it.
    fn seconds(&self) -> SystemTime {
        let since = self
            .modified
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
    }
}

/// `None` for times that HTTP dates cannot express: before 1970 and from the year 10000 on.
fn http_date(time: SystemTime) -> Option<String> {
    const YEAR_10000: u64 = 253_402_300_800;
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    (since.as_secs() < YEAR_10000).then(|| httpdate::fmt_http_date(time))
}

fn date(header: Option<&HeaderValue>) -> Option<SystemTime> {
    httpdate::parse_http_date(header?.to_str().ok()?).ok()
}

fn text(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).expect("visible ASCII")
}

/// Reads the first piece of a part, and returns whether the file has the size that `stat` reported.
/// Files that the kernel generates on reading do not (0 bytes in `/proc`, a page in `/sys`); for
/// them the piece starts the whole file.
async fn first_piece(mut file: File, size: u64, part: Range<u64>) -> ApiResult<(Piece, bool)> {
    let read = move || -> io::Result<_> {
        let len = part.end - part.start;
        file.seek(SeekFrom::Start(part.start))?;
        let piece = Piece::read(file, if size == 0 { u64::MAX } else { len })?;
        let is_long_enough = piece.bytes.len() as u64 == len.min(limits::DOWNLOAD_READ as u64);
        // A partial read in the middle cannot verify the size. Files of the kernel are short.
        let is_whole = || part.end == size || size > limits::DOWNLOAD_READ as u64;
        let has_last = |file: &File| Ok::<_, io::Error>(file.read_at(&mut [0], size - 1)? == 1);
        if is_long_enough && (is_whole() || has_last(&piece.file)?) {
            return Ok((piece, true));
        }
        let mut file = piece.file;
        file.rewind()?;
        Ok((Piece::read(file, u64::MAX)?, false))
    };
    blocking(move || read().map_err(unreadable)).await
}

fn unreadable(error: io::Error) -> ApiError {
    ApiError::runtime(format!("error reading file: {}", client_message(&error)))
}

/// Response body: a file in large pieces, read one piece ahead of the client. A slow client
/// occupies no thread. `map` changes each piece, or ends the body.
fn body(first: Piece, map: impl FnMut(Vec<u8>) -> Option<Bytes> + Send + 'static) -> Body {
    let pieces = stream::try_unfold((Step::Read(first), map), |(step, mut map)| async move {
        let Piece { file, bytes, left } = match step {
            Step::Read(piece) => piece,
            Step::Ahead(reading) => reading.await??,
            Step::End => return Ok(None),
        };
        let Some(bytes) = Some(bytes)
            .filter(|bytes| !bytes.is_empty())
            .and_then(&mut map)
        else {
            return Ok::<_, io::Error>(None);
        };
        let next = if left == 0 {
            Step::End
        } else {
            Step::Ahead(reading_of(move || Piece::read(file, left)).await)
        };
        Ok(Some((bytes, (next, map))))
    });
    Body::from_stream(pieces)
}

/// State of a download.
enum Step {
    Read(Piece),
    Ahead(JoinHandle<io::Result<Piece>>),
    End,
}

/// Reads a piece on a blocking thread.
async fn reading_of(
    work: impl FnOnce() -> io::Result<Piece> + Send + 'static,
) -> JoinHandle<io::Result<Piece>> {
    let thread = thread().await;
    tokio::task::spawn_blocking(move || {
        let _thread = thread;
        work()
    })
}

/// Piece of a file, and the state to read the next.
struct Piece {
    file: File,
    bytes: Vec<u8>,
    left: u64,
}

impl Piece {
    fn read(mut file: File, left: u64) -> io::Result<Self> {
        let want = left.min(limits::DOWNLOAD_READ as u64);
        let mut bytes = Vec::with_capacity(usize::try_from(want).expect("bounded above"));
        let got = file.by_ref().take(want).read_to_end(&mut bytes)? as u64;
        Ok(Self {
            file,
            bytes,
            left: left - got,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_http_cannot_express_have_no_date() {
        let epoch = SystemTime::UNIX_EPOCH;
        let after = |seconds| http_date(epoch + Duration::from_secs(seconds));
        assert_eq!(http_date(epoch - Duration::from_secs(1)), None);
        assert_eq!(after(0).unwrap(), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(
            after(253_402_300_799).unwrap(),
            "Fri, 31 Dec 9999 23:59:59 GMT"
        );
        assert_eq!(after(253_402_300_800), None);
    }
}
