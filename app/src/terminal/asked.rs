//! What the address of a terminal asks for.
//!
//! ```text
//! ?shell=ID&view                     watches a shell of another tab
//! ?program=zsh&user=www-data&cwd=/   starts the tab's shell like this
//! ```

/// Longest id of a shell.
const ID_MAX: usize = 64;

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

    /// Parameters of the connection that starts a shell, each after a `&`.
    #[cfg(any(feature = "hydrate", test))]
    pub(super) fn start_query(&self) -> String {
        let mut query = leptos_router::params::ParamsMap::new();
        let given = [
            ("program", &self.program),
            ("user", &self.user),
            ("cwd", &self.cwd),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                query.insert(name, value.clone());
            }
        }
        query.to_query_string().replacen('?', "&", 1)
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
    }
}
