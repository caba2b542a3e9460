//! Copies build results to the release folder.

use std::{fs, io::ErrorKind, path::Path, time::SystemTime};

use anyhow::{Context, Result};

/// Copies `from` to `to` when it changed. A rename replaces the old file, because it may be running.
pub(super) fn publish(from: &Path, to: &Path) -> Result<()> {
    let copy = || -> Result<()> {
        if same(from, to)? {
            return Ok(());
        }
        if let Some(dir) = to.parent() {
            fs::create_dir_all(dir)?;
        }
        let beside = to.with_extension("new");
        fs::copy(from, &beside)?;
        let built: SystemTime = fs::metadata(from)?.modified()?;
        fs::File::options()
            .write(true)
            .open(&beside)?
            .set_modified(built)?;
        fs::rename(&beside, to)?;
        Ok(())
    };
    copy().with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

/// Whether both files have the same size and modification time, which the copy keeps.
fn same(from: &Path, to: &Path) -> Result<bool> {
    let known = match fs::metadata(to) {
        Ok(known) => known,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let built = fs::metadata(from)?;
    Ok(known.len() == built.len() && known.modified()? == built.modified()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_result_is_copied_and_stays_executable() {
        use std::os::unix::fs::PermissionsExt;
        let dir = std::env::temp_dir().join(format!("xtask-publish-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (from, to) = (dir.join("built"), dir.join("dist/program"));
        fs::write(&from, "one").unwrap();
        fs::set_permissions(&from, fs::Permissions::from_mode(0o755)).unwrap();

        publish(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "one");
        assert_eq!(
            fs::metadata(&to).unwrap().permissions().mode() & 0o777,
            0o755
        );
        assert!(same(&from, &to).unwrap());
        fs::write(&from, "three").unwrap();
        assert!(!same(&from, &to).unwrap());
        publish(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "three");
        fs::remove_dir_all(&dir).unwrap();
    }
}
