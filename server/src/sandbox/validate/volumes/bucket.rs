//! Rules about buckets (contract: lifecycle §17.9). Nothing of a bucket may become a command, or another
//! setting of the program that mounts it.

use std::net::Ipv6Addr;

use osb_protocol::lifecycle::{OssfsVersion, OssfsVolume, Volume};

use super::is_text;
use crate::sandbox::{StorageRules, VolumeFault};

/// Most options of one bucket.
const MOST_OPTIONS: usize = 64;
/// Longest host name, in bytes.
const LONGEST_HOST: usize = 253;
/// What no part of a mount of a bucket may contain (contract: lifecycle §17.9).
const SHELL: [char; 13] = [
    ';', '&', '|', '`', '$', '(', ')', '<', '>', '\r', '\n', '\0', '\\',
];
/// Options of `ossfs` that reach nothing on the host and no other key.
const OPTIONS_V1: [&str; 38] = [
    "allow_other",
    "attr_timeout",
    "auto_cache",
    "big_writes",
    "complement_stat",
    "connect_timeout",
    "default_acl",
    "direct_read",
    "enable_content_md5",
    "enable_noobj_cache",
    "entry_timeout",
    "gid",
    "kernel_cache",
    "list_object_max_keys",
    "max_stat_cache_size",
    "max_write",
    "mp_umask",
    "multipart_size",
    "multireq_max",
    "negative_timeout",
    "nocopyapi",
    "nodev",
    "noexec",
    "nomultipart",
    "nonempty",
    "norenameapi",
    "nosuid",
    "noxattr",
    "parallel_count",
    "readwrite_timeout",
    "region",
    "retries",
    "ro",
    "sigv4",
    "stat_cache_expire",
    "storage_class",
    "uid",
    "umask",
];
/// Options of `ossfs2` that reach nothing on the host and no other key.
const OPTIONS_V2: [&str; 23] = [
    "allow_other",
    "attr_timeout",
    "close_to_open",
    "dir_mode",
    "enable_symlink",
    "file_mode",
    "gid",
    "log_level",
    "negative_timeout",
    "oss_negative_cache_size",
    "oss_negative_cache_timeout",
    "oss_region",
    "prefetch_chunk_size",
    "prefetch_chunks",
    "prefetch_concurrency",
    "readdirplus",
    "readdir_remember_count",
    "ro",
    "total_mem_limit",
    "uid",
    "umask",
    "upload_buffer_size",
    "upload_concurrency",
];

/// Brings endpoints into the form in which they are used (contract: lifecycle §17.9).
pub(in crate::sandbox::validate) fn normalised(mut volumes: Vec<Volume>) -> Vec<Volume> {
    let buckets = volumes.iter_mut().filter_map(|it| it.ossfs.as_mut());
    for bucket in buckets {
        let endpoint = bucket.endpoint.trim();
        bucket.endpoint = match endpoint.contains("://") {
            true => endpoint.to_owned(),
            false => format!("https://{endpoint}"),
        };
    }
    volumes
}

