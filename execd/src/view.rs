//! Paths that file requests in a session may name (contract: execd A5). The kernel decides what the
//! session's user may do; this module decides which overlay a request concerns.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    error::{ApiError, ApiResult},
    kernel_path,
};

/// Overlays of a session, for one type of request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct View {
    pub(crate) overlays: Vec<Part>,
    /// Whether the request changes something.
    pub(crate) writes: bool,
    /// Whether it follows a link at the end of a path.
    pub(crate) follows: bool,
}

/// Overlay of the view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// As in the request for the session.
    pub(crate) path: PathBuf,
    /// Where the path led when the session was created.
    pub(crate) real: PathBuf,
    pub(crate) readonly: bool,
}

impl View {
    /// Finds the overlay of a path by its components only. Also returns the path, absolute and
    /// normalised, and with the place of an overlay instead of its path. A relative path lies in the
    /// first overlay.
    ///
    /// # Errors
    /// 400 when no overlay contains the path.
    pub(crate) fn locate(&self, given: &OsStr) -> ApiResult<(usize, PathBuf)> {
        self.locate_by(given, |directory| directory.parent().map(Path::to_owned))
    }

    /// Does the same with `above` resolving `..`; lexically where that returns `None`.
    fn locate_by(
        &self,
        given: &OsStr,
        above: impl Fn(&Path) -> Option<PathBuf>,
    ) -> ApiResult<(usize, PathBuf)> {
        kernel_path::must_name_something(given)?;
        let mut clean = match self.overlays.first() {
            Some(first) if !given.as_bytes().starts_with(b"/") => first.real.clone(),
            _ => PathBuf::from("/"),
        };
        for component in Path::new(given).components() {
            match component {
                Component::Normal(name) => {
                    clean.push(name);
                    let overlay = self.overlays.iter().find(|part| part.path == clean);
                    if let Some(overlay) = overlay {
                        clean.clone_from(&overlay.real);
                    }
                }
                Component::ParentDir => match above(&clean) {
                    Some(above) => clean = above,
                    None => _ = clean.pop(),
                },
                _ => {}
            }
        }
        let within = |(_, part): &(usize, &Part)| clean.starts_with(&part.real);
        let deepest = |(_, part): &(usize, &Part)| part.real.components().count();
        let found = self
            .overlays
            .iter()
            .enumerate()
            .filter(within)
            .max_by_key(deepest);
        let (index, _) = found.ok_or_else(|| outside(given))?;
        Ok((index, clean))
    }

    /// Resolves the path of a request inside the session.
    ///
    /// # Errors
    /// 400 when it leads out of the overlays, also through a link; 403 when the overlay to change
    /// is read-only.
    pub(crate) fn resolve(&self, given: &OsStr) -> ApiResult<PathBuf> {
        let (index, path) = self.locate_by(given, kernel_path::above)?;
        let part = &self.overlays[index];
        if self.writes && part.readonly {
            let overlay = part.path.display().to_string();
            return Err(ApiError::ReadOnly(overlay));
        }
        let unreadable = |error: io::Error| ApiError::file(&path, &error);
        // The overlay may have been moved away, with a link in its place.
        let inside = |real: &Path| real.starts_with(&part.real);
        if path == part.real {
            let real = path.canonicalize().map_err(unreadable)?;
            return match real == part.real {
                true => Ok(path),
                false => Err(outside(given)),
            };
        }
        // A missing entry cannot be a link, but its parents can.
        let above = path.ancestors().skip(1);
        let real = above
            .map(Path::canonicalize)
            .find(|real| !matches!(real, Err(error) if error.kind() == io::ErrorKind::NotFound));
        if !real
            .transpose()
            .map_err(unreadable)?
            .is_some_and(|real| inside(&real))
        {
            return Err(outside(given));
        }
        let link = path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        if self.follows && link && !path.canonicalize().is_ok_and(|real| inside(&real)) {
            return Err(outside(given));
        }
        Ok(path)
    }
}

