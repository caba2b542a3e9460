//! The field for what a new sandbox may connect to.

use leptos::{ev, html, prelude::*};

use super::{Field, network, state::State};
use crate::{form::raw_text, view::ServerInfo};

/// A choice, and a list of destinations for the choices that need one.
#[component]
pub(super) fn NetworkField(state: State) -> impl IntoView {
    let info = use_context::<ServerInfo>().unwrap_or_default();
    let chosen = move || state.form.read().network.clone();
    let first = state.form.read_untracked().network.clone();
    let has_list = Memo::new(move |_| network::has_list(&chosen()));
    let choices = network::choices(info.has_default_policy, info.enforces_addresses, &first);
    let option = |(value, words): (&'static str, &'static str)| {
        view! {
            <option value=value selected=value == first>
                {words}
            </option>
        }
    };
    let options = choices.into_iter().map(option).collect_view();
    let select = NodeRef::<html::Select>::new();
    let shown = Memo::new(move |_| chosen());
    Effect::new(move |ran: Option<()>| {
        let wanted = shown.get();
        let Some(select) = select.get() else {
            return;
        };
        match ran {
            // The user may have chosen before the page was live.
            None => state.choose_network(select.value()),
            Some(()) => select.set_value(&wanted),
        }
    });
    let initial = state.form.with_untracked(|form| form.network_rules.clone());
    let area = NodeRef::<html::Textarea>::new();
    let text = Memo::new(move |_| state.form.read().network_rules.clone());
    Effect::new(move |ran: Option<()>| {
        let wanted = text.get();
        let Some(area) = area.get() else {
            return;
        };
        let typed = area.value();
        match ran {
            _ if typed == wanted => {}
            None => state.edit(Field::Network, typed),
            Some(()) => area.set_value(&wanted),
        }
    });
    let invalid = move || state.problem(Field::Network).is_some().then_some("true");
    let help = match (info.has_default_policy, info.enforces_addresses) {
        (true, _) => {
            "By default, sandboxes of this server reach the public internet only: no private network, and not this host."
        }
        (false, true) => "By default, sandboxes of this server are not restricted.",
        (false, false) => {
            "By default, sandboxes of this server are not restricted. It enforces names only: a program that knows an address connects to it."
        }
    };
    view! {
        <div class="field">
            <label for="network">{Field::Network.label()}</label>
            <select
                id="network"
                name="network"
                node_ref=select
                aria-describedby="network-help network_rules-problem"
                on:change=move |event: ev::Event| state.choose_network(event_target_value(&event))
            >
                {options}
            </select>
            <p id="network-help" class="help">{help}</p>
            <div class="network-hosts field" class:off=move || !has_list.get()>
                <label for="network_rules">"Hosts"</label>
                <textarea
                    id="network_rules"
                    name="network_rules"
                    class="mono"
                    node_ref=area
                    rows="4"
                    spellcheck="false"
                    autocapitalize="off"
                    aria-invalid=invalid
                    aria-describedby="network_rules-problem network_rules-help"
                    on:input=move |event: ev::Event| {
                        state.edit(Field::Network, event_target_value(&event));
                    }
                >
                    {raw_text(&initial)}
                </textarea>
                <p id="network_rules-help" class="help">
                    "One per line: a name such as api.example.org, all names below one such as *.example.org, an address or a network."
                    <span class="needs-no-script">
                        " For “Only these hosts” and “Everything but these”."
                    </span>
                </p>
            </div>
            <p id="network_rules-problem" class="problem">
                {move || state.problem(Field::Network)}
            </p>
        </div>
    }
    .into_any()
}
