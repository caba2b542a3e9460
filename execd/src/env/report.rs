//! Report of a shell's state: the shell runs this executable again, which writes the working
//! directory and all exported variables to a pipe. No shell prints them unambiguously, and not
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

/// Argument that starts a report; the three numbers of a [`Target`] follow.
pub const SUBCOMMAND: &str = "report-state";

/// Variable with the names, separated by blanks, of variables that the shell could not pass to this
/// program.
pub const LEFT_OUT: &str = "__execd_left_out";

/// State of a shell, as far as it can outlive the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported {
    /// Working directory, as the shell names it.
    pub cwd: Option<PathBuf>,
    /// Exported variables.
    pub variables: Variables,
    /// Names of the missing variables, which are too long for any program.
    pub left_out: Vec<String>,
}

impl Reported {
    /// Removes the longest variables until the rest takes at most `room` bytes of a program's
    /// space.
    pub(crate) fn fit(&mut self, room: usize) {
        // Each has a terminator, and a pointer to it.
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

/// Destination of a report. Its number alone is insufficient, because the user's script may have
/// opened another file there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Descriptor number.
    pub number: RawFd,
    /// Device of the pipe.
    pub device: u64,
    /// Inode of the pipe.
    pub inode: u64,
}

impl Target {
    /// Opens the descriptor, if it is still that pipe.
    fn open(self) -> io::Result<OwnedFd> {
        let replaced = || io::Error::new(io::ErrorKind::NotFound, "the pipe is closed or replaced");
        if self.number < 0 {
            return Err(replaced());
        }
        #[expect(unsafe_code, reason = "the descriptor is known by its number only")]
        // SAFETY: `fstat` only reads, and its success means that the descriptor is open.
        let stat = fstat(unsafe { BorrowedFd::borrow_raw(self.number) })?;
        if (stat.st_dev, stat.st_ino) != (self.device, self.inode) {
            return Err(replaced());
        }
        #[expect(unsafe_code, reason = "the descriptor is known by its number only")]
        // SAFETY: this program inherited the descriptor to write the report; no other code in it
        // uses it.
        Ok(unsafe { OwnedFd::from_raw_fd(self.number) })
    }
}

/// Writes the state of this process: the directory and the variables, each terminated by a NUL, and
/// one more NUL that marks the report as complete.
///
/// # Errors
/// When the target is another file by now; nothing is written then.
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

/// Directory as the shell named it, which may contain symbolic links.
fn cwd() -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    let named = std::env::var_os("PWD").map(PathBuf::from);
    named
        .filter(|named| named.is_absolute() && identity(named) == identity(Path::new(".")))
        .or_else(|| std::env::current_dir().ok())
}

/// The shell's end of a report.
#[derive(Debug)]
pub(crate) struct Channel {
    /// Descriptor to inherit at the target's number.
    pub(crate) sender: OwnedFd,
    target: Target,
}

impl Channel {
    /// Shell command that runs this executable to report. It exits with 1 on failure.
    ///
    /// # Errors
    /// When the path of this executable is unknown.
    pub(crate) fn command(&self) -> io::Result<String> {
        let this = std::env::current_exe()?;
        // Closes the quotes, adds an escaped quote, and opens them again.
        let this = this.to_string_lossy().replace('\'', r"'\''");
        let Target {
            number,
            device,
            inode,
        } = self.target;
        Ok(format!("'{this}' {SUBCOMMAND} {number} {device} {inode}"))
    }
}

/// The daemon's end of a report.
#[derive(Debug)]
pub(crate) struct Reader {
    receiver: pipe::Receiver,
    text: Vec<u8>,
}

impl Reader {
    /// Creates a pipe, whose other end the shell gets at this number.
    ///
    /// # Errors
    /// When the system is out of descriptors.
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

    /// Reads until it is dropped, so that the writer never waits. Drops bytes above the size limit
    /// of an environment.
    pub(crate) async fn read(&mut self) -> Infallible {
        let mut piece = vec![0; limits::READ_CHUNK];
        while let Ok(len @ 1..) = self.receiver.read(&mut piece).await {
            keep(&mut self.text, &piece[..len]);
        }
        std::future::pending().await
    }

    /// Returns the report after its writer ended; `None` if it is missing or incomplete. Background
    /// processes of the shell may hold the pipe, so this does not wait for its close.
    #[must_use]
    pub(crate) fn finish(mut self) -> Option<Reported> {
        let mut piece = vec![0; limits::READ_CHUNK];
        let mut left = limits::ENVIRONMENT;
        // Asks the kernel, because the runtime may not have noticed the data yet.
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
