//! How a shell hands its state back: it runs this program once more, which writes the working
//! directory and every exported variable into a pipe. No shell prints them unambiguously, and not
//! every image has a program that does.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    convert::Infallible,
    ffi::OsString,
    io::{self, Write},
    os::{
        fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
};

use rustix::{fs::fstat, io::retry_on_intr};
use tokio::{io::AsyncReadExt, net::unix::pipe};

use super::Variables;
use crate::limits;

/// The argument that makes this program report; a [`Target`] in three numbers follows.
pub const SUBCOMMAND: &str = "report-state";

/// A shell that cannot pass all its variables to this program leaves some out. Their names, separated
/// by blanks, are in this one.
pub const LEFT_OUT: &str = "__execd_left_out";

/// What a shell's state is, as far as it can outlive the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported {
    /// Working directory, as the shell names it.
    pub cwd: Option<PathBuf>,
    /// Exported variables.
    pub variables: Variables,
    /// Names of those that are missing, because no program can be given them.
    pub left_out: Vec<String>,
}

impl Reported {
    /// Leaves out the longest variables until the others take no more than `room` bytes of what a
    /// program is given.
    pub(crate) fn fit(&mut self, room: usize) {
        // Both have an end, and a pointer to them.
        let taken = |(name, value): (&OsString, &OsString)| name.len() + value.len() + 2 + 8;
        let mut total: usize = self.variables.iter().map(taken).sum();
        if total <= room {
            return;
        }
        let with_length = |entry: (&OsString, &OsString)| (taken(entry), entry.0.clone());
        let mut all: Vec<_> = self.variables.iter().map(with_length).collect();
        all.sort_by_key(|(length, _)| Reverse(*length));
        for (length, name) in all {
            if total <= room {
                return;
            }
            total -= length;
            self.variables.0.remove(&name);
            self.left_out.push(name.to_string_lossy().into_owned());
        }
    }
}

/// Where a report goes. The number alone would not do: the user's script may have put a file of its own
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Number of the descriptor.
    pub number: RawFd,
    /// Device of the pipe.
    pub device: u64,
    /// Inode of the pipe.
    pub inode: u64,
}

impl Target {
    /// The descriptor, if it is still that pipe.
    fn open(self) -> io::Result<OwnedFd> {
        let replaced = || io::Error::new(io::ErrorKind::NotFound, "the pipe is closed or replaced");
        if self.number < 0 {
            return Err(replaced());
        }
        #[expect(unsafe_code, reason = "the descriptor is known by its number only")]
        // SAFETY: it is asked what it is, and an answer means that it is open.
        let stat = fstat(unsafe { BorrowedFd::borrow_raw(self.number) })?;
        if (stat.st_dev, stat.st_ino) != (self.device, self.inode) {
            return Err(replaced());
        }
        #[expect(unsafe_code, reason = "the descriptor is known by its number only")]
        // SAFETY: this program was started with it to write there; nothing else in it uses it.
        Ok(unsafe { OwnedFd::from_raw_fd(self.number) })
    }
}

/// Writes the state of this process: the directory and the variables, each ended by a NUL, and one
/// NUL more, which says that nothing is missing.
///
/// # Errors
/// When there is something else at the target by now; nothing is written then.
pub fn write(target: Target) -> io::Result<()> {
    let mut to = std::fs::File::from(target.open()?);
    let mut text = cwd().unwrap_or_default().into_os_string().into_vec();
    text.push(0);
    for (name, value) in std::env::vars_os() {
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        text.push(0);
    }
    text.push(0);
    to.write_all(&text)
}

/// The directory as the shell named it, which may lead through symbolic links.
fn cwd() -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    let named = std::env::var_os("PWD").map(PathBuf::from);
    named
        .filter(|named| named.is_absolute() && identity(named) == identity(Path::new(".")))
        .or_else(|| std::env::current_dir().ok())
}

/// The shell's end of the way of a report.
#[derive(Debug)]
pub(crate) struct Channel {
    /// To be inherited at the target's number.
    pub(crate) sender: OwnedFd,
    target: Target,
}

impl Channel {
    /// The words of a shell that run this program to report. It exits with 1 when it could not.
    ///
    /// # Errors
    /// When it is not known where this program is.
    pub(crate) fn command(&self) -> io::Result<String> {
        let this = std::env::current_exe()?;
        // A quote ends the quotes, stands escaped, and opens them again.
        let this = this.to_string_lossy().replace('\'', r"'\''");
        let Target {
            number,
            device,
            inode,
        } = self.target;
        Ok(format!("'{this}' {SUBCOMMAND} {number} {device} {inode}"))
    }
}

