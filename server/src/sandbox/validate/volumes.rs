//! Rules about volumes (contract: lifecycle §4.4). The schema has checked names, paths and claims.

use std::collections::HashSet;

use osb_protocol::lifecycle::Volume;

use crate::sandbox::{Error, VolumeFault};

/// All rules that the volumes of a request break.
pub(super) fn check(volumes: &[Volume]) -> Vec<Error> {
    let mut names = HashSet::new();
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
        if volume.sub_path.as_deref().is_some_and(leaves_its_root) {
            let rule = "must be a relative path without ..";
            note(VolumeFault::SubPath, &["subPath"], rule);
        }
        if let Some(host) = &volume.host
            && !is_plain(&host.path)
        {
            let rule = "must be an absolute path without .. and empty parts";
            note(VolumeFault::HostPath, &["host", "path"], rule);
        }
        if let Some(bucket) = &volume.ossfs {
            ossfs(bucket, &mut note);
        }
    }
    broken
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

fn ossfs(
    bucket: &serde_json::Value,
    note: &mut impl FnMut(VolumeFault, &'static [&'static str], &'static str),
) {
    let is_blank = |name: &str| {
        let text = bucket.get(name).and_then(serde_json::Value::as_str);
        text.is_none_or(|text| text.trim().is_empty())
    };
    if is_blank("bucket") {
        note(
            VolumeFault::OssfsBucket,
            &["ossfs", "bucket"],
            "must not be blank",
        );
    }
    if is_blank("endpoint") {
        note(
            VolumeFault::OssfsEndpoint,
            &["ossfs", "endpoint"],
            "must not be blank",
        );
    }
    let options = bucket.get("options").and_then(serde_json::Value::as_array);
    let mut options = options.into_iter().flatten().filter_map(|it| it.as_str());
    if options.any(|option| option.trim().is_empty() || option.trim().starts_with('-')) {
        let rule = "must not be blank or begin with a dash";
        note(VolumeFault::OssfsOption, &["ossfs", "options"], rule);
    }
    for (name, member) in [
        ("accessKeyId", &["ossfs", "accessKeyId"]),
        ("accessKeySecret", &["ossfs", "accessKeySecret"]),
    ] {
        if is_blank(name) {
            note(VolumeFault::OssfsCredentials, member, "must not be blank");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn broken(volumes: &Value) -> Vec<(String, VolumeFault)> {
        let volumes: Vec<Volume> = serde_json::from_value(volumes.clone()).unwrap();
        let errors = check(&volumes).into_iter();
        let places = errors.map(|error| match &error {
            Error::Volume { fault, .. } => (error.fields()[0].field(), *fault),
            other => panic!("{other}"),
        });
        places.collect()
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
    }
}
