//! The filesystem (contract: execd §10, A3).

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    path::Path,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream::BoxStream};
use osb_protocol::execd::file::{
    FileInfo, Found, Move, Permission, Replaced, Replacement, UploadMetadata,
};
use reqwest::{
    Body, Method, RequestBuilder, header,
    multipart::{Form, Part},
};

use super::{ExecdClient, answer};
use crate::{Error, http};

/// One file of an upload.
#[derive(Debug)]
pub struct Upload {
    /// Where it goes; missing parents are made.
    pub path: String,
    /// Permissions it gets.
    pub permission: Permission,
    /// Its content: bytes, text, or a stream by [`Body::wrap_stream`].
    pub content: Body,
}

/// Which part of a file to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Portion {
    /// All of it.
    #[default]
    Whole,
    /// These bytes, counted from 0.
    Bytes(RangeInclusive<u64>),
    /// All but the first so many bytes.
    From(u64),
    /// The last so many bytes.
    Last(u64),
    /// Lines without their ends.
    Lines {
        /// First line, from 1.
        first: u64,
        /// How many; `None` for the rest.
        count: Option<u64>,
    },
}

/// What [`ExecdClient::find`] searches for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Find {
    /// Glob that names have to match; empty for any name.
    pub pattern: String,
    /// Text that files have to contain, within one line; empty searches for names alone.
    pub text: String,
    /// Whether the case of ASCII letters in the text does not matter.
    pub ignore_case: bool,
    /// Most entries of the answer.
    pub limit: usize,
}

impl ExecdClient {
    /// What is known about each path; links are not followed.
    ///
    /// # Errors
    /// See [`Error`]; 404 when one does not exist.
    pub async fn info(&self, paths: &[&str]) -> Result<BTreeMap<String, FileInfo>, Error> {
        answer(self.paths(Method::GET, &["files", "info"], paths)).await
    }

    /// Removes files. Those that do not exist are no error.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete_files(&self, paths: &[&str]) -> Result<(), Error> {
        http::done(self.paths(Method::DELETE, &["files"], paths)).await
    }

    /// Moves or renames files and directories; no destination may exist.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn move_files(&self, moves: &[Move]) -> Result<(), Error> {
        let call = self.service.request(Method::POST, &["files", "mv"]);
        http::done(call.json(moves)).await
    }

    /// Sets owner, group and mode.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn set_permissions(
        &self,
        permissions: &BTreeMap<String, Permission>,
    ) -> Result<(), Error> {
        let call = self
            .service
            .request(Method::POST, &["files", "permissions"]);
        http::done(call.json(permissions)).await
    }

    /// Replaces text in files and returns the number of replacements.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn replace(
        &self,
        replacements: &BTreeMap<String, Replacement>,
    ) -> Result<BTreeMap<String, Replaced>, Error> {
        let call = self.service.request(Method::POST, &["files", "replace"]);
        answer(call.query(&[("verbose", true)]).json(replacements)).await
    }

    /// Files below `path` whose name matches a glob.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn search(&self, path: &str, pattern: &str) -> Result<Vec<FileInfo>, Error> {
        let call = self.service.request(Method::GET, &["files", "search"]);
        answer(call.query(&[("path", path), ("pattern", pattern)])).await
    }

    /// Entries below `path` by their names, and files by their content, within execd's limits. An
    /// addition to the contract.
    ///
    /// # Errors
    /// See [`Error`]; 404 from other execds than ours, too.
    pub async fn find(&self, path: &str, wanted: &Find) -> Result<Found, Error> {
        let call = self.service.request(Method::GET, &["files", "find"]);
        let limit = wanted.limit.to_string();
        answer(call.query(&[
            ("path", path),
            ("pattern", wanted.pattern.as_str()),
            ("text", wanted.text.as_str()),
            ("ignore_case", if wanted.ignore_case { "true" } else { "" }),
            ("limit", limit.as_str()),
        ]))
        .await
    }

    /// Makes directories and their parents.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn make_directories(
        &self,
        directories: &BTreeMap<String, Permission>,
    ) -> Result<(), Error> {
        let call = self.service.request(Method::POST, &["directories"]);
        http::done(call.json(directories)).await
    }

    /// Removes directories with all that is in them.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete_directories(&self, paths: &[&str]) -> Result<(), Error> {
        http::done(self.paths(Method::DELETE, &["directories"], paths)).await
    }

    /// Entries of a directory, `depth` levels deep, parents before children.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list(&self, path: &str, depth: u32) -> Result<Vec<FileInfo>, Error> {
        answer(self.listing(path, depth)).await
    }

    /// Entries of a directory, or of one that a link leads to, like [`Self::list`]; links have their
    /// target.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_links(&self, path: &str, depth: u32) -> Result<Vec<FileInfo>, Error> {
        answer(self.listing(path, depth).query(&[("links", "true")])).await
    }

    fn listing(&self, path: &str, depth: u32) -> RequestBuilder {
        let call = self.service.request(Method::GET, &["directories", "list"]);
        let depth = depth.to_string();
        call.query(&[("path", path), ("depth", &depth)])
    }

    /// Writes files, replacing what is there.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn upload(&self, files: impl IntoIterator<Item = Upload>) -> Result<(), Error> {
        let mut form = Form::new();
        for file in files {
            let (metadata, content) = file.into_parts()?;
            form = form.part("metadata", metadata).part("file", content);
        }
        let call = self.service.endless(Method::POST, &["files", "upload"]);
        http::done(call.multipart(form)).await
    }

    /// Reads a file as a stream.
    ///
    /// # Errors
    /// See [`Error`]; 404 when it does not exist, 416 when it has no such bytes.
    pub async fn download(&self, path: &str, portion: Portion) -> Result<Download, Error> {
        let call = self.service.endless(Method::GET, &["files", "download"]);
        let response = http::send(portion.ask(call.query(&[("path", path)]))).await?;
        Ok(Download {
            length: response.content_length(),
            total: total(response.headers()).or_else(|| response.content_length()),
            body: response.bytes_stream().boxed(),
        })
    }

    /// Reads a file into memory.
    ///
    /// # Errors
    /// See [`ExecdClient::download`].
    pub async fn read(&self, path: &str, portion: Portion) -> Result<Bytes, Error> {
        let call = self.service.endless(Method::GET, &["files", "download"]);
        let response = http::send(portion.ask(call.query(&[("path", path)]))).await?;
        Ok(response.bytes().await?)
    }

    fn paths(&self, method: Method, route: &[&str], paths: &[&str]) -> RequestBuilder {
        let query: Vec<_> = paths.iter().map(|path| ("path", *path)).collect();
        self.service.request(method, route).query(&query)
    }
}

