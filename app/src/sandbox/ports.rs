//! Where the ports of a sandbox are reached.

use leptos::{ev, prelude::*};
use leptos_router::{
    NavigateOptions,
    hooks::{use_navigate, use_query_map},
};
use osb_protocol::SandboxId;

use crate::{api, ui::CopyButton, view::PortAddress};

/// execd listens here in every sandbox (contract: execd §1), so this port always answers.
const EXECD: u16 = 44_772;

/// Addresses of one port, which stands in the URL (`?port=8080`).
#[component]
pub(super) fn Ports(
    /// Which sandbox.
    id: SandboxId,
) -> impl IntoView {
    let params = use_query_map();
    let port = Memo::new(move |_| {
        let port = params
            .read()
            .get("port")
            .and_then(|port| port.parse::<u16>().ok());
        port.unwrap_or(EXECD)
    });
    let asked = id.clone();
    let address = Resource::new_blocking(
        move || port.get(),
        move |port| api::port(asked.clone(), port),
    );
    let navigate = use_navigate();
    let here = format!("/console/sandboxes/{id}");
    let action = here.clone();
    let on_port = move |event: ev::Event| {
        if let Ok(port @ 1..) = event_target_value(&event).parse::<u16>() {
            let options = NavigateOptions {
                replace: true,
                scroll: false,
                ..Default::default()
            };
            navigate(&format!("{here}?port={port}"), options);
        }
    };
    view! {
        <form method="get" action=action class="inline-form" on:submit=|event| event.prevent_default()>
            <label for="port">"Port"</label>
            <input
                id="port"
                class="num"
                name="port"
                type="number"
                min="1"
                max="65535"
                value=port.get_untracked()
                on:change=on_port
            />
            <button type="submit" class="button needs-no-script">"Show"</button>
        </form>
        <Transition fallback=|| view! { <div class="skeleton-row"></div> }>
            {move || Suspend::new(async move {
                match address.await {
                    Ok(address) => view! { <Addresses address /> }.into_any(),
                    Err(error) => view! { <p class="help">{error.to_string()}</p> }.into_any(),
                }
            })}
        </Transition>
    }
    .into_any()
}

#[component]
fn Addresses(address: PortAddress) -> impl IntoView {
    let PortAddress {
        direct, proxied, ..
    } = address;
    view! {
        <dl class="facts">
            <dt>"Direct"</dt>
            <dd class="mono">{direct.clone()} <CopyButton text=direct what="the direct address" /></dd>
            <dt>"Through this server"</dt>
            <dd class="mono">
                {proxied.clone()} <CopyButton text=proxied what="the path through this server" />
            </dd>
        </dl>
    }
    .into_any()
}
