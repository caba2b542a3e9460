//! The page.

use leptos::prelude::*;
use osb_protocol::Feature;

use super::{api, config::ConfigCards, look::look, store::StoreCard, webhooks::WebhooksCard};
use crate::{
    query_string::use_query,
    ui::{Icon, LoadError, PageTitle},
    view::{Check, CheckState, OperatorView, ServerInfo, SettingsView},
};

/// The page.
#[component]
pub fn SettingsPage() -> impl IntoView {
    let params = use_query();
    let checks_store = Memo::new(move |_| params.read().get_str("check") == Some("store"));
    let settings = Resource::new_blocking(move || checks_store.get(), api::read_settings);
    let refresh = move |event: leptos::ev::MouseEvent| {
        event.prevent_default();
        settings.refetch();
    };
    view! {
        <PageTitle text="Settings & health" />
        <div class="page-head">
            <h1>"Settings & health"</h1>
            <a class="button" rel="external" href="/console/settings" on:click=refresh>
                <Icon name="refresh-cw" />
                "Check again"
            </a>
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
                match settings.await {
                    Ok(view) => {
                        let again = Callback::new(move |()| settings.refetch());
                        view! { <Loaded settings=view again /> }.into_any()
                    }
                    Err(error) => {
                        view! { <LoadError error again=move |()| settings.refetch() /> }.into_any()
                    }
                }
            })}
        </Transition>
    }
    .into_any()
}

#[component]
fn Loaded(settings: SettingsView, again: Callback<()>) -> impl IntoView {
    let SettingsView { checks, operator } = settings;
    let rest = match operator {
        Ok(operator) => view! { <Operator operator again /> }.into_any(),
        Err(why) => view! {
            <p class="banner">
                <Icon name="info" />
                <span>{why}</span>
            </p>
        }
        .into_any(),
    };
    view! {
        <div class="cards">
            <Checks checks />
            <About />
        </div>
        {rest}
    }
    .into_any()
}

#[component]
fn Checks(checks: Vec<Check>) -> impl IntoView {
    let row = |check: Check| {
        let (tone, icon) = look(check.state);
        let word = match check.state {
            CheckState::Good => "Good",
            CheckState::Note => "Note",
            CheckState::Bad => "Not good",
        };
        view! {
            <li>
                <span class="badge" data-tone=tone>
                    <Icon name=icon />
                    <span>{word}</span>
                </span>
                <div>
                    <h3>{check.name}</h3>
                    <p>{check.text}</p>
                </div>
            </li>
        }
    };
    view! {
        <section class="card" aria-labelledby="health-title">
            <h2 id="health-title">"Health"</h2>
            <ul class="checks">{checks.into_iter().map(row).collect_view()}</ul>
        </section>
    }
    .into_any()
}

/// What a feature is, in words.
fn words(feature: Feature) -> &'static str {
    match feature {
        Feature::Pause => "Pause and resume",
        Feature::Snapshots => "Snapshots",
        Feature::Pools => "Pools",
        Feature::Templates => "Templates",
        Feature::NetworkPolicy => "Network policies",
        Feature::Volumes => "Volumes",
        Feature::LifecycleHooks => "Lifecycle hooks",
        Feature::SecureAccess => "Secure access",
        Feature::SignedEndpoints => "Signed endpoints",
        Feature::Diagnostics => "Diagnostics",
        Feature::Windows => "Windows",
    }
}

/// What everyone may know of the server.
#[component]
fn About() -> impl IntoView {
    let info = use_context::<ServerInfo>().unwrap_or_default();
    let features = info.features;
    let feature = move |feature: Feature| {
        let (icon, what) = match features.contains(feature) {
            true => ("check", "available"),
            false => ("x", "not available"),
        };
        view! {
            <li data-has=features.contains(feature).then_some("true")>
                <Icon name=icon />
                {words(feature)}
                <span class="visually-hidden">{format!(": {what}")}</span>
            </li>
        }
    };
    let longest = match info.max_timeout_seconds {
        Some(seconds) => crate::ui::duration(seconds),
        None => "no limit".to_owned(),
    };
    let isolation = match info.secure_runtime {
        Some(secure) => secure,
        None => "plain containers: sandboxes share the host's kernel".to_owned(),
    };
    let key = match info.key_required {
        true => "required",
        false => "not required: every client may do everything",
    };
    view! {
        <section class="card" aria-labelledby="about-title">
            <h2 id="about-title">"Server"</h2>
            <dl class="facts">
                <dt>"Version"</dt>
                <dd class="num">{info.version}</dd>
                <dt>"Runtime"</dt>
                <dd>{info.runtime}</dd>
                <dt>"Isolation"</dt>
                <dd>{isolation}</dd>
                <dt>"API key"</dt>
                <dd>{key}</dd>
                <dt>"Longest life"</dt>
                <dd>{longest}</dd>
                <dt>"Addresses"</dt>
                <dd class="addresses-of">
                    <a rel="external" href="/docs">"API docs"</a>
                    <a rel="external" href="/openapi.json">"/openapi.json"</a>
                    <a rel="external" href="/health">"/health"</a>
                    <a rel="external" href="/ready">"/ready"</a>
                    <a rel="external" href="/version">"/version"</a>
                </dd>
            </dl>
            <h3 class="features-title">"What this runtime can do"</h3>
            <ul class="features">{Feature::ALL.map(feature).collect_view()}</ul>
        </section>
    }
    .into_any()
}

#[component]
fn Operator(operator: OperatorView, again: Callback<()>) -> impl IntoView {
    let OperatorView {
        config,
        store,
        host,
        webhooks,
    } = operator;
    let kind = config.as_ref().map(|config| config.store.clone());
    view! {
        <div class="cards">
            <StoreCard kind store host again />
            <Support has_bundle=config.is_some() />
        </div>
        <WebhooksCard webhooks />
        {config.map(|config| view! { <ConfigCards config /> })}
    }
    .into_any()
}

/// What a report about a problem needs.
#[component]
fn Support(has_bundle: bool) -> impl IntoView {
    let bundle = has_bundle.then(|| {
        view! {
            <p>
                <a class="button" rel="external" download href="/console/settings/bundle">
                    <Icon name="download" />
                    "Support bundle"
                </a>
            </p>
        }
    });
    view! {
        <section class="card support" aria-labelledby="support-title">
            <h2 id="support-title">"Help"</h2>
            <p>
                "The support bundle has what a report about a problem needs: versions, the configuration with masked secrets, a check of the store, what the engine says, the end of the log, and the metrics. Collecting it can take a minute."
            </p>
            {bundle}
        </section>
    }
    .into_any()
}