/// Notes all rules that a bucket breaks.
pub(super) fn check(
    bucket: &OssfsVolume,
    sub_path: Option<&str>,
    storage: &StorageRules,
    note: &mut impl FnMut(VolumeFault, &'static [&'static str], &'static str),
) {
    let has_shell = |text: &str| text.contains(SHELL);
    if bucket.bucket.trim().is_empty() {
        let place = &["ossfs", "bucket"];
        note(VolumeFault::OssfsBucket, place, "must not be blank");
    } else if !is_bucket(&bucket.bucket) {
        let rule = "must be lower-case letters, digits and dashes between letters or digits";
        note(VolumeFault::OssfsParameter, &["ossfs", "bucket"], rule);
    }
    let place = &["ossfs", "endpoint"];
    if bucket.endpoint.trim().is_empty() {
        note(VolumeFault::OssfsEndpoint, place, "must not be blank");
    } else if !is_endpoint(bucket.endpoint.trim()) {
        let rule = "must be HOST or HOST:PORT, with or without http:// or https:// before it";
        note(VolumeFault::OssfsParameter, place, rule);
    }
    if sub_path.is_some_and(has_shell) {
        let rule = "must not contain characters with a meaning to a shell";
        note(VolumeFault::OssfsParameter, &["subPath"], rule);
    }
    let options = bucket.options.as_deref().unwrap_or_default();
    let mut note_option = |fault, rule| note(fault, &["ossfs", "options"], rule);
    if options.len() > MOST_OPTIONS {
        note_option(VolumeFault::OssfsOption, "must have at most 64 entries");
    }
    let is_blank = |option: &String| option.trim().is_empty() || option.trim().starts_with('-');
    if options.iter().any(is_blank) {
        let rule = "must not be blank or begin with a dash";
        note_option(VolumeFault::OssfsOption, rule);
    } else if options.iter().any(|it| has_shell(it) || !is_text(it)) {
        let rule = "must not contain characters with a meaning to a shell";
        note_option(VolumeFault::OssfsParameter, rule);
    } else if !options
        .iter()
        .all(|it| is_known_option(it, bucket.version, &storage.ossfs_options))
    {
        let rule = "has an option that could reach files, programs or keys of the host; the server's \
                    operator can allow its name (storage.ossfs_options)";
        note_option(VolumeFault::OssfsOption, rule);
    }
    for (key, member) in [
        (&bucket.access_key_id, &["ossfs", "accessKeyId"]),
        (&bucket.access_key_secret, &["ossfs", "accessKeySecret"]),
    ] {
        if key.trim().is_empty() {
            note(VolumeFault::OssfsCredentials, member, "must not be blank");
        } else if key.contains(|it: char| it.is_control() || it.is_whitespace() || it == ':') {
            let rule = "must not contain spaces, colons or control characters";
            note(VolumeFault::OssfsCredentials, member, rule);
        }
    }
    if !storage.sees_host {
        let rule =
            "is refused: this server cannot mount on the engine's host (storage.host_is_local)";
        note(VolumeFault::OssfsParameter, &["ossfs"], rule);
    }
}

