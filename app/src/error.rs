//! Errors of the console.

use leptos::{
    prelude::{FromServerFnError, ServerFnErrorErr},
    server_fn::codec::JsonEncoding,
};
use osb_protocol::FieldError;
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
    /// The domain refused.
    #[error("{message}")]
    Refused {
        /// The reason in words.
        message: String,
    },
    /// The server did not answer, or its answer cannot be read.
    #[error("The server did not answer: {message}")]
    Unreachable {
        /// The failure of the exchange.
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
}

impl FromServerFnError for ConsoleError {
    type Encoder = JsonEncoding;

    fn from_server_fn_error(error: ServerFnErrorErr) -> Self {
        Self::Unreachable {
            message: error.to_string(),
        }
    }
}
