//! Rules about volumes (contract: lifecycle §4.4). The schema has checked names, paths and claims.
//!
//! Where a path of the host really leads, and whether a volume exists, only the runtime knows.

mod bucket;

use std::{
    collections::HashSet,
    path::{Component, Path},
};

use osb_protocol::lifecycle::Volume;

pub(super) use self::bucket::normalised;

use crate::sandbox::{Error, StorageRules, VolumeFault};

/// Most volumes of one sandbox.
const MOST: usize = 64;
/// Longest path and longest option, in bytes: what Linux takes for a path.
const LONGEST: usize = 4095;
/// Longest part of a path, in bytes.
const LONGEST_PART: usize = 255;
/// Directories of a sandbox that are the platform's or the kernel's, with what is below.
const OWN: [&str; 4] = ["/opt/opensandbox", "/proc", "/sys", "/var/lib/execd"];
/// Directories of a sandbox that contain one of those, or what every container has.
const ABOVE: [&str; 5] = ["/", "/opt", "/dev", "/var", "/var/lib"];
/// All rules that the volumes of a request break.
pub(super) fn check(volumes: &[Volume], storage: &StorageRules) -> Vec<Error> {
    if volumes.len() > MOST {
        let rule = format!("must have at most {MOST} entries");
        return vec![Error::rule("volumes", rule)];
    }
    let mut names = HashSet::new();
    let mut places = HashSet::new();
    let mut broken = Vec::new();
    for (index, volume) in volumes.iter().enumerate() {
        let mut note = |fault, member, rule| {
            broken.push(Error::Volume {
                index,
                member,
                fault,
                rule,
            });
        };
        if !names.insert(volume.name.as_str()) {
            note(
                VolumeFault::DuplicateName,
                &["name"],
                "must be unique within the request",
            );
        }
        if let Err(rule) = check_mount_path(&volume.mount_path, &mut places) {
            note(VolumeFault::MountPath, &["mountPath"], rule);
        }
        if let Some(path) = volume.sub_path.as_deref()
            && (leaves_its_root(path) || !is_text(path))
        {
            let rule =
                "must be a relative path without .., control characters and parts above 255 bytes";
            note(VolumeFault::SubPath, &["subPath"], rule);
        }
        if let Some(host) = &volume.host {
            let place = &["host", "path"];
            if !is_plain(&host.path) || !is_text(&host.path) {
                let rule = "must be an absolute path without .., empty parts, control characters and parts above 255 bytes";
                note(VolumeFault::HostPath, place, rule);
            } else if !is_allowed(&host.path, &storage.allowed_host_paths) {
                let rule = "is not in a directory that storage.allowed_host_paths has";
                note(VolumeFault::HostPathNotAllowed, place, rule);
            } else if !storage.sees_host {
                let rule = "is refused: this server does not see the files of the engine's host \
                            (storage.host_is_local)";
                note(VolumeFault::HostPathNotAllowed, place, rule);
            }
        }
        if let Some(bucket) = &volume.ossfs {
            bucket::check(bucket, volume.sub_path.as_deref(), storage, &mut note);
        }
    }
    broken
}

/// Checks a place in a sandbox, and notes it.
fn check_mount_path(path: &str, places: &mut HashSet<Vec<String>>) -> Result<(), &'static str> {
    if !is_text(path) {
        return Err(
            "must not contain control characters or be longer than 4095 bytes, or have a part above 255 bytes",
        );
    }
    if Path::new(path)
        .components()
        .any(|it| it == Component::ParentDir)
    {
        return Err("must not contain ..");
    }
    let parts = parts_of(path);
    let is_within = |own: &&str| parts.starts_with(&parts_of(own));
    if OWN.iter().any(is_within) || ABOVE.iter().any(|above| parts == parts_of(above)) {
        return Err("is a directory of the system or of the platform");
    }
    match places.insert(parts) {
        true => Ok(()),
        false => Err("must be unique within the request"),
    }
}

fn parts_of(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.map(str::to_owned).collect()
}

/// Whether the kernel takes it for a path, and a log line shows it as one.
fn is_text(path: &str) -> bool {
    path.len() <= LONGEST
        && path.split('/').all(|part| part.len() <= LONGEST_PART)
        && !path.chars().any(char::is_control)
}

fn leaves_its_root(path: &str) -> bool {
    path.starts_with('/') || path.split('/').any(|part| part == "..")
}

