//! The way back for a page whose session ended.

use leptos::prelude::*;
use leptos_router::hooks::use_location;

/// A link for a signed-out tab. It reloads this page: the server redirects a browser without a
/// session to the login, which leads back here. After a sign-in in another tab the page just loads.
#[component]
pub(crate) fn SignInLink() -> impl IntoView {
    let here = use_location();
    let address = move || {
        let query = here.query.read().to_query_string();
        format!("{}{query}", here.pathname.read())
    };
    view! {
        <a class="button" rel="external" href=address>
            "Sign in"
        </a>
    }
    .into_any()
}
