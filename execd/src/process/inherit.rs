//! Inheritance of a descriptor at a chosen number.
#![expect(
    unsafe_code,
    reason = "a descriptor can only be put in its place between fork and exec"
)]

use std::{
    io,
    os::{
        fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use rustix::{
    fs::{Mode, OFlags, open},
    io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// Highest number that is used, because every fork copies the descriptor table up to it.
const HIGHEST: RawFd = 4095;

/// Descriptor number in a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    number: RawFd,
    /// The limit of open files, if the number is above it.
    beyond: Option<Rlimit>,
}

impl Place {
    /// Selects this number.
    #[must_use]
    pub fn at(number: RawFd) -> Self {
        let beyond = None;
        Self { number, beyond }
    }

    /// Selects a number that no script uses: if possible above the limit of open files, where a
    /// process can hold a descriptor, but not create one.
    #[must_use]
    pub fn out_of_reach() -> Self {
        Self::above(getrlimit(Resource::Nofile))
    }

    fn above(limit: Rlimit) -> Self {
        let current = limit.current.unwrap_or(u64::MAX);
        match RawFd::try_from(current) {
            Ok(current) if current <= HIGHEST => match limit.maximum {
                Some(maximum) if maximum <= current.unsigned_abs().into() => Self::at(current - 1),
                _ => Self {
                    number: current,
                    beyond: Some(limit),
                },
            },
            _ => Self::at(HIGHEST),
        }
    }

    /// Descriptor number.
    #[must_use]
    pub fn number(&self) -> RawFd {
        self.number
    }

    /// Reserves the number, see [`reserve`]. Above the limit no reservation is needed.
    ///
    /// # Errors
    /// See [`reserve`].
    pub fn reserve(&self) -> io::Result<()> {
        match self.beyond {
            Some(_) => Ok(()),
            None => reserve(self.number),
        }
    }

    /// Puts a descriptor there. Makes system calls only.
    fn put(&self, fd: &OwnedFd) -> io::Result<()> {
        if fd.as_raw_fd() == self.number {
            // It has the number already, but would be closed on exec.
            return Ok(fcntl_setfd(fd, FdFlags::empty())?);
        }
        if let Some(limit) = self.beyond {
            let current = limit.current.map(|current| current + 1);
            setrlimit(Resource::Nofile, Rlimit { current, ..limit })?;
        }
        // SAFETY: `dup3` replaces any descriptor with this number in the forked child; it is not
        // closed twice, because ownership is given up right after.
        let mut target = unsafe { OwnedFd::from_raw_fd(self.number) };
        let placed = rustix::io::dup2(fd, &mut target);
        let _number = target.into_raw_fd();
        placed?;
        if let Some(limit) = self.beyond {
            setrlimit(Resource::Nofile, limit)?;
        }
        Ok(())
    }
}

/// Reserves a number while the process lives. A child replaces the number, which could otherwise
/// belong to a descriptor that the child still needs, such as its Landlock rules. An existing
/// descriptor with this number keeps it, too.
///
/// # Errors
/// The kernel's error, for example because the limit is lower.
pub fn reserve(number: RawFd) -> io::Result<()> {
    let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let placed = fcntl_dupfd_cloexec(&null, number)?;
    if placed.as_raw_fd() == number {
        // Held until the process ends.
        let _number = placed.into_raw_fd();
    }
    Ok(())
}

/// Makes a command start with `fd` open at a place, which must not be a standard stream.
pub fn inherit(command: &mut Command, fd: OwnedFd, place: Place) {
    debug_assert!(place.number > 2, "standard streams have their own way");
    let put = move || place.put(&fd);
    // SAFETY: the closure makes raw system calls; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(put);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_beyond_what_a_script_can_name_where_that_is_possible() {
        let limit = |current, maximum| Rlimit { current, maximum };
        for (current, maximum, number, is_beyond) in [
            (Some(1024), Some(524_288), 1024, true),
            (Some(1024), None, 1024, true),
            (Some(1024), Some(1024), 1023, false),
            (Some(4095), Some(4096), 4095, true),
            (Some(4096), Some(4097), 4095, false),
            (Some(1 << 20), Some(1 << 20), 4095, false),
            (Some(u64::MAX - 1), None, 4095, false),
            (None, None, 4095, false),
        ] {
            let place = Place::above(limit(current, maximum));
            let got = (place.number, place.beyond.is_some());
            assert_eq!(got, (number, is_beyond), "{current:?} {maximum:?}");
        }
    }
}
