//! The view of the preview tab.

use leptos::{ev, prelude::*};
use osb_protocol::{SandboxId, execd::port::ListeningPort};

use super::{Ports, api, desktop::Desktop};
use crate::{
    browser,
    query_string::use_query,
    tab::{Current, Tab},
    ui::{ColumnTitle, CopyButton, Icon, LoadError, TableHead},
    view::{ServerInfo, offers_changes},
};

/// Titles of the columns of ports.
const TITLES: &[ColumnTitle] = &[
    ColumnTitle::new("Port"),
    ColumnTitle::new("Program"),
    ColumnTitle::new("Address"),
    ColumnTitle::new("Actions").hidden(),
];
/// What a page of a sandbox may do: it has no origin, so it is a stranger to the console.
const SANDBOX: &str = "allow-scripts allow-forms allow-popups allow-downloads allow-modals";

/// What the address says about the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    port: u16,
    /// Whether it is shown as a desktop.
    is_desktop: bool,
}

impl Wanted {
    fn of(get: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let port = get("port")?.parse::<u16>().ok().filter(|port| *port > 0)?;
        let is_desktop = get("as").as_deref() == Some("desktop");
        Some(Self { port, is_desktop })
    }
}

/// Whether it is the port of a desktop: VNC servers listen from 5900 on, one port a display.
fn is_desktop(listening: &ListeningPort) -> bool {
    let program = listening.process.as_deref().unwrap_or_default();
    (5900..6000).contains(&listening.port) || program.to_ascii_lowercase().contains("vnc")
}

/// Ports with their programs, and one of them in a frame.
#[component]
pub fn PreviewTab() -> impl IntoView {
    let Some(Current(current)) = use_context() else {
        return ().into_any();
    };
    if !offers_changes() {
        return view! {
            <section class="empty">
                <Icon name="globe" />
                <p>"Your role may look at sandboxes, and not into them."</p>
            </section>
        }
        .into_any();
    }
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    let params = use_query();
    let wanted = Memo::new(move |_| Wanted::of(|name| params.read().get(name)));
    let asked = id.clone();
    let ports = Resource::new_blocking(
        move || wanted.get(),
        move |wanted| api::read_ports(asked.clone(), wanted.map(|it| it.port)),
    );
    let again = Callback::new(move |()| ports.refetch());
    view! {
        <div class="preview">
            <Transition fallback=|| view! { <div class="skeleton" aria-busy="true"><div class="skeleton-row"></div></div> }>
                {move || {
                    let id = id.clone();
                    Suspend::new(async move {
                        match ports.await {
                            Ok(Ok(ports)) => view! { <Found id ports wanted again /> }.into_any(),
                            Ok(Err(why)) => view! { <Nothing text=why again /> }.into_any(),
                            Err(error) => view! { <LoadError error again /> }.into_any(),
                        }
                    })
                }}
            </Transition>
        </div>
    }
    .into_any()
}

#[component]
fn Again(again: Callback<()>) -> impl IntoView {
    view! {
        <button type="button" class="button needs-script" on:click=move |_| again.run(())>
            <Icon name="refresh-cw" />
            "Check again"
        </button>
    }
    .into_any()
}

#[component]
fn Nothing(text: String, again: Callback<()>) -> impl IntoView {
    view! {
        <section class="empty">
            <Icon name="globe" />
            <p role="status">{text}</p>
            <Again again />
        </section>
    }
    .into_any()
}

