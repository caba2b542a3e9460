//! The way in, and the way back to it.

use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::{use_location, use_query_map};

use crate::{
    ui::Icon,
    view::{Notice, ServerInfo},
};

/// Asks for the API key. A plain form: the key goes to the server once, which keeps a session and
/// gives the browser only its cookie.
#[component]
pub fn LoginPage() -> impl IntoView {
    let info = SharedValue::new(ServerInfo::of_request).into_inner();
    let notice = SharedValue::new(use_context::<Notice>).into_inner();
    let next = move || use_query_map().read().get("next").unwrap_or_default();
    let ServerInfo {
        version,
        runtime,
        key_required,
        ..
    } = info;
    view! {
        <Title text="Sign in" />
        <main class="login">
            <form method="post" action="/console/login" class="card login-card">
                <h1 class="brand">
                    <Icon name="box" />
                    "OpenSandbox"
                </h1>
                <input type="hidden" name="next" value=next />
                {if key_required {
                    view! {
                        <div class="field">
                            <label for="key">"API key"</label>
                            <input
                                id="key"
                                name="key"
                                type="password"
                                required
                                autofocus
                                autocomplete="current-password"
                                spellcheck="false"
                                aria-describedby="key-help login-problem"
                            />
                            <p id="key-help" class="help">
                                "The server's configuration has it as "
                                <code>"server.api_key"</code> "."
                            </p>
                        </div>
                    }
                        .into_any()
                } else {
                    view! {
                        <p class="help">
                            "This server has no API key: anyone who can reach it can use it."
                        </p>
                    }
                        .into_any()
                }}
                <p id="login-problem" class="problem" role="alert">
                    {notice.map(|notice| notice.text)}
                </p>
                <button type="submit" class="button primary wide">
                    <Icon name="key-round" />
                    "Sign in"
                </button>
                <p class="fine">{format!("Version {version} · {runtime}")}</p>
            </form>
        </main>
    }
    .into_any()
}

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
