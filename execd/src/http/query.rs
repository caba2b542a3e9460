//! Query parameters as clients send them: form-encoded, repeated names allowed.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::{Uri, request::Parts};

/// The parameters in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// The parameters of an address.
    #[must_use]
    pub fn of(uri: &Uri) -> Self {
        let parsed = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri);
        Self(parsed.map(|query| query.0).unwrap_or_default())
    }

    /// The first value of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Every value of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(given, _)| given == name)
            .map(|(_, value)| value.as_str())
    }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.uri))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_generations_of_clients_are_understood() {
        let query = Query::of(&"/x?path=/a%20b&path=%2Fc+d&e=".parse().unwrap());
        assert_eq!(query.all("path").collect::<Vec<_>>(), ["/a b", "/c d"]);
        assert_eq!(query.get("e"), Some(""));
        assert_eq!(query.get("f"), None);
        assert_eq!(Query::of(&"/x".parse().unwrap()), Query::default());
    }
}
