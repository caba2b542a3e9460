//! What the address of a terminal asks for.
//!
//! ```text
//! ?shell=ID&view                     watches a shell of another tab
//! ?program=zsh&user=www-data&cwd=/   starts the tab's shell like this, once its user agrees
//! ```
//!
//! Anyone can make such an address, so the page shows what it would start and waits for a button. The
//! form of a new shell is that agreement already: it leaves a confirmation in the browser's memory,
//! which pages of other origins cannot write.

use leptos_router::location::Url;
use osb_protocol::SandboxId;

use crate::browser::Memory;

/// Longest id of a shell.
const ID_MAX: usize = 64;
/// Name in the browser's memory: the shell that the user asked for in the form. The page that starts
/// it removes this.
const CONFIRMED: &str = "osb.terminal.confirmed";

/// A shell to watch, or how a new one starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The shell of another tab.
    pub(super) watched: Option<String>,
    /// The program of a new shell; execd's default without one.
    program: Option<String>,
    /// Its user.
    user: Option<String>,
    /// Its directory.
    cwd: Option<String>,
}

impl Asked {
    pub(super) fn of(get: impl Fn(&str) -> Option<String>) -> Self {
        let given = |name| get(name).filter(|text| !text.trim().is_empty());
        // The id becomes a part of other addresses.
        let is_id = |id: &String| {
            let is_plain = |it: u8| it.is_ascii_alphanumeric() || it == b'-';
            id.len() <= ID_MAX && id.bytes().all(is_plain)
        };
        let is_view = get("view").is_some();
        Self {
            watched: given("shell").filter(|id| is_view && is_id(id)),
            program: given("program"),
            user: given("user"),
            cwd: given("cwd"),
        }
    }

    /// The address that watches a shell, without the page's.
    pub(super) fn watch_query(shell: &str) -> String {
        format!("?shell={shell}&view=1")
    }

    /// How a new shell starts: names of parameters, and their values.
    fn given(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("program", &self.program),
            ("user", &self.user),
            ("cwd", &self.cwd),
        ];
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }

    /// Parameters of the connection that starts a shell, each after a `&`.
    pub(super) fn start_query(&self) -> String {
        self.given()
            .map(|(name, value)| format!("&{name}={}", Url::escape(value)))
            .collect()
    }

    /// What the address would start, in words; `None` if that is the usual shell. Values are quoted, and
    /// what would be invisible or reorder the text is escaped, so that they are seen as they are sent.
    #[cfg(any(feature = "hydrate", test))]
    pub(super) fn words(&self) -> Option<String> {
        let given = self.given().map(|(name, value)| match name {
            "cwd" => format!("directory {value:?}"),
            name => format!("{name} {value:?}"),
        });
        let given = given.collect::<Vec<_>>().join(", ");
        (!given.is_empty()).then(|| {
            format!(
                "The address asks for a shell with {given}. Start it only if you trust where the address came from."
            )
        })
    }

    /// Lets the next page start this shell without a question.
    pub(super) fn confirm(&self, sandbox: &SandboxId) {
        let confirmation = self.confirmation(sandbox);
        Memory::Browser.set(CONFIRMED, confirmation.as_deref());
    }

    /// Whether the user asked for exactly this shell in the form. This holds once: it is removed, and
    /// what was confirmed for another shell as well.
    #[cfg(feature = "hydrate")]
    pub(super) fn take_confirmation(&self, sandbox: &SandboxId) -> bool {
        let Some(wanted) = self.confirmation(sandbox) else {
            return false;
        };
        let confirmed = Memory::Browser.get(CONFIRMED);
        Memory::Browser.set(CONFIRMED, None);
        confirmed == Some(wanted)
    }

    /// What confirms the start of this shell; `None` if it is the usual one.
    fn confirmation(&self, sandbox: &SandboxId) -> Option<String> {
        let query = self.start_query();
        (!query.is_empty()).then(|| format!("{sandbox}{query}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pairs: &[(&str, &str)]) -> Asked {
        Asked::of(|name| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn only_an_id_is_watched() {
        let watched = |id| asked(&[("shell", id), ("view", "")]).watched;
        assert_eq!(watched("1f-2e").as_deref(), Some("1f-2e"));
        for id in ["", "a&takeover=1", "../x", &"a".repeat(ID_MAX + 1)] {
            assert_eq!(watched(id), None, "{id}");
        }
        assert_eq!(asked(&[("shell", "1f")]).watched, None);
        let query = Asked::watch_query("1f");
        assert_eq!(query, "?shell=1f&view=1");
    }

    #[test]
    fn what_is_empty_is_left_to_the_daemon() {
        assert_eq!(asked(&[("program", ""), ("user", " ")]).start_query(), "");
        let query = asked(&[("program", "zsh"), ("cwd", "srv")]).start_query();
        assert_eq!(query, "&program=zsh&cwd=srv");
        let query = asked(&[("program", "a&b%41")]).start_query();
        assert_eq!(query, "&program=a%26b%2541");
    }

    #[test]
    fn what_would_be_started_is_shown_as_it_is() {
        let words = |pairs| asked(pairs).words().unwrap();
        let all = words(&[("program", "sh"), ("user", "root"), ("cwd", "/srv")]);
        let wanted = r#"with program "sh", user "root", directory "/srv"."#;
        assert!(all.contains(wanted), "{all}");
        let hostile = words(&[("program", "a\"b\n\u{202e}c")]);
        let wanted = r#"program "a\"b\n\u{202e}c"."#;
        assert!(hostile.contains(wanted), "{hostile}");
        assert_eq!(asked(&[("user", " "), ("shell", "1f")]).words(), None);
    }

    #[test]
    fn a_confirmation_is_for_one_shell_of_one_sandbox() {
        let confirmation = |pairs, sandbox: &str| asked(pairs).confirmation(&sandbox.into());
        let form = confirmation(&[("program", "sh"), ("user", "")], "a");
        assert_eq!(form.as_deref(), Some("a&program=sh"));
        assert_eq!(confirmation(&[("program", "sh")], "a"), form);
        for (pairs, sandbox) in [
            (&[("program", "sh"), ("user", "root")][..], "a"),
            (&[("program", "zsh")], "a"),
            (&[("user", "sh")], "a"),
            (&[("program", "sh")], "b"),
        ] {
            assert_ne!(confirmation(pairs, sandbox), form, "{pairs:?} {sandbox}");
        }
        assert_eq!(confirmation(&[], "a"), None);
    }
}
