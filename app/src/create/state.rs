//! State of the create page: the form, its problems, and when they are shown.

use std::time::Duration;

use leptos::{prelude::*, task::spawn_local};
use osb_protocol::FieldError;
use serde::{Deserialize, Serialize};

use super::{CreateForm, Field, Lifetime, api, form::Request};

/// Pause in typing after which the server checks the form.
const REST: Duration = Duration::from_millis(300);

/// A rejected form; the server puts it into the context.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Draft {
    /// The form as sent.
    pub form: CreateForm,
    /// Its problems.
    pub problems: Vec<FieldError>,
    /// Why the create failed although no field is invalid.
    pub refusal: Option<String>,
}

/// State of the page. Copies share it.
#[derive(Clone, Copy)]
pub(super) struct State {
    pub(super) form: RwSignal<CreateForm>,
    pub(super) problems: RwSignal<Vec<FieldError>>,
    pub(super) refusal: RwSignal<Option<String>>,
    /// Whether the form was sent and refused: then the summary shows all problems.
    pub(super) was_refused: RwSignal<bool>,
    /// Whether a request to create is under way.
    pub(super) busy: RwSignal<bool>,
    /// The request of the form.
    pub(super) request: Memo<Request>,
    /// Fields that were typed in, or all after an attempt: only those show problems.
    touched: RwSignal<Vec<Field>>,
    /// Counts edits: an answer that is older than the last edit is dropped.
    edits: StoredValue<u64>,
}

impl State {
    /// The state of a new page, or of one that shows a rejected form again.
    pub(super) fn new(draft: Option<Draft>) -> Self {
        let touched = match draft {
            Some(_) => Field::ALL.to_vec(),
            None => Vec::new(),
        };
        let was_refused = RwSignal::new(draft.is_some());
        let draft = draft.unwrap_or_default();
        let form = RwSignal::new(draft.form);
        Self {
            form,
            problems: RwSignal::new(draft.problems),
            refusal: RwSignal::new(draft.refusal),
            was_refused,
            busy: RwSignal::new(false),
            request: Memo::new(move |_| form.read().request()),
            touched: RwSignal::new(touched),
            edits: StoredValue::new(0),
        }
    }

    /// Notes what the user typed into a field.
    pub(super) fn edit(self, field: Field, text: String) {
        self.form.update(|form| form.set_text(field, text));
        self.touch(field);
    }

    /// Notes the chosen lifetime.
    pub(super) fn set_lifetime(self, lifetime: Lifetime) {
        self.form.update(|form| form.lifetime = lifetime);
        self.touch(Field::Ttl);
    }

    /// Shows problems of this field from now on, and checks the form once typing pauses.
    fn touch(self, field: Field) {
        self.touched.update(|touched| {
            if !touched.contains(&field) {
                touched.push(field);
            }
        });
        let edit = self.next_edit();
        let is_last = move || self.edits.try_get_value() == Some(edit);
        let rested = move || {
            if is_last() {
                spawn_local(self.ask(edit));
            }
        };
        set_timeout(rested, REST);
    }

    /// The number of a new edit: answers about earlier ones are dropped.
    fn next_edit(self) -> u64 {
        let edit = self.edits.get_value() + 1;
        self.edits.set_value(edit);
        edit
    }

    /// Shows the server's answer for the form after this edit.
    async fn ask(self, edit: u64) {
        let answer = api::check(self.form.get_untracked()).await;
        if let (Some(last), Ok(problems)) = (self.edits.try_get_value(), answer)
            && last == edit
        {
            self.problems.set(problems);
        }
    }

    /// Notes that the form is being sent: from now on every field shows its problems.
    pub(super) fn begin(self) {
        self.touched.set(Field::ALL.to_vec());
        self.next_edit();
        self.busy.set(true);
    }

    /// Notes why the form was refused.
    pub(super) fn refuse(self, problems: Vec<FieldError>, refusal: Option<String>) {
        self.problems.set(problems);
        self.refusal.set(refusal);
        self.was_refused.set(true);
        self.busy.set(false);
    }

    /// The problem of a field, once it was edited.
    pub(super) fn problem(self, field: Field) -> Option<String> {
        if !self.touched.read().contains(&field) {
            return None;
        }
        let problems = self.problems.read();
        let of_field = problems
            .iter()
            .filter(|problem| Field::of(problem) == field);
        let texts: Vec<_> = of_field.map(|problem| problem.msg.clone()).collect();
        (!texts.is_empty()).then(|| texts.join(" "))
    }
}
