//! Comments, strings, names and prose use the plain words that `words.toml` asks for.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use serde::Deserialize;

/// The word list, with its exceptions. The only file that the scan leaves out.
const LIST: &str = "xtask/tests/words.toml";

/// Extensions of the files that are scanned; [`SCANNED_NAMES`] adds files without one.
const SCANNED_EXTENSIONS: [&str; 13] = [
    "rs", "md", "py", "js", "mjs", "ts", "css", "toml", "html", "sh", "lua", "service", "ini",
];
const SCANNED_NAMES: [&str; 1] = ["Dockerfile"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WordList {
    /// Files, or folders ending in `/`, that still have to be rewritten.
    #[serde(default)]
    pending: BTreeSet<String>,
    avoid: Vec<Avoided>,
    #[serde(default)]
    allow: Vec<Exception>,
}

/// Words and phrases in lower case, with the wording to use instead.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Avoided {
    words: Vec<String>,
    instead: String,
}

/// A right use: a line of `file` that contains `line`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    file: String,
    line: String,
    reason: String,
}

impl WordList {
    fn load(root: &Path) -> Self {
        let text = fs::read_to_string(root.join(LIST)).expect("the list is checked in");
        toml::from_str(&text).unwrap_or_else(|error| panic!("{LIST}: {error}"))
    }

    fn is_pending(&self, path: &str) -> bool {
        self.pending.iter().any(|entry| covers(entry, path))
    }

    /// Reports every avoided word in `text`, and marks the exceptions it meets in `used`.
    fn check(&self, path: &str, text: &str, used: &mut BTreeSet<usize>, report: &mut Vec<String>) {
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_ascii_lowercase();
            for avoided in &self.avoid {
                for word in &avoided.words {
                    if !contains_word(line, &lower, word) {
                        continue;
                    }
                    let exception = self.allow.iter().position(|exception| {
                        exception.file == path && line.contains(&exception.line)
                    });
                    if let Some(index) = exception {
                        used.insert(index);
                    } else {
                        let Avoided { instead, .. } = avoided;
                        report.push(format!("{path}:{}: {word:?}: {instead}", number + 1));
                    }
                }
            }
        }
    }
}

fn covers(entry: &str, path: &str) -> bool {
    path == entry || (entry.ends_with('/') && path.starts_with(entry))
}

/// Whether `line` contains `word` as a word of its own, also as a part of a `snake_case` or
/// `CamelCase` name. `lower` is the line in lower case.
fn contains_word(line: &str, lower: &str, word: &str) -> bool {
    let bytes = line.as_bytes();
    lower.match_indices(word).any(|(start, _)| {
        let end = start + word.len();
        let begins = start == 0
            || !bytes[start - 1].is_ascii_alphabetic()
            || (bytes[start - 1].is_ascii_lowercase() && bytes[start].is_ascii_uppercase());
        let ends = end == bytes.len()
            || !bytes[end].is_ascii_alphabetic()
            || (bytes[end].is_ascii_uppercase() && bytes[end - 1].is_ascii_lowercase());
        begins && ends
    })
}

fn is_scanned(path: &str) -> bool {
    let path = Path::new(path);
    match path.extension() {
        Some(extension) => SCANNED_EXTENSIONS.iter().any(|known| extension == *known),
        None => SCANNED_NAMES
            .iter()
            .any(|known| path.file_name().is_some_and(|name| name == *known)),
    }
}

/// Paths of all tracked files that hold prose or code.
fn scanned_files(root: &Path) -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()
        .expect("git is installed");
    assert!(output.status.success(), "git ls-files: {output:?}");
    let files: Vec<String> = String::from_utf8(output.stdout)
        .expect("paths are UTF-8")
        .split_terminator('\0')
        .filter(|path| *path != LIST && is_scanned(path))
        .map(str::to_owned)
        .collect();
    assert!(files.len() > 100, "only {} files are tracked", files.len());
    files
}

#[test]
fn prose_uses_plain_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let list = WordList::load(root);
    let mut used = BTreeSet::new();
    let mut report = Vec::new();
    let files = scanned_files(root);
    for path in files.iter().filter(|path| !list.is_pending(path)) {
        // A file that is deleted but not committed yet is still listed.
        if let Ok(text) = fs::read_to_string(root.join(path)) {
            list.check(path, &text, &mut used, &mut report);
        }
    }
    for (index, exception) in list.allow.iter().enumerate() {
        let Exception { file, line, reason } = exception;
        assert!(!reason.is_empty(), "{LIST}: {file} has no reason");
        if !used.contains(&index) && !list.is_pending(file) {
            report.push(format!("{LIST}: no line of {file} needs {line:?} any more"));
        }
    }
    for entry in &list.pending {
        if !files.iter().any(|path| covers(entry, path)) {
            report.push(format!("{LIST}: no file is below the pending {entry:?}"));
        }
    }
    assert!(
        report.is_empty(),
        "{} uses of words that {LIST} advises against:\n{}",
        report.len(),
        report.join("\n")
    );
}

#[test]
fn words_are_found_in_prose_and_names_but_not_inside_other_words() {
    let found = |line: &str| contains_word(line, &line.to_ascii_lowercase(), "cold");
    for line in [
        "cold",
        "it is cold.",
        "a_port_is_cold_once",
        "fn cold(",
        "ColdGroup",
        "isCold",
        "COLD",
    ] {
        assert!(found(line), "{line}");
    }
    for line in ["scold", "it is colder", "COLDER", "scolds", ""] {
        assert!(!found(line), "{line}");
    }
}

#[test]
fn exceptions_silence_their_line_only() {
    let list: WordList = toml::from_str(
        r#"
        pending = ["later/", "one.md"]
        [[avoid]]
        words = ["may", "in the end"]
        instead = "use plain words"
        [[allow]]
        file = "a.md"
        line = "quoted: may"
        reason = "a quotation"
        "#,
    )
    .unwrap();
    let (mut used, mut report) = (BTreeSet::new(), Vec::new());
    let text = "quoted: may\nfine\nIt MAY stop in the end.";
    list.check("a.md", text, &mut used, &mut report);
    list.check("b.md", "quoted: may", &mut used, &mut report);
    assert_eq!(used, BTreeSet::from([0]));
    assert_eq!(
        report,
        [
            r#"a.md:3: "may": use plain words"#,
            r#"a.md:3: "in the end": use plain words"#,
            r#"b.md:1: "may": use plain words"#,
        ]
    );
    assert!(list.is_pending("later/a.md") && list.is_pending("one.md"));
    assert!(!list.is_pending("laterally.md") && !list.is_pending("two/one.md"));
}
