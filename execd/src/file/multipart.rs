//! Streaming parser for `multipart/form-data` (contract: execd §10.10, A1.7). It holds only the
//! current piece and a possible beginning of a boundary.
//!
//! The `multer` library (3.1) is unsuitable. It appends to its buffer as long as the connection has
//! data, so a client that is faster than the disk fills the memory. It does not limit the size of
//! part headers, and copies each byte once more. It reports no file name for a part that only has
//! `filename*`, which counts as a file here.

use bytes::{Buf, Bytes, BytesMut};
use futures::{Stream, StreamExt};
use memchr::memmem::{Finder, find};

use super::disposition::parameters;
use crate::limits;

/// Reason why a body cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum MultipartError {
    #[error("not multipart/form-data with a boundary")]
    NoBoundary,
    #[error("the body ended early")]
    Incomplete,
    #[error("headers of a part are too long")]
    HeadersTooLong,
    #[error("the body is malformed: {0}")]
    Malformed(&'static str),
    #[error("the body cannot be read")]
    Read(#[source] axum::Error),
}

/// Header of a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// `name` from its disposition.
    pub(super) name: String,
    /// Whether it has a `filename`; the value does not matter.
    pub(super) has_filename: bool,
}

/// Multipart body that is being read.
pub(super) struct Multipart<S> {
    body: S,
    buffer: Bytes,
    /// Line end, two dashes and the boundary.
    delimiter: Finder<'static>,
    /// Whether the parser is inside a part.
    open: bool,
    ended: bool,
}

impl<S: Stream<Item = Result<Bytes, axum::Error>> + Unpin> Multipart<S> {
    /// Creates a parser for a body of this content type.
    pub(super) fn new(content_type: &str, body: S) -> Result<Self, MultipartError> {
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        let boundary = parameters(content_type)
            .into_iter()
            .find(|(name, _)| name == "boundary")
            .map(|(_, value)| value)
            .filter(|value| kind.eq_ignore_ascii_case("multipart/form-data") && !value.is_empty())
            .ok_or(MultipartError::NoBoundary)?;
        let delimiter = format!("\r\n--{boundary}");
        Ok(Self {
            body,
            // The first delimiter may lack the line end, so the buffer starts with one.
            buffer: Bytes::from_static(b"\r\n"),
            delimiter: Finder::new(delimiter.as_bytes()).into_owned(),
            open: true,
            ended: false,
        })
    }

    /// Next part; skips the rest of the current one. `None` after the last.
    pub(super) async fn next_part(&mut self) -> Result<Option<Part>, MultipartError> {
        while self.chunk().await?.is_some() {}
        if self.ended {
            return Ok(None);
        }
        // After a delimiter: two dashes end the body, a line end begins the headers.
        while self.buffer.len() < 2 {
            self.more().await?;
        }
        if self.buffer.starts_with(b"--") {
            self.ended = true;
            return Ok(None);
        }
        let head = self.head().await?;
        self.open = true;
        Ok(Some(part(&head)))
    }

    /// Next piece of the current part; `None` after the last.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, MultipartError> {
        while self.open {
            if let Some(at) = self.delimiter.find(&self.buffer) {
                let piece = self.buffer.split_to(at);
                self.buffer.advance(self.delimiter.needle().len());
                self.open = false;
                return Ok(Some(piece).filter(|piece| !piece.is_empty()));
            }
            let safe = self.without_delimiter();
            if safe > 0 {
                return Ok(Some(self.buffer.split_to(safe)));
            }
            self.more().await?;
        }
        Ok(None)
    }

    /// Number of leading bytes that cannot belong to a partial delimiter.
    fn without_delimiter(&self) -> usize {
        let needle = self.delimiter.needle();
        let tail = self.buffer.len().saturating_sub(needle.len() - 1);
        let begins = |at: &usize| needle.starts_with(&self.buffer[*at..]);
        (tail..self.buffer.len())
            .find(begins)
            .unwrap_or(self.buffer.len())
    }

    /// Reads the headers of a part, with the line end before them.
    async fn head(&mut self) -> Result<Bytes, MultipartError> {
        loop {
            let line_end = find(&self.buffer, b"\r\n");
            if let Some(start) = line_end {
                // Only blanks may follow a boundary.
                if !self.buffer[..start]
                    .iter()
                    .all(|byte| b" \t".contains(byte))
                {
                    return Err(MultipartError::Malformed("text after a boundary"));
                }
                if self.buffer[start..].starts_with(b"\r\n\r\n") {
                    self.buffer.advance(start + 4);
                    return Ok(Bytes::new());
                }
                if let Some(len) = find(&self.buffer[start..], b"\r\n\r\n") {
                    let head = self.buffer.split_to(start + len).slice(start + 2..);
                    self.buffer.advance(4);
                    return Ok(head);
                }
            }
            if self.buffer.len() > limits::PART_HEADERS {
                return Err(MultipartError::HeadersTooLong);
            }
            self.more().await?;
        }
    }

    /// Appends the next piece of the body to the buffer.
    async fn more(&mut self) -> Result<(), MultipartError> {
        let read = self.body.next().await.ok_or(MultipartError::Incomplete)?;
        let next = read.map_err(MultipartError::Read)?;
        if self.buffer.is_empty() {
            self.buffer = next;
        } else {
            let mut joined = BytesMut::with_capacity(self.buffer.len() + next.len());
            joined.extend_from_slice(&self.buffer);
            joined.extend_from_slice(&next);
            self.buffer = joined.freeze();
        }
        Ok(())
    }
}

