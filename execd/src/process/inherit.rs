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

/// Highest number that is chosen where the limit of open files is far above it.
const HIGHEST: RawFd = 4000;
/// Size of a descriptor table with some numbers from [`HIGHEST`] on.
const TABLE: RawFd = 4096;

/// Descriptor number in a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    number: RawFd,
    kind: Kind,
}

/// How a number is kept from other descriptors that the child needs, such as its Landlock rules.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Reserved while this process lives.
    Reserved,
    /// At the limit of open files, which this process never exceeds.
    Beyond(Rlimit),
    /// Chosen for each child among free numbers.
    Chosen,
}

impl Place {
    /// Selects this number.
    #[must_use]
    pub fn at(number: RawFd) -> Self {
        let kind = Kind::Reserved;
        Self { number, kind }
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
            Ok(current) if current < TABLE => match limit.maximum {
                Some(maximum) if maximum <= current.unsigned_abs().into() => Self::at(current - 1),
                _ => Self {
                    number: current,
                    kind: Kind::Beyond(limit),
                },
            },
            _ => Self {
                number: HIGHEST,
                kind: Kind::Chosen,
            },
        }
    }

    /// Descriptor number.
    #[must_use]
    pub fn number(&self) -> RawFd {
        self.number
    }

    /// Makes sure that the number can be used later. Must be called before the first thread starts:
    /// the kernel takes milliseconds to enlarge a table that threads share.
    ///
    /// # Errors
    /// The kernel's error, for example because the limit is lower.
    pub fn prepare(&self) -> io::Result<()> {
        match self.kind {
            Kind::Reserved => reserve(self.number),
            Kind::Beyond(_) => Ok(()),
            // The table keeps its size after the descriptor is closed. A reservation would make
            // every fork copy all of it.
            Kind::Chosen => at_or_above(TABLE - 1).map(drop),
        }
    }

    /// Returns a copy of a descriptor for a child that will have it at this place. The number of
    /// the place may change.
    ///
    /// # Errors
    /// When the system or the process is out of descriptors.
    pub fn hold(&mut self, fd: &OwnedFd) -> io::Result<OwnedFd> {
        if self.kind != Kind::Chosen {
            return fd.try_clone();
        }
        let held = fcntl_dupfd_cloexec(fd, HIGHEST)?;
        self.number = held.as_raw_fd();
        Ok(held)
    }

    /// Puts a descriptor there. Makes system calls only.
    fn put(&self, fd: &OwnedFd) -> io::Result<()> {
        if fd.as_raw_fd() == self.number {
            // It has the number already, but would be closed on exec.
            return Ok(fcntl_setfd(fd, FdFlags::empty())?);
        }
        if let Kind::Beyond(limit) = self.kind {
            let current = limit.current.map(|current| current + 1);
            setrlimit(Resource::Nofile, Rlimit { current, ..limit })?;
        }
        // SAFETY: `dup3` replaces any descriptor with this number in the forked child; it is not
        // closed twice, because ownership is given up right after.
        let mut target = unsafe { OwnedFd::from_raw_fd(self.number) };
        let placed = rustix::io::dup2(fd, &mut target);
        let _number = target.into_raw_fd();
        placed?;
        if let Kind::Beyond(limit) = self.kind {
            setrlimit(Resource::Nofile, limit)?;
        }
        Ok(())
    }
}

/// Reserves a number while the process lives. An existing descriptor with this number keeps it.
fn reserve(number: RawFd) -> io::Result<()> {
    let placed = at_or_above(number)?;
    if placed.as_raw_fd() == number {
        // Held until the process ends.
        let _number = placed.into_raw_fd();
    }
    Ok(())
}

/// Opens a descriptor at the lowest free number from this one on.
fn at_or_above(number: RawFd) -> io::Result<OwnedFd> {
    let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(fcntl_dupfd_cloexec(&null, number)?)
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
    fn descriptors_held_at_the_highest_number_differ() {
        let fd = at_or_above(0).unwrap();
        let hold = || {
            let mut place = Place::above(Rlimit {
                current: None,
                maximum: None,
            });
            (place.hold(&fd).unwrap(), place.number())
        };
        let ((first, one), (second, other)) = (hold(), hold());
        assert!(one >= HIGHEST && other >= HIGHEST && one != other);
        assert_eq!((first.as_raw_fd(), second.as_raw_fd()), (one, other));
        let mut place = Place::at(101);
        let _copy = place.hold(&fd).unwrap();
        assert_eq!(place.number(), 101, "this number is reserved");
    }

    #[test]
    fn numbers_are_beyond_what_a_script_can_name_where_that_is_possible() {
        let limit = |current, maximum| Rlimit { current, maximum };
        for (current, maximum, number, kind) in [
            (
                Some(1024),
                Some(524_288),
                1024,
                Kind::Beyond(limit(Some(1024), Some(524_288))),
            ),
            (
                Some(1024),
                None,
                1024,
                Kind::Beyond(limit(Some(1024), None)),
            ),
            (Some(1024), Some(1024), 1023, Kind::Reserved),
            (
                Some(4095),
                Some(4096),
                4095,
                Kind::Beyond(limit(Some(4095), Some(4096))),
            ),
            (Some(4095), Some(4095), 4094, Kind::Reserved),
            (Some(4096), Some(4097), 4000, Kind::Chosen),
            (Some(1 << 20), Some(1 << 20), 4000, Kind::Chosen),
            (Some(u64::MAX - 1), None, 4000, Kind::Chosen),
            (None, None, 4000, Kind::Chosen),
        ] {
            let place = Place::above(limit(current, maximum));
            assert_eq!(place, Place { number, kind }, "{current:?} {maximum:?}");
        }
    }
}
