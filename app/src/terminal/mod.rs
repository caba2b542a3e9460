//! A shell in a sandbox: xterm in the page, a PTY in execd, the server's bridge between them.
//!
//! ```text
//! page ── /console/terminal/{sandbox}?pty=…&since=… ── server ── execd /pty/{pty}/ws
//! ```
//!
//! The PTY belongs to the tab: its id is kept in the tab's own memory, so a reload attaches to it
//! again and execd replays what it still knows (1 MiB). A lost connection attaches with `since`, so
//! that nothing appears twice. A PTY has one writer: when another tab holds it, this one offers to
//! watch, to take over, or to start another shell (contract: execd §9). The page acknowledges what
//! is on the screen (`flow`), so that a program never runs far ahead of it.
//!
//! The address of a terminal can ask for a shell of another tab, which is then only watched, or for how
//! a new one starts, which the page asks about before it starts anything (`asked`).
//!
//! A sandbox's shell 0 is on its page or in the dock, never in both; further shells are in the dock,
//! and end when they are closed there.

mod api;
mod asked;
#[cfg(feature = "ssr")]
pub mod backend;
#[cfg(feature = "hydrate")]
mod bindings;
#[cfg(any(feature = "hydrate", test))]
mod flow;
mod new_shell;
#[cfg(any(feature = "hydrate", test))]
mod plain;
#[cfg(feature = "hydrate")]
mod session;
#[cfg(feature = "hydrate")]
mod theme;
mod toolbar;

use leptos::{html::Div, prelude::*};
use osb_protocol::{SandboxId, lifecycle::SandboxState};

use self::{
    asked::Asked,
    new_shell::NewShell,
    toolbar::{SearchBar, Toolbar},
};
use crate::{
    browser::Memory,
    frame::{Dock, Panel, Shows, Toasts},
    lazy::{Part, part},
    query_string::use_query,
    tab::{Current, Tab},
    ui::{Icon, SignInLink},
    view::{is_alive, offers_changes},
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
    /// The address asks for how a shell starts, in these words; nothing is started before the user
    /// agrees.
    Asked(String),
    /// Attached: keys go to the shell.
    Open,
    /// Attached: another tab writes.
    Viewing,
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

impl Phase {
    /// What the user reads.
    fn words(&self) -> String {
        match self {
            Self::Connecting => "Connecting …".to_owned(),
            Self::Asked(words) => words.clone(),
            Self::Open => "Connected".to_owned(),
            Self::Viewing => "View only: another tab types in this shell.".to_owned(),
            Self::Lost => "Connection lost. Reconnecting …".to_owned(),
            Self::SignedOut => "You are signed out.".to_owned(),
            Self::Taken => "This shell is open in another tab.".to_owned(),
            Self::Ended(0) => "The shell ended.".to_owned(),
            Self::Ended(status) => format!("The shell ended with status {status}."),
            Self::NotLoaded => "The terminal could not be loaded. Reload the page.".to_owned(),
            Self::Refused(why) => why.clone(),
        }
    }

    /// What the user can do then.
    fn offers(&self) -> &'static [(&'static str, TerminalAction)] {
        const VIEW: (&str, TerminalAction) = ("View only", TerminalAction::View);
        const TAKE_OVER: (&str, TerminalAction) = ("Take over", TerminalAction::TakeOver);
        const NEW: (&str, TerminalAction) = ("New shell", TerminalAction::StartNew);
        match self {
            Self::Asked(_) => &[("Start it", TerminalAction::StartAsked)],
            Self::Taken => &[VIEW, TAKE_OVER, NEW],
            Self::Viewing => &[TAKE_OVER, NEW],
            Self::Ended(_) | Self::Refused(_) => &[("Start a new shell", TerminalAction::StartNew)],
            _ => &[],
        }
    }
}

/// An action of the user outside the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TerminalAction {
    /// Take the shell over from another tab.
    TakeOver,
    /// Watch the shell.
    View,
    /// Start a new shell.
    StartNew,
    /// Start the shell that the address asks for.
    StartAsked,
    /// Copy what is selected.
    Copy,
    /// Search the output from the selected place, towards the beginning or the end.
    Find {
        /// Towards the beginning.
        back: bool,
    },
    /// Search no more.
    EndFind,
}

/// What the user sets for all terminals. The browser keeps it.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// Whether the output is also text for screen readers.
    pub(crate) screen_reader: RwSignal<bool>,
    /// Size of the text, in CSS pixels.
    pub(crate) font_size: RwSignal<u32>,
}

impl Settings {
    const SCREEN_READER: &str = "osb.terminal.screen-reader";
    const FONT_SIZE: &str = "osb.terminal.font-size";
    /// Sizes to choose from, and the one to begin with.
    const FONT_SIZES: std::ops::RangeInclusive<u32> = 10..=24;
    const FONT_DEFAULT: u32 = 13;

