//! Changes of mode and owner (contract: execd §10, A3.2).

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use osb_protocol::execd::file::{Permission, mode_from_wire};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, chmod, chownat, fchmod, fchown, openat};

use crate::{
    error::{ApiError, ApiResult, client_message},
    identity::Names,
};

/// Applies a permission. Links are followed once, so owner and mode go to the same file even if its
/// name changes meanwhile.
pub(super) fn apply(path: &Path, wanted: &Permission, names: &Names) -> ApiResult<()> {
    let change = Change::new(wanted, names)?;
    change.apply_at(path, OFlags::empty()).map_err(|error| {
        ApiError::runtime(format!(
            "error changing permissions: {}: {}",
            path.display(),
            client_message(&error)
        ))
    })
}

/// Changes to a file's mode and owner. The default changes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    /// Mode, with its special bits.
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<Uid>,
    pub(super) gid: Option<Gid>,
}

impl Change {
    /// Resolves the names in a permission.
    pub(super) fn new(wanted: &Permission, names: &Names) -> ApiResult<Self> {
        let bits = mode_from_wire(wanted.mode).ok_or_else(|| {
            ApiError::runtime(format!("invalid mode {}: digits are octal", wanted.mode))
        })?;
        let given = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
        let unknown = |what, name| ApiError::runtime(format!("unknown {what}: {name}"));
        let uid = given(&wanted.owner)
            .map(|name| names.uid(&name).ok_or_else(|| unknown("user", name)))
            .transpose()?;
        let gid = given(&wanted.group)
            .map(|name| names.gid(&name).ok_or_else(|| unknown("group", name)))
            .transpose()?;
        Ok(Self {
            mode: (wanted.mode != 0).then_some(bits),
            uid: uid.map(Uid::from_raw),
            gid: gid.map(Gid::from_raw),
        })
    }

    /// Changes an open file. The owner comes first, because a change of owner may clear mode bits.
    pub(super) fn apply_to(&self, file: &File) -> io::Result<()> {
        if self.changes_owner() {
            fchown(file, self.uid, self.gid).map_err(|errno| failed("owner", errno.into()))?;
        }
        if let Some(mode) = self.mode {
            let mode = Mode::from_raw_mode(mode);
            fchmod(file, mode).map_err(|errno| failed("mode", errno.into()))?;
        }
        Ok(())
    }

    /// Changes an entry that may be unreadable or not a file, through an `O_PATH` descriptor.
    /// `flags` may forbid following a link.
    pub(super) fn apply_at(&self, path: &Path, flags: OFlags) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
        self.apply_to_held(&openat(CWD, path, flags, Mode::empty())?)
    }

    /// Changes the entry that an `O_PATH` descriptor holds.
    pub(super) fn apply_to_held(&self, held: &OwnedFd) -> io::Result<()> {
        if self.changes_owner() {
            chownat(held, "", self.uid, self.gid, AtFlags::EMPTY_PATH)
                .map_err(|errno| failed("owner", errno.into()))?;
        }
        if let Some(mode) = self.mode {
            let name = format!("/proc/self/fd/{}", held.as_raw_fd());
            let mode = Mode::from_raw_mode(mode);
            chmod(name, mode).map_err(|errno| failed("mode", errno.into()))?;
        }
        Ok(())
    }

    /// The same change without the mode: that of directories which are created on the way to the
    /// entry.
    pub(super) fn of_parents(self) -> Self {
        Self { mode: None, ..self }
    }

    fn changes_owner(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }
}

fn failed(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("changing the {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::identity::Accounts;

    #[test]
    fn zero_leaves_the_mode_and_unknown_names_fail() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f");
        fs::write(&path, "").unwrap();
        let names = Accounts::default().names();
        let set = |mode, owner: Option<&str>| {
            let owner = owner.map(str::to_owned);
            apply(
                &path,
                &Permission {
                    mode,
                    owner,
                    group: None,
                },
                &names,
            )
        };
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        set(640, Some("")).unwrap();
        assert_eq!(mode(), 0o640);
        set(0, None).unwrap();
        assert_eq!(mode(), 0o640);
        for (mode, owner) in [(689, None), (-1, None), (0, Some("no-such-user"))] {
            assert!(matches!(set(mode, owner), Err(ApiError::System(_))));
        }
    }
}
