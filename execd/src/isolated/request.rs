//! Validation of a request for a session (contract: execd A4.2).

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use osb_protocol::execd::isolated::{Bind, Mount, NewIsolatedSession};

use super::{environment, plan::Bound};
use crate::{
    config::IsolationConfig,
    error::{ApiError, ApiResult},
    limits,
};

/// Validated specification of a session.
#[derive(Clone, Debug)]
pub(super) struct SessionSpec {
    /// The request with defaults filled in and paths resolved, as returned to the client.
    pub(super) echo: NewIsolatedSession,
    /// In the order of the request.
    pub(super) overlays: Vec<Overlay>,
    pub(super) binds: Vec<Bound>,
    pub(super) strict: bool,
    pub(super) share_net: bool,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) userns: bool,
    pub(super) idle: Option<Duration>,
}

/// Validated overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Overlay {
    /// As in the request.
    pub(super) path: PathBuf,
    /// Where the path led when the session was created. No link is followed on it later.
    pub(super) real: PathBuf,
    pub(super) kind: Kind,
}

/// Types of overlays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Writable,
    ReadOnly,
    /// Changes go to a separate layer: on disk, or in memory.
    Overlay {
        persist: bool,
    },
}

impl SessionSpec {
    /// Validates a request. `own` is the daemon's user and group.
    ///
    /// # Errors
    /// 400 naming the member that breaks a rule.
    pub(super) fn new(
        request: NewIsolatedSession,
        config: &IsolationConfig,
        own: (u32, u32),
    ) -> ApiResult<Self> {
        let (mounts, overlays) = overlays(&request)?;
        let idle = match u64::try_from(request.idle_timeout_seconds.unwrap_or(0)) {
            Ok(0) => None,
            Ok(seconds) => Some(Duration::from_secs(seconds)),
            Err(_) => {
                return Err(ApiError::invalid(
                    "idle_timeout_seconds must not be negative",
                ));
            }
        };
        let userns = match request.uid_mode.as_deref() {
            None | Some("" | "setpriv") => false,
            Some("userns") => true,
            Some(mode) => {
                let message =
                    format!("uid_mode: invalid mode {mode:?}, expected setpriv or userns");
                return Err(ApiError::invalid(message));
            }
        };
        for (member, id) in [("uid", request.uid), ("gid", request.gid)] {
            if id == Some(u32::MAX) {
                let message = format!("{member}: {} is reserved by the kernel", u32::MAX);
                return Err(ApiError::invalid(message));
            }
        }
        let env_passthrough = environment::rule(request.env_passthrough)?;
        shapes(&request.extra_writable, &request.binds)?;
        let strict = match request.profile.as_deref() {
            None | Some("" | "strict") => true,
            Some("balanced") => false,
            Some(profile) => {
                let message =
                    format!("profile: unknown profile {profile:?}, expected strict or balanced");
                return Err(refused(message));
            }
        };
        let (binds, extra_writable, bound) = bound(&request.extra_writable, request.binds, config)?;
        overlays
            .iter()
            .try_for_each(|overlay| overlay.check(&config.upper_root))?;
        let (uid, gid) = (request.uid.unwrap_or(own.0), request.gid.unwrap_or(own.1));
        let single = (mounts.len() == 1).then(|| mounts[0].clone());
        let echo = NewIsolatedSession {
            workspace: single.map(|mount| Mount {
                persist: None,
                ..mount
            }),
            overlays: mounts,
            profile: Some(if strict { "strict" } else { "balanced" }.to_owned()),
            extra_writable,
            binds,
            share_net: request.share_net,
            env_passthrough: Some(env_passthrough),
            uid: Some(uid),
            gid: Some(gid),
            uid_mode: Some(if userns { "userns" } else { "setpriv" }.to_owned()),
            idle_timeout_seconds: Some(request.idle_timeout_seconds.unwrap_or(0)),
        };
        Ok(Self {
            overlays,
            binds: bound,
            strict,
            share_net: request.share_net.unwrap_or(true),
            uid,
            gid,
            userns,
            idle,
            echo,
        })
    }

