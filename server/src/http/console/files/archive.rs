//! A folder as a tar archive, made while it is sent.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use osb_client::{
    ExecdClient,
    execd::{Download, Portion},
};
use osb_protocol::execd::file::{FileInfo, FileKind, mode_from_wire};
use tar::{Builder, EntryType, Header};

/// Bytes of a block; content is filled up to whole ones.
const BLOCK: u64 = 512;
/// Zeros of a block.
static ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
/// Name of the entry that says what could not be read.
const MISSING: &str = "NOT-IN-THIS-ARCHIVE.txt";

/// What could not be read.
type Missing = Arc<Mutex<Vec<String>>>;

/// The archive of what is in `folder`: everything is below a folder of its name.
pub(super) fn of(
    execd: ExecdClient,
    folder: &str,
    entries: Vec<FileInfo>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let above = folder.trim_end_matches('/').rsplit_once('/');
    let above = above.map_or(0, |(above, _)| above.len() + 1);
    let missing = Missing::default();
    let of_entry = {
        let missing = Arc::clone(&missing);
        move |info: FileInfo| {
            let name = info.path.get(above..).unwrap_or_default().to_owned();
            let (execd, missing) = (execd.clone(), Arc::clone(&missing));
            stream::once(one(execd, info, name, missing)).flatten()
        }
    };
    let end = stream::once(async move {
        let mut end = note(&missing);
        end.extend_from_slice(&[ZEROS, ZEROS].concat());
        Ok(Bytes::from(end))
    });
    stream::iter(entries).flat_map(of_entry).chain(end)
}

/// An entry: its headers, its content, and zeros up to a whole block.
async fn one(
    execd: ExecdClient,
    info: FileInfo,
    name: String,
    missing: Missing,
) -> stream::BoxStream<'static, io::Result<Bytes>> {
    let nothing = || stream::empty().boxed();
    let left_out = |why: &str| {
        let mut missing = missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.push(format!("{}: {why}", info.path));
    };
    if info.lossy {
        left_out("its name is not UTF-8");
        return nothing();
    }
    let (header, content) = match info.kind {
        FileKind::Directory => (headers(&info, &format!("{name}/"), 0), nothing()),
        FileKind::Symlink => (headers(&info, &name, 0), nothing()),
        FileKind::Other => {
            left_out("a device, a pipe or a socket");
            return nothing();
        }
        FileKind::File => match execd.download(&info.path, Portion::Whole).await {
            Ok(download) => {
                let size = download.length().unwrap_or(info.size);
                (headers(&info, &name, size), content(download, size))
            }
            Err(error) => {
                left_out(&error.to_string());
                return nothing();
            }
        },
    };
    match header {
        Ok(header) => stream::once(async { Ok(Bytes::from(header)) })
            .chain(content)
            .boxed(),
        Err(error) => {
            left_out(&error.to_string());
            nothing()
        }
    }
}

/// The headers of an entry: more than one if its path is long.
fn headers(info: &FileInfo, name: &str, size: u64) -> io::Result<Vec<u8>> {
    let mut header = Header::new_gnu();
    header.set_size(size);
    // Without special bits: a program of the sandbox must not run as the user who unpacks it.
    let mode = mode_from_wire(i64::from(info.mode)).unwrap_or(0o644);
    header.set_mode(mode & 0o777);
    let changed = info.modified_at.as_second();
    header.set_mtime(u64::try_from(changed).unwrap_or_default());
    // Names that do not fit are left out; the user who unpacks it is the owner then.
    let _ = header.set_username(&info.owner);
    let _ = header.set_groupname(&info.group);
    let mut builder = Builder::new(Vec::new());
    match (info.kind, &info.target) {
        (FileKind::Symlink, Some(target)) => {
            header.set_entry_type(EntryType::Symlink);
            builder.append_link(&mut header, name, target)?;
        }
        (FileKind::Symlink, None) => return Err(io::Error::other("where it leads is not known")),
        (kind, _) => {
            header.set_entry_type(match kind {
                FileKind::Directory => EntryType::Directory,
                _ => EntryType::Regular,
            });
            // Only the headers: the content follows.
            builder.append_data(&mut header, name, io::empty())?;
        }
    }
    Ok(builder.get_ref().clone())
}

