//! The page that creates a sandbox.
//!
//! The form posts to `/console/create`, which answers with this page again when something is wrong:
//! the input and its problems come back as [`Draft`]. With script the same form calls server
//! functions instead, and checks the input while the user types.

use std::time::Duration;

use leptos::{ev, prelude::*, task::spawn_local};
use leptos_meta::Title;
use leptos_router::hooks::use_navigate;
use osb_protocol::FieldError;
use serde::{Deserialize, Serialize};

use super::{
    CreateForm, Field, Lifetime, api,
    form::{BASE_IMAGE, PUBLIC_IMAGE},
    mirror,
};
use crate::{
    browser,
    frame::Toasts,
    ui::{CodeBlock, Icon},
    view::Creation,
};

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
struct State {
    form: RwSignal<CreateForm>,
    problems: RwSignal<Vec<FieldError>>,
    refusal: RwSignal<Option<String>>,
    /// Fields that were typed in, or all after an attempt: only those show problems.
    touched: RwSignal<Vec<Field>>,
    busy: RwSignal<bool>,
    /// Counts edits: an answer that is older than the last edit is dropped.
    edits: StoredValue<u64>,
}

const ALL: [Field; 8] = [
    Field::Image,
    Field::Entrypoint,
    Field::Env,
    Field::Cpu,
    Field::Memory,
    Field::Ttl,
    Field::Metadata,
    Field::Form,
];

/// The page.
#[component]
pub fn CreatePage() -> impl IntoView {
    let draft = SharedValue::new(use_context::<Draft>).into_inner();
    let touched = if draft.is_some() {
        ALL.to_vec()
    } else {
        Vec::new()
    };
    let draft = draft.unwrap_or_default();
    let state = State {
        form: RwSignal::new(draft.form),
        problems: RwSignal::new(draft.problems),
        refusal: RwSignal::new(draft.refusal),
        touched: RwSignal::new(touched),
        busy: RwSignal::new(false),
        edits: StoredValue::new(0),
    };
    let navigate = use_navigate();
    let toasts = Toasts::current();
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let navigate = navigate.clone();
        state.touched.set(ALL.to_vec());
        state.refusal.set(None);
        state.busy.set(true);
        spawn_local(async move {
            match api::create(state.form.get_untracked()).await {
                Ok(Creation::Made(id)) => {
                    toasts.good(format!("{} is being created", id.short()));
                    navigate(&format!("/console/sandboxes/{id}"), Default::default());
                }
                Ok(Creation::Invalid(problems)) => {
                    state.problems.set(problems);
                    state.focus_first_problem();
                }
                Ok(Creation::Refused(why)) => state.refusal.set(Some(why)),
                Err(error) => state.refusal.set(Some(error.to_string())),
            }
            state.busy.try_set(false);
        });
    };
    view! {
        <Title text="Create" />
        <div class="page-head">
            <h1>"Create a sandbox"</h1>
        </div>
        <div class="split">
            <form method="post" action="/console/create" class="card form" on:submit=submit novalidate>
                <p class="problem" role="alert">{move || state.above_the_form()}</p>
                <Fields state />
                <div class="form-foot">
                    <button type="submit" class="button primary" disabled=move || state.busy.get()>
                        <Icon name="plus" />
                        {move || if state.busy.get() { "Creating …" } else { "Create" }}
                    </button>
                    <p class="fine">"An image that is not on the host is pulled first."</p>
                </div>
            </form>
            <Mirror state />
        </div>
    }
    .into_any()
}

#[component]
fn Fields(state: State) -> impl IntoView {
    view! {
        <TextField state field=Field::Image name="image" label="Image"
            help=format!(
                "A container image, such as {PUBLIC_IMAGE}, or {BASE_IMAGE} after cargo xtask up."
            ) />
        <TextField state field=Field::Entrypoint name="entrypoint" label="Entry point"
            help="The sandbox lives as long as this command. Quotes group words, as in a shell." />
        <LifetimeField state />
        <div class="pair">
            <TextField state field=Field::Cpu name="cpu" label="CPU" help="Cores: 0.5 or 500m." />
            <TextField state field=Field::Memory name="memory" label="Memory" help="512Mi, 2Gi …" />
        </div>
        <TextField state field=Field::Env name="env" label="Environment" lines=3
            help="One NAME=value a line." />
        <TextField state field=Field::Metadata name="metadata" label="Labels" lines=2
            help="Labels to find the sandbox by: one key=value per line." />
    }
    .into_any()
}

