//! The page.

use leptos::prelude::*;

use super::{
    api,
    keys::KeysSection,
    sessions::{SessionsSection, kind},
    shown::Shown,
    users::{Tenants, UsersSection},
};
use crate::{
    ui::{Icon, LoadError, PageTitle},
    view::{AccessView, AccountList, ServerInfo},
};

/// The page.
#[component]
pub fn AccessPage() -> impl IntoView {
    let first = Resource::new_blocking(|| (), |()| api::read_access());
    view! {
        <PageTitle text="Access" />
        <div class="page-head">
            <h1>"Access"</h1>
        </div>
        <Transition fallback=|| {
            view! {
                <div class="skeleton" aria-busy="true">
                    <div class="skeleton-row"></div>
                    <div class="skeleton-row"></div>
                </div>
            }
        }>
            {move || Suspend::new(async move {
                match first.await {
                    Ok(access) => view! { <Loaded access /> }.into_any(),
                    Err(error) => {
                        view! { <LoadError error again=move |()| first.refetch() /> }.into_any()
                    }
                }
            })}
        </Transition>
    }
    .into_any()
}

#[component]
fn Loaded(access: AccessView) -> impl IntoView {
    let sees_all = access.accounts.is_ok();
    let accounts = match &access.accounts {
        Ok(AccountList { needs_tenant, .. }) => Ok(*needs_tenant),
        Err(why) => Err(why.clone()),
    };
    let shown = Shown::new(access);
    let accounts = match accounts {
        Ok(needs_tenant) => view! {
            <OpenServer shown />
            <Tenants shown />
            <UsersSection shown needs_tenant />
            <KeysSection shown needs_tenant />
        }
        .into_any(),
        Err(why) => view! {
            <p class="banner">
                <Icon name="info" />
                <span>{why}</span>
            </p>
        }
        .into_any(),
    };
    view! {
        <You shown />
        {accounts}
        <SessionsSection shown sees_all />
    }
    .into_any()
}

/// Who is signed in, and how far that goes.
#[component]
fn You(shown: Shown) -> impl IntoView {
    let you = move || shown.view.read().you.clone();
    let reach = move || match you().tenant {
        Some(tenant) => format!("the sandboxes of the tenant {tenant}"),
        None => "all sandboxes".to_owned(),
    };
    view! {
        <section class="card" aria-labelledby="you-title">
            <h2 id="you-title">"You"</h2>
            <dl class="facts">
                <dt>"Signed in as"</dt>
                <dd>{move || you().name} " (" {move || kind(you().kind)} ")"</dd>
                <dt>"Role"</dt>
                <dd class="mono">{move || you().role.as_str()}</dd>
                <dt>"Reaches"</dt>
                <dd>{reach}</dd>
            </dl>
        </section>
    }
    .into_any()
}

/// What the first account changes on a server without authentication.
#[component]
fn OpenServer(shown: Shown) -> impl IntoView {
    let asks_for_key = use_context::<ServerInfo>().is_none_or(|info| info.key_required);
    let is_open = move || {
        let view = shown.view.read();
        let accounts = view.accounts.as_ref();
        !asks_for_key && accounts.is_ok_and(|it| it.users.is_empty() && it.keys.is_empty())
    };
    let note = || {
        view! {
            <p class="banner" data-tone="busy">
                <Icon name="triangle-alert" />
                <span>
                    "This server asks for no key: every client may do everything. The first user or API key ends that at once, for this page too. Begin with the role service_admin, and keep its password or secret."
                </span>
            </p>
        }
    };
    move || is_open().then(note)
}
