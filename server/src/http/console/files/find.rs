//! Search below a folder, and replacing text in what was found.

use std::{collections::BTreeMap, time::Duration};

use axum::http::StatusCode;
use osb_app::files::{Asked, Replaced};
use osb_client::{ExecdClient, execd::Find};
use osb_protocol::execd::{
    code,
    file::{Found, Replacement},
};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    super::{daemons::DaemonFailure, execd::ExecdError},
    ANSWER, check,
};

/// Most entries that a page shows.
const MOST: usize = 300;
/// Most files in which text is replaced at once.
const FILES: usize = 300;
/// Longest time that replacing in all of them may take: proxies before the server wait for a minute.
const REPLACING: Duration = Duration::from_secs(45);

/// What is below a folder.
pub(super) async fn find(
    execd: &ExecdClient,
    path: &str,
    asked: &Asked,
) -> Result<Found, DaemonFailure> {
    if asked.is_empty() {
        return Err(words("Search for a name or for a text."));
    }
    let wanted = Find {
        pattern: pattern(&asked.name),
        text: asked.text.clone(),
        ignore_case: !asked.case,
        limit: MOST,
    };
    match timeout(ANSWER, execd.find(path, &wanted)).await? {
        Ok(found) => Ok(found),
        Err(osb_client::Error::Api(refusal))
            if refusal.status == StatusCode::NOT_FOUND && refusal.code != code::FILE_NOT_FOUND =>
        {
            Err(words(
                "The execd of this sandbox is another one, which cannot search: create the sandbox anew.",
            ))
        }
        Err(error) => Err(error.into()),
    }
}

