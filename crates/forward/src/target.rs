//! Destination of a forwarded request.

use http::{
    Uri,
    uri::{Authority, PathAndQuery},
};

/// A backend, and the path and query of a request to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Host and port; IPv6 addresses in brackets.
    pub authority: Authority,
    /// Path and query as they are sent, byte for byte.
    pub path_and_query: PathAndQuery,
}

/// Returns the path after its first `segments` segments, with the query, exactly as the client sent
/// it: percent escapes, doubled slashes and a bare `?` are kept. `/` where nothing follows.
///
/// Pass the URI as received (in axum `OriginalUri` below a `nest`).
///
/// ```
/// let uri: http::Uri = "/proxy/8080//a%2Fb?x&x=1".parse().unwrap();
/// assert_eq!(osb_forward::after_segments(&uri, 2), "//a%2Fb?x&x=1");
/// ```
#[must_use]
pub fn after_segments(uri: &Uri, segments: usize) -> PathAndQuery {
    let path = uri.path();
    let rest = path
        .match_indices('/')
        .nth(segments)
        .map_or("", |(start, _)| &path[start..]);
    let rest = if rest.is_empty() { "/" } else { rest };
    let whole = match uri.query() {
        Some(query) => format!("{rest}?{query}"),
        None => rest.to_owned(),
    };
    PathAndQuery::try_from(whole).expect("parts of a valid path and query are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_the_path_keeps_its_bytes() {
        for (uri, segments, expected) in [
            (
                "/proxy/8080/a%2Fb/%7e?q=%20&flag",
                2,
                "/a%2Fb/%7e?q=%20&flag",
            ),
            ("/proxy/8080", 2, "/"),
            ("/proxy/8080/", 2, "/"),
            ("/proxy/8080?", 2, "/?"),
            ("/proxy/8080?a=/b", 2, "/?a=/b"),
            ("/proxy/8080//x//", 2, "//x//"),
            ("/v1/sandboxes/id/proxy/80/../x", 5, "/../x"),
            ("http://host/proxy/80/x", 2, "/x"),
            ("/same", 0, "/same"),
        ] {
            let uri: Uri = uri.parse().unwrap();
            assert_eq!(after_segments(&uri, segments), expected, "{uri}");
        }
    }
}
