//! File descriptors: how many there may be.

use rustix::{
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// Raises the soft limit of the process to its hard one: systemd and shells leave it at 1024 for the
/// sake of `select(2)`, which no program here uses. Returns the limit.
///
/// # Errors
/// When the system refuses; the old limit stays.
pub fn raise() -> Result<u64, Errno> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            },
        )?;
    }
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let Some(hard) = getrlimit(Resource::Nofile).maximum else {
            return assert_eq!(raise().unwrap(), u64::MAX);
        };
        let lower = Rlimit {
            current: Some(hard - 1),
            maximum: Some(hard),
        };
        setrlimit(Resource::Nofile, lower).unwrap();
        assert_eq!(raise().unwrap(), hard);
        assert_eq!(getrlimit(Resource::Nofile).current, Some(hard));
    }
}
