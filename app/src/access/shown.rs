//! What the page shows, loaded again after every change.

use std::future::Future;

use leptos::{prelude::*, task::spawn_local};
use osb_protocol::FieldError;

use super::api;
use crate::{
    error::ConsoleError,
    frame::Toasts,
    view::{AccessView, Answer},
};

/// What the page shows. Copies share it.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    pub(super) view: RwSignal<AccessView>,
    toasts: Toasts,
}

/// How a form stands. Copies share it.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    pub(super) busy: RwSignal<bool>,
    pub(super) problems: RwSignal<Vec<FieldError>>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            busy: RwSignal::new(false),
            problems: RwSignal::new(Vec::new()),
        }
    }

    /// What is wrong with a field.
    pub(super) fn problem(self, field: &str) -> Option<String> {
        let problems = self.problems.read();
        let problem = problems.iter().find(|problem| problem.field() == field)?;
        Some(format!("This {}.", problem.msg))
    }
}

impl Shown {
    pub(super) fn new(view: AccessView) -> Self {
        Self {
            view: RwSignal::new(view),
            toasts: Toasts::current(),
        }
    }

    /// Sends a form. What it answers goes to `done`, unless the form is refused; the page then shows the
    /// change.
    pub(super) fn send<T: 'static>(
        self,
        progress: Progress,
        call: impl Future<Output = Result<Answer<T>, ConsoleError>> + 'static,
        done: impl FnOnce(T, Toasts) + 'static,
    ) {
        if progress.busy.get_untracked() {
            return;
        }
        progress.busy.set(true);
        progress.problems.set(Vec::new());
        spawn_local(async move {
            match call.await {
                Ok(Answer::Done(answer)) => done(answer, self.toasts),
                Ok(Answer::Invalid(problems)) => drop(progress.problems.try_set(problems)),
                Ok(Answer::Refused(message)) => self.toasts.bad(message),
                Err(error) => self.toasts.bad(error.to_string()),
            }
            // The form may be gone by now.
            let _ = progress.busy.try_set(false);
            self.load().await;
        });
    }

    /// Loads again what the page shows.
    async fn load(self) {
        if let Ok(view) = api::read_access().await {
            // The page may be gone by now.
            let _ = self.view.try_set(view);
        }
    }
}
