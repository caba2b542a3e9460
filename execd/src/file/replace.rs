//! `POST /files/replace` (contract: execd §10.5): literal text, every occurrence, in constant
//! memory.

use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    path::Path,
};

use memchr::memmem::Finder;
use osb_protocol::execd::file::Replacement;

use super::{permission::Change, target::Target};
use crate::{
    error::{ApiError, ApiResult, client_message},
    limits, scratch,
};

/// Replaces and counts occurrences. A file without any is left untouched.
pub(super) fn replace(path: &Path, wanted: &Replacement) -> ApiResult<usize> {
    let accessed = |error: io::Error| ApiError::file(path, &error);
    let meta = path.metadata().map_err(accessed)?;
    if !meta.is_file() {
        return Err(ApiError::runtime(format!(
            "error accessing file: {}: not a regular file",
            path.display()
        )));
    }
    let file = File::open(path).map_err(accessed)?;
    if wanted.old.is_empty() {
        return Err(ApiError::invalid("old content must not be empty"));
    }
    let rewrite = || -> io::Result<usize> {
        let mut changed = scratch::file()?;
        let mut writer = io::BufWriter::with_capacity(limits::READ_CHUNK, &mut changed);
        let count = copy(
            file,
            &mut writer,
            wanted.old.as_bytes(),
            wanted.new.as_bytes(),
        )?;
        writer.flush()?;
        drop(writer);
        if count > 0 {
            changed.rewind()?;
            let mut target = Target::open(path, Change::default())?;
            io::copy(&mut changed, &mut target)?;
            target.finish(false)?;
        }
        Ok(count)
    };
    rewrite().map_err(|error| {
        let why = client_message(&error);
        ApiError::runtime(format!("error writing file: {}: {why}", path.display()))
    })
}

/// Copies with replacements.
fn copy(mut from: impl Read, to: &mut impl Write, old: &[u8], new: &[u8]) -> io::Result<usize> {
    let finder = Finder::new(old);
    let mut count = 0;
    let mut held: Vec<u8> = Vec::new();
    loop {
        let read = from
            .by_ref()
            .take(limits::REPLACE_READ as u64)
            .read_to_end(&mut held)?;
        let mut done = 0;
        while let Some(at) = finder.find(&held[done..]) {
            to.write_all(&held[done..done + at])?;
            to.write_all(new)?;
            done += at + old.len();
            count += 1;
        }
        if read == 0 {
            to.write_all(&held[done..])?;
            return Ok(count);
        }
        // The end of the buffer may hold the beginning of an occurrence.
        let safe = held.len().saturating_sub(old.len() - 1).max(done);
        to.write_all(&held[done..safe])?;
        held.drain(..safe);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use proptest::prelude::*;

    use super::*;

    /// Reader that returns one byte at a time.
    struct Slowly<'a>(&'a [u8]);
    impl Read for Slowly<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let end = out.len().min(1);
            self.0.read(&mut out[..end])
        }
    }

    proptest! {
        #[test]
        fn a_streamed_replacement_equals_one_in_memory(text in "[ab]{0,40}", old in "[ab]{1,4}", new in "[abc]{0,3}") {
            let mut out = Vec::new();
            let count = copy(Slowly(text.as_bytes()), &mut out, old.as_bytes(), new.as_bytes()).unwrap();
            prop_assert_eq!(String::from_utf8(out).unwrap(), text.replace(&old, &new));
            prop_assert_eq!(count, text.matches(&old).count());
        }
    }

    #[test]
    fn files_without_the_text_are_not_touched() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f");
        std::fs::write(&path, "one two two").unwrap();
        let inode = || std::fs::metadata(&path).unwrap().ino();
        let replace = |old: &str| {
            let wanted = Replacement {
                old: old.to_owned(),
                new: "2".to_owned(),
            };
            replace(&path, &wanted)
        };
        let before = inode();
        assert_eq!(replace("three"), Ok(0));
        assert_eq!(inode(), before);
        assert_eq!(replace("two"), Ok(2));
        assert_eq!(std::fs::read(&path).unwrap(), b"one 2 2");
        assert!(matches!(replace(""), Err(ApiError::Invalid(_))));
    }
}
