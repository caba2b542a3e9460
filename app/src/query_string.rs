//! The query of an address. The router's own map decodes values a second time, both when it is read
//! and when it is filled, which changes every text with a percent sign before two digits.

use leptos::prelude::*;
use leptos_router::hooks::use_location;

/// Parameters of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query, with or without the question mark.
    pub(crate) fn parse(search: &str) -> Self {
        let search = search.strip_prefix('?').unwrap_or(search);
        let pairs = form_urlencoded::parse(search.as_bytes());
        Self(pairs.into_owned().collect())
    }

    /// Value of a parameter; the last one if it is there more than once.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.get_str(name).map(str::to_owned)
    }

    /// The same without a copy.
    pub(crate) fn get_str(&self, name: &str) -> Option<&str> {
        let mut pairs = self.0.iter().rev();
        pairs
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

/// The query of the current page.
pub(crate) fn use_query() -> Memo<Query> {
    let search = use_location().search;
    Memo::new(move |_| Query::parse(&search.read()))
}

/// A query with these parameters, with its question mark; empty without any.
pub(crate) fn to_query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs);
    match query.finish() {
        query if query.is_empty() => query,
        query => format!("?{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_survives_an_address() {
        for text in [
            "a b",
            "a%20b",
            "a%41",
            "%",
            "%zz",
            "1+1",
            "a&b=c",
            "#?",
            "ä\u{2028}",
            "",
        ] {
            let query = to_query([("path", text), ("q", "x")]);
            let read = Query::parse(&query);
            assert_eq!(read.get("path").as_deref(), Some(text), "{query}");
            assert_eq!(read.get_str("q"), Some("x"));
        }
        assert_eq!(to_query([]), "");
        assert_eq!(Query::parse("").get("q"), None);
        assert_eq!(Query::parse("?q=1&q=2").get_str("q"), Some("2"));
        // As other programs write it.
        assert_eq!(Query::parse("q=a%20b+c").get_str("q"), Some("a b c"));
    }
}