fn outside(given: &OsStr) -> ApiError {
    let given = given.display();
    ApiError::invalid(format!("path is outside all overlay mounts: {given}"))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::http::status_and_code;

    fn view(paths: &[(&Path, bool)], writes: bool) -> View {
        let part = |(path, readonly): &(&Path, bool)| Part {
            path: path.to_path_buf(),
            real: path.canonicalize().unwrap_or_else(|_| path.to_path_buf()),
            readonly: *readonly,
        };
        View {
            overlays: paths.iter().map(part).collect(),
            writes,
            follows: true,
        }
    }

    #[test]
    fn paths_belong_to_the_deepest_overlay() {
        let view = view(
            &[(Path::new("/w"), false), (Path::new("/w/data"), true)],
            false,
        );
        let locate = |text: &str| view.locate(text.as_ref());
        assert_eq!(locate("/w/a"), Ok((0, "/w/a".into())));
        assert_eq!(locate("a/../b"), Ok((0, "/w/b".into())));
        assert_eq!(locate("/w/data/x"), Ok((1, "/w/data/x".into())));
        assert_eq!(locate("/w/data/../x"), Ok((0, "/w/x".into())));
        for bad in ["", "/", "/wx", "../x", "/w/../etc/passwd", "a\0"] {
            let refused = locate(bad);
            assert!(matches!(refused, Err(ApiError::Invalid(_))), "{bad:?}");
        }
    }

    #[test]
    fn links_do_not_lead_out_of_the_session() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("w/dir")).unwrap();
        fs::write(at("w/file"), "").unwrap();
        fs::write(at("secret"), "").unwrap();
        symlink("../secret", at("w/out")).unwrap();
        symlink("..", at("w/up")).unwrap();
        symlink("file", at("w/in")).unwrap();
        fs::create_dir_all(at("w/one/two")).unwrap();
        symlink("one/two", at("w/deep")).unwrap();
        let root = at("w");
        let status = |view: &View, text: &str| match view.resolve(text.as_ref()) {
            Ok(_) => 200,
            Err(error) => status_and_code(&error).0.as_u16(),
        };
        let mut writable = view(&[(&root, false)], true);
        for (path, want) in [
            ("file", 200),
            ("in", 200),
            ("new/er/file", 200),
            ("out", 400),
            ("up/secret", 400),
            ("up/w/file", 200),
            ("deep/../file", 200),
            ("deep/../../file", 200),
            ("deep/../../../secret", 400),
            ("new/../file", 200),
            (".", 200),
        ] {
            assert_eq!(status(&writable, path), want, "{path}");
        }
        let real = at("w").canonicalize().unwrap();
        let parent = writable.resolve("deep/../x".as_ref()).unwrap();
        assert_eq!(parent, real.join("one/x"), "as the kernel has it");
        writable.follows = false;
        assert_eq!(status(&writable, "out"), 200, "the link itself is inside");
    }

    #[test]
    fn an_overlay_is_where_its_path_led_first() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        let at = |name: &str| real.join(name);
        for name in ["w/dir", "elsewhere/dir"] {
            fs::create_dir_all(at(name)).unwrap();
            fs::write(at(name).join("../file"), "").unwrap();
        }
        symlink("dir", at("w/deep")).unwrap();
        symlink("w", at("link")).unwrap();
        let view = view(&[(&at("link"), false)], true);
        let resolve = |path: &str| view.resolve(path.as_ref());
        let own = at("link").display().to_string();
        let check = || {
            for (path, place) in [
                ("file", "w/file"),
                ("new", "w/new"),
                ("deep/../file", "w/file"),
                (format!("{own}/file").as_str(), "w/file"),
                (format!("{own}/deep/../file").as_str(), "w/file"),
                (at("w/file").to_str().unwrap(), "w/file"),
                (own.as_str(), "w"),
                (".", "w"),
            ] {
                assert_eq!(resolve(path), Ok(at(place)), "{path}");
            }
            assert!(resolve(&format!("{own}/../elsewhere/file")).is_err());
        };
        check();
        fs::remove_file(at("link")).unwrap();
        symlink("elsewhere", at("link")).unwrap();
        check();
        fs::rename(at("w"), at("moved")).unwrap();
        symlink("elsewhere", at("w")).unwrap();
        for path in ["file", "new", ".", &own] {
            assert!(resolve(path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_read_only_overlay_is_not_changed() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().to_owned();
        fs::write(root.join("file"), "").unwrap();
        let status = |view: &View, text: &str| match view.resolve(text.as_ref()) {
            Ok(_) => 200,
            Err(error) => status_and_code(&error).0.as_u16(),
        };
        let readonly = view(&[(&root, true)], true);
        assert_eq!(status(&readonly, "file"), 403);
        assert_eq!(status(&view(&[(&root, true)], false), "file"), 200);
    }
}
