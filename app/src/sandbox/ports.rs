//! Addresses of a sandbox's ports.

use leptos::{ev, prelude::*, task::spawn_local};
use leptos_router::{
    NavigateOptions,
    hooks::{use_navigate, use_query_map},
    params::ParamsMap,
};
use osb_protocol::{
    SandboxId,
    execd::port::ListeningPort,
    lifecycle::{SandboxState, SandboxStatus},
};

use super::api;
use crate::{
    browser,
    error::ConsoleError,
    preview::read_ports,
    tab::Tab,
    ui::{CopyButton, Icon, LoadError},
    view::{PortAddress, Reach, SandboxDetail, offers_changes},
};

/// execd listens here in every sandbox (contract: execd §1), so this port always answers.
const EXECD: u16 = 44_772;

/// Addresses of one port. The URL holds the port as it was typed (`?port=8080`).
#[component]
pub(super) fn Ports(
    /// The sandbox.
    id: SandboxId,
    /// Data of its page.
    current: RwSignal<SandboxDetail>,
) -> impl IntoView {
    let params = use_query_map();
    let typed = Memo::new(move |_| params.read().get("port"));
    let wanted = Memo::new(move |_| port(typed.read().as_deref()));
    let status = Memo::new(move |_| current.read().sandbox.status.clone());
    let asked = id.clone();
    let answer = Resource::new_blocking(
        move || (wanted.get(), status.get()),
        move |(wanted, status)| {
            let id = asked.clone();
            async move {
                match (wanted, no_endpoints(&status)) {
                    (Err(_), _) => None,
                    (Ok(_), Some(why)) => Some(Ok(Reach::Nowhere(why.to_owned()))),
                    (Ok(port), None) => Some(api::port(id, port).await),
                }
            }
        },
    );
    let runs = Memo::new(move |_| status.read().state == SandboxState::Running);
    let listening = id.clone();
    view! {
        <Show when=move || runs.get() && offers_changes()>
            <Listening id=listening.clone() />
        </Show>
        <PortField id typed wanted />
        <Transition fallback=|| view! { <div class="skeleton-row"></div> }>
            {move || Suspend::new(async move { shown(answer.await, wanted, Callback::new(move |()| answer.refetch())) })}
        </Transition>
    }
    .into_any()
}

/// The ports on which programs listen. Only browsers ask for them: a page must not wait for the execd
/// of its sandbox.
#[component]
fn Listening(id: SandboxId) -> impl IntoView {
    let found = RwSignal::new(None::<Result<Vec<ListeningPort>, String>>);
    let asked = id.clone();
    let ask = move || {
        let id = asked.clone();
        spawn_local(async move {
            let ports = match read_ports(id, None).await {
                Ok(Ok(ports)) => Ok(ports.listening),
                Ok(Err(why)) => Err(why),
                Err(error) => Err(error.to_string()),
            };
            // The tab may have been left.
            found.try_set(Some(ports));
        });
    };
    let first = ask.clone();
    Effect::new(move |_| first());
    let content = move || match found.get() {
        None => view! { <p class="help">"Looking for programs that listen …"</p> }.into_any(),
        Some(Err(why)) => view! { <p class="help">{why}</p> }.into_any(),
        Some(Ok(ports)) if ports.is_empty() => {
            view! { <p class="help">"No program listens on a TCP port."</p> }.into_any()
        }
        Some(Ok(ports)) => {
            let rows = ports.iter().map(|listening| port_row(&id, listening));
            view! { <ul class="port-rows">{rows.collect_view()}</ul> }.into_any()
        }
    };
    view! {
        <div class="listening needs-script" role="group" aria-label="Programs that listen">
            <div role="status">{content}</div>
            <button type="button" class="text-button" on:click=move |_| ask()>
                "Check again"
            </button>
        </div>
    }
    .into_any()
}

/// A port with its program, and the ways to it.
fn port_row(id: &SandboxId, listening: &ListeningPort) -> AnyView {
    let port = listening.port;
    let program = listening.process.clone().unwrap_or_default();
    view! {
        <li>
            <a
                class="num"
                href=format!("{}?port={port}", Tab::Overview.address(id))
                aria-label=format!("Addresses of port {port}")
            >
                {port}
            </a>
            <span class="clip">{program}</span>
            <a
                href=format!("{}?port={port}", Tab::Preview.address(id))
                aria-label=format!("Preview port {port}")
            >
                "Preview"
            </a>
        </li>
    }
    .into_any()
}

/// The typed port; execd's if there is none.
fn port(typed: Option<&str>) -> Result<u16, &'static str> {
    let Some(typed) = typed else {
        return Ok(EXECD);
    };
    match typed.trim().parse() {
        Ok(port @ 1..) => Ok(port),
        _ => Err("A port is a whole number from 1 to 65535."),
    }
}

/// Why a sandbox with this status has no endpoints. The server is not asked then.
fn no_endpoints(status: &SandboxStatus) -> Option<&'static str> {
    match status.state {
        SandboxState::Pending => {
            Some("The sandbox is still being created. It has endpoints once its container runs.")
        }
        SandboxState::Failed if status.reason.as_deref() == Some("REMOVAL_FAILED") => Some(
            "The sandbox is being deleted and has no endpoints any more, although its container may still run.",
        ),
        SandboxState::Failed => Some("The sandbox failed, so it has no endpoints."),
        SandboxState::Terminated => Some("The sandbox terminated, so it has no endpoints."),
        SandboxState::Stopping => {
            Some("The sandbox is being deleted and has no endpoints any more.")
        }
        _ => None,
    }
}