fn part(head: &[u8]) -> Part {
    let head = String::from_utf8_lossy(head);
    let disposition = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim()
            .eq_ignore_ascii_case("content-disposition")
            .then_some(value)
    });
    let mut part = Part::default();
    for (name, value) in parameters(disposition.unwrap_or_default()) {
        match name.as_str() {
            "name" => part.name = value,
            "filename" | "filename*" => part.has_filename = true,
            _ => {}
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use proptest::prelude::*;

    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=\"b\"";
    type Parts = Vec<(Part, Vec<u8>)>;

    fn read(chunks: Vec<Vec<u8>>) -> Result<Parts, MultipartError> {
        let chunks = chunks.into_iter().map(|chunk| Ok(Bytes::from(chunk)));
        let mut multipart = Multipart::new(TYPE, stream::iter(chunks))?;
        futures::executor::block_on(async {
            let mut parts = Vec::new();
            while let Some(part) = multipart.next_part().await? {
                let mut content = Vec::new();
                while let Some(chunk) = multipart.chunk().await? {
                    content.extend_from_slice(&chunk);
                }
                parts.push((part, content));
            }
            Ok(parts)
        })
    }

    fn body(parts: &[(&str, &[u8])]) -> Vec<u8> {
        let mut body = b"preamble".to_vec();
        if let Some((first, _)) = parts.first() {
            assert!(!first.is_empty());
        }
        for (disposition, content) in parts {
            body.extend_from_slice(
                b"\r\n--b\r\nContent-Type: x/y\r\nContent-Disposition: form-data; ",
            );
            body.extend_from_slice(disposition.as_bytes());
            body.extend_from_slice(b"\r\n\r\n");
            body.extend_from_slice(content);
        }
        body.extend_from_slice(b"\r\n--b--\r\nepilogue");
        body
    }

    fn named(name: &str, has_filename: bool) -> Part {
        Part {
            name: name.to_owned(),
            has_filename,
        }
    }

    #[test]
    fn parts_and_their_names() {
        let parts = read(vec![body(&[
            ("name=\"metadata\"; filename=\"metadata\"", b"{}"),
            ("name=file; filename*=UTF-8''x", b"a\r\n--c\r\n-"),
            ("name=plain", b""),
        ])]);
        let want = vec![
            (named("metadata", true), b"{}".to_vec()),
            (named("file", true), b"a\r\n--c\r\n-".to_vec()),
            (named("plain", false), b"".to_vec()),
        ];
        assert_eq!(parts.unwrap(), want);
        let bare = read(vec![b"--b\r\n\r\ntext\r\n--b--".to_vec()]).unwrap();
        assert_eq!(bare, [(Part::default(), b"text".to_vec())]);
        assert!(read(vec![b"--b--".to_vec()]).unwrap().is_empty());
    }

    #[test]
    fn malformed_forms_are_refused_with_a_reason() {
        for bad in [
            &b""[..],
            b"--b",
            b"--b\r\nx: y\r\n",
            b"--b\r\n\r\ntext",
            b"--bx\r\n\r\n\r\n--b--",
        ] {
            assert!(
                read(vec![bad.to_vec()]).is_err(),
                "{}",
                String::from_utf8_lossy(bad)
            );
        }
        let endless = [
            b"--b\r\n".to_vec(),
            vec![b'x'; limits::PART_HEADERS + 1],
            vec![b'x'; 9],
        ];
        assert!(matches!(
            read(endless.to_vec()),
            Err(MultipartError::HeadersTooLong)
        ));
        for kind in [
            "text/plain; boundary=b",
            "multipart/form-data",
            "multipart/form-data; boundary=",
        ] {
            let body = stream::empty::<Result<Bytes, axum::Error>>();
            assert!(Multipart::new(kind, body).is_err(), "{kind}");
        }
    }

    proptest! {
        #[test]
        fn parts_do_not_depend_on_chunks(
            content in "[-\r\nb]{0,30}",
            cuts in proptest::collection::vec(0usize..150, 0..12),
        ) {
            prop_assume!(!format!("{content}\r\n").contains("\r\n--b"));
            let whole = body(&[("name=file; filename=f", content.as_bytes())]);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(whole.len())).collect();
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();
            let chunks = cuts.windows(2).map(|cut| whole[cut[0]..cut[1]].to_vec()).collect();
            let want = vec![(named("file", true), content.into_bytes())];
            prop_assert_eq!(read(chunks).unwrap(), want);
        }
    }
}
