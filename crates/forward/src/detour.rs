//! Another way to a program, for when nothing listens at the first.

use http::{HeaderName, Response, StatusCode};

use crate::{ForwardError, HeaderRules, Target};

/// Another way to the program of a request.
#[derive(Clone, Debug)]
pub struct Detour {
    /// Backend that it leads to.
    pub to: Target,
    /// Rules for the headers on it.
    pub rules: HeaderRules,
    /// Header of a `502` with which the backend, if it is a proxy itself, says that nothing listens
    /// behind it either.
    pub refusal: Option<HeaderName>,
}

impl Detour {
    /// Returns the rules for a response, unless it says that nothing listens.
    pub(crate) fn rules<B>(&self, response: &Response<B>) -> Result<&HeaderRules, ForwardError> {
        let is_refusal = |name| response.headers().contains_key(name);
        let is_refused = response.status() == StatusCode::BAD_GATEWAY
            && self.refusal.as_ref().is_some_and(is_refusal);
        match is_refused {
            true => Err(ForwardError::Connect(
                std::io::ErrorKind::ConnectionRefused.into(),
            )),
            false => Ok(&self.rules),
        }
    }
}
