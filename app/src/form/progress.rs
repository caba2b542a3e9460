//! How a form stands.

use std::future::Future;

use leptos::prelude::*;
use osb_protocol::FieldError;

use crate::{error::ConsoleError, frame::Toasts, view::Answer};

/// How a form stands. Copies share it.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) busy: RwSignal<bool>,
    pub(crate) problems: RwSignal<Vec<FieldError>>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self::with(Vec::new())
    }

    /// That of a form which was refused for these problems.
    pub(crate) fn with(problems: Vec<FieldError>) -> Self {
        Self {
            busy: RwSignal::new(false),
            problems: RwSignal::new(problems),
        }
    }

    /// What is wrong with a field.
    pub(crate) fn problem(self, field: &str) -> Option<String> {
        let problems = self.problems.read();
        let problem = problems.iter().find(|problem| problem.field() == field)?;
        Some(sentence(&problem.msg))
    }

    /// Notes that the form is being sent. Returns whether it was not already.
    pub(crate) fn begin(self) -> bool {
        if self.busy.get_untracked() {
            return false;
        }
        self.busy.set(true);
        self.problems.set(Vec::new());
        true
    }

    /// Waits for the answer to the form. Problems go to its fields, a refusal to the messages of the page.
    pub(crate) async fn answer<T>(
        self,
        call: impl Future<Output = Result<Answer<T>, ConsoleError>>,
        toasts: Toasts,
    ) -> Option<T> {
        let done = match call.await {
            Ok(Answer::Done(answer)) => Some(answer),
            Ok(Answer::Invalid(problems)) => {
                // The form may be gone by now.
                let _ = self.problems.try_set(problems);
                None
            }
            Ok(Answer::Refused(message)) => {
                toasts.bad(message);
                None
            }
            Err(error) => {
                toasts.bad(error.to_string());
                None
            }
        };
        let _ = self.busy.try_set(false);
        done
    }
}

/// A rule of the API about a field, as a sentence beside it.
fn sentence(rule: &str) -> String {
    match rule.ends_with('.') {
        true => rule.to_owned(),
        false => format!("This {rule}."),
    }
}
