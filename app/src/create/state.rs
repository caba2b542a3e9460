//! State of the create page: the form, its problems, and when they are shown.

use std::time::Duration;

use leptos::{prelude::*, task::spawn_local};
use osb_protocol::{FieldError, error::Loc};
use serde::{Deserialize, Serialize};

use super::{
    CreateForm, Field, api, form::Request, from_json, lifetime, presets::Preset, source::Start,
    words,
};
use crate::browser;

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
    /// Variables whose values the tab did not keep: none of them is to become empty by that.
    pub(super) awaited: RwSignal<Vec<String>>,
    /// Counts how often the form was filled in as a whole.
    pub(super) fillings: RwSignal<u32>,
    /// Fields that were typed in, or all after an attempt: only those show problems.
    touched: RwSignal<Vec<Field>>,
    /// Counts edits: an answer that is older than the last edit is dropped.
    edits: StoredValue<u64>,
}

impl State {
    /// The state of a page that begins with this form, or shows a rejected one again.
    pub(super) fn new(first: CreateForm, draft: Option<Draft>) -> Self {
        let touched = match draft {
            Some(_) => Field::ALL.to_vec(),
            None => Vec::new(),
        };
        let was_refused = RwSignal::new(draft.is_some());
        let draft = draft.unwrap_or_else(|| Draft {
            form: first,
            ..Draft::default()
        });
        let form = RwSignal::new(draft.form);
        Self {
            form,
            problems: RwSignal::new(draft.problems),
            refusal: RwSignal::new(draft.refusal),
            was_refused,
            busy: RwSignal::new(false),
            request: Memo::new(move |_| form.read().request()),
            awaited: RwSignal::new(Vec::new()),
            fillings: RwSignal::new(0),
            touched: RwSignal::new(touched),
            edits: StoredValue::new(0),
        }
    }

    /// Notes what the user typed into a field.
    pub(super) fn edit(self, field: Field, text: String) {
        self.form.update(|form| form.set_text(field, text));
        self.touch(field);
    }

    /// Notes the chosen lifetime. A time that was typed before would override it.
    pub(super) fn choose_lifetime(self, choice: String) {
        self.form.update(|form| {
            if choice != lifetime::OTHER {
                form.ttl.clear();
            }
            form.lifetime = choice;
        });
        self.touch(Field::Ttl);
    }

    /// Notes what it is to be created from.
    pub(super) fn choose_source(self, choice: String) {
        if self.form.read_untracked().source != choice {
            self.form.update(|form| form.source = choice);
            self.touch(Field::Snapshot);
            self.touch(Field::Template);
        }
    }

    /// Fills in what the address of the page names.
    pub(super) fn start_from(self, start: Start) {
        let field = match start {
            Start::Snapshot(_) => Field::Snapshot,
            Start::Template(_) => Field::Template,
        };
        self.form.update(|form| form.begin_from(start));
        self.touch(field);
    }

    /// Notes the chosen network policy.
    pub(super) fn choose_network(self, choice: String) {
        if self.form.read_untracked().network != choice {
            self.form.update(|form| form.network = choice);
            self.touch(Field::Network);
        }
    }

    /// Notes whether endpoints are to need a token.
    pub(super) fn secure(self, on: bool) {
        self.form.update(|form| form.secure_access = on);
        self.touch(Field::SecureAccess);
    }

