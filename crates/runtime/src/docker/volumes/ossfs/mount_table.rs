//! The kernel's table of mounts (`/proc/self/mountinfo`).

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// The kernel's file.
pub(in crate::docker::volumes) const MOUNT_TABLE: &str = "/proc/self/mountinfo";

/// Where a mount that is made below another one becomes visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Propagation {
    /// In every mount namespace of its group.
    Shared,
    /// In this namespace only; changes elsewhere appear here.
    Follows,
    /// In this namespace only.
    Private,
}

/// A mount.
#[derive(Debug)]
struct MountPoint {
    /// Number of the file system, and the directory of it that is mounted.
    device: Vec<u8>,
    root: PathBuf,
    path: PathBuf,
    propagation: Propagation,
    kind: String,
}

/// All mounts of this process's namespace, later ones on top of earlier ones.
#[derive(Debug)]
pub(in crate::docker::volumes) struct MountTable(Vec<MountPoint>);

impl MountTable {
    pub(in crate::docker::volumes) fn read(file: &Path) -> io::Result<Self> {
        let text = fs::read(file)?;
        let lines = text.split(|byte| *byte == b'\n');
        Ok(Self(lines.filter_map(parse_line).collect()))
    }

    /// Whether something is mounted exactly there.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.0.iter().any(|mount| mount.path == path)
    }

    /// Whether a file system of a program is mounted exactly there, on top of any other.
    pub(super) fn has_program(&self, path: &Path) -> bool {
        let top = self.0.iter().rev().find(|mount| mount.path == path);
        top.is_some_and(|mount| mount.kind.starts_with("fuse"))
    }

    /// Whether something is mounted below a path.
    pub(super) fn has_below(&self, path: &Path) -> bool {
        let mut points = self.0.iter().map(|mount| mount.path.as_path());
        points.any(|point| point.starts_with(path) && point != path)
    }

    /// Whether a mount that this process makes at a path is visible to the engine. `in_container`: the
    /// process has a mount namespace of its own in any case.
    pub(super) fn reaches_host(&self, path: &Path, in_container: bool) -> bool {
        match self.over(path).map(|mount| mount.propagation) {
            Some(Propagation::Shared) => true,
            Some(Propagation::Follows) => false,
            Some(Propagation::Private) | None => !in_container,
        }
    }

    /// Other paths of a file or directory, by mounts that show the same file system. Another mount may
    /// cover them.
    pub(in crate::docker::volumes) fn aliases(&self, path: &Path) -> Vec<PathBuf> {
        let Some(over) = self.over(path) else {
            return Vec::new();
        };
        let Ok(below) = path.strip_prefix(&over.path) else {
            return Vec::new();
        };
        let inside = over.root.join(below);
        let same = self.0.iter().filter(|mount| mount.device == over.device);
        let paths = same.filter_map(|mount| {
            let below = inside.strip_prefix(&mount.root).ok()?;
            Some(mount.path.join(below))
        });
        paths.filter(|alias| alias != path).collect()
    }

    /// The mount that a path is on.
    fn over(&self, path: &Path) -> Option<&MountPoint> {
        let mut top: Option<&MountPoint> = None;
        for mount in self.0.iter().filter(|mount| path.starts_with(&mount.path)) {
            let is_lower =
                |top: &MountPoint| mount.path.as_os_str().len() < top.path.as_os_str().len();
            // Of two at one place, the later is on top.
            if !top.is_some_and(is_lower) {
                top = Some(mount);
            }
        }
        top
    }
}

/// Parses `36 35 98:0 /root /point options [optional fields] - kind source options`.
fn parse_line(line: &[u8]) -> Option<MountPoint> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?.to_vec();
    let mut path = || Some(PathBuf::from(OsString::from_vec(unescape(fields.next()?))));
    let (root, path) = (path()?, path()?);
    let _options = fields.next()?;
    let mut propagation = Propagation::Private;
    loop {
        match fields.next()? {
            b"-" => break,
            // A mount may be shared and follow another group; it then reaches its own group only.
            field if field.starts_with(b"master:") => propagation = Propagation::Follows,
            field if field.starts_with(b"shared:") && propagation == Propagation::Private => {
                propagation = Propagation::Shared;
            }
            _ => {}
        }
    }
    Some(MountPoint {
        device,
        root,
        path,
        propagation,
        kind: String::from_utf8_lossy(fields.next()?).into_owned(),
    })
}

/// Replaces `\040` and other octal escapes.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, more @ ..] = rest {
        let code = more.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &more[3..];
            }
            None => {
                out.push(*first);
                rest = more;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /mnt rw shared:5 master:2 - ext4 /dev/vdb rw
31 22 0:41 / /srv rw - tmpfs tmpfs rw
40 22 0:50 / /srv/oss/data rw,nosuid shared:9 - fuse.ossfs2 ossfs2 rw
41 40 0:51 / /srv/oss/data/a\\040b rw - fuse.ossfs ossfs rw
broken line
";

    fn table() -> MountTable {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mountinfo");
        fs::write(&file, TABLE).unwrap();
        MountTable::read(&file).unwrap()
    }

    #[test]
    fn mount_points_are_found_at_and_below_a_path() {
        let table = table();
        let (bucket, inner) = (Path::new("/srv/oss/data"), Path::new("/srv/oss/data/a b"));
        assert!(table.has(bucket) && table.has(inner) && !table.has(Path::new("/srv/oss")));
        assert!(table.has_program(bucket) && !table.has_program(Path::new("/srv")));
        assert!(table.has_below(bucket) && !table.has_below(inner));
    }

    #[test]
    fn a_directory_is_found_at_all_places_that_show_its_file_system() {
        let text = "\
22 1 8:1 / / rw shared:1 - ext4 /dev/vda rw
30 22 8:1 /srv/a/sub /mnt/b rw shared:1 - ext4 /dev/vda rw
31 22 8:2 / /mnt/other rw - ext4 /dev/vdb rw
32 22 8:2 /x /mnt/x\\040y rw - ext4 /dev/vdb rw
";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mountinfo");
        fs::write(&file, text).unwrap();
        let table = MountTable::read(&file).unwrap();
        for (path, want) in [
            ("/mnt/b/deep", &["/srv/a/sub/deep"][..]),
            ("/mnt/b", &["/srv/a/sub"]),
            ("/srv/a/sub/deep", &["/mnt/b/deep"]),
            ("/srv/a", &[]),
            ("/mnt/other/x", &["/mnt/x y"]),
            ("/mnt/x y/z", &["/mnt/other/x/z"]),
            ("/mnt/other", &[]),
        ] {
            let want: Vec<PathBuf> = want.iter().map(PathBuf::from).collect();
            assert_eq!(table.aliases(Path::new(path)), want, "{path}");
        }
    }

    #[test]
    fn a_namespace_of_its_own_hides_mounts_from_the_engine() {
        let table = table();
        let reaches = |path: &str, in_container| table.reaches_host(Path::new(path), in_container);
        assert!(
            reaches("/opt/oss", false) && reaches("/opt/oss", true),
            "shared"
        );
        assert!(!reaches("/mnt/ossfs", false), "follows another namespace");
        assert!(reaches("/srv/x", false), "the only namespace");
        assert!(!reaches("/srv/x", true), "a container's own");
    }
}
