//! Code in a tab for each language, or as a `curl` command only.

use leptos::prelude::*;

use super::{Language, Target};
use crate::ui::CodeBlock;

/// A tab for each language. They are radio buttons, which work without script, and whose arrow keys
/// browsers provide; style/create.css shows the code of the chosen one.
#[component]
pub(crate) fn LanguageTabs(
    /// Name of the radio buttons: one for each set of tabs in a page.
    #[prop(into)]
    name: String,
    /// The code in a language, for a server.
    #[prop(into)]
    code: Callback<(Language, Target), String>,
) -> impl IntoView {
    let target = use_target();
    let tab = |language: Language| {
        view! {
            <label>
                <input
                    type="radio"
                    name=name.clone()
                    value=language.id()
                    checked=language == Language::Curl
                />
                <span>{language.title()}</span>
            </label>
        }
    };
    let block = move |language: Language| {
        let code = Signal::derive(move || code.run((language, target.get())));
        view! {
            <div class="mirror-code" data-language=language.id()>
                <CodeBlock code what=format!("the code for {}", language.title()) />
            </div>
        }
    };
    view! {
        <div class="call-tabs">
            <fieldset class="mirror-tabs">
                <legend class="visually-hidden">"Language"</legend>
                {Language::ALL.map(tab).collect_view()}
            </fieldset>
            {Language::ALL.map(block).collect_view()}
        </div>
    }
    .into_any()
}

/// A `curl` command.
#[component]
pub(crate) fn CurlBlock(
    /// What it does.
    #[prop(into)]
    what: String,
    /// The command, for a server.
    #[prop(into)]
    code: Callback<Target, String>,
) -> impl IntoView {
    let target = use_target();
    let code = Signal::derive(move || code.run(target.get()));
    view! { <CodeBlock code what=format!("the code for curl: {what}") /> }.into_any()
}

/// The server of the page, once the page is live.
fn use_target() -> RwSignal<Target> {
    let target = RwSignal::new(Target::default());
    Effect::new(move |_| {
        if let Ok(origin) = window().location().origin() {
            target.set(Target { origin });
        }
    });
    target
}
