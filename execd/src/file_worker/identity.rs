//! Identity of a worker.

use rustix::{
    io::Errno,
    process::{Gid, Uid, getgroups},
    thread::{
        CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities,
        set_thread_groups, set_thread_res_gid, set_thread_res_uid,
    },
};

use crate::error::{ApiError, ApiResult};

/// User and group ids, which need not exist in the account files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    uid: u32,
    gid: u32,
}

impl FileIdentity {
    /// Parses both ids as decimal numbers up to 4294967294.
    ///
    /// # Errors
    /// 400 naming the first invalid id.
    pub fn parse(uid: &str, gid: &str) -> ApiResult<Self> {
        Ok(Self {
            uid: number("uid", uid)?,
            gid: number("gid", gid)?,
        })
    }

    /// Both ids in decimal: user, group.
    pub(super) fn arguments(self) -> [String; 2] {
        [self.uid.to_string(), self.gid.to_string()]
    }

    /// Assumes exactly this user and group, without supplementary groups and, unless it is root,
    /// without capabilities. The change is permanent.
    ///
    /// Identities belong to threads, so the process must still be single-threaded.
    pub(super) fn assume(self) -> rustix::io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        match set_thread_groups(&[]) {
            // `setgroups` needs a privilege even when it changes nothing.
            Err(Errno::PERM) if getgroups()?.iter().all(|group| *group == gid) => {}
            cleared => cleared?,
        }
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        if !uid.is_root() {
            let nothing = CapabilitySets {
                effective: CapabilitySet::empty(),
                permitted: CapabilitySet::empty(),
                inheritable: CapabilitySet::empty(),
            };
            clear_ambient_capability_set()?;
            set_capabilities(None, nothing)?;
        }
        Ok(())
    }
}

impl std::fmt::Display for FileIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "uid {} and gid {}", self.uid, self.gid)
    }
}

/// Parses an id. The kernel reads the highest number as "leave unchanged".
fn number(name: &str, text: &str) -> ApiResult<u32> {
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .and_then(|digits| digits.parse().ok())
        .filter(|number| *number != u32::MAX)
        .ok_or_else(|| ApiError::invalid(format!("invalid {name}: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_and_below_the_reserved_one() {
        let read = |uid, gid| FileIdentity::parse(uid, gid).map_err(|error| error.to_string());
        let both = FileIdentity {
            uid: 4_294_967_294,
            gid: 0,
        };
        assert_eq!(read("4294967294", "00"), Ok(both));
        for bad in [
            "4294967295",
            "4294967296",
            "",
            "+1",
            "-1",
            "1.0",
            "0x1",
            "a",
            " 1",
        ] {
            assert_eq!(read(bad, "x"), Err(format!("invalid uid: {bad}")));
            assert_eq!(read("0", bad), Err(format!("invalid gid: {bad}")));
        }
    }
}
