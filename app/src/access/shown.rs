//! What the page shows, loaded again after every change.

use std::future::Future;

use leptos::{prelude::*, task::spawn_local};

use super::api;
use crate::{
    error::ConsoleError,
    form::Progress,
    frame::Toasts,
    view::{AccessView, Answer},
};

/// What the page shows. Copies share it.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    pub(super) view: RwSignal<AccessView>,
    toasts: Toasts,
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
        if !progress.begin() {
            return;
        }
        spawn_local(async move {
            if let Some(answer) = progress.answer(call, self.toasts).await {
                done(answer, self.toasts);
            }
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
