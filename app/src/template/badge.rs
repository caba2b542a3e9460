//! The phase of a template as icon, word and colour.

use leptos::prelude::*;
use osb_protocol::lifecycle::TemplatePhase;

use crate::ui::Badge;

/// Phase of a template.
#[component]
pub(crate) fn TemplateBadge(
    /// The phase.
    #[prop(into)]
    phase: Signal<TemplatePhase>,
) -> impl IntoView {
    let look = Signal::derive(move || look(phase.get()));
    let word = Signal::derive(move || phase.get().as_str());
    view! { <Badge look word /> }.into_any()
}

/// Colour family in style/tokens.css, and icon.
fn look(phase: TemplatePhase) -> (&'static str, &'static str) {
    match phase {
        TemplatePhase::Pending => ("busy", "clock"),
        TemplatePhase::Building => ("busy", "circle-dashed"),
        TemplatePhase::Succeeded => ("good", "circle-check"),
        TemplatePhase::Failed => ("bad", "circle-x"),
        TemplatePhase::Deleting => ("busy", "circle-stop"),
    }
}