/// Exactly `size` bytes of a file, and zeros up to a whole block: a file that shrinks meanwhile is
/// filled up with zeros, one that grows is cut off.
fn content(download: Download, size: u64) -> stream::BoxStream<'static, io::Result<Bytes>> {
    let fill = size.next_multiple_of(BLOCK) - size;
    let bytes = stream::try_unfold((download, size), |(mut download, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let mut chunk = match download.next().await {
            Some(chunk) => chunk.map_err(io::Error::other)?,
            None => Bytes::from_static(&ZEROS),
        };
        chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        let left = left - chunk.len() as u64;
        Ok(Some((chunk, (download, left))))
    });
    let fill = Bytes::from_static(&ZEROS[..usize::try_from(fill).unwrap_or_default()]);
    bytes.chain(stream::once(async { Ok(fill) })).boxed()
}

/// The entry that says what is missing; nothing if nothing is.
fn note(missing: &Missing) -> Vec<u8> {
    let missing = missing.lock().unwrap_or_else(PoisonError::into_inner);
    if missing.is_empty() {
        return Vec::new();
    }
    let text = missing.join("\n") + "\n";
    let mut header = Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    let mut builder = Builder::new(Vec::new());
    // Writing to memory does not fail.
    let _ = builder.append_data(&mut header, MISSING, text.as_bytes());
    builder.get_ref().clone()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn info(path: &str, kind: FileKind, target: Option<&str>) -> FileInfo {
        FileInfo {
            path: path.to_owned(),
            kind,
            size: 0,
            modified_at: "2026-01-02T03:04:05Z".parse().unwrap(),
            created_at: "2026-01-02T03:04:05Z".parse().unwrap(),
            owner: "root".to_owned(),
            group: "root".to_owned(),
            mode: 750,
            target: target.map(str::to_owned),
            lossy: false,
        }
    }

    #[test]
    fn headers_are_read_back_also_of_long_names() {
        let long = format!("{}x", "folder/".repeat(40));
        let mut archive = headers(&info("/a", FileKind::File, None), &long, 3).unwrap();
        archive.extend_from_slice(b"abc");
        archive.resize(archive.len().next_multiple_of(BLOCK as usize), 0);
        let link = info("/l", FileKind::Symlink, Some("../else where"));
        archive.extend(headers(&link, "l", 0).unwrap());
        archive.extend(headers(&info("/d", FileKind::Directory, None), "d/", 0).unwrap());
        archive.extend_from_slice(&[ZEROS, ZEROS].concat());
        let mut archive = tar::Archive::new(archive.as_slice());
        let mut read = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            let path = entry.path().unwrap().display().to_string();
            let target = entry
                .link_name()
                .unwrap()
                .map(|it| it.display().to_string());
            let mode = entry.header().mode().unwrap();
            read.push((path, text, target, mode));
        }
        assert_eq!(read[0], (long, "abc".to_owned(), None, 0o750));
        assert_eq!(read[1].2.as_deref(), Some("../else where"));
        assert_eq!(read[2].0, "d/");
        assert!(headers(&info("/l", FileKind::Symlink, None), "l", 0).is_err());
    }

    #[test]
    fn what_is_missing_is_said() {
        let missing = Missing::default();
        assert!(note(&missing).is_empty());
        missing
            .lock()
            .unwrap()
            .push("/dev/null: a device".to_owned());
        let note = note(&missing);
        assert_eq!(note.len(), 2 * BLOCK as usize);
        assert!(String::from_utf8_lossy(&note).contains("/dev/null: a device\n"));
    }
}
