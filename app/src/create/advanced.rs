//! The part of the form that few sandboxes need, folded at first.

use leptos::{ev, html, prelude::*};
use osb_protocol::Feature;

use super::{
    Field,
    inputs::{CommandField, TextField},
    network_field::NetworkField,
    pairs::PairsField,
    state::State,
};
use crate::{form::raw_text, view::ServerInfo};

/// A network policy, extensions, credentials of a registry, secure access, a command before the entry point, and whatever
/// else a request can have.
#[component]
pub(super) fn Advanced(state: State) -> impl IntoView {
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    let is_used = move || {
        state.form.with_untracked(|form| {
            let empty = super::CreateForm::default();
            form.secure_access
                || form.network != empty.network
                || Field::ALL
                    .into_iter()
                    .any(|field| field.is_advanced() && form.text(field) != empty.text(field))
        })
    };
    // A problem that is folded away could not be mended.
    let has_problem = Memo::new(move |_| {
        let problems = state.problems.read();
        let is_shown = |field: Field| field.is_advanced() && state.problem(field).is_some();
        problems.iter().map(Field::of).any(is_shown)
    });
    let is_open = RwSignal::new(is_used() || has_problem.get_untracked());
    // What was filled in as a whole is to be seen.
    Effect::new(move |ran: Option<()>| {
        state.fillings.track();
        if ran.is_some() && is_used() {
            is_open.set(true);
        }
    });
    Effect::new(move |_| {
        if has_problem.get() {
            is_open.set(true);
        }
    });
    let details = NodeRef::<html::Details>::new();
    let on_toggle = move |_| {
        if let Some(details) = details.get_untracked() {
            is_open.set(details.open());
        }
    };
    // A copy may ask for it where it is not offered: then it can be left out.
    let is_secure = state.form.with_untracked(|form| form.secure_access);
    let has_secure = is_secure || features.contains(Feature::SecureAccess);
    // A request as JSON may ask for it where it is not offered: then it can be taken back.
    let has_choice = state
        .form
        .with_untracked(|form| form.network != super::CreateForm::default().network);
    let has_network = has_choice || features.contains(Feature::NetworkPolicy);
    let has_hooks = features.contains(Feature::LifecycleHooks);
    view! {
        <details
            class="advanced"
            node_ref=details
            open=move || is_open.get()
            on:toggle=on_toggle
        >
            <summary>"Advanced"</summary>
            <div class="advanced-fields">
                {has_network.then(|| view! { <NetworkField state /> })}
                <div class="pair">
                    <TextField state field=Field::AuthUser name="auth_user"
                        help="For an image in a private registry." />
                    <TextField state field=Field::AuthPassword name="auth_password" hidden=true
                        help="Sent to the registry by the engine. No page shows it again." />
                </div>
                <PairsField state field=Field::Extensions name="extensions" what="Extension"
                    help="Settings for parts of the platform. " line_help="One per line: name=value." />
                {has_secure.then(|| view! { <SecureAccess state /> })}
                {has_hooks
                    .then(|| {
                        view! {
                            <CommandField state field=Field::PreStart name="pre_start"
                                help="Has to end well before the entry point starts." />
                        }
                    })}
                <More state />
            </div>
        </details>
    }
    .into_any()
}

#[component]
fn SecureAccess(state: State) -> impl IntoView {
    let on = move || state.form.read().secure_access;
    let first = state.form.read_untracked().secure_access;
    view! {
        <div class="field">
            <label class="check">
                <input
                    id="secure_access"
                    type="checkbox"
                    name="secure_access"
                    value="true"
                    checked=first
                    prop:checked=on
                    aria-describedby="secure_access-problem secure_access-help"
                    on:change=move |event: ev::Event| state.secure(event_target_checked(&event))
                />
                {Field::SecureAccess.label()}
            </label>
            <p id="secure_access-help" class="help">
                "Its endpoints need a token of their own, which the API's answer about an endpoint has."
            </p>
            <p id="secure_access-problem" class="problem">
                {move || state.problem(Field::SecureAccess)}
            </p>
        </div>
    }
    .into_any()
}

/// Members without a field.
#[component]
fn More(state: State) -> impl IntoView {
    let initial = state.form.with_untracked(|form| form.more.clone());
    let area = NodeRef::<html::Textarea>::new();
    let text = Memo::new(move |_| state.form.read().more.clone());
    Effect::new(move |ran: Option<()>| {
        let wanted = text.get();
        let Some(area) = area.get() else {
            return;
        };
        let shown = area.value();
        match ran {
            _ if shown == wanted => {}
            None => state.edit(Field::More, shown),
            Some(()) => area.set_value(&wanted),
        }
    });
    let invalid = move || state.problem(Field::More).is_some().then_some("true");
    view! {
        <div class="field">
            <label for="more">{Field::More.label()}</label>
            <textarea
                id="more"
                name="more"
                class="mono"
                node_ref=area
                rows="4"
                spellcheck="false"
                aria-invalid=invalid
                aria-describedby="more-problem more-help"
                on:input=move |event: ev::Event| state.edit(Field::More, event_target_value(&event))
            >
                {raw_text(&initial)}
            </textarea>
            <p id="more-help" class="help">
                "Members of the request without a field, as a JSON object, such as "
                <code>"{\"volumes\": [ … ]}"</code> ". They are sent as they are."
            </p>
            <p id="more-problem" class="problem">{move || state.problem(Field::More)}</p>
        </div>
    }
    .into_any()
}
