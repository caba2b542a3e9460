//! The title of the page.

use leptos::prelude::*;

/// Titles the page that it is in.
///
/// `leptos_meta` only has a part in this on the server: in the browser, its 0.8.7 keeps the title of a
/// page that is shown again with other data, and reads it after that page is gone.
#[component]
pub(crate) fn PageTitle(#[prop(into)] text: Signal<String>) -> impl IntoView {
    let title = move || format!("{} · OpenSandbox", text.read());
    Effect::new(move |_| document().set_title(&title()));
    // It is for the document around the pages, and has no place in a page.
    #[cfg(feature = "ssr")]
    drop(view! { <leptos_meta::Title text=title() /> });
}