#[component]
fn Found(
    id: SandboxId,
    ports: Ports,
    wanted: Memo<Option<Wanted>>,
    again: Callback<()>,
) -> impl IntoView {
    let wanted = wanted.get_untracked();
    if ports.listening.is_empty() && wanted.is_none() {
        let text = "No program of this sandbox listens on a TCP port. Start one, such as python3 -m http.server 8000, and check again.";
        return view! { <Nothing text=text.to_owned() again /> }.into_any();
    }
    let address = Tab::Preview.address(&id);
    let row = |listening: ListeningPort| {
        let port = listening.port;
        let inside = listening
            .is_inside_only()
            .then_some("Listens inside the sandbox only");
        let process = match (&listening.process, listening.pid) {
            (Some(name), Some(pid)) => format!("{name} ({pid})"),
            _ => String::new(),
        };
        let is_shown = |as_desktop| {
            wanted
                == Some(Wanted {
                    port,
                    is_desktop: as_desktop,
                })
        };
        let desktop = is_desktop(&listening).then(|| {
            view! {
                <a
                    class="button"
                    href=format!("{address}?port={port}&as=desktop")
                    aria-current=is_shown(true).then_some("true")
                >
                    "Desktop"
                    <span class="visually-hidden">{format!(" on port {port}")}</span>
                </a>
            }
        });
        view! {
            <tr>
                <td class="num">{port}</td>
                <td>{process}</td>
                <td class="mono">{listening.address} " " <span class="fine">{inside}</span></td>
                <td class="p-actions">
                    {desktop}
                    <a
                        class="button"
                        href=format!("{address}?port={port}")
                        aria-current=is_shown(false).then_some("true")
                    >
                        "Preview"
                        <span class="visually-hidden">{format!(" port {port}")}</span>
                    </a>
                </td>
            </tr>
        }
    };
    let rows = ports.listening.into_iter().map(row).collect_view();
    let frame = ports.shown.zip(wanted).map(|(path, wanted)| match wanted {
        Wanted {
            port,
            is_desktop: true,
        } => view! { <Desktop id port /> }.into_any(),
        Wanted {
            port,
            is_desktop: false,
        } => view! { <Shown id path port /> }.into_any(),
    });
    view! {
        <div class="choices">
            <Again again />
        </div>
        <table class="list port-list">
            <caption class="visually-hidden">"Ports on which programs listen"</caption>
            <TableHead of=TITLES />
            <tbody>{rows}</tbody>
        </table>
        {frame}
    }
    .into_any()
}

/// What a port shows, in a frame that cannot reach the console.
#[component]
fn Shown(id: SandboxId, path: String, port: u16) -> impl IntoView {
    let source = format!("{}/", path.trim_end_matches('/'));
    let url = RwSignal::new(source.clone());
    let asked = source.clone();
    Effect::new(move |_| url.set(browser::url_of(&asked)));
    let loads = RwSignal::new(0_u32);
    let framed = source.clone();
    let frame = move || {
        loads.track();
        view! {
            <iframe
                src=framed.clone()
                title=format!("Port {port} of this sandbox")
                sandbox=SANDBOX
                referrerpolicy="no-referrer"
                allow=""
            ></iframe>
        }
    };
    let has_previews = use_context::<ServerInfo>().unwrap_or_default().has_previews;
    let with_storage = has_previews.then(|| {
        view! {
            <a
                class="button"
                href=format!("/console/preview/{id}/{port}")
                target="_blank"
                rel="external noopener noreferrer"
                title="On an address of its own, where its page has storage"
            >
                <Icon name="external-link" />
                "Open with storage"
            </a>
        }
    });
    let reload = move |_: ev::MouseEvent| loads.update(|loads| *loads += 1);
    view! {
        <section class="preview-frame" aria-label=format!("Preview of port {port}")>
            <div class="choices">
                <code class="preview-url">{move || url.get()}</code>
                <CopyButton text=Signal::derive(move || url.get()) what="the address" />
                <button type="button" class="button needs-script" on:click=reload>
                    <Icon name="refresh-cw" />
                    "Reload"
                </button>
                {with_storage}
                <a class="button" href=source target="_blank" rel="external noopener noreferrer">
                    <Icon name="external-link" />
                    "Open in a new tab"
                </a>
            </div>
            {frame}
            <p class="fine">
                "The page runs without an origin: it has no cookies and no storage, and cannot reach the console. A sandbox whose access is secured shows nothing here; use its endpoint with its token."
            </p>
        </section>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(query: &[(&str, &str)]) -> Option<(u16, bool)> {
        let get = |name: &str| {
            let found = query.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Wanted::of(get).map(|it| (it.port, it.is_desktop))
    }

    #[test]
    fn the_address_names_a_port_and_how_to_show_it() {
        assert_eq!(wanted(&[]), None);
        assert_eq!(wanted(&[("port", "8000")]), Some((8000, false)));
        assert_eq!(
            wanted(&[("port", "5900"), ("as", "desktop")]),
            Some((5900, true))
        );
        for bad in ["0", "65536", "-1", "x", ""] {
            assert_eq!(wanted(&[("port", bad)]), None, "{bad}");
        }
    }

    #[test]
    fn desktops_are_known_by_their_port_or_program() {
        let port = |port, process: Option<&str>| ListeningPort {
            port,
            address: "0.0.0.0".to_owned(),
            pid: None,
            process: process.map(str::to_owned),
        };
        assert!(is_desktop(&port(5901, None)));
        assert!(is_desktop(&port(7000, Some("Xtigervnc"))));
        assert!(!is_desktop(&port(8000, Some("python3"))));
    }
}