    /// Fills the form in from a request as JSON. Returns the members that no field has.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn fill_from_json(self, text: &str) -> Result<Vec<String>, String> {
        let mut form = self.form.get_untracked();
        let further = from_json::fill(&mut form, text)?;
        self.awaited.set(Vec::new());
        self.form.set(form);
        self.fillings.update(|count| *count += 1);
        Field::ALL.into_iter().for_each(|field| self.touch(field));
        Ok(further)
    }

    /// Shows a form that the tab kept, but for the fields that were typed in meanwhile. `awaited` are
    /// variables whose values it did not keep.
    pub(super) fn restore(self, mut form: CreateForm, awaited: Vec<String>) {
        let now = self.form.get_untracked();
        self.touched.with_untracked(|touched| {
            for field in touched {
                form.set_text(*field, now.text(*field).to_owned());
            }
            if touched.contains(&Field::Ttl) {
                form.lifetime.clone_from(&now.lifetime);
            }
            if touched.contains(&Field::SecureAccess) {
                form.secure_access = now.secure_access;
            }
            if touched.contains(&Field::Snapshot) || touched.contains(&Field::Template) {
                form.source.clone_from(&now.source);
            }
        });
        let is_changed = |field: &Field| form.text(*field) != now.text(*field);
        let changed: Vec<_> = Field::ALL.into_iter().filter(is_changed).collect();
        self.awaited.set(awaited);
        self.form.set(form);
        self.fillings.update(|count| *count += 1);
        changed.into_iter().for_each(|field| self.touch(field));
    }

    /// Shows a form in which nothing was typed.
    pub(super) fn start_over(self, form: CreateForm) {
        self.next_edit();
        self.awaited.set(Vec::new());
        self.touched.set(Vec::new());
        self.problems.set(Vec::new());
        self.refusal.set(None);
        self.was_refused.set(false);
        self.form.set(form);
    }

    /// A problem for each variable whose value was not kept and not typed again.
    pub(super) fn lost_values(self) -> Vec<FieldError> {
        let awaited = self.awaited.get_untracked();
        let env = self.form.with_untracked(|form| words::pairs(&form.env));
        let env = env.unwrap_or_default();
        let lost = awaited.iter().filter(|name| {
            let value = env.get(name.as_str());
            value.is_some_and(String::is_empty)
        });
        lost.map(|name| {
            let text =
                format!("The value of {name} was not kept: type it again, or delete {name}.");
            FieldError::body("missing", ["env", name.as_str()], text)
        })
        .collect()
    }

    /// These problems and those of values that were not kept, in the order of the page.
    fn with_lost_values(self, mut problems: Vec<FieldError>) -> Vec<FieldError> {
        problems.extend(self.lost_values());
        problems.sort_by_key(Field::of);
        problems
    }

    /// Notes the names of the variables that are copied, one a line.
    pub(super) fn keep(self, names: String) {
        self.form.update(|form| form.kept = names);
    }

    /// Leaves a variable out of the copy.
    pub(super) fn leave_out(self, name: &str) {
        self.form.update(|form| {
            let kept: Vec<_> = form.kept.lines().filter(|it| *it != name).collect();
            form.kept = kept.join("\n");
        });
    }

    /// Fills the form in from a preset.
    pub(super) fn fill(self, preset: &Preset) {
        self.form.update(|form| preset.fill(form));
        let filled = [
            Field::Image,
            Field::Snapshot,
            Field::Template,
            Field::Entrypoint,
            Field::Cpu,
            Field::Memory,
        ];
        for field in filled {
            self.touch(field);
        }
    }

    /// Shows problems of this field from now on, and checks the form once typing pauses. A problem
    /// that is shown already is checked at once, so that it goes when it is mended.
    fn touch(self, field: Field) {
        self.touched.update(|touched| {
            if !touched.contains(&field) {
                touched.push(field);
            }
        });
        let is_of_field = |problem: &FieldError| Field::of(problem) == field;
        if self.problems.read_untracked().iter().any(is_of_field) {
            let now = self.form.read_untracked().local_problems();
            let now = self.with_lost_values(now);
            self.problems.update(|problems| {
                problems.retain(|problem| !is_of_field(problem));
                problems.extend(now.into_iter().filter(is_of_field));
                problems.sort_by_key(Field::of);
            });
        }
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

    /// Shows the server's answer for the form after this edit; without an answer, what shows without
    /// the server.
    async fn ask(self, edit: u64) {
        let Some(form) = self.form.try_get_untracked() else {
            return;
        };
        let answer = api::check(form.clone()).await;
        if self.edits.try_get_value() == Some(edit) {
            let problems = answer.unwrap_or_else(|_| form.local_problems());
            self.problems.set(self.with_lost_values(problems));
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

    /// Gives a field the focus.
    pub(super) fn focus(field: Field) {
        browser::focus_first_visible(field.focus_targets());
    }

    /// Whether an entry of a field, such as a variable, has a problem, or the field as a whole.
    pub(super) fn has_problem(self, field: Field, name: &str) -> bool {
        let is_of_entry = |problem: &FieldError| match problem.loc.get(2) {
            Some(Loc::Name(entry)) => entry == name,
            _ => true,
        };
        self.touched.read().contains(&field)
            && self
                .problems
                .read()
                .iter()
                .any(|problem| Field::of(problem) == field && is_of_entry(problem))
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
