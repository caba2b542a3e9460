//! Errors of the console.

use leptos::{
    prelude::{FromServerFnError, ServerFnErrorErr},
    server_fn::codec::JsonEncoding,
};
use osb_protocol::{FieldError, WireTime};
use serde::{Deserialize, Serialize};

/// An error that a page can show. It travels as JSON from server functions to the browser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "error", rename_all = "snake_case")]
pub enum ConsoleError {
    /// The session ended.
    #[error("You are signed out. Sign in again to continue.")]
    SignedOut,
    /// No such sandbox.
    #[error("This sandbox does not exist.")]
    NotFound,
    /// Fields of a form are invalid.
    #[error("{}", plural(problems.len()))]
    Invalid {
        /// Each broken rule with its place.
        problems: Vec<FieldError>,
    },
    /// The renewal would end the sandbox earlier than it ends now; nothing was changed.
    #[error("It lives until {until} already; this would shorten its life, so nothing was changed.")]
    Shortens {
        /// When it expires.
        until: WireTime,
    },
    /// The domain refused.
    #[error("{message}")]
    Refused {
        /// The reason in words.
        message: String,
    },
    /// The server did not answer.
    #[error("The server cannot be reached.")]
    Unreachable,
    /// What one side sent cannot be read by the other: the page is older or newer than the server, or
    /// something between them answered.
    #[error(
        "The page and the server do not understand each other ({message}). If this stays, reload the page."
    )]
    Unreadable {
        /// What cannot be read.
        message: String,
    },
}

fn plural(fields: usize) -> String {
    match fields {
        1 => "One field is invalid.".to_owned(),
        n => format!("{n} fields are invalid."),
    }
}

impl ConsoleError {
    /// The broken rules, if that is what is wrong.
    #[must_use]
    pub fn problems(&self) -> &[FieldError] {
        match self {
            Self::Invalid { problems } => problems,
            _ => &[],
        }
    }

    /// Whether the same call may succeed later without anything else being done.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable | Self::Unreadable { .. })
    }
}

impl FromServerFnError for ConsoleError {
    type Encoder = JsonEncoding;

    fn from_server_fn_error(error: ServerFnErrorErr) -> Self {
        use ServerFnErrorErr::{
            Args, Deserialization, MiddlewareError, MissingArg, Request, Response, ServerError,
        };
        match error {
            Request(_) | Response(_) | ServerError(_) | MiddlewareError(_) => Self::Unreachable,
            Deserialization(message) | Args(message) | MissingArg(message) => {
                Self::Unreadable { message }
            }
            other => Self::Unreadable {
                message: other.to_string(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_exchange_are_said_in_words_for_people() {
        let failed = ServerFnErrorErr::Request("TypeError: Failed to fetch".to_owned());
        let error = ConsoleError::from_server_fn_error(failed);
        assert!(error.may_pass());
        assert_eq!(error.to_string(), "The server cannot be reached.");
        let page = ConsoleError::de("<html>Bad Gateway</html>".into());
        assert!(matches!(page, ConsoleError::Unreadable { .. }), "{page:?}");
        assert!(
            page.may_pass(),
            "the proxy before the server may reach it again"
        );
        assert!(!ConsoleError::NotFound.may_pass());
        assert!(!ConsoleError::SignedOut.may_pass());
    }
}
