//! The programs that mount a bucket and end the mount (contract: lifecycle §17.9).
//!
//! A key reaches a program through a file that only this process's user can read, and that is removed
//! when the program has ended: arguments and environments of processes can be seen by others.

use std::{
    cmp::Reverse,
    collections::HashSet,
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use osb_protocol::lifecycle::{OssfsVersion, OssfsVolume};
use rand::RngExt;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{process::Command, time::timeout};

/// Longest mount.
const MOUNT: Duration = Duration::from_secs(30);
/// Longest end of a mount.
const UNMOUNT: Duration = Duration::from_secs(20);
/// Most that is shown of what a program printed, in bytes.
const MOST_OUTPUT: usize = 600;
/// Most that is read of it, in bytes.
const MOST_READ: u64 = 1 << 20;
/// In place of a secret.
const MASK: &str = "********";
/// Prefix of the names of secret files.
const SECRET_FILE: &str = "opensandbox-ossfs-";

/// Runs the programs.
#[derive(Debug)]
pub(super) struct Programs {
    /// Folders with the programs, like `PATH`.
    search: OsString,
    /// Folder of secret files.
    folder: PathBuf,
    /// Installation, which names the files.
    instance: String,
    /// Files of programs that run now.
    in_use: FilesInUse,
}

type FilesInUse = Arc<Mutex<HashSet<PathBuf>>>;

impl Programs {
    pub(super) fn new(search: Option<OsString>, folder: PathBuf, instance: &str) -> Self {
        let search = search.or_else(|| std::env::var_os("PATH"));
        Self {
            search: search.unwrap_or_default(),
            folder,
            instance: instance.to_owned(),
            in_use: FilesInUse::default(),
        }
    }

    /// Mounts a bucket, or the directory of it that `prefix` names.
    pub(super) async fn mount(
        &self,
        bucket: &OssfsVolume,
        prefix: &[String],
        path: &Path,
    ) -> Result<(), String> {
        let prefix = prefix.join("/");
        let (name, content) = match bucket.version {
            OssfsVersion::V1 => ("ossfs", password(bucket)),
            OssfsVersion::V2 => ("ossfs2", settings(bucket, &prefix)),
        };
        let program = self.find(name).ok_or_else(|| {
            let release = match bucket.version {
                OssfsVersion::V1 => "1.0",
                OssfsVersion::V2 => "2.0",
            };
            format!(
                "the program {name} is not installed on the server's host: install ossfs {release} \
                 of Alibaba Cloud"
            )
        })?;
        let secret = self.secret_file(content.as_bytes());
        let secret = secret.map_err(|error| format!("cannot write a file for the key: {error}"))?;
        let arguments = match bucket.version {
            OssfsVersion::V1 => arguments_v1(bucket, &prefix, path, &secret.path),
            OssfsVersion::V2 => {
                vec![
                    "mount".into(),
                    path.into(),
                    "-c".into(),
                    (&secret.path).into(),
                ]
            }
        };
        let mut secrets = [
            bucket.access_key_secret.as_str(),
            bucket.access_key_id.as_str(),
        ];
        // One may contain the other.
        secrets.sort_unstable_by_key(|secret| Reverse(secret.len()));
        self.run(&program, &arguments, MOUNT, &secrets).await
    }

    /// Ends a mount. Returns what went wrong.
    pub(super) async fn unmount(&self, path: &Path) -> Result<(), String> {
        let mut problems = Vec::new();
        let fuse = ["fusermount", "fusermount3"];
        let fuse = fuse.iter().find_map(|name| self.find(name));
        let plain = self.find("umount");
        for (program, flags) in [(fuse, &["-u"][..]), (plain, &[][..])] {
            let Some(program) = program else {
                continue;
            };
            let flags = flags.iter().map(OsString::from);
            let arguments: Vec<OsString> = flags.chain([path.into()]).collect();
            match self.run(&program, &arguments, UNMOUNT, &[]).await {
                Ok(()) => return Ok(()),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            problems.push("neither fusermount nor umount is installed".to_owned());
        }
        Err(problems.join("; "))
    }

    /// Removes secret files that a server of this installation left when it crashed.
    pub(super) fn remove_stale_files(&self) -> io::Result<()> {
        let prefix = self.file_prefix();
        // The name of another installation may begin with that of ours.
        let is_ours = |name: &str| {
            name.strip_prefix(&prefix).is_some_and(|rest| {
                rest.len() == 32 && rest.bytes().all(|it| it.is_ascii_hexdigit())
            })
        };
        let mut removed = Ok(());
        for entry in fs::read_dir(&self.folder)?.flatten() {
            let path = entry.path();
            let is_left = is_ours(&entry.file_name().to_string_lossy())
                && !locked(&self.in_use).contains(&path);
            if is_left {
                // One that cannot be removed does not keep the others.
                let this = fs::remove_file(path);
                removed = removed.and(this);
            }
        }
        removed
    }

    fn find(&self, name: &str) -> Option<PathBuf> {
        let folders = std::env::split_paths(&self.search).filter(|it| it.is_absolute());
        let mut programs = folders.map(|folder| folder.join(name));
        programs.find(|program| {
            let status = fs::metadata(program);
            status.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
        })
    }

    fn file_prefix(&self) -> String {
        // An installation's name is its own choice.
        let name = self.instance.chars().map(|it| match it {
            it if it.is_ascii_alphanumeric() => it,
            _ => '-',
        });
        format!("{SECRET_FILE}{}-", name.collect::<String>())
    }

    fn new_file(&self) -> io::Result<(TemporaryFile, File)> {
        let name = format!(
            "{}{:032x}",
            self.file_prefix(),
            rand::rng().random::<u128>()
        );
        let path = self.folder.join(name);
        locked(&self.in_use).insert(path.clone());
        let temporary = TemporaryFile {
            path,
            in_use: Arc::clone(&self.in_use),
        };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary.path)?;
        Ok((temporary, file))
    }

    fn secret_file(&self, content: &[u8]) -> io::Result<TemporaryFile> {
        let (temporary, mut file) = self.new_file()?;
        file.write_all(content)?;
        Ok(temporary)
    }

    /// Runs a program to its end, and returns what it printed if it fails, without `secrets`. Its
    /// output goes into a file, because the process that serves the mount keeps it open.
    async fn run(
        &self,
        program: &Path,
        arguments: &[OsString],
        most: Duration,
        secrets: &[&str],
    ) -> Result<(), String> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let failed = |what: String| format!("{name} {what}");
        let output = self.new_file();
        let (output, file) = output.map_err(|error| failed(format!("has no output: {error}")))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            // What serves the mount lives long, and must not have the server's secrets.
            .env_clear()
            .env("PATH", &self.search)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(file))
            // A signal from the server's terminal must not end it.
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn();
        let mut child = child.map_err(|error| failed(format!("cannot be started: {error}")))?;
        let group = child.id().and_then(|id| i32::try_from(id).ok());
        let group = group.and_then(Pid::from_raw);
        let status = match timeout(most, child.wait()).await {
            Ok(Ok(status)) => status,
            Ok(Err(error)) => return Err(failed(format!("was lost: {error}"))),
            Err(_) => {
                // With the processes that it started, which could mount later.
                if let Some(group) = group {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                return Err(failed(format!("did not end within {} s", most.as_secs())));
            }
        };
        if status.success() {
            return Ok(());
        }
        let text = start_of(&output.path).unwrap_or_default();
        // Before it is shortened: a part of a secret would not be recognised.
        let text = without(&text, secrets);
        Err(failed(format!(
            "failed ({status}): {}",
            shortened(text.trim())
        )))
    }
}

