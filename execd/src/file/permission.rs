//! Setting mode and owner (contract: execd §10, A3.2).

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use osb_protocol::execd::file::{Permission, mode_from_wire};

use crate::{
    error::{ApiError, ApiResult},
    identity::Names,
};

/// Sets what a permission names. Links are followed.
pub(super) fn apply(path: &Path, wanted: &Permission, names: &Names) -> ApiResult<()> {
    let Resolved { mode, uid, gid } = Resolved::new(wanted, names)?;
    let failed = |what: &str, error: std::io::Error| {
        ApiError::runtime(format!(
            "error changing {what}: {}: {error}",
            path.display()
        ))
    };
    // The owner first: a change of owner may clear bits of the mode.
    if uid.is_some() || gid.is_some() {
        std::os::unix::fs::chown(path, uid, gid).map_err(|error| failed("owner", error))?;
    }
    if let Some(mode) = mode {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(path, mode).map_err(|error| failed("mode", error))?;
    }
    Ok(())
}

struct Resolved {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
}

impl Resolved {
    fn new(wanted: &Permission, names: &Names) -> ApiResult<Self> {
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
            uid,
            gid,
        })
    }
}

#[cfg(test)]
mod tests {
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
            assert_eq!(set(mode, owner).unwrap_err().status(), 500);
        }
    }
}
