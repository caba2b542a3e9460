//! Why the console could not do what it was asked.

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
    /// The session is over.
    #[error("You are signed out. Sign in again to go on.")]
    SignedOut,
    /// The sandbox is gone or never was.
    #[error("This sandbox does not exist any more.")]
    NotFound,
    /// Fields of a form break rules of the server.
    #[error("{}", plural(problems.len()))]
    Invalid {
        /// Each broken rule with its place.
        problems: Vec<FieldError>,
    },
    /// The domain said no.
    #[error("{message}")]
    Refused {
        /// The reason in words.
        message: String,
    },
    /// The server did not answer, or not in a way this page understands.
    #[error("The server did not answer: {message}")]
    Unreachable {
        /// What went wrong on the way.
        message: String,
    },
}

fn plural(fields: usize) -> String {
    match fields {
        1 => "One field needs another look.".to_owned(),
        n => format!("{n} fields need another look."),
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