fn locked(files: &FilesInUse) -> MutexGuard<'_, HashSet<PathBuf>> {
    // The set is whole after every operation, so a panic elsewhere does not spoil it.
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is removed when dropped.
#[derive(Debug)]
struct TemporaryFile {
    path: PathBuf,
    in_use: FilesInUse,
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // The sweep tries again.
        let _ = fs::remove_file(&self.path);
        locked(&self.in_use).remove(&self.path);
    }
}

/// The password file of release 1.0.
fn password(bucket: &OssfsVolume) -> String {
    let OssfsVolume {
        bucket,
        access_key_id,
        access_key_secret,
        ..
    } = bucket;
    format!("{bucket}:{access_key_id}:{access_key_secret}\n")
}

/// The arguments of release 1.0.
fn arguments_v1(bucket: &OssfsVolume, prefix: &str, path: &Path, password: &Path) -> Vec<OsString> {
    let source = match prefix {
        "" => bucket.bucket.clone(),
        prefix => format!("{}:/{prefix}", bucket.bucket),
    };
    let mut file = OsString::from("passwd_file=");
    file.push(password);
    let mut arguments = vec![source.into(), path.into()];
    let options = bucket.options.iter().flatten().map(OsString::from);
    let url = OsString::from(format!("url={}", bucket.endpoint));
    for option in [url, file].into_iter().chain(options) {
        arguments.extend(["-o".into(), option]);
    }
    arguments
}

/// The settings file of release 2.0.
fn settings(bucket: &OssfsVolume, prefix: &str) -> String {
    let mut lines = vec![
        format!("--oss_endpoint={}", bucket.endpoint),
        format!("--oss_bucket={}", bucket.bucket),
        format!("--oss_access_key_id={}", bucket.access_key_id),
        format!("--oss_access_key_secret={}", bucket.access_key_secret),
    ];
    if !prefix.is_empty() {
        lines.push(format!("--oss_bucket_prefix={prefix}/"));
    }
    let options = bucket.options.iter().flatten();
    lines.extend(options.map(|option| format!("--{option}")));
    lines.join("\n") + "\n"
}