    /// Creates the directories of the overlays, and resolves the links in their paths. `upper_root`
    /// holds what overlays write.
    ///
    /// # Errors
    /// 500 when one cannot be created; 400 when one leads to a place of execd or of the session, or
    /// to another one.
    pub(super) fn make_directories(mut self, upper_root: &Path) -> ApiResult<Self> {
        let root = upper_root.canonicalize();
        let root = root.unwrap_or_else(|_| upper_root.to_owned());
        let mut made: Vec<PathBuf> = Vec::new();
        for overlay in &mut self.overlays {
            let path = &overlay.path;
            let failed = |error| {
                ApiError::runtime(format!("overlays: cannot make {}: {error}", path.display()))
            };
            let mut directories = fs::DirBuilder::new();
            directories.recursive(true).mode(0o755);
            directories.create(path).map_err(failed)?;
            overlay.real = path.canonicalize().map_err(failed)?;
            overlay.check(&root)?;
            if made.contains(&overlay.real) {
                return Err(duplicate(&overlay.path));
            }
            made.push(overlay.real.clone());
        }
        Ok(self)
    }
}

impl Overlay {
    /// Checks its place. `upper_root` holds what overlays write.
    ///
    /// # Errors
    /// 400 when it belongs to execd or to the session.
    fn check(&self, upper_root: &Path) -> ApiResult<()> {
        let (path, real) = (&self.path, &self.real);
        if real == Path::new("/") || ["/proc", "/dev"].iter().any(|own| real.starts_with(own)) {
            let message = format!("overlays: path {path:?} belongs to the session itself");
            return Err(ApiError::invalid(message));
        }
        if real.starts_with(upper_root) {
            let message = format!("overlays: path {path:?} belongs to execd");
            return Err(refused(message));
        }
        // The kernel cannot mount an overlay over a directory that contains its layers.
        if matches!(self.kind, Kind::Overlay { .. }) && upper_root.starts_with(real) {
            let message = format!("overlays: path {path:?} holds what overlays write");
            return Err(refused(message));
        }
        Ok(())
    }
}

fn duplicate(path: &Path) -> ApiError {
    ApiError::invalid(format!("overlays: duplicate path {path:?}"))
}

fn refused(message: impl Into<String>) -> ApiError {
    ApiError::NotAllowed(message.into())
}

/// Overlays as returned to the client, and as mounted.
fn overlays(request: &NewIsolatedSession) -> ApiResult<(Vec<Mount>, Vec<Overlay>)> {
    let workspace = request
        .workspace
        .iter()
        .map(|mount| ("workspace".to_owned(), mount));
    let overlays = request
        .overlays
        .iter()
        .enumerate()
        .map(|(index, mount)| (format!("overlays[{index}]"), mount));
    let (mut listed, mut made) = (Vec::new(), Vec::<Overlay>::new());
    for (member, mount) in workspace.chain(overlays) {
        let text = &mount.path;
        if !text.starts_with('/') {
            let message = format!("overlays: path {text:?} must be an absolute path");
            return Err(ApiError::invalid(message));
        }
        if !is_clean(text) {
            let message = format!("overlays: path {text:?} must be clean");
            return Err(ApiError::invalid(message));
        }
        let path = PathBuf::from(text);
        if made.iter().any(|other| other.path == path) {
            return Err(duplicate(&path));
        }
        let (mode, kind) = match mount.mode.as_deref() {
            None | Some("" | "overlay") => {
                let persist = mount.persist.unwrap_or(true);
                ("overlay", Kind::Overlay { persist })
            }
            Some("rw") => ("rw", Kind::Writable),
            Some("ro") => ("ro", Kind::ReadOnly),
            Some(mode) => {
                let message =
                    format!("invalid workspace mode {mode:?}, expected rw, overlay or ro");
                return Err(ApiError::invalid(message));
            }
        };
        let persist = match kind {
            Kind::Overlay { persist } => Some(persist),
            _ if mount.persist.is_some() => {
                let message = format!("{member}: persist applies only to mode \"overlay\"");
                return Err(ApiError::invalid(message));
            }
            _ => None,
        };
        listed.push(Mount {
            path: text.clone(),
            mode: Some(mode.to_owned()),
            persist,
        });
        let real = path.clone();
        made.push(Overlay { path, real, kind });
    }
    if made.is_empty() {
        return Err(ApiError::invalid("workspace or overlays is required"));
    }
    let mounts = made.len() + request.binds.len() + request.extra_writable.len();
    if mounts > limits::ISOLATED_MOUNTS {
        let message = format!("overlays: more than {} mounts", limits::ISOLATED_MOUNTS);
        return Err(ApiError::invalid(message));
    }
    Ok((listed, made))
}

