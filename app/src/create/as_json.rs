//! The request of the form as JSON, which can be edited and fills the form in.

use leptos::{ev, html, prelude::*};
use osb_protocol::FieldError;

use super::{Field, more, state::State};

/// Why the form cannot be filled in from its request: fields that could not be read are not in it, so
/// that what was typed into them would be lost.
fn loss(problems: &[FieldError]) -> Option<String> {
    let mut fields: Vec<_> = problems.iter().map(Field::of).collect();
    fields.sort_unstable();
    fields.dedup();
    let labels: Vec<_> = fields.into_iter().map(Field::label).collect();
    (!labels.is_empty()).then(|| {
        format!(
            "A part of the form cannot be read, so it is not in this text and would be lost: {}. \
             Mend or clear it, then discard the changes here.",
            labels.join(", ")
        )
    })
}

/// What filling the form in did, in words.
fn filled(further: &[String]) -> String {
    match further {
        [] => "The form is filled in.".to_owned(),
        names => format!(
            "The form is filled in. No field has {}: see {}.",
            names.join(", "),
            Field::More.label()
        ),
    }
}

/// A text area with the request. It follows the form until it is edited.
#[component]
pub(super) fn AsJson(state: State) -> impl IntoView {
    let edited = RwSignal::new(false);
    let problem = RwSignal::new(None::<String>);
    // What the last filling did.
    let done = RwSignal::new(None::<String>);
    let area = NodeRef::<html::Textarea>::new();
    let request = Memo::new(move |_| {
        let request = state.request.read();
        let body = more::masked(&request.body);
        let text = serde_json::to_string_pretty(&body).unwrap_or_default();
        (text, loss(&request.problems))
    });
    // What the text lacks: an edited one does not follow the form when that is mended.
    let lacking = RwSignal::new(None::<String>);
    Effect::new(move |_| {
        let (text, loss) = request.get();
        if let (false, Some(area)) = (edited.get(), area.get()) {
            area.set_value(&text);
            lacking.set(loss);
        }
    });
    let lost = Memo::new(move |_| {
        let now = request.with(|(_, loss)| loss.clone());
        lacking.get().or(now)
    });
    let apply = move |_| {
        // The reason is shown.
        if lost.get_untracked().is_some() {
            return;
        }
        let Some(area) = area.get_untracked() else {
            return;
        };
        match state.fill_from_json(&area.value()) {
            Ok(further) => {
                problem.set(None);
                edited.set(false);
                done.set(Some(filled(&further)));
            }
            Err(why) => {
                problem.set(Some(why));
                // Fails only for an element that is gone.
                let _ = area.focus();
            }
        }
    };
    let discard = move |_| {
        problem.set(None);
        edited.set(false);
    };
    let on_input = move |_: ev::Event| {
        edited.set(true);
        problem.set(None);
        done.set(None);
    };
    let invalid = move || problem.read().is_some().then_some("true");
    let idle = move || (!edited.get()).then_some("true");
    let barred = move || (!edited.get() || lost.get().is_some()).then_some("true");
    let why_not = move || match (lost.get(), edited.get()) {
        (Some(lost), true) => Some(lost),
        _ => problem.get(),
    };
    view! {
        <details class="advanced needs-script">
            <summary>"As JSON"</summary>
            <div class="advanced-fields field">
                <textarea
                    node_ref=area
                    class="mono"
                    rows="14"
                    spellcheck="false"
                    aria-label="The request as JSON"
                    aria-invalid=invalid
                    aria-describedby="json-problem json-help"
                    on:input=on_input
                ></textarea>
                <p id="json-help" class="help">
                    "Edit the request and fill the form in with it. What has no field becomes a further member."
                </p>
                <p id="json-problem" class="problem" role="alert">{why_not}</p>
                <p id="json-done" class="help" role="status">{move || done.get()}</p>
                <div class="choices">
                    <button
                        type="button"
                        class="button"
                        aria-disabled=barred
                        aria-describedby="json-problem"
                        on:click=apply
                    >
                        "Fill the form in"
                    </button>
                    <button type="button" class="button" aria-disabled=idle on:click=discard>
                        "Discard the changes"
                    </button>
                </div>
            </div>
        </details>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create::CreateForm;

    #[test]
    fn fields_that_cannot_be_read_are_named_in_the_order_of_the_page() {
        let form = CreateForm {
            env: "no equals sign".to_owned(),
            entrypoint: "'open".to_owned(),
            pre_start: "\"open".to_owned(),
            ..CreateForm::default()
        };
        let why = loss(&form.request().problems).unwrap();
        let wanted = "lost: Entry point, Environment, Command before the start. Mend";
        assert!(why.contains(wanted), "{why}");
        assert_eq!(loss(&CreateForm::default().request().problems), None);
    }
}
