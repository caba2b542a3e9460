//! A PostgreSQL server of its own for the tests, in a temporary folder.

use std::{
    env::temp_dir,
    fs,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::{
    fs::statvfs,
    process::{Pid, Signal, kill_process},
};

use super::{Installer, Missing, is_root, require_all};
use crate::{
    process::{find_program, fresh_log, query},
    wait::until,
};

/// Longest time to start, and to stop.
const LIMIT: Duration = Duration::from_secs(60);
/// Where Debian keeps the programs, a folder for each version. They are not on `PATH`.
const DEBIAN: &str = "/usr/lib/postgresql";
/// Begins the names of folders; the id of the process that needs it follows.
const FOLDER: &str = "opensandbox-postgres-";
/// A file system in memory, and the room there that the databases of all tests need. A test makes and removes
/// hundreds of files, which costs a file system on a disk more than it costs PostgreSQL.
const IN_MEMORY: (&str, u64) = ("/dev/shm", 8 << 30);
/// Settings for databases that live as long as a test.
const SHORT_LIVED: [&str; 6] = [
    "fsync=off",
    "full_page_writes=off",
    "wal_level=minimal",
    "max_wal_senders=0",
    "autovacuum=off",
    // A process for each connection copies and frees the tables of these pages.
    "shared_buffers=32MB",
];
/// User that runs the server when xtask is root, which PostgreSQL refuses to run as.
const USER: &str = "postgres";

/// PostgreSQL as a missing prerequisite, unless it will be installed.
pub(super) fn missing(installer: &Installer) -> Option<Missing> {
    if programs().is_some() {
        return None;
    }
    installer.missing("PostgreSQL", &["postgresql"])
}

/// The folder with the server's programs, of the newest version.
fn programs() -> Option<PathBuf> {
    let version = |path: &Path| -> Option<u32> { path.file_name()?.to_str()?.parse().ok() };
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let debian = versions
        .map(|entry| entry.path())
        .filter(|path| path.join("bin/initdb").exists())
        .max_by_key(|path| version(path))
        .map(|path| path.join("bin"));
    debian.or_else(|| {
        let initdb = find_program("initdb")?.canonicalize().ok()?;
        Some(initdb.parent()?.to_owned())
    })
}

/// A running server. It ends, and its folder goes, when this is dropped.
pub(crate) struct Postgres {
    server: Child,
    folder: PathBuf,
    port: u16,
}

impl Postgres {
    /// Installs PostgreSQL when allowed, makes a cluster and starts its server, for tests: it does not
    /// wait until data is on the disk, because nothing in it outlives the run.
    pub(crate) fn start(installer: &Installer) -> Result<Self> {
        let (memory, needed) = IN_MEMORY;
        let room = statvfs(memory).map_or(0, |it| it.f_bavail * it.f_frsize);
        let parent = match room >= needed {
            true => PathBuf::from(memory),
            false => temp_dir(),
        };
        Self::start_in(&parent, installer, &SHORT_LIVED)
    }

    /// The same, for measurements: a commit waits until it is on the disk, as it does for users.
    pub(crate) fn start_durable(installer: &Installer) -> Result<Self> {
        Self::start_in(&temp_dir(), installer, &[])
    }

    fn start_in(parent: &Path, installer: &Installer, settings: &[&str]) -> Result<Self> {
        if programs().is_none() {
            installer.packages("PostgreSQL", &["postgresql"])?;
        }
        require_all([missing(installer)])?;
        let programs = programs().context("PostgreSQL has no initdb")?;
        remove_left(parent)?;
        let folder = parent.join(format!("{FOLDER}{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let started = launch(&programs, &folder, settings);
        let (server, port) = started.inspect_err(|_| {
            let _ = fs::remove_dir_all(&folder);
        })?;
        let mut postgres = Self {
            server,
            folder,
            port,
        };
        postgres.wait(&programs)?;
        Ok(postgres)
    }

    /// URL of a database for tests, whose user may do everything.
    pub(crate) fn url(&self) -> String {
        format!("postgresql://{USER}@127.0.0.1:{}/postgres", self.port)
    }

    fn wait(&mut self, programs: &Path) -> Result<()> {
        let port = self.port.to_string();
        let mut ended = false;
        let answers = until(LIMIT, || {
            ended = !matches!(self.server.try_wait(), Ok(None));
            let mut ready = Command::new(programs.join("pg_isready"));
            ended || query(ready.args(["-q", "-h", "127.0.0.1", "-p", &port])).is_ok()
        });
        if answers && !ended {
            return Ok(());
        }
        let log = fs::read_to_string(self.folder.join("server.log")).unwrap_or_default();
        bail!("PostgreSQL did not start; its log:\n{log}")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A fast shutdown, which does not wait for clients.
        let pid = i32::try_from(self.server.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::INT);
        }
        if !until(LIMIT, || !matches!(self.server.try_wait(), Ok(None))) {
            let _ = self.server.kill();
            let _ = self.server.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Removes what runs left that were killed.
fn remove_left(parent: &Path) -> Result<()> {
    let entries =
        fs::read_dir(parent).with_context(|| format!("cannot list {}", parent.display()))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(FOLDER));
        let is_left = |pid: &str| !Path::new("/proc").join(pid).exists();
        if pid.is_some_and(is_left) {
            // Another run may be removing it as well.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

/// Makes a cluster and starts its server on a free port.
fn launch(programs: &Path, folder: &Path, settings: &[&str]) -> Result<(Child, u16)> {
    if is_root() {
        let id = |flag: &str| -> Result<u32> {
            Ok(query(Command::new("id").args([flag, USER]))?.parse()?)
        };
        chown(folder, Some(id("-u")?), Some(id("-g")?))?;
    }
    let data = folder.join("data");
    let mut init = unprivileged(&programs.join("initdb"), folder);
    init.arg("-D").arg(&data);
    query(init.args([
        "--username",
        USER,
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
    ]))?;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port();
    let log = fresh_log(&folder.join("server.log"))?;
    let server = unprivileged(&programs.join("postgres"), folder)
        .arg("-D")
        .arg(&data)
        .args(["-p", &port.to_string()])
        .args(["-c", "listen_addresses=127.0.0.1"])
        .arg("-c")
        .arg(format!("unix_socket_directories={}", folder.display()))
        .args(settings.iter().flat_map(|setting| ["-c", setting]))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cannot run postgres")?;
    Ok((server, port))
}

/// A command that runs as a user other than root and ends with xtask.
fn unprivileged(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "INT"]);
    if is_root() {
        command.args(["--reuid", USER, "--regid", USER, "--init-groups"]);
    }
    command.arg("--").arg(program).current_dir(folder);
    command
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_server_answers_until_it_is_dropped() {
        if programs().is_none() {
            eprintln!("SKIPPED: PostgreSQL is not installed");
            return;
        }
        let postgres = Postgres::start(&Installer::new(false)).unwrap();
        let (folder, port) = (postgres.folder.clone(), postgres.port);
        assert!(
            postgres
                .url()
                .ends_with(&format!("127.0.0.1:{port}/postgres"))
        );
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        assert!(connect().is_ok());
        drop(postgres);
        assert!(connect().is_err());
        assert!(!folder.exists(), "{}", folder.display());
    }
}
