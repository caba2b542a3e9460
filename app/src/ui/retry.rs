//! What a page shows in place of data that it could not load, and how it comes back by itself.

use std::time::Duration;

use leptos::{ev, prelude::*};
use leptos_router::hooks::use_location;

use super::{Icon, SignInLink};
use crate::{
    error::ConsoleError,
    live::{Link, Live},
};

/// Pause before a call is repeated that failed although the server can be reached.
const PAUSE: Duration = Duration::from_secs(3);

/// Why data could not be loaded, with the way on: a new sign-in, or another attempt.
///
/// An error that may pass is tried again: at once when the live connection is back, whose attempts
/// show when the server is, and every few seconds while it stands.
#[component]
pub fn LoadError(
    /// What went wrong.
    error: ConsoleError,
    /// Loads the data again.
    #[prop(into)]
    again: Callback<()>,
) -> impl IntoView {
    let passes = error.may_pass();
    if passes {
        retry_when_live(again);
    }
    let way_on = match error {
        ConsoleError::SignedOut => view! { <SignInLink /> }.into_any(),
        ConsoleError::NotFound => ().into_any(),
        _ => view! { <Retry again /> }.into_any(),
    };
    view! {
        <div class="banner" data-tone="bad" role="alert">
            <Icon name="triangle-alert" />
            <p>{error.to_string()} {passes.then_some(" Retrying …")}</p>
            {way_on}
        </div>
    }
    .into_any()
}

/// Tries again. Without script it loads the page again.
#[component]
fn Retry(again: Callback<()>) -> impl IntoView {
    let here = use_location();
    let address = move || {
        let query = here.query.read().to_query_string();
        format!("{}{query}", here.pathname.read())
    };
    let on_click = move |event: ev::MouseEvent| {
        event.prevent_default();
        again.run(());
    };
    view! {
        <a class="button" rel="external" href=address on:click=on_click>
            <Icon name="refresh-cw" />
            "Retry"
        </a>
    }
    .into_any()
}

fn retry_when_live(again: Callback<()>) {
    let Some(live) = use_context::<Live>() else {
        return;
    };
    // The value of an effect is what it returned before: whether it ran.
    Effect::new(move |ran: Option<()>| {
        if live.link.get() != Link::Live {
            return;
        }
        // Connected when the call failed: it may fail again at once.
        let pause = if ran.is_some() { Duration::ZERO } else { PAUSE };
        let timer = set_timeout_with_handle(move || again.run(()), pause);
        if let Ok(timer) = timer {
            on_cleanup(move || timer.clear());
        }
    });
}
