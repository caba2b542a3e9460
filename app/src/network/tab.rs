//! The view of the network tab.

use leptos::prelude::*;
use osb_protocol::SandboxId;

use super::{
    Network, NetworkView, api,
    decisions::DecisionsSection,
    live::State,
    policy::PolicySection,
    proposal::{self, ProposalSection, Proposed},
};
use crate::{
    tab::Current,
    ui::{Icon, LoadError},
    view::offers_changes,
};

/// The policy of the sandbox, what was decided by it, and what follows from that.
#[component]
pub fn NetworkTab() -> impl IntoView {
    let Some(Current(current)) = use_context() else {
        return ().into_any();
    };
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    let asked = id.clone();
    let first = Resource::new_blocking(|| (), move |()| api::read_network(asked.clone(), 0));
    let proposed = proposal::propose(id.clone());
    view! {
        <Transition fallback=|| view! { <div class="skeleton" aria-busy="true"><div class="skeleton-row"></div></div> }>
            {move || {
                let id = id.clone();
                let again = Callback::new(move |()| first.refetch());
                Suspend::new(async move {
                    match first.await {
                        Ok(Ok(NetworkView::Policy(network))) => {
                            let network = *network;
                            view! { <Sections id network proposed /> }.into_any()
                        }
                        Ok(Ok(NetworkView::NoSidecar)) => view! { <NoSidecar id /> }.into_any(),
                        Ok(Err(why)) => view! { <Nothing why again /> }.into_any(),
                        Err(error) => view! { <LoadError error again /> }.into_any(),
                    }
                })
            }}
        </Transition>
    }
    .into_any()
}

#[component]
fn Sections(id: SandboxId, network: Network, proposed: Proposed) -> impl IntoView {
    let state = State::new(id, network);
    state.follow();
    view! {
        <div class="network">
            <PolicySection state />
            <DecisionsSection state />
            <ProposalSection state answer=proposed />
        </div>
    }
    .into_any()
}

/// Says that nothing restricts the sandbox, and how another one is restricted.
#[component]
fn NoSidecar(id: SandboxId) -> impl IntoView {
    let copy = offers_changes().then(|| {
        view! {
            <a class="button" href=format!("/console/create?from={id}")>
                <Icon name="copy-plus" />
                "Create a copy with a policy"
            </a>
        }
    });
    view! {
        <section class="empty">
            <Icon name="network" />
            <h2>"No network policy"</h2>
            <p>
                "This sandbox was created without a network policy: nothing restricts what it connects to, and nothing of it is recorded. A policy cannot be added later. Create a sandbox with one, in the part “Advanced” of the form."
            </p>
            {copy}
        </section>
    }
    .into_any()
}

#[component]
fn Nothing(why: String, again: Callback<()>) -> impl IntoView {
    view! {
        <section class="empty">
            <Icon name="network" />
            <p role="status">{why}</p>
            <button type="button" class="button needs-script" on:click=move |_| again.run(())>
                <Icon name="refresh-cw" />
                "Try again"
            </button>
        </section>
    }
    .into_any()
}