    /// The settings, which are the browser's own once the page is live.
    fn kept() -> Self {
        let settings = Self {
            screen_reader: RwSignal::new(false),
            font_size: RwSignal::new(Self::FONT_DEFAULT),
        };
        let Self {
            screen_reader,
            font_size,
        } = settings;
        Effect::new(move |before: Option<()>| {
            if before.is_none() {
                screen_reader.set(Memory::Browser.get(Self::SCREEN_READER).is_some());
                let size = Memory::Browser.get(Self::FONT_SIZE);
                let size = size.and_then(|size| size.parse().ok());
                let size = size.filter(|size| Self::FONT_SIZES.contains(size));
                font_size.set(size.unwrap_or(Self::FONT_DEFAULT));
            }
            let reads = screen_reader.get().then_some("on");
            Memory::Browser.set(Self::SCREEN_READER, reads);
            let size = font_size.get();
            let size = (size != Self::FONT_DEFAULT).then(|| size.to_string());
            Memory::Browser.set(Self::FONT_SIZE, size.as_deref());
        });
        settings
    }
}

/// What the terminal and the page around it share.
#[derive(Clone, Copy)]
pub(crate) struct Ui {
    phase: RwSignal<Phase>,
    action: RwSignal<Option<TerminalAction>>,
    settings: Settings,
    /// Whether the sandbox runs.
    running: Memo<bool>,
    /// Whether it exists and may run again.
    alive: Memo<bool>,
    /// What the program in the terminal calls itself: plain text.
    title: RwSignal<String>,
    /// The text that is searched, while the search is open.
    search: RwSignal<String>,
    searching: RwSignal<bool>,
    /// Whether the text was found.
    found: RwSignal<Option<bool>>,
    /// Whether the form of a new shell is open.
    starting: RwSignal<bool>,
    /// Whether the terminal fills the page.
    full: RwSignal<bool>,
    /// The id of the shell, once it is known.
    pty: RwSignal<Option<String>>,
    /// What the address asks for.
    asked: StoredValue<Asked>,
    /// The number of the shell among those of the tab of the browser.
    shell: u32,
    /// Whether it is in the dock.
    docked: bool,
    dock: Option<Dock>,
    toasts: Toasts,
}

impl Ui {
    /// Says whether the selection was copied.
    #[cfg_attr(
        not(feature = "hydrate"),
        expect(dead_code, reason = "called in the browser")
    )]
    fn announce(self, copied: bool) {
        match copied {
            true => self.toasts.good("Copied".to_owned()),
            false => self
                .toasts
                .bad("Nothing was copied. Select text in the terminal first.".to_owned()),
        }
    }
}

/// The terminal of the sandbox that the page, or a panel of the dock, shows.
#[component]
pub fn TerminalTab() -> impl IntoView {
    let Some(Current(current)) = use_context() else {
        return ().into_any();
    };
    if !offers_changes() {
        return view! {
            <section class="empty">
                <Icon name="terminal" />
                <p>"Your role may look at sandboxes, and not open shells in them."</p>
            </section>
        }
        .into_any();
    }
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    let dock = use_context::<Dock>();
    if let Some(Panel { shows, .. }) = use_context() {
        let shell = match shows {
            Shows::Shell(number) => number,
            Shows::Log => 0,
        };
        let ui = Ui::new(current, shell, true, dock, Asked::default());
        return view! { <Terminal id ui /> }.into_any();
    }
    let asked = id.clone();
    let is_away = Memo::new(move |_| dock.is_some_and(|it| it.has(&asked, Shows::Shell(0))));
    let params = use_query();
    let asked = Memo::new(move |_| Asked::of(|name| params.read().get(name)));
    let content = move || {
        let asked = asked.get();
        match (is_away.get() && asked.watched.is_none(), dock) {
            (true, Some(dock)) => view! { <InDock id=id.clone() dock /> }.into_any(),
            _ => {
                let ui = Ui::new(current, 0, false, dock, asked);
                view! { <Terminal id=id.clone() ui /> }.into_any()
            }
        }
    };
    content.into_any()
}

/// Instead of a shell that is in the dock.
#[component]
fn InDock(id: SandboxId, dock: Dock) -> impl IntoView {
    let close = move |_| dock.close(&id, Shows::Shell(0));
    view! {
        <section class="empty">
            <Icon name="panel-bottom" />
            <p role="status">"This shell is in the dock below."</p>
            <button type="button" class="button" on:click=close>
                "Show it here"
            </button>
        </section>
    }
    .into_any()
}

