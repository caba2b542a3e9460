//! Users and groups. The account files are read directly: a static binary has no name service, and
//! the image may lack one, or the files.

mod assume;

use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::OFlags;

pub(crate) use assume::{Identity, refusal_hint, run_as};

/// Maximum bytes that are read of an account file: a hundred thousand users.
const ACCOUNT_FILE: u64 = 16 << 20;

/// Identity of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary group ids.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// Supplementary groups without the primary one.
    #[must_use]
    pub fn supplementary(&self) -> BTreeSet<u32> {
        let groups = self.groups.iter().copied();
        groups.filter(|group| *group != self.gid).collect()
    }

    /// Credentials of the daemon.
    #[must_use]
    pub fn own() -> Self {
        let mut groups: Vec<u32> = rustix::process::getgroups()
            .unwrap_or_default()
            .into_iter()
            .map(rustix::fs::Gid::as_raw)
            .collect();
        groups.sort_unstable();
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups,
        }
    }
}

/// Line of passwd.
#[derive(Clone, Debug, PartialEq, Eq)]
struct User {
    name: String,
    uid: u32,
    gid: u32,
    home: String,
}

/// Line of group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    name: String,
    gid: u32,
    members: Vec<String>,
}

/// Contents of the two files.
#[derive(Debug, Default)]
pub struct Names {
    users: Vec<User>,
    groups: Vec<Group>,
    user_names: HashMap<u32, String>,
    group_names: HashMap<u32, String>,
}

impl Names {
    fn parse(passwd: &str, group: &str) -> Self {
        let users: Vec<User> = passwd
            .lines()
            .filter_map(|line| {
                let mut fields = line.split(':');
                let name = fields.next()?.to_owned();
                let uid = fields.nth(1)?.parse().ok()?;
                let gid = fields.next()?.parse().ok()?;
                let home = fields.nth(1).unwrap_or_default().to_owned();
                Some(User {
                    name,
                    uid,
                    gid,
                    home,
                })
            })
            .collect();
        let groups: Vec<Group> = group
            .lines()
            .filter_map(|line| {
                let mut fields = line.split(':');
                let name = fields.next()?.to_owned();
                let gid = fields.nth(1)?.parse().ok()?;
                let members = fields.next().unwrap_or_default();
                Some(Group {
                    name,
                    gid,
                    members: members.split(',').map(str::to_owned).collect(),
                })
            })
            .collect();
        let mut names = Self::default();
        // The first line with an id provides its name, as in the C library.
        for user in &users {
            let name = || user.name.clone();
            names.user_names.entry(user.uid).or_insert_with(name);
        }
        for group in &groups {
            let name = || group.name.clone();
            names.group_names.entry(group.gid).or_insert_with(name);
        }
        Self {
            users,
            groups,
            ..names
        }
    }

    /// Name of a user, or its id in decimal.
    #[must_use]
    pub fn user(&self, uid: u32) -> String {
        let name = self.user_names.get(&uid).cloned();
        name.unwrap_or_else(|| uid.to_string())
    }

    /// Name of a group, or its id in decimal.
    #[must_use]
    pub fn group(&self, gid: u32) -> String {
        let name = self.group_names.get(&gid).cloned();
        name.unwrap_or_else(|| gid.to_string())
    }

    /// Home directory of a user. `/` if none is known, as in container engines.
    #[must_use]
    pub fn home(&self, uid: u32) -> &str {
        let user = self.users.iter().find(|user| user.uid == uid);
        user.map(|user| user.home.as_str())
            .filter(|home| !home.is_empty())
            .unwrap_or("/")
    }

    /// Id of a user given by name or id.
    #[must_use]
    pub fn uid(&self, name: &str) -> Option<u32> {
        let known = self.users.iter().find(|user| user.name == name);
        known
            .map(|user| user.uid)
            .or_else(|| name.parse().ok())
            .filter(|uid| *uid != u32::MAX)
    }

    /// Id of a group given by name or id.
    #[must_use]
    pub fn gid(&self, name: &str) -> Option<u32> {
        let known = self.groups.iter().find(|group| group.name == name);
        known
            .map(|group| group.gid)
            .or_else(|| name.parse().ok())
            .filter(|gid| *gid != u32::MAX)
    }

    /// Credentials of a user (contract: execd §5.4). A user without a line in passwd gets a group
    /// of the same id, never root's.
    #[must_use]
    pub fn credentials(&self, uid: u32, gid: Option<u32>) -> Credentials {
        let Some(user) = self.users.iter().find(|user| user.uid == uid) else {
            return Credentials {
                uid,
                gid: gid.unwrap_or(uid),
                groups: Vec::new(),
            };
        };
        let mut groups: Vec<u32> = self
            .groups
            .iter()
            .filter(|group| group.members.contains(&user.name))
            .map(|group| group.gid)
            .chain([user.gid])
            .collect();
        groups.sort_unstable();
        groups.dedup();
        Credentials {
            uid,
            gid: gid.unwrap_or(user.gid),
            groups,
        }
    }
}