/// Whether a path is absolute, without `.`, `..`, empty components, a trailing slash or a NUL.
fn is_clean(text: &str) -> bool {
    let clean = Path::new(text)
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let joined: PathBuf = Path::new(text).components().collect();
    clean && joined.as_os_str() == text && !text.contains('\0')
}

/// Checks the paths without access to the file system.
fn shapes(extra_writable: &[String], binds: &[Bind]) -> ApiResult<()> {
    for path in extra_writable {
        if !path.starts_with('/') || path.contains('\0') {
            let message = format!("extra_writable: path {path:?} must be an absolute path");
            return Err(ApiError::invalid(message));
        }
    }
    for (index, bind) in binds.iter().enumerate() {
        if bind.source.is_empty() {
            return Err(ApiError::invalid(format!(
                "binds[{index}].source is required"
            )));
        }
        if !bind.source.starts_with('/') || bind.source.contains('\0') {
            let message = format!("binds[{index}].source must be an absolute path");
            return Err(ApiError::invalid(message));
        }
        if let Some(dest) = bind.dest.as_ref().filter(|dest| !dest.is_empty())
            && (!dest.starts_with('/') || !is_clean(dest))
        {
            let message = format!("binds[{index}].dest must be an absolute, clean path");
            return Err(ApiError::invalid(message));
        }
    }
    Ok(())
}

/// Resolves the paths to bind and checks that they are allowed. Returns binds and writable paths
/// for the client, and all of them for mounting.
fn bound(
    extra_writable: &[String],
    mut binds: Vec<Bind>,
    config: &IsolationConfig,
) -> ApiResult<(Vec<Bind>, Vec<String>, Vec<Bound>)> {
    let mut all = Vec::new();
    let mut writable = Vec::new();
    for text in extra_writable {
        let path = allowed("extra_writable", text, config)?;
        writable.push(path.to_string_lossy().into_owned());
        all.push(Bound {
            dest: path.clone(),
            source: path,
            readonly: false,
            member: "extra_writable".to_owned(),
        });
    }
    for (index, bind) in binds.iter_mut().enumerate() {
        let member = format!("binds[{index}].source");
        let source = allowed(&member, &bind.source, config)?;
        bind.source = source.to_string_lossy().into_owned();
        let dest = bind
            .dest
            .take()
            .filter(|dest| !dest.is_empty())
            .unwrap_or_else(|| bind.source.clone());
        let place = PathBuf::from(&dest);
        let member = format!("binds[{index}].dest");
        if ["/proc", "/dev"].iter().any(|own| place.starts_with(own))
            || place == Path::new("/")
            || place.starts_with(&config.upper_root)
        {
            return Err(refused(format!(
                "{member}: {dest:?} belongs to the session itself"
            )));
        }
        bind.dest = Some(dest);
        all.push(Bound {
            source,
            dest: place,
            readonly: bind.readonly,
            member,
        });
    }
    Ok((binds, writable, all))
}

