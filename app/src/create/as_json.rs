//! The request of the form as JSON, which can be edited and fills the form in.

use leptos::{ev, html, prelude::*};

use super::{more, state::State};

/// A text area with the request. It follows the form until it is edited.
#[component]
pub(super) fn AsJson(state: State) -> impl IntoView {
    let edited = RwSignal::new(false);
    let problem = RwSignal::new(None::<String>);
    let area = NodeRef::<html::Textarea>::new();
    let request = Memo::new(move |_| {
        let body = more::masked(&state.request.read().body);
        serde_json::to_string_pretty(&body).unwrap_or_default()
    });
    Effect::new(move |_| {
        let text = request.get();
        if let (false, Some(area)) = (edited.get(), area.get()) {
            area.set_value(&text);
        }
    });
    let apply = move |_| {
        let Some(area) = area.get_untracked() else {
            return;
        };
        match state.fill_from_json(&area.value()) {
            Ok(()) => {
                problem.set(None);
                edited.set(false);
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
    };
    let invalid = move || problem.read().is_some().then_some("true");
    let idle = move || (!edited.get()).then_some("true");
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
                <p id="json-problem" class="problem" role="alert">{move || problem.get()}</p>
                <div class="choices">
                    <button type="button" class="button" aria-disabled=idle on:click=apply>
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
