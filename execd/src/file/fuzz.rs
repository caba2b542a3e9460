//! Fuzz targets: forms, ranges, patterns.

use bytes::Bytes;
use futures::{FutureExt, stream};

use super::{
    glob::Glob,
    multipart::{Multipart, Part},
    range::{RequestedRange, parse_range},
};

/// Reads a form in pieces whose length the first byte gives, and checks that the result is the same
/// as for one piece.
pub fn multipart(data: &[u8]) {
    let Some((step, body)) = data.split_first() else {
        return;
    };
    let whole = form(body, body.len());
    let pieces = form(body, usize::from(*step));
    assert_eq!(whole, pieces);
}

/// Parts of a form with their contents; `None` for an invalid form.
fn form(body: &[u8], step: usize) -> Option<Vec<(Part, Vec<u8>)>> {
    let pieces = body.chunks(step.max(1)).map(|piece| {
        let piece = Bytes::copy_from_slice(piece);
        Ok::<_, axum::Error>(piece)
    });
    let kind = "multipart/form-data; boundary=\"b\"";
    let mut form = Multipart::new(kind, stream::iter(pieces)).ok()?;
    let read = async {
        let mut parts = Vec::new();
        while let Some(part) = form.next_part().await.ok()? {
            let mut content = Vec::new();
            while let Some(piece) = form.chunk().await.ok()? {
                content.extend_from_slice(&piece);
            }
            parts.push((part, content));
        }
        Some(parts)
    };
    read.now_or_never().expect("nothing is waited for")
}

/// Checks that a range of a file of arbitrary size lies inside the file.
pub fn range(data: &[u8]) {
    let Some((size, header)) = data.split_first_chunk() else {
        return;
    };
    let size = u64::from_le_bytes(*size);
    if let RequestedRange::Part(part) = parse_range(&String::from_utf8_lossy(header), size) {
        assert!(part.start < part.end && part.end <= size);
    }
}

/// Matches a name against a pattern, one line each, and checks that every escaped name matches
/// itself.
pub fn glob(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (pattern, name) = text.split_once('\n').unwrap_or((&text, ""));
    if let Ok(glob) = Glob::new(pattern) {
        glob.matches(name);
    }
    let escaped: String = name.chars().flat_map(|char| ['\\', char]).collect();
    if let Ok(glob) = Glob::new(&escaped)
        && !name.is_empty()
        && !name.contains('/')
    {
        assert!(glob.matches(name), "{escaped:?}");
    }
}

#[cfg(test)]
mod tests {
    use crate::fuzz::short_run;

    #[test]
    fn forms() {
        short_run("multipart", super::multipart);
    }

    #[test]
    fn ranges() {
        short_run("range", super::range);
    }

    #[test]
    fn patterns() {
        short_run("glob", super::glob);
    }
}