/// Resolves the links in a path, and checks that it is allowed.
fn allowed(member: &str, text: &str, config: &IsolationConfig) -> ApiResult<PathBuf> {
    let real = fs::canonicalize(text)
        .map_err(|_| refused(format!("{member}: {text:?} must be an existing path")))?;
    let listed = config.allowed_writable.iter().any(|entry| {
        let entry = entry.canonicalize().unwrap_or_else(|_| entry.clone());
        real.starts_with(entry)
    });
    // No session may see the changes of other sessions, under any path.
    let root = config
        .upper_root
        .canonicalize()
        .unwrap_or_else(|_| config.upper_root.clone());
    if listed && !real.starts_with(&root) && !root.starts_with(&real) {
        Ok(real)
    } else {
        Err(refused(format!("{member}: {text:?} is not in allowlist")))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::http::status_and_code;

    fn wanted(json: &str, config: &IsolationConfig) -> Result<SessionSpec, (u16, String, String)> {
        let request = crate::json::object(json.as_bytes()).unwrap();
        SessionSpec::new(request, config, (5, 6)).map_err(|error| {
            let (status, code) = status_and_code(&error);
            (status.as_u16(), code.to_owned(), error.to_string())
        })
    }

    #[test]
    fn defaults_are_filled_in() {
        let text = r#"{"workspace":{"path":"/w"},"overlays":[{"path":"/x","mode":"rw"}]}"#;
        let made = wanted(text, &IsolationConfig::default()).unwrap();
        let persist = Kind::Overlay { persist: true };
        assert_eq!(made.overlays[0].kind, persist);
        assert_eq!(made.overlays[1].kind, Kind::Writable);
        assert_eq!((made.uid, made.gid, made.idle), (5, 6, None));
        assert!(made.strict && made.share_net && !made.userns);
        let echo = serde_json::to_value(&made.echo).unwrap();
        let want = serde_json::json!({
            "overlays": [
                {"path": "/w", "mode": "overlay", "persist": true},
                {"path": "/x", "mode": "rw"},
            ],
            "profile": "strict", "uid": 5, "gid": 6, "uid_mode": "setpriv",
            "env_passthrough": {"mode": "deny", "keys": []}, "idle_timeout_seconds": 0,
        });
        assert_eq!(echo, want);
        let single = wanted(
            r#"{"overlays":[{"path":"/w"}]}"#,
            &IsolationConfig::default(),
        )
        .unwrap();
        assert_eq!(single.echo.workspace.unwrap().path, "/w");
    }

    #[test]
    fn every_broken_rule_names_its_member() {
        let overlays: Vec<String> = (0..17)
            .map(|index| format!(r#"{{"path":"/w{index}"}}"#))
            .collect();
        let many = format!(r#"{{"overlays":[{}]}}"#, overlays.join(","));
        for (text, code, message) in [
            (
                "{}",
                "INVALID_REQUEST_BODY",
                "workspace or overlays is required",
            ),
            (
                r#"{"overlays":[{"path":"w"}]}"#,
                "INVALID_REQUEST_BODY",
                r#"overlays: path "w" must be an absolute path"#,
            ),
            (
                r#"{"overlays":[{"path":"/w/"}]}"#,
                "INVALID_REQUEST_BODY",
                "must be clean",
            ),
            (
                r#"{"overlays":[{"path":"/w/../x"}]}"#,
                "INVALID_REQUEST_BODY",
                "must be clean",
            ),
            (
                r#"{"overlays":[{"path":"/proc"}]}"#,
                "INVALID_REQUEST_BODY",
                "overlays",
            ),
            (
                r#"{"workspace":{"path":"/w"},"overlays":[{"path":"/w"}]}"#,
                "INVALID_REQUEST_BODY",
                r#"overlays: duplicate path "/w""#,
            ),
            (
                r#"{"overlays":[{"path":"/w","mode":"x"}]}"#,
                "INVALID_REQUEST_BODY",
                "invalid workspace mode",
            ),
            (
                r#"{"overlays":[{"path":"/w","mode":"rw","persist":true}]}"#,
                "INVALID_REQUEST_BODY",
                r#"overlays[0]: persist applies only to mode "overlay""#,
            ),
            (many.as_str(), "INVALID_REQUEST_BODY", "mounts"),
            (
                r#"{"overlays":[{"path":"/w"}],"idle_timeout_seconds":-1}"#,
                "INVALID_REQUEST_BODY",
                "idle_timeout_seconds",
            ),
            (
                r#"{"overlays":[{"path":"/w"}],"uid":4294967295}"#,
                "INVALID_REQUEST_BODY",
                "uid",
            ),
            (
                r#"{"overlays":[{"path":"/w"}],"uid_mode":"x"}"#,
                "INVALID_REQUEST_BODY",
                "uid_mode",
            ),
            (
                r#"{"overlays":[{"path":"/w"}],"binds":[{"dest":"/x"}]}"#,
                "INVALID_REQUEST_BODY",
                "binds[0].source is required",
            ),
            (
                r#"{"overlays":[{"path":"/w"}],"profile":"x"}"#,
                "RUNTIME_ERROR",
                "profile",
            ),
            (
                r#"{"overlays":[{"path":"/w"}],"binds":[{"source":"/mnt/none"}]}"#,
                "RUNTIME_ERROR",
                "must be an existing path",
            ),
            (
                r#"{"overlays":[{"path":"/w"}],"extra_writable":["/etc"]}"#,
                "RUNTIME_ERROR",
                "not in allowlist",
            ),
        ] {
            let (status, found, reported) = wanted(text, &IsolationConfig::default()).unwrap_err();
            assert_eq!((status, found.as_str()), (400, code), "{text}");
            assert!(reported.contains(message), "{text}: {reported}");
        }
    }

    #[test]
    fn links_to_overlays_are_resolved_once_and_checked() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        let at = |name: &str| real.join(name);
        fs::create_dir_all(at("uppers/session")).unwrap();
        fs::create_dir_all(at("other")).unwrap();
        for (link, to) in [
            ("plain", "other"),
            ("proc", "/proc/sys"),
            ("root", "/"),
            ("dev", "/dev"),
            ("own", "uppers/session"),
            ("above", "."),
        ] {
            symlink(to, at(link)).unwrap();
        }
        symlink("uppers", at("link-to-uppers")).unwrap();
        let config = IsolationConfig {
            upper_root: at("link-to-uppers"),
            ..IsolationConfig::default()
        };
        let made = |paths: &[&str]| {
            let mounts = paths
                .iter()
                .map(|path| serde_json::json!({ "path": at(path) }));
            let text = serde_json::json!({ "overlays": mounts.collect::<Vec<_>>() });
            let wanted = wanted(&text.to_string(), &config).unwrap();
            let made = wanted.make_directories(&config.upper_root);
            made.map(|made| {
                made.overlays
                    .into_iter()
                    .map(|one| one.real)
                    .collect::<Vec<_>>()
            })
            .map_err(|error| error.to_string())
        };
        assert_eq!(made(&["plain"]), Ok(vec![at("other")]));
        assert_eq!(made(&["plain/new"]), Ok(vec![at("other/new")]));
        for (link, why) in [
            ("proc", "belongs to the session itself"),
            ("root", "belongs to the session itself"),
            ("dev", "belongs to the session itself"),
            ("own", "belongs to execd"),
            ("above", "holds what overlays write"),
        ] {
            let error = made(&[link]).unwrap_err();
            assert!(
                error.contains(why) && error.contains(link),
                "{link}: {error}"
            );
        }
        let error = made(&["other", "plain"]).unwrap_err();
        assert!(error.contains("duplicate path"), "{error}");
    }

    #[test]
    fn links_are_resolved_before_the_list_is_asked() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("allowed/real")).unwrap();
        fs::create_dir_all(at("other")).unwrap();
        symlink("real", at("allowed/in")).unwrap();
        symlink("../other", at("allowed/out")).unwrap();
        let config = IsolationConfig {
            allowed_writable: vec![at("allowed")],
            ..IsolationConfig::default()
        };
        let bind = |path: PathBuf| {
            let text = serde_json::json!({
                "workspace": {"path": "/w"},
                "binds": [{"source": path, "readonly": null}],
            });
            wanted(&text.to_string(), &config).map(|wanted| wanted.binds[0].source.clone())
        };
        assert_eq!(
            bind(at("allowed/in")).unwrap(),
            at("allowed/real").canonicalize().unwrap()
        );
        assert!(bind(at("allowed")).is_ok());
        let (status, _, message) = bind(at("allowed/out")).unwrap_err();
        assert!(
            status == 400 && message.contains("not in allowlist"),
            "{message}"
        );
    }
}