impl Upload {
    fn into_parts(self) -> Result<(Part, Part), Error> {
        let name = Path::new(&self.path)
            .file_name()
            .map_or_else(|| "file".into(), |name| name.to_string_lossy().into_owned());
        let metadata = UploadMetadata {
            path: self.path,
            permission: self.permission,
        };
        let metadata = serde_json::to_vec(&metadata).expect("a struct of plain members is JSON");
        // Both parts need a file name (contract: execd §10.10).
        let metadata = Part::bytes(metadata)
            .file_name("metadata")
            .mime_str("application/json")?;
        let content = Part::stream(self.content)
            .file_name(name)
            .mime_str("application/octet-stream")?;
        Ok((metadata, content))
    }
}

impl Portion {
    fn ask(&self, call: RequestBuilder) -> RequestBuilder {
        let range = match self {
            Self::Whole => return call,
            Self::Lines { first, count } => {
                let call = call.query(&[("offset", first)]);
                return match count {
                    Some(count) => call.query(&[("limit", count)]),
                    None => call,
                };
            }
            Self::Bytes(bytes) => format!("bytes={}-{}", bytes.start(), bytes.end()),
            Self::From(start) => format!("bytes={start}-"),
            Self::Last(count) => format!("bytes=-{count}"),
        };
        call.header(header::RANGE, range)
    }
}

/// A file on its way here.
pub struct Download {
    length: Option<u64>,
    total: Option<u64>,
    body: BoxStream<'static, reqwest::Result<Bytes>>,
}

impl Download {
    /// Bytes that will come, where the server knows.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Bytes of the whole file, also when a part of it was asked for, where the server knows.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.total
    }
}

/// Size of the whole in `Content-Range: bytes 0-9/100`.
fn total(headers: &header::HeaderMap) -> Option<u64> {
    let range = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    range.rsplit_once('/')?.1.parse().ok()
}

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Download")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl Stream for Download {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let chunk = ready!(self.body.poll_next_unpin(cx));
        Poll::Ready(chunk.map(|chunk| chunk.map_err(Error::from)))
    }
}