impl Ui {
    fn new(
        current: RwSignal<crate::view::SandboxDetail>,
        shell: u32,
        docked: bool,
        dock: Option<Dock>,
        asked: Asked,
    ) -> Self {
        let state = Memo::new(move |_| current.read().sandbox.status.state.clone());
        let is_gone = move || current.read().ended.is_some();
        Self {
            phase: RwSignal::new(Phase::Connecting),
            action: RwSignal::new(None),
            settings: Settings::kept(),
            running: Memo::new(move |_| *state.read() == SandboxState::Running && !is_gone()),
            alive: Memo::new(move |_| is_alive(&state.read()) && !is_gone()),
            title: RwSignal::new(String::new()),
            search: RwSignal::new(String::new()),
            searching: RwSignal::new(false),
            found: RwSignal::new(None),
            starting: RwSignal::new(false),
            full: RwSignal::new(false),
            pty: RwSignal::new(None),
            asked: StoredValue::new(asked),
            shell,
            docked,
            dock,
            toasts: Toasts::current(),
        }
    }

    /// Whether it takes the focus when it is first connected. A panel that came with the page leaves
    /// it to the page.
    #[cfg(feature = "hydrate")]
    fn takes_focus(self, id: &SandboxId) -> bool {
        let is_restored = |it: Dock| {
            it.0.with_untracked(|it| it.is_restored(id, Shows::Shell(self.shell)))
        };
        !self.docked || !self.dock.is_some_and(is_restored)
    }

    /// Whether its user closed it. What is only no longer shown goes on.
    #[cfg_attr(
        not(feature = "hydrate"),
        expect(dead_code, reason = "called in the browser")
    )]
    fn is_closed(self, id: &SandboxId) -> bool {
        let is_kept = |it: Dock| {
            it.0.try_with_untracked(|it| it.has(id, Shows::Shell(self.shell)))
        };
        self.shell != 0 && self.dock.and_then(is_kept) == Some(false)
    }
}

/// A terminal that fills its place.
#[component]
fn Terminal(
    /// The sandbox.
    id: SandboxId,
    /// What it shares with the page.
    ui: Ui,
) -> impl IntoView {
    let place = NodeRef::<Div>::new();
    #[cfg(feature = "hydrate")]
    session::mount(id.clone(), place, ui);
    let line = move || match (ui.running.get(), ui.alive.get()) {
        (true, _) => ui.phase.read().words(),
        (false, true) => "Waiting for the sandbox".to_owned(),
        (false, false) => "The sandbox has ended".to_owned(),
    };
    let is_watch = ui.asked.with_value(|asked| asked.watched.is_some());
    let own = Tab::Terminal.address(&id);
    let offers = move || {
        let offers = match ui.running.get() {
            true => ui.phase.read().offers(),
            false => &[],
        };
        offers
            .iter()
            .map(|&(label, asks)| match asks {
                // A shell of another tab stays what this address shows.
                TerminalAction::StartNew if is_watch => {
                    let href = own.clone();
                    view! { <a class="button" href=href>"Own shell"</a> }.into_any()
                }
                _ => {
                    let press = move |_| ui.action.set(Some(asks));
                    view! { <button type="button" class="button" on:click=press>{label}</button> }
                        .into_any()
                }
            })
            .collect_view()
    };
    view! {
        <section
            class="terminal-card"
            aria-label=match ui.shell {
                0 => format!("Terminal of {}", id.short()),
                number => format!("Terminal {} of {}", number + 1, id.short()),
            }
            data-full=move || ui.full.get().then_some("on")
        >
            <div class="terminal-bar needs-script">
                <div
                    class="terminal-state"
                    role="status"
                    data-open=move || (ui.running.get() && *ui.phase.read() == Phase::Open).to_string()
                >
                    <span>{line}</span>
                    {offers}
                    {move || (*ui.phase.read() == Phase::SignedOut).then(|| view! { <SignInLink /> })}
                </div>
                <bdi class="terminal-title" title=move || ui.title.get()>{move || ui.title.get()}</bdi>
                <Toolbar id=id.clone() ui />
            </div>
            // The search is over the terminal: a resize would end the selection.
            <div class="terminal-place">
                <SearchBar ui />
                <NewShell id=id.clone() ui />
                <div class="terminal" node_ref=place></div>
            </div>
            <noscript>
                <p class="banner">
                    "The terminal needs JavaScript. Without it, run commands through the API: "
                    <code>"POST /command"</code>
                </p>
            </noscript>
        </section>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_of_another_tab_can_be_watched_taken_over_or_left() {
        let labels =
            |phase: Phase| -> Vec<_> { phase.offers().iter().map(|(label, _)| *label).collect() };
        assert_eq!(
            labels(Phase::Taken),
            ["View only", "Take over", "New shell"]
        );
        assert_eq!(labels(Phase::Viewing), ["Take over", "New shell"]);
        assert_eq!(labels(Phase::Ended(1)), ["Start a new shell"]);
        assert_eq!(labels(Phase::Asked(String::new())), ["Start it"]);
        assert!(labels(Phase::Open).is_empty());
        assert!(labels(Phase::Lost).is_empty());
    }
}
