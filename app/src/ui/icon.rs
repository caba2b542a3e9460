//! Icons from the sprite `icons.svg`, which style/icons.txt lists.

use std::sync::Arc;

use leptos::prelude::*;

use crate::browser;

/// Path under which this build's static files are served, such as `/console/assets/1f3a`.
#[derive(Clone, Debug)]
pub struct AssetRoot(pub Arc<str>);

impl AssetRoot {
    /// From context on the server, from the document in the browser.
    #[must_use]
    pub fn current() -> Self {
        use_context().unwrap_or_else(|| {
            let root = if cfg!(target_arch = "wasm32") {
                browser::document_data("assets")
            } else {
                None
            };
            Self(root.unwrap_or_default().into())
        })
    }
}

/// A decorative icon: the text beside it, or the label of its button, has the same meaning.
#[component]
pub fn Icon(
    /// Name in style/icons.txt.
    #[prop(into)]
    name: Signal<&'static str>,
) -> impl IntoView {
    let AssetRoot(root) = AssetRoot::current();
    view! {
        <svg class="icon" aria-hidden="true">
            <use_ href=move || format!("{root}/icons.svg#{}", name.get())></use_>
        </svg>
    }
}