/// The two account files, re-read when they change.
#[derive(Debug)]
pub struct Accounts {
    passwd: PathBuf,
    group: PathBuf,
    cached: std::sync::Mutex<Option<(Stamps, Arc<Names>)>>,
}

/// Inode, size and change time of both files, which change on every edit or replacement.
type Stamps = [Option<(u64, u64, i64, i64)>; 2];

impl Default for Accounts {
    fn default() -> Self {
        Self::at("/etc/passwd", "/etc/group")
    }
}

impl Accounts {
    /// Account files at these paths.
    pub fn at(passwd: impl Into<PathBuf>, group: impl Into<PathBuf>) -> Self {
        Self {
            passwd: passwd.into(),
            group: group.into(),
            cached: std::sync::Mutex::new(None),
        }
    }

    /// Current contents of the files. Missing and unreadable files count as empty.
    #[must_use]
    pub fn names(&self) -> Arc<Names> {
        let stamps = [&self.passwd, &self.group].map(|path| {
            let meta = fs::metadata(path).ok()?;
            Some((meta.ino(), meta.size(), meta.ctime(), meta.ctime_nsec()))
        });
        let mut cached = self.cached.lock().expect("no holder of this lock panics");
        match &*cached {
            Some((known, names)) if *known == stamps => Arc::clone(names),
            _ => {
                let names = Arc::new(Names::parse(&read(&self.passwd), &read(&self.group)));
                *cached = Some((stamps, Arc::clone(&names)));
                names
            }
        }
    }
}

/// Text of an account file. Root in the sandbox may replace the file with anything, which must
/// neither block the daemon nor fill its memory.
fn read(path: &Path) -> String {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = File::options();
    options.read(true).custom_flags(flags.bits().cast_signed());
    let bytes = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = options.open(path)?;
        if file.metadata()?.is_file() {
            file.take(ACCOUNT_FILE).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    };
    String::from_utf8_lossy(&bytes().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nann:x:1000:100::/home/ann:\nbroken\n\
                          homeless:x:5:5\n";
    const GROUP: &str = "root:x:0:\nusers:x:100:\ndocker:x:999:bob,ann\nempty:x:5\n";

    #[test]
    fn names_and_numbers() {
        let names = Names::parse(PASSWD, GROUP);
        assert_eq!(names.user(1000), "ann");
        assert_eq!(names.user(77), "77");
        assert_eq!(names.group(999), "docker");
        for (uid, home) in [(0, "/root"), (1000, "/home/ann"), (5, "/"), (77, "/")] {
            assert_eq!(names.home(uid), home, "{uid}");
        }
        assert_eq!(names.uid("ann"), Some(1000));
        assert_eq!(names.uid("1234"), Some(1234));
        assert_eq!(names.uid("missing-user"), None);
        assert_eq!(names.gid("empty"), Some(5));
        assert_eq!(names.gid("4294967295"), None, "means \"leave it\" to chown");
    }

    #[test]
    fn credentials_of_known_and_unknown_users() {
        let names = Names::parse(PASSWD, GROUP);
        let credentials = |uid, gid, groups: &[u32]| Credentials {
            uid,
            gid,
            groups: groups.to_vec(),
        };
        assert_eq!(
            names.credentials(1000, None),
            credentials(1000, 100, &[100, 999])
        );
        assert_eq!(
            names.credentials(1000, Some(7)),
            credentials(1000, 7, &[100, 999])
        );
        assert_eq!(names.credentials(4242, None), credentials(4242, 4242, &[]));
        assert_eq!(names.credentials(4242, Some(0)), credentials(4242, 0, &[]));
    }

    #[test]
    fn files_are_read_again_when_they_change() {
        let place = tempfile::tempdir().unwrap();
        let passwd = place.path().join("passwd");
        let accounts = Accounts::at(&passwd, place.path().join("group"));
        assert_eq!(accounts.names().user(1000), "1000");
        fs::write(&passwd, PASSWD).unwrap();
        assert_eq!(accounts.names().user(1000), "ann");
    }

    #[test]
    fn account_files_that_are_no_files_count_as_empty() {
        let place = tempfile::tempdir().unwrap();
        let fifo = place.path().join("passwd");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let accounts = Accounts::at(fifo, "/dev/zero");
            sender.send(accounts.names().user(0)).unwrap();
        });
        let user = receiver.recv_timeout(std::time::Duration::from_secs(30));
        assert_eq!(user.expect("reading blocks"), "0");
    }
}