/// Whether an endpoint is a host with or without scheme and port. A comma or anything else that a host
/// name does not have could become another option of the program.
fn is_endpoint(endpoint: &str) -> bool {
    let schemes = ["https://", "http://"];
    let bare = schemes.iter().find_map(|it| endpoint.strip_prefix(it));
    let bare = bare.unwrap_or(endpoint);
    // The colons of an IPv6 address are in brackets.
    let (host, rest) = match bare.strip_prefix('[').and_then(|it| it.split_once(']')) {
        Some((address, rest)) if address.parse::<Ipv6Addr>().is_ok() => (None, rest),
        Some(_) => return false,
        None => {
            let end = bare.find(':').unwrap_or(bare.len());
            (Some(&bare[..end]), &bare[end..])
        }
    };
    let is_inner = |it: char| it.is_ascii_alphanumeric() || it == '-';
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_host = |host: &str| host.len() <= LONGEST_HOST && host.split('.').all(is_label);
    let is_port = |port: &str| {
        port.bytes().all(|it| it.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|it| it > 0)
    };
    host.is_none_or(is_host) && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

/// Whether a name follows the contract's pattern for buckets. The schema has checked its length.
fn is_bucket(name: &str) -> bool {
    let is_inner = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
    name.chars().all(is_inner) && !name.starts_with('-') && !name.ends_with('-')
}

/// Whether an option, such as `uid=1000` or `ro,umask=022`, reaches nothing on the host.
fn is_known_option(option: &str, version: OssfsVersion, more: &[String]) -> bool {
    let known: &[&str] = match version {
        OssfsVersion::V1 => &OPTIONS_V1,
        OssfsVersion::V2 => &OPTIONS_V2,
    };
    // FUSE reads a comma as the beginning of another option.
    option.split(',').all(|one| {
        let name = one.split('=').next().unwrap_or_default();
        known.contains(&name) || more.iter().any(|it| it == name)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::sandbox::validate::volumes::tests::{broken, broken_by, storage};

    /// What a bucket breaks that differs from a good one in a member.
    fn bucket(member: &str, value: Value) -> Vec<(String, VolumeFault)> {
        let mut bucket = json!({
            "bucket": "data-1", "endpoint": "oss.example", "options": ["allow_other", "uid=1000"],
            "accessKeyId": "id", "accessKeySecret": "s",
        });
        bucket[member] = value;
        broken(&json!([{"name": "a", "mountPath": "/a", "ossfs": bucket}]))
    }

    #[test]
    fn nothing_of_a_bucket_becomes_a_command_or_another_setting() {
        let at = |member: &str| format!("volumes.0.ossfs.{member}");
        assert_eq!(bucket("version", json!("1.0")), []);
        for name in ["Data", "da.ta", "-data", "data-", "da/ta", "da ta"] {
            let want = [(at("bucket"), VolumeFault::OssfsParameter)];
            assert_eq!(bucket("bucket", json!(name)), want, "{name}");
        }
        for endpoint in [
            "oss.example",
            " oss.example:8080 ",
            "http://oss.example",
            "https://10.0.0.1:443",
            "https://[::1]:9000",
            "localhost",
        ] {
            assert_eq!(bucket("endpoint", json!(endpoint)), [], "{endpoint}");
        }
        for endpoint in [
            "a b",
            "a;b",
            "a$(b)",
            "a\nb",
            "a`b`",
            "a|b",
            "a&b",
            "a>b",
            "oss.example,passwd_file=/etc/ossfs",
            "https://oss.example,use_cache=/etc",
            "https://oss.example/,ram_role=x",
            "oss.example/a",
            "user@oss.example",
            "oss.example?a=b",
            "oss.example#a",
            "file:///etc",
            "https://",
            "https://https://a",
            "-a",
            "a-",
            "a..b",
            "a:",
            "a:0",
            "a:65536",
            "a:+1",
            "[::1",
            "[a]",
            "[::1]x",
        ] {
            let want = [(at("endpoint"), VolumeFault::OssfsParameter)];
            assert_eq!(bucket("endpoint", json!(endpoint)), want, "{endpoint}");
        }
        for option in ["ro;x", "uid=$x", "uid=\n--log_dir=/etc"] {
            let want = [(at("options"), VolumeFault::OssfsParameter)];
            assert_eq!(bucket("options", json!([option])), want, "{option}");
        }
        for option in [
            "passwd_file=/etc/shadow",
            "use_cache=/etc",
            "ram_role=x",
            "credential_process=/bin/x",
            "log_dir=/etc",
            "ro,url=http://x",
            "Ro",
            "-o",
            " ",
        ] {
            let want = [(at("options"), VolumeFault::OssfsOption)];
            assert_eq!(bucket("options", json!([option])), want, "{option}");
        }
        for key in ["a\nb", "a b", "a:b"] {
            let want = [(at("accessKeyId"), VolumeFault::OssfsCredentials)];
            assert_eq!(bucket("accessKeyId", json!(key)), want, "{key}");
        }
        let with_options = |options: Value, storage: &StorageRules| {
            let bucket = json!({
                "bucket": "data", "endpoint": "e", "options": options,
                "accessKeyId": "id", "accessKeySecret": "s",
            });
            broken_by(
                &json!([{"name": "a", "mountPath": "/a", "ossfs": bucket}]),
                storage,
            )
        };
        let more = StorageRules {
            ossfs_options: vec!["bind_cpus".to_owned()],
            ..storage(&[])
        };
        assert_eq!(with_options(json!(["bind_cpus=1"]), &more), []);
        assert_eq!(with_options(json!(["bind_cpus=1"]), &storage(&[])).len(), 1);
        let shell = json!([{"name": "a", "mountPath": "/a", "subPath": "a$b", "ossfs": {
            "bucket": "data", "endpoint": "e", "accessKeyId": "id", "accessKeySecret": "s",
        }}]);
        let want = [("volumes.0.subPath".to_owned(), VolumeFault::OssfsParameter)];
        assert_eq!(broken(&shell), want);
    }
}
