//! Where directories of the host lie, and which of them a sandbox could move or replace.
//!
//! A sandbox can rename what is in a directory that it may write to, so a path may lead elsewhere later. A
//! mount stays on its directory. Directories are therefore compared by the numbers that the kernel gave
//! them, and by their paths only where nothing else is known.
//!
//! [`Held`] has the numbers of all directories above one, up to the root of the host and not only to an
//! allowed one: allowed directories may lie in each other by mounts of the host, and another server on the
//! engine may allow others. The kernel gives the number of a directory to another one only after the last
//! mount of it has ended, so a number that a running sandbox has means the same directory. That of one above
//! may mean another one, after the operator removed it: a refusal too many, until the sandbox ends.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use osb_protocol::SandboxId;
use serde::{Deserialize, Serialize};

use super::{
    host_files::{Found, Trouble},
    ossfs::mount_table::{MOUNT_TABLE, MountTable},
};

/// A file system, and a number in it.
pub(super) type Identity = (u64, u64);

/// Most directories above one. It bounds the label.
const MOST_ABOVE: usize = 128;
/// Most paths that lead to one directory, by mounts of the host.
const MOST_PATHS: usize = 64;
/// Version of the label's content.
const VERSION: u32 = 1;

/// A directory or file of the host, with what is above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) found: Found,
    /// Nearest first.
    above: Vec<Identity>,
}

impl Place {
    /// Looks at what is above a directory or file.
    pub(super) fn of(found: Found) -> Result<Self, Trouble> {
        let failed = |error| Trouble::Refused {
            op: "look at what is above",
            path: found.path.clone(),
            error,
        };
        let table = MountTable::read(Path::new(MOUNT_TABLE)).map_err(failed)?;
        let above = above(&found.path, &table).map_err(failed)?;
        if above.len() > MOST_ABOVE {
            return Err(Trouble::TooDeep(MOST_ABOVE));
        }
        Ok(Self { found, above })
    }

    /// Looks at a path, which may lead through links.
    fn at(path: &Path) -> Option<Self> {
        let path = fs::canonicalize(path).ok()?;
        let identity = identity(&path).ok()?;
        Self::of(Found { path, identity }).ok()
    }

    pub(super) fn held(&self, writes: bool) -> Held {
        Held {
            writes,
            identity: self.found.identity,
            above: self.above.clone(),
        }
    }
}

fn identity(path: &Path) -> io::Result<Identity> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// The directories above a path without links, also on other paths to it, by mounts of the host.
///
/// Each is looked at by its path. A sandbox that replaces one meanwhile has a directory above that, whose
/// number is found.
fn above(path: &Path, table: &MountTable) -> io::Result<Vec<Identity>> {
    let mut paths = vec![path.to_owned()];
    let mut found = Vec::new();
    let mut next = 0;
    while let Some(path) = paths.get(next).cloned() {
        for at in path.ancestors() {
            let it = match identity(at) {
                Ok(it) => it,
                // This process need not see other paths.
                Err(_) if next > 0 => continue,
                Err(error) => return Err(error),
            };
            if at != path && !found.contains(&it) {
                found.push(it);
            }
            for alias in table.aliases(at) {
                // Another mount may cover it.
                let leads_there = || identity(&alias).is_ok_and(|other| other == it);
                let is_new = !paths.iter().any(|known| known.starts_with(&alias));
                if is_new && leads_there() {
                    if paths.len() == MOST_PATHS {
                        let why = format!("more than {MOST_PATHS} paths lead there");
                        return Err(io::Error::other(why));
                    }
                    paths.push(alias);
                }
            }
        }
        next += 1;
    }
    Ok(found)
}

/// How a directory lies to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlap {
    /// It lies below one that may be written to.
    Below,
    /// It may be written to, and lies above the other one.
    Above,
}

/// A directory or file of the host that a sandbox has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    writes: bool,
    identity: Identity,
    above: Vec<Identity>,
}

impl Held {
    /// How it overlaps with the directory of another sandbox. The same directory in both is no overlap:
    /// neither sandbox can move or replace it. Nor is one below another that is mounted read-only.
    pub(super) fn overlap(&self, other: &Self) -> Option<Overlap> {
        if other.reaches(self) {
            return Some(Overlap::Below);
        }
        self.reaches(other).then_some(Overlap::Above)
    }

    /// Whether a sandbox that has this one could move or replace another directory, or one between.
    fn reaches(&self, lower: &Self) -> bool {
        let mut above = lower.above.iter();
        let Some(depth) = above.position(|it| *it == self.identity) else {
            return false;
        };
        // Engines before Docker 25 leave file systems writable that are mounted below a read-only directory.
        let between = &lower.above[..depth];
        self.writes || between.iter().any(|(device, _)| *device != self.identity.0)
    }
}

/// How two paths overlap. `new` and `other` have the path and whether it may be written to.
pub(super) fn overlap_of_paths(new: (&Path, bool), other: (&Path, bool)) -> Option<Overlap> {
    let is_below = |lower: &Path, upper: &Path| lower.starts_with(upper) && lower != upper;
    if other.1 && is_below(new.0, other.0) {
        return Some(Overlap::Below);
    }
    (new.1 && is_below(other.0, new.0)).then_some(Overlap::Above)
}

/// A directory that a sandbox has without a note of it: an earlier build created the sandbox, or the
/// operator's settings have it.
#[derive(Debug)]
pub(super) struct Unnoted {
    pub(super) path: PathBuf,
    pub(super) writes: bool,
    /// What execd was to find there.
    pub(super) expected: Option<Identity>,
}

impl Unnoted {
    /// Looks at where its path leads now. `None` if that is unknown.
    pub(super) fn held(self) -> Option<Held> {
        let place = Place::at(&self.path);
        let now = place.as_ref().map(|place| place.found.identity);
        Some(Held {
            writes: self.writes,
            identity: self.expected.or(now)?,
            above: place.map(|place| place.above).unwrap_or_default(),
        })
    }
}

/// The content of the label.
#[derive(Serialize, Deserialize)]
struct Note {
    version: u32,
    /// An image may have the label of the sandbox that it was made of.
    id: SandboxId,
    held: Vec<Held>,
}

/// The note of what a sandbox holds, for its container.
pub(super) fn note(id: &SandboxId, held: Vec<Held>) -> String {
    let note = Note {
        version: VERSION,
        id: id.clone(),
        held,
    };
    serde_json::to_string(&note).expect("numbers and texts always serialise")
}

/// Reads the note of a sandbox. `None` for one of another sandbox or release.
pub(super) fn read_note(id: &SandboxId, text: &str) -> Option<Vec<Held>> {
    let note: Note = serde_json::from_str(text).ok()?;
    (note.version == VERSION && note.id == *id).then_some(note.held)
}

#[cfg(test)]
mod tests;
