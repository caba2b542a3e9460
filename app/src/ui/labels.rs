//! User labels, as chips.

use std::collections::BTreeMap;

use leptos::prelude::*;

/// Labels in a row that wraps. A long one is cut and shown in full on hover.
#[component]
pub fn Labels(
    /// The labels.
    #[prop(into)]
    of: Signal<BTreeMap<String, String>>,
) -> impl IntoView {
    let chips = move || {
        let chip = |(key, value)| {
            let text = format!("{key}={value}");
            let title = text.clone();
            view! {
                <li>
                    <span class="label" title=title>
                        {text}
                    </span>
                </li>
            }
        };
        of.get().into_iter().map(chip).collect_view()
    };
    view! { <ul class="labels">{chips}</ul> }.into_any()
}
