//! Filter and page of the list, as in the URL. The server applies
//! it to the first page it renders, the browser to the rows it keeps up to date.

use osb_protocol::lifecycle::SandboxState;
use serde::{Deserialize, Serialize};

use crate::view::{SandboxList, SandboxRow};

/// Most rows of one page: each costs the browser layout.
pub const PAGE_ROWS: usize = 100;

/// Filter and page of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListQuery {
    /// Words that all have to occur in id, image, state or labels; case does not matter.
    pub q: String,
    /// Only this state; empty means all.
    pub state: String,
    /// Page from 1.
    pub page: usize,
}

impl ListQuery {
    /// From the parameters of the page's URL.
    #[must_use]
    pub fn from_url(get: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            q: get("q").unwrap_or_default(),
            state: get("state").unwrap_or_default(),
            page: get("page").and_then(|page| page.parse().ok()).unwrap_or(1),
        }
    }

    /// The page's address with this query; defaults are left out.
    #[must_use]
    pub fn url(&self) -> String {
        let mut url = leptos_router::params::ParamsMap::new();
        if !self.q.is_empty() {
            url.insert("q", self.q.clone());
        }
        if !self.state.is_empty() {
            url.insert("state", self.state.clone());
        }
        if self.page > 1 {
            url.insert("page", self.page.to_string());
        }
        format!("/console/sandboxes{}", url.to_query_string())
    }

    /// Whether anything is filtered out.
    #[must_use]
    pub fn filters(&self) -> bool {
        !self.q.trim().is_empty() || !self.state.is_empty()
    }

    /// Whether a row is shown (on some page).
    #[must_use]
    pub fn matches(&self, row: &SandboxRow) -> bool {
        let state = &row.sandbox.status.state;
        if !self.state.is_empty() && SandboxState::from(self.state.as_str()) != *state {
            return false;
        }
        self.q.split_whitespace().all(|word| {
            let labels = row.sandbox.metadata.iter();
            contains(row.id().as_str(), word)
                || contains(row.origin(), word)
                || contains(state.as_str(), word)
                || labels
                    .into_iter()
                    .any(|(key, value)| contains_label(key, value, word))
        })
    }

    /// The page of rows that this query asks for.
    #[must_use]
    pub fn select(&self, rows: Vec<SandboxRow>) -> SandboxList {
        let total = rows.len();
        let mut matching = 0;
        let first = self.first();
        let rows = rows.into_iter().filter(|row| self.matches(row));
        let rows = rows.inspect(|_| matching += 1).enumerate();
        let rows = rows.filter(|(at, _)| (first..first.saturating_add(PAGE_ROWS)).contains(at));
        let rows = rows.map(|(_, row)| row).collect();
        SandboxList {
            rows,
            matching,
            total,
            warning: None,
        }
    }

    /// Position of this page's first row among those that match.
    #[must_use]
    pub fn first(&self) -> usize {
        self.page.saturating_sub(1).saturating_mul(PAGE_ROWS)
    }
}

fn contains(text: &str, word: &str) -> bool {
    text.to_lowercase().contains(&word.to_lowercase())
}

fn contains_label(key: &str, value: &str, word: &str) -> bool {
    match word.split_once('=') {
        Some((name, part)) => key.eq_ignore_ascii_case(name) && contains(value, part),
        None => contains(key, word) || contains(value, word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::sample::row;

    fn query(q: &str, state: &str) -> ListQuery {
        ListQuery {
            q: q.to_owned(),
            state: state.to_owned(),
            page: 1,
        }
    }

    #[test]
    fn every_word_has_to_match_somewhere() {
        let mut one = row("0b6c1f2e", "Running");
        one.sandbox
            .metadata
            .insert("team".to_owned(), "Search".to_owned());
        for (q, state, shown) in [
            ("", "", true),
            ("0B6C", "", true),
            ("debian running", "", true),
            ("debian paused", "", false),
            ("team=sea", "", true),
            ("team=x", "", false),
            ("search", "", true),
            ("", "Running", true),
            ("", "Failed", false),
            ("0b6c", "Failed", false),
        ] {
            assert_eq!(query(q, state).matches(&one), shown, "{q:?} {state:?}");
        }
    }

    #[test]
    fn pages_cut_what_matches_not_what_exists() {
        let rows: Vec<_> = (0..250)
            .map(|n| row(&format!("id-{n}"), "Running"))
            .collect();
        let page = |page| {
            ListQuery {
                page,
                ..query("id-", "")
            }
            .select(rows.clone())
        };
        assert_eq!(page(1).rows.len(), 100);
        assert_eq!(page(3).rows.len(), 50);
        assert_eq!(page(3).rows[0].id().as_str(), "id-200");
        assert_eq!(page(usize::MAX).rows.len(), 0);
        assert_eq!((page(1).matching, page(1).total), (250, 250));
        assert_eq!(query("id-7", "").select(rows).matching, 11);
    }

    #[test]
    fn the_url_carries_the_query_both_ways() {
        let wanted = ListQuery {
            q: "a&b c".to_owned(),
            state: "Running".to_owned(),
            page: 2,
        };
        let url = wanted.url();
        assert!(!url.contains("a&b"), "{url}");
        assert_eq!(ListQuery::default().url(), "/console/sandboxes");
    }
}
