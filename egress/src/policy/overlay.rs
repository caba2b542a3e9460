//! The operator's rules, which take precedence over every user's policy (contract: egress §4.4).

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use osb_protocol::network_policy::{Action, Rule, Target, TargetError};

/// Folder of the operator's files.
pub const FOLDER: &str = "/var/egress/rules";

const DENY: &str = "deny.always";
const ALLOW: &str = "allow.always";
const LOG_SKIP: &str = "log_skip.always";

/// The operator's rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// Refusals: before everything.
    pub deny: Vec<Rule>,
    /// Permissions: after the refusals, before the user's rules.
    pub allow: Vec<Rule>,
}

/// Reason why a file of the operator cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// It cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A line is no target.
    #[error("{}, line {line}", .path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Cause.
        #[source]
        source: TargetError,
    },
    /// A line is a network where only names make sense.
    #[error("{}, line {line}: must be a domain name, not a network", .path.display())]
    Network {
        /// Path of the file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
    },
}

/// The operator's files, which are read again when they change.
#[derive(Debug)]
pub struct OverlayFiles {
    deny: RuleFile,
    allow: RuleFile,
}

impl OverlayFiles {
    /// Files in a folder.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            deny: RuleFile::new(folder.join(DENY), Action::Deny),
            allow: RuleFile::new(folder.join(ALLOW), Action::Allow),
        }
    }

    /// Reads the files that changed. Returns the rules if any are different from before. A missing
    /// file has no rules.
    ///
    /// # Errors
    /// See [`OverlayError`]. Nothing is taken over then, so that the next call reads both again.
    pub fn changed(&mut self) -> Result<Option<Overlay>, OverlayError> {
        let (deny, allow) = (self.deny.read_if_changed()?, self.allow.read_if_changed()?);
        let deny = deny.is_some_and(|read| self.deny.take_over(read));
        let allow = allow.is_some_and(|read| self.allow.take_over(read));
        let changed = deny || allow;
        Ok(changed.then(|| Overlay {
            deny: self.deny.rules.clone(),
            allow: self.allow.rules.clone(),
        }))
    }
}

/// How a file looked when it was read: modification time and size. `None` if it was missing.
type Stamp = Option<(SystemTime, u64)>;

/// File with a target in each line.
#[derive(Debug)]
struct RuleFile {
    path: PathBuf,
    action: Action,
    /// State at the last reading. The outer `None` stands for "not read yet".
    stamp: Option<Stamp>,
    rules: Vec<Rule>,
}

impl RuleFile {
    fn new(path: PathBuf, action: Action) -> Self {
        Self {
            path,
            action,
            stamp: None,
            rules: Vec::new(),
        }
    }

    fn read_if_changed(&self) -> Result<Option<(Stamp, Vec<Rule>)>, OverlayError> {
        let stamp = self.stamp()?;
        if self.stamp == Some(stamp) {
            return Ok(None);
        }
        let rules = match stamp {
            Some(_) => self.read()?,
            None => Vec::new(),
        };
        Ok(Some((stamp, rules)))
    }

    /// Whether the rules are different.
    fn take_over(&mut self, (stamp, rules): (Stamp, Vec<Rule>)) -> bool {
        self.stamp = Some(stamp);
        let is_different = self.rules != rules;
        self.rules = rules;
        is_different
    }

