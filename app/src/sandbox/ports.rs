//! Addresses of a sandbox's ports.

use leptos::{ev, prelude::*};
use leptos_router::{NavigateOptions, hooks::use_navigate};
use osb_protocol::{
    SandboxId,
    lifecycle::{SandboxState, SandboxStatus},
};

use super::{
    api,
    listeners::{EXECD, Listeners, Listening},
};
use crate::{
    browser,
    error::ConsoleError,
    query_string::{to_query, use_query},
    ui::{CopyButton, Icon, LoadError},
    view::{PortAddress, Reach, SandboxDetail, offers_changes},
};

/// Shown while no port is chosen.
const NONE_CHOSEN: &str = "Type the port of a program to see where it is reached.";

/// What the programs of a sandbox listen on, once that is known.
type Found = Option<Result<Listeners, String>>;
/// A typed port, or the first one that a program listens on; what is wrong with what was typed.
type Wanted = Result<Option<u16>, &'static str>;

/// Addresses of one port. The URL holds the port as it was typed (`?port=8080`); without one it is the
/// first port that a program listens on.
#[component]
pub(super) fn Ports(
    /// The sandbox.
    id: SandboxId,
    /// Data of its page.
    current: RwSignal<SandboxDetail>,
) -> impl IntoView {
    let params = use_query();
    let typed = Memo::new(move |_| params.read().get("port"));
    let found = RwSignal::new(None::<Result<Listeners, String>>);
    let wanted = Memo::new(move |_| wanted(typed.read().as_deref(), &found.read()));
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
                    (Ok(None), None) => Some(Ok(Reach::Nowhere(NONE_CHOSEN.to_owned()))),
                    (Ok(Some(port)), None) => Some(api::port(id, port).await),
                }
            }
        },
    );
    let runs = Memo::new(move |_| status.read().state == SandboxState::Running);
    let listening = id.clone();
    view! {
        <Show when=move || runs.get() && offers_changes()>
            <Listening id=listening.clone() found />
        </Show>
        <PortField id typed wanted />
        <Transition fallback=|| view! { <div class="skeleton-row"></div> }>
            {move || Suspend::new(async move { shown(answer.await, wanted, Callback::new(move |()| answer.refetch())) })}
        </Transition>
    }
    .into_any()
}

/// The port whose addresses are shown; none if none was typed and no program is known to listen.
fn wanted(typed: Option<&str>, found: &Found) -> Wanted {
    let Some(typed) = typed else {
        let listeners = found.as_ref().and_then(|it| it.as_ref().ok());
        return Ok(listeners.and_then(Listeners::first));
    };
    match typed.trim().parse() {
        Ok(port @ 1..) => Ok(Some(port)),
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
fn PortField(id: SandboxId, typed: Memo<Option<String>>, wanted: Memo<Wanted>) -> impl IntoView {
    let navigate = use_navigate();
    let here = format!("/console/sandboxes/{id}");
    let action = here.clone();
    let on_input = move |event: ev::Event| {
        let query = to_query([("port", event_target_value(&event).as_str())]);
        let options = NavigateOptions {
            replace: true,
            scroll: false,
            ..Default::default()
        };
        navigate(&format!("{here}{query}"), options);
    };
    let initial = typed.get_untracked().unwrap_or_default();
    let placeholder = move || match wanted.get() {
        Ok(Some(port)) => port.to_string(),
        _ => "8080".to_owned(),
    };
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
                placeholder=placeholder
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
    wanted: Memo<Wanted>,
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
fn Addresses(address: PortAddress, wanted: Memo<Wanted>) -> impl IntoView {
    let PortAddress {
        port,
        direct,
        direct_headers,
        proxied,
        proxied_headers,
    } = address;
    let outdated = move || (wanted.get() != Ok(Some(port))).to_string();
    let is_secured = direct.starts_with('/');
    // The server does not know the name by which browsers reach it.
    let url = RwSignal::new(proxied.clone());
    let path = proxied.clone();
    Effect::new(move |_| url.set(browser::url_of(&path)));
    let whole = Signal::derive(move || url.get());
    let title = match port {
        EXECD => format!("Port {port}, on which execd listens"),
        port => format!("Port {port}"),
    };
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
        <h3 class="addresses-title">{title}</h3>
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
        assert_eq!(wanted(Some(" 8080 "), &None), Ok(Some(8080)));
        assert_eq!(wanted(Some("65535"), &None), Ok(Some(65_535)));
        for wrong in ["", "0", "70000", "abc", "-1", "80.5", "8e3"] {
            assert!(wanted(Some(wrong), &None).is_err(), "{wrong}");
        }
    }

    #[test]
    fn without_a_typed_port_it_is_the_first_one_that_a_program_listens_on() {
        let found = |ports: &[u16]| Some(Ok(Listeners::sample(ports)));
        assert_eq!(wanted(None, &None), Ok(None), "not known yet");
        assert_eq!(wanted(None, &Some(Err("why".to_owned()))), Ok(None));
        assert_eq!(wanted(None, &found(&[])), Ok(None));
        assert_eq!(wanted(None, &found(&[3000, 8080])), Ok(Some(3000)));
        assert_eq!(wanted(None, &found(&[EXECD, 8080])), Ok(Some(8080)));
        assert_eq!(wanted(Some("22"), &found(&[8080])), Ok(Some(22)));
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