/// A field with its label, help and problem.
#[component]
fn TextField(
    state: State,
    field: Field,
    name: &'static str,
    label: &'static str,
    #[prop(into)] help: String,
    /// Height in lines; more than one makes it a text area.
    #[prop(default = 1)]
    lines: u32,
) -> impl IntoView {
    let initial = state
        .form
        .with_untracked(|form| form.text(field).to_owned());
    let on_input = move |event: ev::Event| state.edit(field, event_target_value(&event));
    let invalid = move || state.problem(field).is_some().then_some("true");
    let described = format!("{name}-help {name}-problem");
    let input = if lines > 1 {
        view! {
            <textarea id=name name=name rows=lines spellcheck="false" aria-invalid=invalid
                aria-describedby=described on:input=on_input>{raw_text(&initial)}</textarea>
        }
        .into_any()
    } else {
        view! {
            <input id=name name=name type="text" value=initial spellcheck="false" autocomplete="off"
                aria-invalid=invalid aria-describedby=described on:input=on_input />
        }
        .into_any()
    };
    view! {
        <div class="field">
            <label for=name>{label}</label>
            {input}
            <p id=format!("{name}-help") class="help">{help}</p>
            <p id=format!("{name}-problem") class="problem">{move || state.problem(field)}</p>
        </div>
    }
    .into_any()
}

/// Text inside a `<textarea>`. The server's renderer does not escape it, so this does; the browser
/// creates a text node, which needs no escapes.
fn raw_text(text: &str) -> String {
    if cfg!(target_arch = "wasm32") {
        return text.to_owned();
    }
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[component]
fn LifetimeField(state: State) -> impl IntoView {
    let lifetime = move || state.form.read().lifetime;
    let choose = move |lifetime| move |_: ev::Event| state.set_lifetime(lifetime);
    view! {
        <fieldset class="field">
            <legend>"Lifetime"</legend>
            <div class="choices">
                <label>
                    <input type="radio" name="lifetime" value="limited"
                        checked=lifetime() == Lifetime::Limited
                        on:change=choose(Lifetime::Limited) />
                    "Removed after a time"
                </label>
                <label>
                    <input type="radio" name="lifetime" value="manual"
                        checked=lifetime() == Lifetime::Manual
                        on:change=choose(Lifetime::Manual) />
                    "Kept until it is deleted"
                </label>
            </div>
            <div class="ttl" class:off=move || lifetime() == Lifetime::Manual>
                <TextField state field=Field::Ttl name="ttl" label="Time to live"
                    help="90s, 30m, 2h or 1d; at least a minute. It can be renewed." />
            </div>
        </fieldset>
    }
    .into_any()
}

/// The request as code, following the form.
#[component]
fn Mirror(state: State) -> impl IntoView {
    let origin = RwSignal::new((
        "http://127.0.0.1:8080".to_owned(),
        "127.0.0.1:8080".to_owned(),
    ));
    Effect::new(move |_| {
        let location = window().location();
        if let (Ok(base), Ok(host)) = (location.origin(), location.host()) {
            origin.set((base, host));
        }
    });
    let body = Memo::new(move |_| state.form.read().request().body);
    let curl = Signal::derive(move || mirror::curl(&origin.read().0, &body.read()));
    let python = Signal::derive(move || mirror::python(&origin.read().1, &body.read()));
    view! {
        <aside class="mirror" aria-label="As code">
            <h2>"As code"</h2>
            <h3>"curl"</h3>
            <CodeBlock code=curl what="the curl command" />
            <h3>"Python"</h3>
            <CodeBlock code=python what="the Python program" />
        </aside>
    }
    .into_any()
}

impl State {
    fn edit(self, field: Field, text: String) {
        self.form.update(|form| form.set_text(field, text));
        self.touch(field);
    }

    fn set_lifetime(self, lifetime: Lifetime) {
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
        let edit = self.edits.get_value() + 1;
        self.edits.set_value(edit);
        let is_last = move || self.edits.try_get_value() == Some(edit);
        let rested = move || {
            if is_last() {
                spawn_local(self.ask(edit));
            }
        };
        set_timeout(rested, REST);
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

    /// The problem of a field, once it was edited.
    fn problem(self, field: Field) -> Option<String> {
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

    fn above_the_form(self) -> Option<String> {
        self.refusal.get().or_else(|| self.problem(Field::Form))
    }

    fn focus_first_problem(self) {
        let problems = self.problems.read_untracked();
        let broken = |field: &&Field| problems.iter().any(|problem| Field::of(problem) == **field);
        if let Some(name) = ALL.iter().find(broken).and_then(|field| field.input_id()) {
            browser::focus(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_form_can_be_focused() {
        let ids: Vec<_> = ALL.iter().filter_map(|field| field.input_id()).collect();
        assert_eq!(ids.len(), ALL.len() - 1);
    }
}