    fn stamp(&self) -> Result<Stamp, OverlayError> {
        match fs::metadata(&self.path).and_then(|it| Ok((it.modified()?, it.len()))) {
            Ok(stamp) => Ok(Some(stamp)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(self.unreadable(source)),
        }
    }

    fn read(&self) -> Result<Vec<Rule>, OverlayError> {
        let text = fs::read_to_string(&self.path).map_err(|source| self.unreadable(source))?;
        let mut rules = Vec::new();
        for (line, target) in targets(&text) {
            let rule = Rule::new(self.action, target).map_err(|source| OverlayError::Line {
                path: self.path.clone(),
                line,
                source,
            })?;
            rules.push(rule);
        }
        Ok(rules)
    }

    fn unreadable(&self, source: io::Error) -> OverlayError {
        OverlayError::Read {
            path: self.path.clone(),
            source,
        }
    }
}

/// Names whose allowed queries are not logged, from a file in the folder. A missing file has none.
///
/// # Errors
/// See [`OverlayError`].
pub fn log_skip(folder: &Path) -> Result<Vec<Target>, OverlayError> {
    let file = RuleFile::new(folder.join(LOG_SKIP), Action::Allow);
    if file.stamp()?.is_none() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&file.path).map_err(|source| file.unreadable(source))?;
    let mut names = Vec::new();
    for (line, target) in targets(&text) {
        let path = file.path.clone();
        match Target::parse(target) {
            Ok(Target::Network(_)) => return Err(OverlayError::Network { path, line }),
            Ok(name) => names.push(name),
            Err(source) => return Err(OverlayError::Line { path, line, source }),
        }
    }
    Ok(names)
}

/// Targets of a file with the numbers of their lines. `#` begins a comment.
fn targets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(text.lines().map(str::trim));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self) -> &Path {
            self.0.path()
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.path().join(name), text).unwrap();
        }
    }

    fn texts(rules: &[Rule]) -> Vec<String> {
        rules.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_are_read_when_they_appear_change_or_vanish() {
        let place = Place::new();
        let mut files = OverlayFiles::in_folder(place.path());
        assert_eq!(files.changed().unwrap(), None);
        place.write(DENY, "# never\n\n  *.ads.example  \n10.0.0.0/8\n");
        let overlay = files.changed().unwrap().unwrap();
        assert_eq!(
            texts(&overlay.deny),
            ["deny *.ads.example", "deny 10.0.0.0/8"]
        );
        assert_eq!(files.changed().unwrap(), None);
        place.write(ALLOW, "api.example\n");
        let overlay = files.changed().unwrap().unwrap();
        assert_eq!(texts(&overlay.allow), ["allow api.example"]);
        assert_eq!(overlay.deny.len(), 2);
        place.write(DENY, "ads.example\n");
        assert_eq!(files.changed().unwrap().unwrap().deny.len(), 1);
        fs::remove_file(place.path().join(DENY)).unwrap();
        assert_eq!(files.changed().unwrap().unwrap().deny, []);
        assert_eq!(files.changed().unwrap(), None);
    }

    #[test]
    fn a_bad_line_is_named_and_nothing_is_taken_over() {
        let place = Place::new();
        let mut files = OverlayFiles::in_folder(place.path());
        place.write(DENY, "good.example\n");
        files.changed().unwrap().unwrap();
        place.write(DENY, "better.example\n");
        place.write(ALLOW, "ok.example\n# comment\nhttp://bad\n");
        let error = files.changed().unwrap_err();
        assert!(
            error.to_string().ends_with("allow.always, line 3"),
            "{error}"
        );
        assert_eq!(texts(&files.deny.rules), ["deny good.example"]);
        place.write(ALLOW, "ok.example\n");
        let overlay = files.changed().unwrap().unwrap();
        assert_eq!(texts(&overlay.deny), ["deny better.example"]);
        assert_eq!(texts(&overlay.allow), ["allow ok.example"]);
    }

    #[test]
    fn names_without_a_log_are_names() {
        let place = Place::new();
        assert_eq!(log_skip(place.path()).unwrap(), []);
        place.write(LOG_SKIP, "# none\n\n  # yet\n");
        assert_eq!(log_skip(place.path()).unwrap(), []);
        place.write(LOG_SKIP, "# health\n Quiet.example. \n*.noise.example\n");
        let names = log_skip(place.path()).unwrap();
        assert_eq!(
            names,
            [
                Target::Name("quiet.example".into()),
                Target::Subdomains("noise.example".into())
            ]
        );
        place.write(LOG_SKIP, "a.example\n10.0.0.1\n");
        let error = log_skip(place.path()).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