/// Receives a report.
#[derive(Debug)]
pub(crate) struct Reader {
    receiver: pipe::Receiver,
    text: Vec<u8>,
}

impl Reader {
    /// Makes a pipe, whose other end the shell gets at this number.
    ///
    /// # Errors
    /// When descriptors are short.
    pub(crate) fn new(number: RawFd) -> io::Result<(Self, Channel)> {
        let (sender, receiver) = pipe::pipe()?;
        let sender = sender.into_blocking_fd()?;
        let stat = fstat(&sender)?;
        let target = Target {
            number,
            device: stat.st_dev,
            inode: stat.st_ino,
        };
        let text = Vec::new();
        Ok((Self { receiver, text }, Channel { sender, target }))
    }

    /// Reads until it is dropped, so that the writer never waits. What nobody could use as an
    /// environment is not kept.
    pub(crate) async fn read(&mut self) -> Infallible {
        let mut piece = vec![0; limits::READ_CHUNK];
        while let Ok(len @ 1..) = self.receiver.read(&mut piece).await {
            keep(&mut self.text, &piece[..len]);
        }
        std::future::pending().await
    }

    /// The report, once its writer ended; `None` when there was none, or not all of it. What the
    /// shell left in the background may hold the pipe, so its end is not waited for.
    #[must_use]
    pub(crate) fn finish(mut self) -> Option<Reported> {
        let mut piece = vec![0; limits::READ_CHUNK];
        let mut left = limits::ENVIRONMENT;
        // Asks the kernel: the runtime may not have heard of it yet.
        while left > 0
            && let Ok(len @ 1..) =
                retry_on_intr(|| rustix::io::read(&self.receiver, piece.as_mut_slice()))
        {
            keep(&mut self.text, &piece[..len]);
            left = left.saturating_sub(len);
        }
        parse(&self.text)
    }
}

fn keep(text: &mut Vec<u8>, piece: &[u8]) {
    let room = limits::ENVIRONMENT - text.len();
    text.extend_from_slice(&piece[..piece.len().min(room)]);
}

fn parse(text: &[u8]) -> Option<Reported> {
    let whole = text.strip_suffix(b"\0\0")?;
    let own = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let mut entries = whole.split(|byte| *byte == 0);
    let cwd = entries.next().filter(|cwd| !cwd.is_empty());
    let mut variables: Variables = entries
        .filter_map(|entry| {
            let equals = entry.iter().position(|byte| *byte == b'=')?;
            Some((own(&entry[..equals]), own(&entry[equals + 1..])))
        })
        .collect();
    let names = variables.text(LEFT_OUT).unwrap_or_default();
    let left_out: BTreeSet<&str> = names.split_whitespace().collect();
    variables.remove(LEFT_OUT);
    Some(Reported {
        cwd: cwd.map(|cwd| own(cwd).into()),
        variables,
        left_out: left_out.into_iter().map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_variables_give_way() {
        let mut reported = parse(b"/\0A=12345678\0B=1\0C=123\0\0").unwrap();
        reported.fit(19 + 12 + 14);
        assert!(reported.left_out.is_empty());
        reported.fit(12 + 14);
        assert_eq!(reported.left_out, ["A"]);
        reported.fit(0);
        assert_eq!(reported.left_out, ["A", "C", "B"]);
        assert_eq!(reported.variables, Variables::default());
    }

    #[test]
    fn reports_are_read_back() {
        let text = b"/a b\0A=1\0B=two\nlines=x\0C=\0nonsense\0__execd_left_out=E D E \0\0";
        let read = parse(text).unwrap();
        let want = Variables::from_iter([("A", "1"), ("B", "two\nlines=x"), ("C", "")]);
        assert_eq!(
            (read.cwd, read.variables),
            (Some(PathBuf::from("/a b")), want)
        );
        assert_eq!(read.left_out, ["D", "E"]);
        let nothing = Reported {
            cwd: None,
            variables: Variables::default(),
            left_out: Vec::new(),
        };
        assert_eq!(parse(b"\0\0"), Some(nothing));
        for cut in [&b""[..], b"/", b"/\0", b"/\0A=1\0", b"/\0A=1"] {
            assert_eq!(parse(cut), None);
        }
    }
}
