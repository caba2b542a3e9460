//! Deleting something after a question. Without script a page asks.

use std::{future::Future, sync::Arc};

use leptos::{ev, prelude::*, task::spawn_local};

use crate::{
    error::ConsoleError,
    frame::Toasts,
    ui::{Confirm, Icon, Question},
    view::Answer,
};

/// How something is deleted from a page.
#[derive(Clone, Copy)]
pub(crate) struct Deleting {
    /// Title and text of the question.
    pub(crate) question: Callback<(), (String, String)>,
    /// The button that confirms it.
    pub(crate) yes: &'static str,
    /// What the page says once it is done.
    pub(crate) done: Callback<(), String>,
    /// Runs afterwards, with whether it was done.
    pub(crate) then: Callback<bool>,
}

impl Deleting {
    /// The handler of a form that asks in a dialog and then makes the call, and whether the call is under
    /// way.
    pub(crate) fn form<Call>(
        self,
        call: impl Fn() -> Call + Clone + Send + Sync + 'static,
    ) -> (impl Fn(ev::SubmitEvent), RwSignal<bool>)
    where
        Call: Future<Output = Result<Answer<()>, ConsoleError>> + 'static,
    {
        let busy = RwSignal::new(false);
        let (toasts, confirm) = (Toasts::current(), Confirm::current());
        let delete = move || {
            // Known from what the page shows, which may be gone afterwards.
            let Some(done) = self.done.try_run(()) else {
                return;
            };
            if busy.get_untracked() {
                return;
            }
            busy.set(true);
            let answer = call();
            spawn_local(async move {
                let refusal = refusal(answer.await);
                let is_done = refusal.is_none();
                match refusal {
                    None => toasts.good(done),
                    Some(why) => toasts.bad(why),
                }
                let _ = busy.try_set(false);
                let _ = self.then.try_run(is_done);
            });
        };
        let delete: Arc<dyn Fn() + Send + Sync> = Arc::new(delete);
        let ask = move |event: ev::SubmitEvent| {
            event.prevent_default();
            let (title, text) = untrack(|| self.question.run(()));
            confirm.ask(Question {
                title,
                text,
                yes: self.yes,
                act: Arc::clone(&delete),
            });
        };
        (ask, busy)
    }
}

/// Why something was not deleted.
fn refusal(answer: Result<Answer<()>, ConsoleError>) -> Option<String> {
    match answer {
        Ok(Answer::Done(())) => None,
        Ok(Answer::Refused(why)) => Some(why),
        Ok(Answer::Invalid(problems)) => {
            let texts: Vec<_> = problems.into_iter().map(|it| it.msg).collect();
            Some(texts.join(" "))
        }
        Err(error) => Some(error.to_string()),
    }
}

/// The delete button of a row, in its form.
#[component]
pub(crate) fn DeleteIcon(
    /// What it deletes, and why it cannot.
    label: Signal<String>,
    /// Whether it cannot.
    is_hindered: Signal<bool>,
) -> impl IntoView {
    view! {
        <button
            type="submit"
            class="icon-button"
            aria-haspopup="dialog"
            aria-label=move || label.get()
            title=move || label.get()
            disabled=move || is_hindered.get()
        >
            <Icon name="trash-2" />
        </button>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use osb_protocol::FieldError;

    use super::*;

    #[test]
    fn a_refusal_says_why() {
        assert_eq!(refusal(Ok(Answer::Done(()))), None);
        let refused = refusal(Ok(Answer::Refused("in use".to_owned())));
        assert_eq!(refused.as_deref(), Some("in use"));
        let problems = ["one.", "two."].map(|text| FieldError::body("value_error", ["a"], text));
        let invalid = refusal(Ok(Answer::Invalid(problems.into())));
        assert_eq!(invalid.as_deref(), Some("one. two."));
        assert!(refusal(Err(ConsoleError::NotFound)).is_some());
    }
}