/// The beginning of a program's output.
fn start_of(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(file)?.take(MOST_READ).read_to_end(&mut text)?;
    Ok(text)
}

/// A program's output without secrets, the longest of which is the first.
fn without(output: &[u8], secrets: &[&str]) -> String {
    let text = String::from_utf8_lossy(output).into_owned();
    let given = secrets.iter().filter(|secret| !secret.is_empty());
    let mut text = given.fold(text, |text, secret| text.replace(secret, MASK));
    if u64::try_from(output.len()).is_ok_and(|length| length >= MOST_READ) {
        // What was not read may begin within a secret.
        let longest = secrets.first().map_or(0, |secret| secret.len());
        let whole = up_to(&text, text.len().saturating_sub(longest)).len();
        text.truncate(whole);
    }
    text
}

fn shortened(text: &str) -> &str {
    up_to(text, MOST_OUTPUT)
}

/// The beginning of a text, of at most so many bytes.
fn up_to(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Programs for tests.
#[cfg(test)]
pub(in crate::docker) mod fake {
    use super::*;

    /// Writes a script. Another process does, because one that is started meanwhile would inherit the open
    /// file, and the kernel runs no file that is open for writing.
    pub(in crate::docker) fn install(folder: &Path, name: &str, script: &str) {
        let path = folder.join(name);
        let written = std::process::Command::new("sh")
            .args([
                "-c",
                "printf '#!/bin/sh\\n%s\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"",
                "sh",
            ])
            .arg(&path)
            .arg(script)
            .status();
        assert!(written.unwrap().success());
    }

    /// The search path of a test: its folder, and the system's.
    pub(in crate::docker) fn search(folder: &Path) -> OsString {
        let folders = [folder, Path::new("/usr/bin"), Path::new("/bin")];
        std::env::join_paths(folders).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(version: OssfsVersion) -> OssfsVolume {
        OssfsVolume {
            bucket: "data".to_owned(),
            endpoint: "https://oss.example".to_owned(),
            version,
            options: Some(vec!["allow_other".to_owned(), "uid=1000".to_owned()]),
            access_key_id: "hunter1".to_owned(),
            access_key_secret: "hunter2".to_owned(),
        }
    }

    /// A program that shows its arguments and the file with the key, with the rights of the file.
    const SHOW: &str = r#"
echo "$*" > "$(dirname "$0")/arguments"
env > "$(dirname "$0")/environment"
for word in "$@"; do last="${word#passwd_file=}"; test -f "$last" && file="$last"; done
stat -c %a "$file" > "$(dirname "$0")/rights"
cat "$file" > "$(dirname "$0")/key"
"#;

    struct Stage {
        folder: tempfile::TempDir,
        secrets: tempfile::TempDir,
    }

    impl Stage {
        fn set(name: &str, script: &str) -> Self {
            let (folder, secrets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            fake::install(folder.path(), name, script);
            Self { folder, secrets }
        }

        fn programs(&self) -> Programs {
            let search = Some(fake::search(self.folder.path()));
            Programs::new(search, self.secrets.path().to_owned(), "us")
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.folder.path().join(name)).unwrap()
        }

        fn secrets(&self) -> usize {
            fs::read_dir(self.secrets.path()).unwrap().count()
        }
    }

    #[tokio::test]
    async fn the_key_is_in_a_file_that_only_root_reads_and_that_is_gone_afterwards() {
        let path = Path::new("/mnt/ossfs/data");
        let prefix = ["a".to_owned(), "b".to_owned()];
        for (version, name, arguments, key) in [
            (
                OssfsVersion::V1,
                "ossfs",
                "data:/a/b /mnt/ossfs/data -o url=https://oss.example -o passwd_file=",
                "data:hunter1:hunter2\n",
            ),
            (
                OssfsVersion::V2,
                "ossfs2",
                "mount /mnt/ossfs/data -c ",
                "--oss_endpoint=https://oss.example\n--oss_bucket=data\n\
                 --oss_access_key_id=hunter1\n--oss_access_key_secret=hunter2\n\
                 --oss_bucket_prefix=a/b/\n--allow_other\n--uid=1000\n",
            ),
        ] {
            let stage = Stage::set(name, SHOW);
            let bucket = bucket(version);
            stage
                .programs()
                .mount(&bucket, &prefix, path)
                .await
                .unwrap();
            let seen = stage.read("arguments");
            assert!(seen.starts_with(arguments), "{seen}");
            let options = seen.trim().ends_with("-o allow_other -o uid=1000");
            assert_eq!(options, version == OssfsVersion::V1, "{seen}");
            assert!(!seen.contains("hunter"), "{seen}");
            assert_eq!(stage.read("rights").trim(), "600");
            assert_eq!(stage.read("key"), key);
            let environment = stage.read("environment");
            assert!(!environment.contains("CARGO"), "{environment}");
            assert_eq!(stage.secrets(), 0);
        }
        let stage = Stage::set("ossfs", SHOW);
        stage
            .programs()
            .mount(&bucket(OssfsVersion::V1), &[], path)
            .await
            .unwrap();
        assert!(stage.read("arguments").starts_with("data /mnt"));
    }

    /// Mounts a whole bucket.
    async fn mount(stage: &Stage, version: OssfsVersion) -> Result<(), String> {
        let (programs, bucket) = (stage.programs(), bucket(version));
        programs.mount(&bucket, &[], Path::new("/x")).await
    }

    #[tokio::test]
    async fn a_failure_shows_the_programs_words_without_the_key() {
        let stage = Stage::set("ossfs2", "echo 'no hunter1 with hunter2 here' >&2; exit 3");
        let text = mount(&stage, OssfsVersion::V2).await.unwrap_err();
        assert!(text.contains("no ******** with ******** here"), "{text}");
        assert!(text.starts_with("ossfs2 failed (exit status: 3)"), "{text}");
        assert_eq!(stage.secrets(), 0);
        let text = mount(&stage, OssfsVersion::V1).await.unwrap_err();
        assert!(text.contains("ossfs is not installed"), "{text}");
        assert!(text.contains("install ossfs 1.0"), "{text}");
    }

    #[tokio::test]
    async fn no_part_of_a_key_is_shown() {
        // The shown part ends within the key.
        let line = "x".repeat(MOST_OUTPUT - 3);
        let stage = Stage::set("ossfs2", &format!("echo {line}hunter2 >&2; exit 3"));
        let text = mount(&stage, OssfsVersion::V2).await.unwrap_err();
        assert!(text.ends_with(&format!("{line}***")), "{text}");
        // The part that is read ends within the key, and is short with a mask in it.
        let secret = "k".repeat(1 << 19);
        let output = format!("a {secret} b {secret}");
        let read = &output.as_bytes()[..1 << 20];
        let text = without(read, &[secret.as_str(), "id"]);
        assert!(text.starts_with("a ***") && !text.contains('k'), "{text}");
        let (inner, outer) = ("hunter2", "hunter2-id");
        let text = without(b"with hunter2-id and hunter2", &[outer, inner]);
        assert_eq!(text, "with ******** and ********");
    }

    #[tokio::test]
    async fn a_process_that_stays_does_not_hold_the_mount() {
        // As a FUSE program does: its server keeps the output open.
        let stage = Stage::set("ossfs2", "sleep 300 & exit 0");
        let mounted = timeout(Duration::from_secs(60), mount(&stage, OssfsVersion::V2));
        mounted.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn files_that_a_crash_left_are_removed() {
        let stage = Stage::set("ossfs", "");
        let programs = stage.programs();
        let used = programs.secret_file(b"hunter2").unwrap();
        let file = |name: &str| {
            let name = format!("opensandbox-ossfs-{name}-{:032x}", 7);
            stage.secrets.path().join(name)
        };
        let others = ["them", "us-2"].map(file);
        let left = file("us");
        for file in others.iter().chain([&left]) {
            fs::write(file, "").unwrap();
        }
        programs.remove_stale_files().unwrap();
        assert!(!left.exists() && used.path.exists());
        assert!(others.iter().all(|other| other.exists()));
        // One that cannot be removed does not keep the others.
        let stuck = stage.secrets.path();
        let stuck = stuck.join(format!("opensandbox-ossfs-us-{:032x}", 8));
        fs::create_dir(&stuck).unwrap();
        fs::write(&left, "").unwrap();
        assert!(programs.remove_stale_files().is_err());
        assert!(!left.exists() && stuck.exists());
    }

    #[tokio::test]
    async fn the_second_program_ends_a_mount_that_the_first_cannot() {
        let stage = Stage::set("fusermount", "echo busy >&2; exit 1");
        fake::install(
            stage.folder.path(),
            "umount",
            "echo \"$1\" > \"$(dirname \"$0\")/ended\"",
        );
        stage.programs().unmount(Path::new("/mnt/x")).await.unwrap();
        assert_eq!(stage.read("ended").trim(), "/mnt/x");
        fake::install(stage.folder.path(), "umount", "echo in use >&2; exit 32");
        let text = stage
            .programs()
            .unmount(Path::new("/mnt/x"))
            .await
            .unwrap_err();
        assert!(text.contains("busy") && text.contains("in use"), "{text}");
    }
}
