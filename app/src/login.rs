//! The way in, and the way back to it.

use leptos::prelude::*;

use crate::{
    query_string::use_query,
    ui::{Icon, PageTitle},
    view::{Notice, ServerInfo},
};

/// Asks for the API key or, once there are users, for a name and a password. A plain form: what is typed
/// goes to the server once, which keeps a session and gives the browser only its cookie.
#[component]
pub fn LoginPage() -> impl IntoView {
    let info = SharedValue::new(ServerInfo::of_request).into_inner();
    let notice = SharedValue::new(use_context::<Notice>).into_inner();
    let next = move || use_query().read().get("next").unwrap_or_default();
    let ServerInfo {
        version,
        runtime,
        key_required,
        has_users,
        ..
    } = info;
    let fields = match (key_required, has_users) {
        (false, _) => view! {
            <p class="help">
                "This server has no API key: anyone who can reach it can use it."
            </p>
        }
        .into_any(),
        (true, false) => view! { <KeyField /> }.into_any(),
        (true, true) => view! { <UserFields /> }.into_any(),
    };
    view! {
        <PageTitle text="Sign in" />
        <main class="login">
            <form method="post" action="/console/login" class="card login-card">
                <h1 class="brand">
                    <Icon name="box" />
                    "OpenSandbox"
                </h1>
                <input type="hidden" name="next" value=next />
                {fields}
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

/// Asks for an API key.
#[component]
fn KeyField() -> impl IntoView {
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
                "The server's configuration has it as " <code>"server.api_key"</code> "."
            </p>
        </div>
    }
    .into_any()
}

/// Asks for a user's name and password, or for an API key without a name.
#[component]
fn UserFields() -> impl IntoView {
    view! {
        <div class="field">
            <label for="user">"User name"</label>
            <input
                id="user"
                name="user"
                type="text"
                autofocus
                autocomplete="username"
                autocapitalize="none"
                spellcheck="false"
                aria-describedby="user-help"
            />
            <p id="user-help" class="help">"Leave it empty to sign in with an API key."</p>
        </div>
        <div class="field">
            <label for="key">"Password or API key"</label>
            <input
                id="key"
                name="key"
                type="password"
                required
                autocomplete="current-password"
                spellcheck="false"
                aria-describedby="login-problem"
            />
        </div>
    }
    .into_any()
}
