//! Paths in a sandbox, and addresses of the tab that show them.

use osb_protocol::SandboxId;

use super::Asked;
use crate::tab::Tab;

/// The tab that shows this path. `more` is further query, such as `from=500`.
pub(super) fn address(id: &SandboxId, path: &str, more: &str) -> String {
    let path = escaped(path);
    let more = match more {
        "" => String::new(),
        more => format!("&{more}"),
    };
    format!("{}?path={path}{more}", Tab::Files.address(id))
}

/// The tab that shows what is found below a folder.
pub(super) fn search(id: &SandboxId, folder: &str, asked: &Asked) -> String {
    let part = |name: &str, value: &str| match value {
        "" => None,
        value => Some(format!("{name}={}", escaped(value))),
    };
    let parts = [
        part("name", &asked.name),
        part("text", &asked.text),
        part("case", if asked.case { "on" } else { "" }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    address(id, folder, &parts.join("&"))
}

/// A route of the server for this path.
pub(super) fn route(id: &SandboxId, name: &str, path: &str) -> String {
    format!(
        "/console/sandboxes/{id}/files/{name}?path={}",
        escaped(path)
    )
}

/// A value of a query.
fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

/// The entry of a folder with this name.
pub(super) fn join(folder: &str, name: &str) -> String {
    format!("{}/{name}", folder.trim_end_matches('/'))
}

/// The folder that something is in; `None` for the root.
pub(super) fn parent(path: &str) -> Option<&str> {
    let path = path.trim_end_matches('/');
    let (parent, _) = path.rsplit_once('/')?;
    Some(if parent.is_empty() { "/" } else { parent })
}

/// A path as seen from a folder that it is in.
pub(super) fn below<'a>(folder: &str, path: &'a str) -> &'a str {
    let below = path.strip_prefix(folder.trim_end_matches('/'));
    let below = below.and_then(|below| below.strip_prefix('/'));
    below.unwrap_or(path)
}

/// Where an entry of a folder goes that gets this name, or this path as seen from the folder. A slash
/// at the end stands for the entry's own name below it.
pub(super) fn target(folder: &str, name: &str, wanted: &str) -> Result<String, &'static str> {
    if !wanted.contains('/') {
        return match why_no_name(wanted) {
            None => Ok(join(folder, wanted)),
            Some(why) => Err(why),
        };
    }
    let from = if wanted.starts_with('/') { "" } else { folder };
    let own = if wanted.ends_with('/') { name } else { "" };
    let mut parts = Vec::new();
    for part in [from, wanted, own].iter().flat_map(|it| it.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => match why_no_name(part) {
                None => parts.push(part),
                Some(why) => return Err(why),
            },
        }
    }
    match parts.is_empty() {
        true => Err("This is the root folder."),
        false => Ok(format!("/{}", parts.join("/"))),
    }
}

/// Name of the last part of a path; `/` for the root.
pub(super) fn name(path: &str) -> &str {
    let name = path.trim_end_matches('/').rsplit('/').next();
    name.filter(|name| !name.is_empty()).unwrap_or("/")
}

/// Each folder on the way to a path, and the path itself: name and path.
pub(super) fn steps(path: &str) -> Vec<(String, String)> {
    let mut steps = vec![("/".to_owned(), "/".to_owned())];
    let mut at = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at = format!("{at}/{part}");
        steps.push((part.to_owned(), at.clone()));
    }
    steps
}

/// Why this cannot be the name of an entry.
pub(super) fn why_no_name(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("A name must not be empty."),
        "." | ".." => Some("This name stands for a folder on the way."),
        _ if name.contains('/') => Some("A name must not contain a slash."),
        _ if name.contains('\0') => Some("A name must not contain NUL."),
        _ if name.len() > 255 => Some("A name has at most 255 bytes."),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_escape_what_is_not_plain() {
        let id = SandboxId::from("ab");
        assert_eq!(
            address(&id, "/a b/é&c?#%", "from=500"),
            "/console/sandboxes/ab/files?path=/a%20b/%C3%A9%26c%3F%23%25&from=500"
        );
        assert_eq!(
            route(&id, "download", "/x"),
            "/console/sandboxes/ab/files/download?path=/x"
        );
    }

    #[test]
    fn paths_are_taken_apart_and_put_together() {
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/a", "b"), "/a/b");
        for (path, up, last) in [
            ("/", None, "/"),
            ("/a", Some("/"), "a"),
            ("/a/b/", Some("/a"), "b"),
        ] {
            assert_eq!(parent(path), up, "{path}");
            assert_eq!(name(path), last, "{path}");
        }
        let names: Vec<_> = steps("/a//b").into_iter().collect();
        let expected = [("/", "/"), ("a", "/a"), ("b", "/a/b")];
        assert_eq!(names, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn searches_have_addresses() {
        let id = SandboxId::from("ab");
        let mut asked = Asked {
            name: "*.py".to_owned(),
            text: "a b".to_owned(),
            case: true,
        };
        assert_eq!(
            search(&id, "/r", &asked),
            "/console/sandboxes/ab/files?path=/r&name=%2A.py&text=a%20b&case=on"
        );
        asked = Asked::default();
        assert_eq!(
            search(&id, "/r", &asked),
            "/console/sandboxes/ab/files?path=/r"
        );
        assert_eq!(below("/r", "/r/a/b"), "a/b");
        assert_eq!(below("/", "/a"), "a");
        assert_eq!(below("/r", "/rest"), "/rest");
    }

    #[test]
    fn an_entry_is_renamed_or_moved() {
        for (wanted, to) in [
            ("b", "/r/s/b"),
            ("/tmp/b", "/tmp/b"),
            ("/tmp/", "/tmp/a"),
            ("../b", "/r/b"),
            ("../", "/r/a"),
            ("./t/b", "/r/s/t/b"),
            ("../../../b", "/b"),
        ] {
            assert_eq!(target("/r/s", "a", wanted), Ok(to.to_owned()), "{wanted}");
        }
        let long = format!("/{}", "x".repeat(256));
        for bad in ["", ".", "..", "/..", "/tmp/\0", &long] {
            assert!(target("/r/s", "a", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        for bad in ["", ".", "..", "a/b", "a\0", &"x".repeat(256)] {
            assert!(why_no_name(bad).is_some(), "{bad:?}");
        }
        for good in ["a", ".profile", "..a", "é \"<b>"] {
            assert_eq!(why_no_name(good), None, "{good:?}");
        }
    }
}