/// Whether the path of a host directory, POSIX or with a drive letter, has no part that could lead
/// elsewhere than it reads.
fn is_plain(path: &str) -> bool {
    let path = path.replace('\\', "/");
    let root = path.find('/').map_or(path.len(), |slash| slash + 1);
    let has_trailing = path.len() > root && path.ends_with('/');
    !path.contains("/..") && !path.contains("//") && !has_trailing
}

/// Whether a path is that of an allowed directory, or below it. The root of the host only allows itself.
fn is_allowed(path: &str, allowed: &[String]) -> bool {
    let path = with_drive(path);
    allowed.iter().any(|prefix| {
        let prefix = with_drive(prefix);
        match path.strip_prefix(&prefix) {
            Some(rest) => rest.is_empty() || prefix != "/" && rest.starts_with('/'),
            None => false,
        }
    })
}

/// A path with slashes, and with the drive letter, if it has one, in lower case.
fn with_drive(path: &str) -> String {
    let path = path.replace('\\', "/");
    match path.as_bytes() {
        [drive, b':', ..] if drive.is_ascii_alphabetic() => {
            format!("{}{}", char::from(drive.to_ascii_lowercase()), &path[1..])
        }
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(super) fn storage(allowed: &[&str]) -> StorageRules {
        StorageRules {
            allowed_host_paths: allowed.iter().map(|it| (*it).to_owned()).collect(),
            ..StorageRules::default()
        }
    }

    pub(super) fn broken_by(volumes: &Value, storage: &StorageRules) -> Vec<(String, VolumeFault)> {
        let volumes: Vec<Volume> = serde_json::from_value(volumes.clone()).unwrap();
        let errors = check(&volumes, storage).into_iter();
        let places = errors.map(|error| match &error {
            Error::Volume { fault, .. } => (error.fields()[0].field(), *fault),
            other => panic!("{other}"),
        });
        places.collect()
    }

    pub(super) fn broken(volumes: &Value) -> Vec<(String, VolumeFault)> {
        let anywhere = [
            "/srv", "/a..b", "/", "C:/data", "C:\\", "C:/a", "/srv/a.b", "C:\\data",
        ];
        broken_by(volumes, &storage(&anywhere))
    }

    fn host(path: &str) -> Value {
        json!([{"name": "a", "mountPath": "/a", "host": {"path": path}}])
    }

    #[test]
    fn all_rules_are_reported_at_their_volume() {
        let volumes = json!([
            {"name": "a", "mountPath": "/a", "pvc": {"claimName": "c"}, "subPath": "x/../y"},
            {"name": "a", "mountPath": "/b", "host": {"path": "/srv/../etc"}},
            {"name": "b", "mountPath": "/c", "subPath": "/x", "ossfs": {
                "bucket": "   ", "endpoint": " ", "options": ["allow_other", "-o"],
                "accessKeyId": " ", "accessKeySecret": "s",
            }},
        ]);
        assert_eq!(
            broken(&volumes),
            [
                ("volumes.0.subPath".to_owned(), VolumeFault::SubPath),
                ("volumes.1.name".to_owned(), VolumeFault::DuplicateName),
                ("volumes.1.host.path".to_owned(), VolumeFault::HostPath),
                ("volumes.2.subPath".to_owned(), VolumeFault::SubPath),
                (
                    "volumes.2.ossfs.bucket".to_owned(),
                    VolumeFault::OssfsBucket
                ),
                (
                    "volumes.2.ossfs.endpoint".to_owned(),
                    VolumeFault::OssfsEndpoint
                ),
                (
                    "volumes.2.ossfs.options".to_owned(),
                    VolumeFault::OssfsOption
                ),
                (
                    "volumes.2.ossfs.accessKeyId".to_owned(),
                    VolumeFault::OssfsCredentials
                ),
            ]
        );
    }

    #[test]
    fn paths_of_the_host_lead_where_they_read() {
        for good in [
            "/", "/srv", "/srv/a.b", "C:\\data", "C:/data", "C:\\", "/a..b",
        ] {
            assert_eq!(broken(&host(good)), [], "{good}");
        }
        for bad in [
            "/..",
            "/srv/..",
            "/srv/..x",
            "/srv//a",
            "/srv/",
            "/srv/a\nb",
            "C:\\..\\x",
            "C:\\a\\",
            "C:\\\\a",
        ] {
            assert_eq!(broken(&host(bad)).len(), 1, "{bad}");
        }
        let sub = |path: &str| {
            let claim = json!({"claimName": "c"});
            json!([{"name": "a", "mountPath": "/a", "pvc": claim, "subPath": path}])
        };
        for good in ["", "a", "a/b", "..a", "a..", "a/..b"] {
            assert_eq!(broken(&sub(good)), [], "{good}");
        }
        for bad in ["/", "/a", "..", "a/..", "a/../b", "a\u{7}"] {
            assert_eq!(broken(&sub(bad)).len(), 1, "{bad}");
        }
        let long = |length: usize| "a".repeat(length);
        assert_eq!(broken(&sub(&format!("a/{}", long(255)))), []);
        assert_eq!(broken(&sub(&format!("a/{}", long(256)))).len(), 1);
        assert_eq!(broken(&host(&format!("/srv/{}", long(256)))).len(), 1);
    }

    #[test]
    fn only_allowed_paths_of_the_host_are_taken() {
        let not_allowed = (
            "volumes.0.host.path".to_owned(),
            VolumeFault::HostPathNotAllowed,
        );
        for (allowed, path, is_taken) in [
            (&[][..], "/srv", false),
            (&["/srv"], "/srv", true),
            (&["/srv"], "/srv/a/b", true),
            (&["/srv"], "/srvx", false),
            (&["/srv"], "/", false),
            (&["/srv/a", "/data"], "/data/x", true),
            (&["/srv/a"], "/srv", false),
            (&["/"], "/", true),
            (&["/"], "/etc", false),
            (&["C:\\data"], "c:/data/x", true),
            (&["c:/data"], "C:\\data", true),
            (&["C:\\data"], "D:\\data", false),
            (&["C:\\data"], "C:\\database", false),
        ] {
            let found = broken_by(&host(path), &storage(allowed));
            let want = if is_taken {
                vec![]
            } else {
                vec![not_allowed.clone()]
            };
            assert_eq!(found, want, "{path} of {allowed:?}");
        }
        let unseen = StorageRules {
            sees_host: false,
            ..storage(&["/srv"])
        };
        assert_eq!(broken_by(&host("/srv"), &unseen), [not_allowed]);
        let rule = |path: &str, rules| {
            let volumes: Vec<Volume> = serde_json::from_value(host(path)).unwrap();
            let problems = check(&volumes, rules);
            problems[0].to_string()
        };
        assert!(rule("/srv", &unseen).contains("storage.host_is_local"));
        let text = rule("/etc", &unseen);
        assert!(text.contains("storage.allowed_host_paths"), "{text}");
    }

    #[test]
    fn a_volume_covers_neither_the_platform_nor_another_volume() {
        let at = |path: &str| json!([{"name": "a", "mountPath": path, "pvc": {"claimName": "c"}}]);
        for good in [
            "/data",
            "/opt/other",
            "/opt/opensandboxes",
            "/dev/shm",
            "/var/lib/db",
            "/a:b",
        ] {
            assert_eq!(broken(&at(good)), [], "{good}");
        }
        for bad in [
            "/",
            "//",
            "/./",
            "/opt",
            "/opt/",
            "/opt/opensandbox",
            "/opt//opensandbox/.dist",
            "/proc/x",
            "/sys",
            "/dev",
            "/var/lib/execd/isolation",
            "/data/..",
            "/data/../opt",
            "/da\nta",
        ] {
            let place = "volumes.0.mountPath".to_owned();
            assert_eq!(broken(&at(bad)), [(place, VolumeFault::MountPath)], "{bad}");
        }
        let twice = json!([
            {"name": "a", "mountPath": "/data", "pvc": {"claimName": "c"}},
            {"name": "b", "mountPath": "/data//.", "pvc": {"claimName": "d"}},
            {"name": "c", "mountPath": "/data/below", "pvc": {"claimName": "e"}},
        ]);
        let place = "volumes.1.mountPath".to_owned();
        assert_eq!(broken(&twice), [(place, VolumeFault::MountPath)]);
    }

    #[test]
    fn the_number_of_volumes_is_bounded() {
        let many = |count: usize| -> Vec<Volume> {
            let one = |n| json!({"name": format!("v{n}"), "mountPath": format!("/v{n}"), "pvc": {"claimName": "c"}});
            let all = (0..count).map(one).map(serde_json::from_value);
            all.collect::<Result<_, _>>().unwrap()
        };
        assert_eq!(check(&many(MOST), &storage(&[])).len(), 0);
        let errors = check(&many(MOST + 1), &storage(&[]));
        assert_eq!(
            errors[0].to_string(),
            "volumes: must have at most 64 entries"
        );
        assert_eq!(errors.len(), 1);
    }
}