/// A name without wildcards is a part of the names that are found.
fn pattern(name: &str) -> String {
    if name.is_empty() || name.contains(['*', '?', '[', '{']) {
        return name.to_owned();
    }
    let mut pattern = "*".to_owned();
    for c in name.chars() {
        if matches!(c, '\\' | '}' | ']') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern + "*"
}

/// Replaces a text in files below a folder, one after the other: where it fails, the others go on.
pub(super) async fn replace(
    execd: &ExecdClient,
    folder: &str,
    paths: &[&str],
    replacement: &Replacement,
) -> Result<Replaced, DaemonFailure> {
    if replacement.old.is_empty() {
        return Err(words("There is no text to replace."));
    }
    if paths.len() > FILES {
        return Err(words("These are too many files at once."));
    }
    let end = Instant::now() + REPLACING;
    Ok(replace_until(execd, folder, paths, replacement, end).await)
}

/// The same until a deadline, which all files share.
async fn replace_until(
    execd: &ExecdClient,
    folder: &str,
    paths: &[&str],
    replacement: &Replacement,
    end: Instant,
) -> Replaced {
    let mut replaced = Replaced::default();
    for path in paths {
        match replace_in(execd, folder, path, replacement, end).await {
            Ok(count) => {
                replaced.places += count;
                replaced.files += usize::from(count > 0);
            }
            Err(why) => replaced.failed.push(format!("{path}: {why}")),
        }
    }
    replaced
}

/// Replaces a text in a file; how often it was there, or why it could not be replaced.
async fn replace_in(
    execd: &ExecdClient,
    folder: &str,
    path: &str,
    replacement: &Replacement,
    end: Instant,
) -> Result<usize, String> {
    if check(path).is_err() || !is_below(folder, path) {
        return Err(format!("it is not below {folder}"));
    }
    if Instant::now() >= end {
        return Err("there was no time left for it".to_owned());
    }
    let one = BTreeMap::from([(path.to_owned(), replacement.clone())]);
    match timeout_at(end, execd.replace(&one)).await {
        Ok(Ok(counts)) => Ok(counts.values().map(|it| it.count).sum()),
        Ok(Err(error)) => Err(ExecdError::from(error).to_string()),
        Err(late) => Err(format!(
            "{}; the text may have been replaced",
            ExecdError::from(late)
        )),
    }
}

/// Whether a path is below a folder, as the two are written.
fn is_below(folder: &str, path: &str) -> bool {
    fn parts(path: &str) -> impl Iterator<Item = &str> {
        path.split('/').filter(|part| !matches!(*part, "" | "."))
    }
    let mut rest = parts(path);
    let is_in_folder = parts(folder).all(|part| rest.next() == Some(part));
    let leads_up = |path| parts(path).any(|part| part == "..");
    is_in_folder && rest.next().is_some() && !leads_up(folder) && !leads_up(path)
}

fn words(why: &str) -> DaemonFailure {
    DaemonFailure::Words(why.to_owned())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use axum::{Json, Router, routing::post};
    use osb_runtime::sim::SimRuntime;
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    use super::{
        super::super::{
            execd::Execds,
            tests::{Console, running},
        },
        *,
    };
    use crate::identity::Scope;

    #[test]
    fn names_without_wildcards_are_parts_of_names() {
        for (name, expected) in [
            ("", ""),
            ("conf", "*conf*"),
            ("*.py", "*.py"),
            ("a?", "a?"),
            ("!(a)", "*!(a)*"),
            ("a\\b}]", "*a\\\\b\\}\\]*"),
        ] {
            assert_eq!(pattern(name), expected, "{name}");
        }
    }

    #[test]
    fn what_is_below_a_folder_begins_with_its_parts() {
        for (folder, path) in [
            ("/", "/a"),
            ("/srv", "/srv/a"),
            ("/srv/", "/srv//a/./b"),
            ("/srv", "/srv/..a/b.."),
        ] {
            assert!(is_below(folder, path), "{folder} {path}");
        }
        for (folder, path) in [
            ("/", "/"),
            ("/srv", "/srv"),
            ("/srv", "/srv/."),
            ("/srv", "/srv2/a"),
            ("/srv/a", "/srv/b"),
            ("/srv", "/srv/../etc/passwd"),
            ("/srv", "/srv/a/.."),
            ("/srv/..", "/srv/../a"),
            ("/srv", "/"),
        ] {
            assert!(!is_below(folder, path), "{folder} {path}");
        }
    }

    /// Replaces `a` by `b` in files below `/srv`, in an execd that refuses `/srv/refused` and never
    /// answers about `/srv/slow`.
    async fn replaced(paths: &[&str], within: Duration) -> Replaced {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let console = Console::open_over(SimRuntime::with([running("a", port)])).await;
        let answer = async |Json(body): Json<Value>| {
            let (path, texts) = body.as_object().unwrap().iter().next().unwrap();
            assert_eq!(texts, &json!({ "old": "a", "new": "b" }));
            match path.as_str() {
                "/srv/refused" => {
                    let why = json!({ "code": "RUNTIME_ERROR", "message": "permission denied" });
                    (StatusCode::INTERNAL_SERVER_ERROR, Json(why))
                }
                "/srv/slow" => pending().await,
                path => (
                    StatusCode::OK,
                    Json(json!({ path: { "replacedCount": 2 } })),
                ),
            }
        };
        console.serve(
            listener,
            Router::new().route("/files/replace", post(answer)),
        );
        let execds = Execds::new(console.service.clone()).unwrap();
        let execd = execds.client(&"a".into(), &Scope::All).unwrap();
        let replacement = Replacement {
            old: "a".to_owned(),
            new: "b".to_owned(),
        };
        let end = Instant::now() + within;
        replace_until(&execd, "/srv", paths, &replacement, end).await
    }

    #[tokio::test]
    async fn each_file_that_fails_is_named_and_the_others_are_changed() {
        let paths = [
            "/srv/refused",
            "/etc/x",
            "/srv/../etc/y",
            "/srv/z",
            "/srv/d/z",
        ];
        let replaced = replaced(&paths, REPLACING).await;
        assert_eq!((replaced.files, replaced.places), (2, 4));
        let failed = [
            "/srv/refused: permission denied",
            "/etc/x: it is not below /srv",
            "/srv/../etc/y: it is not below /srv",
        ];
        assert_eq!(replaced.failed, failed);
    }

    #[tokio::test]
    async fn all_files_share_one_deadline() {
        let within = Duration::from_secs(2);
        let replaced = replaced(&["/srv/slow", "/srv/z"], within).await;
        assert_eq!((replaced.files, replaced.places), (0, 0));
        let failed = [
            "/srv/slow: execd does not answer; the text may have been replaced",
            "/srv/z: there was no time left for it",
        ];
        assert_eq!(replaced.failed, failed);
    }
}
