//! The filesystem routes (contract: execd §10).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Metadata of one entry; symbolic links are not followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Absolute path.
    pub path: String,
    /// What kind of entry it is.
    #[serde(rename = "type")]
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// Last change of the content.
    pub modified_at: Timestamp,
    /// Last change of the inode; the contract's name for it is misleading.
    pub created_at: Timestamp,
    /// Name of the owner, or the id in decimal when it has none.
    pub owner: String,
    /// Name of the group, or the id in decimal when it has none.
    pub group: String,
    /// Permission bits as octal digits written in decimal: 0644 is `644`. A fourth digit is there
    /// only if one of the special bits is set: 1777 is `1777`.
    pub mode: u32,
    /// Where a symbolic link leads, as it says itself. Only in a list that asks for it by
    /// `links=true`, which is an addition to the contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Whether the path is not UTF-8: it has replacement characters, and no request can name the
    /// entry. Only in a list that asks for it by `links=true`, which is an addition to the contract.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lossy: bool,
}

/// Kinds of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A socket, pipe or device.
    Other,
}

/// Permissions to set. Absent members change nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permission {
    /// Name or number of the new owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Name or number of the new group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Permission bits, special ones included, as octal digits written in decimal; 0 leaves them.
    #[serde(default)]
    pub mode: i64,
}

/// JSON of a `metadata` part of an upload (contract: execd §10.10).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadMetadata {
    /// Path of the file.
    pub path: String,
    /// Permissions of the file.
    #[serde(flatten)]
    pub permission: Permission,
}

/// One entry of `POST /files/mv`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Present path.
    pub src: String,
    /// Its new path; must not exist.
    pub dest: String,
}

/// One value of `POST /files/replace`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// Text to look for.
    #[serde(default)]
    pub old: String,
    /// Text in its place.
    #[serde(default)]
    pub new: String,
}

/// One value of the answer of `POST /files/replace?verbose=true`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// How often the text was found.
    #[serde(rename = "replacedCount")]
    pub count: usize,
}

/// Answer of `GET /files/find`, which is an addition to the contract.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// What was found, in lexical order.
    pub entries: Vec<FoundEntry>,
    /// Files whose content was searched.
    pub searched: u64,
    /// Those of them that a limit ended before the text was found: they are not among the entries.
    #[serde(default)]
    pub cut: u64,
    /// What ended the search before its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<FindStop>,
}

/// A limit that ended a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FindStop {
    /// Enough was found.
    Matches,
    /// Too many entries were looked at.
    Entries,
    /// Too many bytes were read.
    Bytes,
    /// It took too long.
    Time,
}

/// An entry that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundEntry {
    /// Absolute path.
    pub path: String,
    /// What kind of entry it is.
    #[serde(rename = "type")]
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// How often the text is in the file; 0 if none was searched for.
    #[serde(default)]
    pub count: u64,
    /// Whether only the beginning of the file was searched.
    #[serde(default)]
    pub partial: bool,
    /// The first lines with the text.
    #[serde(default)]
    pub lines: Vec<FoundLine>,
    /// See [`FileInfo::lossy`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lossy: bool,
}

/// A line with the text that was searched for. Long lines are cut around it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLine {
    /// Number of the line, from 1.
    pub number: u64,
    /// First byte of the line.
    pub offset: u64,
    /// What is before the text.
    pub before: String,
    /// The text as it is in the line.
    pub hit: String,
    /// What is after it.
    pub after: String,
}

/// Permission bits as the wire writes them: 0o644 is 644, 0o1777 is 1777.
#[must_use]
pub fn mode_to_wire(bits: u32) -> u32 {
    (bits >> 9 & 7) * 1000 + (bits >> 6 & 7) * 100 + (bits >> 3 & 7) * 10 + (bits & 7)
}

/// Permission bits from the wire: the digits are octal, only the last four count. `None` when a digit
/// is not octal or the number is negative.
#[must_use]
pub fn mode_from_wire(mut digits: i64) -> Option<u32> {
    if digits < 0 {
        return None;
    }
    let (mut bits, mut shift) = (0, 0);
    while digits > 0 {
        let digit = u32::try_from(digits % 10).ok().filter(|digit| *digit < 8)?;
        if shift < 12 {
            bits |= digit << shift;
        }
        digits /= 10;
        shift += 3;
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_digits() {
        for (bits, wire) in [
            (0o644, 644),
            (0o7, 7),
            (0, 0),
            (0o1777, 1777),
            (0o2755, 2755),
            (0o4755, 4755),
            (0o7777, 7777),
            (0o1000, 1000),
        ] {
            assert_eq!(mode_to_wire(bits), wire);
            assert_eq!(mode_from_wire(wire.into()), Some(bits), "{wire}");
            assert_eq!(
                mode_to_wire(0o100_000 | bits),
                wire,
                "with the kind of entry"
            );
        }
        assert_eq!(mode_from_wire(100_644), Some(0o644), "the last four digits");
        for bad in [-1, 8, 690, i64::MIN] {
            assert_eq!(mode_from_wire(bad), None, "{bad}");
        }
    }

    #[test]
    fn metadata_tolerates_nulls_and_absent_members() {
        let read = |text| serde_json::from_str::<UploadMetadata>(text).unwrap();
        let metadata = read(r#"{"path":"/a","owner":null,"group":null,"mode":755}"#);
        assert_eq!(metadata.permission.mode, 755);
        assert_eq!(metadata.permission.owner, None);
        assert_eq!(read(r#"{"path":"/a"}"#).permission, Permission::default());
    }
}
