//! Whether the directories that were mounted into the sandbox are those that the server checked.
//!
//! The engine mounts by path, after the server has found that the path leads to an allowed directory.
//! Another sandbox that can write there may put a link in its place in between. No program of this sandbox
//! has run yet when execd looks, so a sandbox with another directory never starts.
//!
//! The image is the client's: a link in it could lead execd to another place than the mount. No link is
//! therefore followed, and what is found must be the root of a mount.

use std::{io, path::PathBuf};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags},
    io::Errno,
};

/// A directory or file that must be mounted at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedMount {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// Reason why a mount cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// Another directory is mounted.
    #[error(
        "what is mounted at {0} is not the directory that the server checked: it was replaced meanwhile"
    )]
    Replaced(PathBuf),
    /// Nothing is mounted there, or the kernel cannot say so.
    #[error("{0} is not the root of a mount")]
    NotMounted(PathBuf),
    /// The path leads through a link, so what is mounted is elsewhere.
    #[error("the image has a symbolic link on the way to {0}: mount at a path without links")]
    Link(PathBuf),
    /// The mount cannot be looked at.
    #[error("cannot look at what is mounted at {path}")]
    Unreadable {
        /// Path of the mount.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
}

impl ExpectedMount {
    /// Parses `PATH=DEVICE:INODE`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (path, identity) = text.rsplit_once('=')?;
        let (device, inode) = identity.split_once(':')?;
        Some(Self {
            path: PathBuf::from(path),
            device: device.parse().ok()?,
            inode: inode.parse().ok()?,
        })
    }

    /// Compares what is mounted with what was expected.
    ///
    /// # Errors
    /// When it is something else, no mount, behind a link, or cannot be looked at, as on kernels before
    /// Linux 5.8.
    pub fn check(&self) -> Result<(), MountError> {
        let failed = |error: Errno| match error {
            Errno::LOOP => MountError::Link(self.path.clone()),
            error => MountError::Unreadable {
                path: self.path.clone(),
                source: error.into(),
            },
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS;
        let place = rustix::fs::openat2(CWD, &self.path, flags, Mode::empty(), resolve);
        let place = place.map_err(failed)?;
        let found = rustix::fs::fstat(&place).map_err(failed)?;
        if (found.st_dev, found.st_ino) != (self.device, self.inode) {
            return Err(MountError::Replaced(self.path.clone()));
        }
        let about = rustix::fs::statx(&place, "", AtFlags::EMPTY_PATH, StatxFlags::INO);
        let about = about.map_err(failed)?;
        match about.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            true => Ok(()),
            false => Err(MountError::NotMounted(self.path.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::{MetadataExt, symlink},
        path::Path,
    };

    use super::*;

    /// What is at a path, expected at another one.
    fn expected(known: &Path, at: &Path, further: u64) -> ExpectedMount {
        let known = std::fs::metadata(known).unwrap();
        let (device, inode) = (known.dev(), known.ino() + further);
        ExpectedMount::parse(&format!("{}={device}:{inode}", at.display())).unwrap()
    }

    #[test]
    fn only_the_expected_directory_is_accepted() {
        // A mount in every environment.
        let mount = Path::new("/proc");
        expected(mount, mount, 0).check().unwrap();
        let error = expected(mount, mount, 1).check().unwrap_err();
        assert!(matches!(error, MountError::Replaced(_)), "{error}");
        let error = expected(Path::new("/"), mount, 0).check().unwrap_err();
        assert!(matches!(error, MountError::Replaced(_)), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("a=b");
        std::fs::create_dir(&path).unwrap();
        let gone = expected(&path, &path, 0);
        let error = gone.check().unwrap_err();
        assert!(matches!(error, MountError::NotMounted(_)), "{error}");
        std::fs::remove_dir(&path).unwrap();
        let error = gone.check().unwrap_err();
        assert!(matches!(error, MountError::Unreadable { .. }), "{error}");
    }

    #[test]
    fn a_link_of_the_image_does_not_lead_to_the_expected_directory() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        symlink("/proc", place.join("last")).unwrap();
        symlink("/", place.join("first")).unwrap();
        for path in [place.join("last"), place.join("first/proc")] {
            let error = expected(Path::new("/proc"), &path, 0).check().unwrap_err();
            assert!(matches!(error, MountError::Link(_)), "{error}");
        }
    }

    #[test]
    fn texts_of_another_form_are_refused() {
        for text in ["", "/a", "/a=1", "/a=1:", "/a=:1", "/a=-1:2", "/a=1:x"] {
            assert_eq!(ExpectedMount::parse(text), None, "{text}");
        }
    }
}
