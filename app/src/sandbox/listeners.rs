//! The ports on which programs of a sandbox listen, with the ways to them.

use leptos::{prelude::*, task::spawn_local};
use osb_protocol::{SandboxId, execd::port::ListeningPort};

use crate::{
    browser,
    preview::{Ports, read_ports},
    tab::Tab,
    ui::{CopyButton, Icon},
    view::PortAddress,
};

/// execd listens here in every sandbox (contract: execd §1).
pub(super) const EXECD: u16 = 44_772;

/// Listening ports, each with where it is reached, if that is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Listeners(Vec<(ListeningPort, Option<PortAddress>)>);

impl From<Ports> for Listeners {
    fn from(ports: Ports) -> Self {
        let address = |port| {
            let mut all = ports.addresses.iter();
            all.find(|address| address.port == port).cloned()
        };
        let listening = ports.listening.iter();
        Self(listening.map(|it| (it.clone(), address(it.port))).collect())
    }
}

impl Listeners {
    /// The first port that is not execd's.
    pub(super) fn first(&self) -> Option<u16> {
        let mut ports = self.0.iter().map(|(listening, _)| listening.port);
        ports.find(|port| *port != EXECD)
    }

    /// These ports.
    #[cfg(test)]
    pub(super) fn sample(ports: &[u16]) -> Self {
        let listening = ports.iter().map(|port| ListeningPort {
            port: *port,
            address: "0.0.0.0".to_owned(),
            pid: None,
            process: None,
        });
        Self::from(Ports {
            listening: listening.collect(),
            ..Ports::default()
        })
    }
}

/// The ports on which programs listen. Only browsers ask for them: a page must not wait for the execd
/// of its sandbox.
#[component]
pub(super) fn Listening(
    /// The sandbox.
    id: SandboxId,
    /// What was found last.
    found: RwSignal<Option<Result<Listeners, String>>>,
) -> impl IntoView {
    let asked = id.clone();
    let ask = move || {
        let id = asked.clone();
        spawn_local(async move {
            let ports = match read_ports(id, None).await {
                Ok(Ok(ports)) => Ok(ports.into()),
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
        Some(Ok(Listeners(ports))) if ports.is_empty() => {
            view! { <p class="help">"No program listens on a TCP port."</p> }.into_any()
        }
        Some(Ok(Listeners(ports))) => {
            let rows = ports
                .into_iter()
                .map(|(listening, address)| port_row(&id, listening, address));
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

/// A port with its program, and the ways to it. A browser cannot send headers with a link.
fn port_row(id: &SandboxId, listening: ListeningPort, address: Option<PortAddress>) -> AnyView {
    let port = listening.port;
    let program = listening.process.unwrap_or_default();
    let way = address.map(|address| {
        let url = browser::url_of(&address.proxied);
        let open = address.proxied_headers.is_empty().then(|| {
            view! {
                <a
                    href=address.proxied
                    target="_blank"
                    rel="external noopener noreferrer"
                    aria-label=format!("Open port {port}")
                >
                    "Open"
                    <Icon name="external-link" />
                </a>
            }
        });
        view! {
            {open}
            <CopyButton text=url what=format!("the URL of port {port}") />
        }
    });
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
            {way}
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