/// A text field: browsers hide from a page what was typed into a number field if it is no number.
#[component]
fn PortField(
    id: SandboxId,
    typed: Memo<Option<String>>,
    wanted: Memo<Result<u16, &'static str>>,
) -> impl IntoView {
    let navigate = use_navigate();
    let here = format!("/console/sandboxes/{id}");
    let action = here.clone();
    let on_input = move |event: ev::Event| {
        let mut query = ParamsMap::new();
        query.insert("port", event_target_value(&event));
        let options = NavigateOptions {
            replace: true,
            scroll: false,
            ..Default::default()
        };
        navigate(&format!("{here}{}", query.to_query_string()), options);
    };
    let initial = typed.get_untracked().unwrap_or_else(|| EXECD.to_string());
    let invalid = move || wanted.read().is_err().then_some("true");
    view! {
        <form method="get" action=action class="inline-form" on:submit=|event| event.prevent_default()>
            <label for="port">"Port"</label>
            <input
                id="port"
                class="num port"
                name="port"
                type="text"
                inputmode="numeric"
                autocomplete="off"
                value=initial
                aria-invalid=invalid
                aria-describedby="port-problem"
                on:input=on_input
            />
            <button type="submit" class="button needs-no-script">"Show"</button>
            <p id="port-problem" class="problem" role="alert">{move || wanted.get().err()}</p>
        </form>
    }
    .into_any()
}

fn shown(
    answer: Option<Result<Reach, ConsoleError>>,
    wanted: Memo<Result<u16, &'static str>>,
    again: Callback<()>,
) -> AnyView {
    match answer {
        // The field shows the problem.
        None => ().into_any(),
        Some(Ok(Reach::At(address))) => view! { <Addresses address wanted /> }.into_any(),
        Some(Ok(Reach::Nowhere(why))) => view! { <p class="help no-endpoint">{why}</p> }.into_any(),
        Some(Err(error)) => view! { <LoadError error again /> }.into_any(),
    }
}

/// Hidden, without giving up its space, while the address of a newly typed port is loading.
#[component]
fn Addresses(address: PortAddress, wanted: Memo<Result<u16, &'static str>>) -> impl IntoView {
    let PortAddress {
        port,
        direct,
        direct_headers,
        proxied,
        proxied_headers,
    } = address;
    let outdated = move || (wanted.get() != Ok(port)).to_string();
    let is_secured = direct.starts_with('/');
    // The server does not know the name by which browsers reach it.
    let url = RwSignal::new(proxied.clone());
    let path = proxied.clone();
    Effect::new(move |_| url.set(browser::url_of(&path)));
    let whole = Signal::derive(move || url.get());
    let directly = (!is_secured).then(|| {
        let direct = format!("http://{direct}");
        view! {
            <dt>"Direct"</dt>
            <dd>
                <span class="mono">{direct.clone()}</span>
                " "
                <CopyButton text=direct what="the direct address" />
                <Needed headers=direct_headers />
            </dd>
        }
    });
    // A browser cannot send headers with a link.
    let open = proxied_headers.is_empty().then(|| {
        view! {
            " "
            <a class="text-button" href=proxied target="_blank" rel="external noopener noreferrer">
                "Open"
                <Icon name="external-link" />
            </a>
        }
    });
    view! {
        <dl class="facts addresses" aria-busy=outdated>
            {directly}
            <dt>"Through this server"</dt>
            <dd>
                <span class="mono">{whole}</span>
                " "
                <CopyButton text=whole what="the address through this server" />
                {open}
                <Needed headers=proxied_headers />
            </dd>
        </dl>
    }
    .into_any()
}

/// The headers that requests need; their values are in the API's answer about the endpoint.
#[component]
fn Needed(headers: Vec<String>) -> impl IntoView {
    if headers.is_empty() {
        return ().into_any();
    }
    let count = headers.len();
    let names = headers
        .into_iter()
        .enumerate()
        .map(|(at, name)| view! { {(at > 0).then_some(" and ")} <code>{name}</code> })
        .collect_view();
    let (word, what) = match count {
        1 => ("the header ", ", whose value"),
        _ => ("the headers ", ", whose values"),
    };
    view! {
        <p class="fine">"Needs " {word} {names} {what} " the endpoint's answer of the API has."</p>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::is_alive;

    #[test]
    fn only_ports_are_asked_for() {
        assert_eq!(port(None), Ok(EXECD));
        assert_eq!(port(Some(" 8080 ")), Ok(8080));
        assert_eq!(port(Some("65535")), Ok(65_535));
        for wrong in ["", "0", "70000", "abc", "-1", "80.5", "8e3"] {
            assert!(port(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_does_not_run_has_no_endpoints_and_a_reason() {
        for state in ["Failed", "Terminated", "Stopping", "Pending"] {
            assert!(no_endpoints(&status(state, "")).is_some(), "{state}");
        }
        for state in ["Running", "Paused", "Resuming", "Unknown"] {
            let status = status(state, "");
            assert!(
                is_alive(&status.state) && no_endpoints(&status).is_none(),
                "{state}"
            );
        }
    }

    #[test]
    fn a_sandbox_whose_removal_failed_may_still_run() {
        let why = no_endpoints(&status("Failed", "REMOVAL_FAILED")).unwrap();
        assert!(why.contains("may still run"), "{why}");
        let ended = no_endpoints(&status("Failed", "CONTAINER_EXITED_ERROR")).unwrap();
        assert!(!ended.contains("may still run"), "{ended}");
    }

    fn status(state: &str, reason: &str) -> SandboxStatus {
        SandboxStatus {
            state: SandboxState::from(state),
            reason: Some(reason.to_owned()),
            message: None,
            last_transition_at: None,
        }
    }
}
