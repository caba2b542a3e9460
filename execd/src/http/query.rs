//! Query parameters as clients send them: form-encoded, repeated names allowed.

use std::{
    convert::Infallible,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStringExt,
};

use http::{Uri, request::Parts};
use percent_encoding::percent_decode_str;

/// Parameters in order of appearance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<Parameter>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    name: String,
    /// Text, with U+FFFD for invalid UTF-8.
    text: String,
    /// Bytes of the value: a path may contain any.
    bytes: OsString,
}

impl Query {
    /// Parses the parameters of a URI.
    #[must_use]
    pub fn of(uri: &Uri) -> Self {
        let pairs = uri.query().unwrap_or_default().split('&');
        let given = pairs.filter(|pair| !pair.is_empty());
        Self(given.map(Parameter::decode).collect())
    }

    /// First value of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|given| given.name == name);
        found.map(|given| given.text.as_str())
    }

    /// All values of a parameter, byte for byte.
    pub fn all_bytes<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a OsStr> {
        self.0
            .iter()
            .filter(move |given| given.name == name)
            .map(|given| given.bytes.as_os_str())
    }
}

impl Parameter {
    fn decode(pair: &str) -> Self {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let bytes = decoded(value);
        Self {
            name: String::from_utf8_lossy(&decoded(name)).into_owned(),
            text: String::from_utf8_lossy(&bytes).into_owned(),
            bytes: OsString::from_vec(bytes),
        }
    }
}

fn decoded(text: &str) -> Vec<u8> {
    percent_decode_str(&text.replace('+', " ")).collect()
}

impl<S: Sync> axum::extract::FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.uri))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn both_generations_of_clients_are_understood() {
        let query = Query::of(&"/x?path=/a%20b&path=%2Fc+d&&e=&f".parse().unwrap());
        assert_eq!(
            query.all_bytes("path").collect::<Vec<_>>(),
            ["/a b", "/c d"]
        );
        assert_eq!(query.get("path"), Some("/a b"));
        assert_eq!(query.get("e"), Some(""));
        assert_eq!(query.get("f"), Some(""));
        assert_eq!(query.get("g"), None);
        assert_eq!(Query::of(&"/x".parse().unwrap()), Query::default());
    }

    #[test]
    fn bytes_arrive_as_they_were_sent() {
        let query = Query::of(&"/x?path=a%FFb%2B%zz%2".parse().unwrap());
        let bytes = query.all_bytes("path").next().unwrap().as_bytes();
        assert_eq!(bytes, b"a\xffb+%zz%2");
        assert_eq!(query.get("path"), Some("a\u{fffd}b+%zz%2"));
    }
}
