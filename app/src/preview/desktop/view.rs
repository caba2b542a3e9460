//! The desktop with its tools, and the form that asks for a password.

use leptos::{ev, html::Div, prelude::*};
use osb_protocol::SandboxId;

use super::{Order, Phase, Ui};
use crate::ui::{Icon, SignInLink};

/// A desktop with its tools.
#[component]
pub fn Desktop(id: SandboxId, port: u16) -> impl IntoView {
    let ui = Ui {
        phase: RwSignal::new(Phase::Connecting),
        attempt: RwSignal::new(0),
        name: RwSignal::new(String::new()),
        fits: RwSignal::new(true),
        views_only: RwSignal::new(false),
        clipboard: RwSignal::new(String::new()),
        order: RwSignal::new(None),
    };
    let full = RwSignal::new(false);
    let place = NodeRef::<Div>::new();
    #[cfg(feature = "hydrate")]
    super::vnc::mount(id, port, place, ui);
    #[cfg(not(feature = "hydrate"))]
    let _ = id;
    let is_over = move || matches!(*ui.phase.read(), Phase::Closed(_));
    let asks = Memo::new(move |_| match *ui.phase.read() {
        Phase::Asks { name } => Some(name),
        _ => None,
    });
    view! {
        <section
            class="desktop"
            aria-label=format!("Desktop on port {port}")
            data-full=move || full.get().then_some("on")
        >
            <div class="desktop-bar">
                <p class="desktop-state" role="status" data-open=move || (*ui.phase.read() == Phase::Open).to_string()>
                    {move || ui.phase.read().words()}
                </p>
                <bdi class="desktop-name">{move || ui.name.get()}</bdi>
                <Show when=is_over>
                    <button
                        type="button"
                        class="button"
                        on:click=move |_| ui.attempt.update(|attempt| *attempt += 1)
                    >
                        "Connect again"
                    </button>
                </Show>
                {move || (*ui.phase.read() == Phase::SignedOut).then(|| view! { <SignInLink /> })}
                <Tools ui full />
            </div>
            {move || asks.get().map(|name| view! { <Password ui name /> })}
            <div class="desktop-place" node_ref=place></div>
            <noscript>
                <p class="banner">"A desktop needs JavaScript."</p>
            </noscript>
            <p class="fine needs-script">
                "The desktop gets all keys. Ctrl+Shift+↑ leads from it to its tools."
            </p>
        </section>
    }
    .into_any()
}

#[component]
fn Tools(ui: Ui, full: RwSignal<bool>) -> impl IntoView {
    let toggle = |label: &'static str, icon: &'static str, on: RwSignal<bool>| {
        view! {
            <button
                type="button"
                class="icon-button"
                aria-label=label
                title=label
                aria-pressed=move || on.get().to_string()
                on:click=move |_| on.update(|on| *on = !*on)
            >
                <Icon name=icon />
            </button>
        }
    };
    let on_text = move |event: ev::Event| {
        let text = event_target_value(&event);
        ui.clipboard.set(text.clone());
        ui.order.set(Some(Order::Clipboard(text)));
    };
    view! {
        <div class="terminal-tools needs-script" role="group" aria-label="Desktop tools">
            <details class="confirm" name="confirm">
                <summary class="icon-button" aria-label="Clipboard" title="Clipboard">
                    <Icon name="clipboard" />
                </summary>
                <div class="card confirm-card">
                    <label for="desktop-clipboard">"Text on the desktop's clipboard"</label>
                    <textarea
                        id="desktop-clipboard"
                        rows="4"
                        prop:value=move || ui.clipboard.get()
                        on:input=on_text
                    ></textarea>
                </div>
            </details>
            <button
                type="button"
                class="icon-button"
                aria-label="Send Ctrl+Alt+Del"
                title="Send Ctrl+Alt+Del"
                on:click=move |_| ui.order.set(Some(Order::CtrlAltDel))
            >
                <Icon name="keyboard" />
            </button>
            {toggle("View only", "eye", ui.views_only)}
            {toggle("Fit to the page", "scaling", ui.fits)}
            {toggle("Full height", "maximize-2", full)}
        </div>
    }
    .into_any()
}

/// Asks for what the desktop wants to know.
#[component]
fn Password(ui: Ui, name: bool) -> impl IntoView {
    let user = RwSignal::new(String::new());
    let password = RwSignal::new(String::new());
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let order = Order::Credentials(user.get_untracked(), password.get_untracked());
        ui.order.set(Some(order));
        ui.phase.set(Phase::Connecting);
    };
    view! {
        <form class="desktop-password" on:submit=submit>
            {name
                .then(|| {
                    view! {
                        <label>
                            "Name"
                            <input
                                type="text"
                                autocomplete="off"
                                on:input=move |event| user.set(event_target_value(&event))
                            />
                        </label>
                    }
                })}
            <label>
                "Password"
                <input
                    type="password"
                    autocomplete="off"
                    on:input=move |event| password.set(event_target_value(&event))
                />
            </label>
            <button type="submit" class="button primary">
                "Connect"
            </button>
        </form>
    }
    .into_any()
}
