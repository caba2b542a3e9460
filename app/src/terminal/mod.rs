//! A shell in a sandbox: xterm in the page, a PTY in execd, the server's bridge between them.
//!
//! ```text
//! page ── /console/terminal/{sandbox}?pty=…&since=… ── server ── execd /pty/{pty}/ws
//! ```
//!
//! The PTY belongs to the tab: its id is kept in the tab's own memory, so a reload attaches to it
//! again and execd replays what it still knows (1 MiB). A lost connection attaches with `since`, so
//! that nothing appears twice. A PTY has one writer: when another tab holds it, this one asks
//! before it takes over (contract: execd §9).

#[cfg(feature = "hydrate")]
mod bindings;
#[cfg(feature = "hydrate")]
mod session;
#[cfg(feature = "hydrate")]
mod theme;
mod toolbar;

use leptos::{html::Div, prelude::*};
use osb_protocol::SandboxId;

use self::toolbar::Toolbar;
use crate::{
    browser::Memory,
    lazy::{Part, part},
    tab::Current,
    ui::SignInLink,
    view::is_alive,
};

/// The tab, loaded when it is first shown.
pub(crate) const PART: Part = part!(terminal, TerminalTab);

/// State of the connection to the shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "hydrate"),
    expect(dead_code, reason = "set in the browser")
)]
pub(crate) enum Phase {
    /// The connection is being opened.
    #[default]
    Connecting,
    /// Attached: keys go to the shell.
    Open,
    /// The connection broke and is being reopened.
    Lost,
    /// The session ended; the shell keeps running without this page.
    SignedOut,
    /// Another client holds the shell.
    Taken,
    /// The shell ended with this status.
    Ended(i32),
    /// xterm cannot be loaded.
    NotLoaded,
    /// The shell cannot be opened, for this reason.
    Refused(String),
}

/// An action of the user outside the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TerminalAction {
    /// Take the shell over from another tab.
    TakeOver,
    /// Start a new shell.
    StartNew,
}

/// What the user sets for all terminals. The browser keeps it.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// Whether the output is also text for screen readers.
    pub(crate) screen_reader: RwSignal<bool>,
}

impl Settings {
    const SCREEN_READER: &str = "osb.terminal.screen-reader";

    /// The settings, which are the browser's own once the page is live.
    fn kept() -> Self {
        let settings = Self {
            screen_reader: RwSignal::new(false),
        };
        Effect::new(move |before: Option<()>| {
            let screen_reader = settings.screen_reader;
            match before {
                None => screen_reader.set(Memory::Browser.get(Self::SCREEN_READER).is_some()),
                Some(()) => {
                    let value = screen_reader.get().then_some("on");
                    Memory::Browser.set(Self::SCREEN_READER, value);
                }
            }
            screen_reader.track();
        });
        settings
    }
}

/// The terminal of the sandbox that the page shows.
#[component]
pub fn TerminalTab() -> impl IntoView {
    let Some(Current(current)) = use_context() else {
        return ().into_any();
    };
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    let alive = Memo::new(move |_| is_alive(&current.read().sandbox.status.state));
    view! { <Terminal id alive /> }.into_any()
}

/// A terminal that fills its place.
#[component]
fn Terminal(
    /// The sandbox.
    id: SandboxId,
    /// Whether the sandbox is alive.
    alive: Memo<bool>,
) -> impl IntoView {
    let place = NodeRef::<Div>::new();
    let phase = RwSignal::new(Phase::Connecting);
    let action = RwSignal::new(None::<TerminalAction>);
    let settings = Settings::kept();
    #[cfg(feature = "hydrate")]
    session::mount(id.clone(), place, phase, action, settings);
    let line = move || match phase.get() {
        Phase::Connecting => "Connecting …".to_owned(),
        Phase::Open => "Connected".to_owned(),
        Phase::Lost => "Connection lost. Reconnecting …".to_owned(),
        Phase::SignedOut => "You are signed out.".to_owned(),
        Phase::Taken => "This shell is open in another tab.".to_owned(),
        Phase::Ended(0) => "The shell ended.".to_owned(),
        Phase::Ended(status) => format!("The shell ended with status {status}."),
        Phase::NotLoaded => "The terminal could not be loaded. Reload the page.".to_owned(),
        Phase::Refused(why) => why,
    };
    let offer = move || match phase.get() {
        Phase::Taken => Some(("Take over", TerminalAction::TakeOver)),
        Phase::Ended(_) | Phase::Refused(_) => {
            Some(("Start a new shell", TerminalAction::StartNew))
        }
        _ => None,
    };
    let button = move || {
        offer().map(|(label, asks)| {
            view! {
                <button type="button" class="button" on:click=move |_| action.set(Some(asks))>
                    {label}
                </button>
            }
        })
    };
    view! {
        <section class="terminal-card" aria-label=format!("Terminal of {}", id.short())>
            <div class="terminal-bar">
                <div
                    class="terminal-state"
                    role="status"
                    data-open=move || (phase.get() == Phase::Open).to_string()
                >
                    <span>{line}</span>
                    {button}
                    {move || (phase.get() == Phase::SignedOut).then(|| view! { <SignInLink /> })}
                </div>
                <Toolbar settings />
            </div>
            <div class="terminal" node_ref=place></div>
            <noscript>
                <p class="banner">
                    "The terminal needs JavaScript. Without it, run commands through the API: "
                    <code>"POST /command"</code>
                </p>
            </noscript>
            <Show when=move || !alive.get()>
                <p class="banner" data-tone="quiet">"The sandbox is not running."</p>
            </Show>
        </section>
    }
    .into_any()
}
