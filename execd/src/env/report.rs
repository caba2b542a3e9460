//! Report of a shell's state: the shell runs this executable again, which writes the working
//! directory and all exported variables to a socket. No shell prints them unambiguously, and not
//! every image has a program that does.
//!
//! All processes that the shell starts inherit the socket. It keeps the limits of messages, and
//! each message of a report begins with a number that was drawn for it, so that other writes are
//! recognised and ignored.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    convert::Infallible,
    ffi::OsString,
    io,
    os::{
        fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            net,
        },
    },
    path::{Path, PathBuf},
};

use rustix::{fs::fstat, io::retry_on_intr};
use tokio::net::UnixDatagram;
use uuid::Uuid;

use super::Variables;
use crate::limits;

/// Argument that starts a report; the parts of a [`Target`] follow.
pub const SUBCOMMAND: &str = "report-state";

/// Variable with the names, separated by blanks, of variables that the shell could not pass to this
/// program.
pub const LEFT_OUT: &str = "__execd_left_out";

/// Length of a nonce in bytes.
const NONCE: usize = size_of::<uuid::Bytes>();

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
    /// Device of the socket.
    pub device: u64,
    /// Inode of the socket.
    pub inode: u64,
    /// Beginning of each message.
    pub nonce: Uuid,
}

impl Target {
    /// Opens the descriptor, if it is still that socket.
    fn open(self) -> io::Result<OwnedFd> {
        let replaced =
            || io::Error::new(io::ErrorKind::NotFound, "the socket is closed or replaced");
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
    let to = net::UnixDatagram::from(target.open()?);
    let mut text = cwd().unwrap_or_default().into_os_string().into_vec();
    text.push(0);
    for (name, value) in std::env::vars_os() {
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        text.push(0);
    }
    text.push(0);
    let mut message = Vec::with_capacity(limits::REPORT_MESSAGE);
    for piece in text.chunks(limits::REPORT_MESSAGE - NONCE) {
        message.clear();
        message.extend_from_slice(target.nonce.as_bytes());
        message.extend_from_slice(piece);
        to.send(&message)?;
    }
    Ok(())
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
    /// Descriptor that the shell inherits.
    pub(crate) sender: OwnedFd,
    nonce: Uuid,
}

impl Channel {
    /// Shell command that runs this executable to report to the descriptor, which the shell has at
    /// this number. It exits with 1 on failure.
    ///
    /// # Errors
    /// When the path of this executable is unknown.
    pub(crate) fn command(&self, number: RawFd) -> io::Result<String> {
        let this = std::env::current_exe()?;
        // Closes the quotes, adds an escaped quote, and opens them again.
        let this = this.to_string_lossy().replace('\'', r"'\''");
        let stat = fstat(&self.sender)?;
        let (device, inode, nonce) = (stat.st_dev, stat.st_ino, self.nonce.simple());
        Ok(format!(
            "'{this}' {SUBCOMMAND} {number} {device} {inode} {nonce}"
        ))
    }
}

/// The daemon's end of a report.
#[derive(Debug)]
pub(crate) struct Reader {
    receiver: UnixDatagram,
    nonce: Uuid,
    text: Vec<u8>,
}

impl Reader {
    /// Creates a pair of sockets. The shell inherits the other end.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub(crate) fn new() -> io::Result<(Self, Channel)> {
        let (sender, receiver) = net::UnixDatagram::pair()?;
        receiver.set_nonblocking(true)?;
        let receiver = UnixDatagram::from_std(receiver)?;
        let sender = OwnedFd::from(sender);
        let nonce = Uuid::new_v4();
        let reader = Self {
            receiver,
            nonce,
            text: Vec::new(),
        };
        Ok((reader, Channel { sender, nonce }))
    }

    /// Reads until it is dropped, so that the writer never waits. Drops bytes above the size limit
    /// of an environment.
    pub(crate) async fn read(&mut self) -> Infallible {
        let mut message = [0; limits::REPORT_MESSAGE];
        while let Ok(len) = self.receiver.recv(&mut message).await {
            self.keep(&message[..len]);
        }
        std::future::pending().await
    }

    /// Returns the report after its writer ended; `None` if it is missing or incomplete. Background
    /// processes of the shell may hold the socket, so this does not wait for its close.
    #[must_use]
    pub(crate) fn finish(mut self) -> Option<Reported> {
        let mut message = [0; limits::REPORT_MESSAGE];
        // Other processes may go on writing; the report is among the messages that wait already.
        for _ in 0..limits::REPORT_QUEUE {
            // Asks the kernel, because the runtime may not have noticed the messages yet.
            let received = retry_on_intr(|| rustix::io::read(&self.receiver, &mut message[..]));
            let Ok(len) = received else { break };
            self.keep(&message[..len]);
        }
        parse(&self.text)
    }

    /// Keeps the content of a message, if it belongs to the report.
    fn keep(&mut self, message: &[u8]) {
        if let Some(piece) = message.strip_prefix(self.nonce.as_bytes()) {
            let room = limits::ENVIRONMENT - self.text.len();
            self.text.extend_from_slice(&piece[..piece.len().min(room)]);
        }
    }
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

    #[tokio::test]
    async fn only_messages_of_the_report_are_kept() {
        let (reader, channel) = Reader::new().unwrap();
        let sender = net::UnixDatagram::from(channel.sender);
        let send = |nonce: &[u8], text: &[u8]| sender.send(&[nonce, text].concat()).unwrap();
        let nonce = channel.nonce.into_bytes();
        for (nonce, text) in [
            (&b""[..], &b""[..]),
            (&nonce, b"/usr\0A="),
            (b"", b"junk\0\0"),
            (b"", &[b'x'; 2 * limits::REPORT_MESSAGE]),
            (&[0; NONCE], b"/tmp\0A=2\0\0"),
            (&nonce, b"1\0\0"),
            (&nonce[1..], b"\0\0"),
        ] {
            send(nonce, text);
        }
        let reported = reader.finish().unwrap();
        assert_eq!(reported.cwd, Some(PathBuf::from("/usr")));
        assert_eq!(reported.variables, Variables::from_iter([("A", "1")]));
    }

    #[tokio::test]
    async fn the_end_of_a_report_does_not_wait_for_other_writers() {
        let (reader, channel) = Reader::new().unwrap();
        let sender = net::UnixDatagram::from(channel.sender);
        let nonce = channel.nonce.into_bytes();
        sender.send(&[&nonce[..], b"/\0\0"].concat()).unwrap();
        let endless = std::thread::spawn(move || while sender.send(b"").is_ok() {});
        assert_eq!(reader.finish().unwrap().cwd, Some(PathBuf::from("/")));
        endless.join().unwrap();
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
