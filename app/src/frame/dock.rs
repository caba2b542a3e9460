//! The dock below the page: shells and log tails that stay while pages change. What is in it is kept
//! for the tab of the browser, so a reload shows it again.

use leptos::prelude::*;
use osb_protocol::SandboxId;
use serde::{Deserialize, Serialize};

use crate::{
    browser::{self, Memory},
    lazy::{Lazy, Part},
};

/// Name in the tab's memory.
const MEMORY: &str = "osb.dock";
/// Heights in CSS pixels: the first, and the smallest.
const HEIGHT: u32 = 280;
const LEAST_HEIGHT: u32 = 120;
/// The room that it takes, for styles.
const SPACE: &str = "--dock-space";
/// Height of its bar.
const BAR: &str = "2.25rem";
/// What must stay of the page above it.
const PAGE: u32 = 160;

/// What a panel shows of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Shows {
    /// The output of its entry point.
    Log,
    /// A shell. Number 0 is the one that the sandbox's page shows when it is not in the dock.
    Shell(u32),
}

/// A panel of the dock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Panel {
    pub(crate) sandbox: SandboxId,
    pub(crate) shows: Shows,
    /// The name of the sandbox when the panel was opened.
    pub(crate) name: String,
}

impl Panel {
    /// Whether both show the same.
    pub(crate) fn is(&self, sandbox: &SandboxId, shows: Shows) -> bool {
        self.sandbox == *sandbox && self.shows == shows
    }
}

/// The panels and how they are arranged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Arrangement {
    pub(crate) panels: Vec<Panel>,
    /// Index of the panel in front.
    pub(crate) front: usize,
    /// Whether only the bar is shown.
    pub(crate) folded: bool,
    /// Whether all panels are shown beside each other.
    pub(crate) side_by_side: bool,
    /// Height of the panels in CSS pixels.
    pub(crate) height: u32,
    /// Panels that are there since the page was loaded.
    #[serde(skip)]
    restored: Vec<(SandboxId, Shows)>,
}

impl Default for Arrangement {
    fn default() -> Self {
        Self {
            panels: Vec::new(),
            front: 0,
            folded: false,
            side_by_side: false,
            height: HEIGHT,
            restored: Vec::new(),
        }
    }
}

impl Arrangement {
    fn read(text: &str) -> Option<Self> {
        let mut read: Self = serde_json::from_str(text).ok()?;
        read.height = read.height.max(LEAST_HEIGHT);
        read.front = read.front.min(read.panels.len().saturating_sub(1));
        let panels = read.panels.iter();
        read.restored = panels.map(|it| (it.sandbox.clone(), it.shows)).collect();
        Some(read)
    }

    /// Whether it has this panel.
    pub(crate) fn has(&self, sandbox: &SandboxId, shows: Shows) -> bool {
        self.position(sandbox, shows).is_some()
    }

    /// Whether this panel came with the page, without an act of the user. Such a panel leaves the
    /// focus to the page.
    #[cfg(any(feature = "hydrate", test))]
    pub(crate) fn is_restored(&self, sandbox: &SandboxId, shows: Shows) -> bool {
        let mut restored = self.restored.iter();
        restored.any(|(known, what)| known == sandbox && *what == shows)
    }

    fn position(&self, sandbox: &SandboxId, shows: Shows) -> Option<usize> {
        let mut panels = self.panels.iter();
        panels.position(|panel| panel.is(sandbox, shows))
    }

    /// Adds a panel, or brings it to the front.
    fn open(&mut self, panel: Panel) {
        let known = self.position(&panel.sandbox, panel.shows);
        self.front = known.unwrap_or(self.panels.len());
        if known.is_none() {
            self.panels.push(panel);
        }
        self.folded = false;
    }

    fn close(&mut self, sandbox: &SandboxId, shows: Shows) {
        let Some(at) = self.position(sandbox, shows) else {
            return;
        };
        self.panels.remove(at);
        self.restored
            .retain(|(known, what)| (known, *what) != (sandbox, shows));
        if self.front > at || self.front == self.panels.len() {
            self.front = self.front.saturating_sub(1);
        }
    }

    /// Opens a further shell in the sandbox of the panel in front.
    fn open_further_shell(&mut self) {
        let Some(Panel { sandbox, name, .. }) = self.panels.get(self.front).cloned() else {
            return;
        };
        // The page may show shell 0, so a further one has another number.
        let free = (1..).find(|number| self.position(&sandbox, Shows::Shell(*number)).is_none());
        self.open(Panel {
            sandbox,
            shows: Shows::Shell(free.unwrap_or(u32::MAX)),
            name,
        });
    }
}

/// The dock, provided as context by the frame.
#[derive(Clone, Copy)]
pub(crate) struct Dock(pub(crate) RwSignal<Arrangement>);

impl Dock {
    pub(super) fn new() -> Self {
        let dock = Self(RwSignal::new(Arrangement::default()));
        Effect::new(move |before: Option<()>| {
            if before.is_none() {
                let kept = Memory::Tab.get(MEMORY);
                if let Some(kept) = kept.as_deref().and_then(Arrangement::read) {
                    dock.0.set(kept);
                }
            }
            let text = dock.0.with(|it| match it.panels.is_empty() {
                true => None,
                false => serde_json::to_string(it).ok(),
            });
            Memory::Tab.set(MEMORY, text.as_deref());
            browser::set_document_style(SPACE, &dock.space());
        });
        dock
    }

    /// Adds a panel, or brings it to the front.
    pub(crate) fn open(self, panel: Panel) {
        self.0.update(|it| it.open(panel));
    }

    /// Removes a panel.
    pub(crate) fn close(self, sandbox: &SandboxId, shows: Shows) {
        self.0.update(|it| it.close(sandbox, shows));
    }

    /// Opens a further shell in the sandbox of the panel in front.
    pub(crate) fn open_further_shell(self) {
        self.0.update(Arrangement::open_further_shell);
    }

    /// Whether it has this panel. Tracks that.
    pub(crate) fn has(self, sandbox: &SandboxId, shows: Shows) -> bool {
        self.0.with(|it| it.has(sandbox, shows))
    }

    /// Room that it takes from the page.
    fn space(self) -> String {
        self.0.with(|it| match (it.panels.is_empty(), it.folded) {
            (true, _) => "0px".to_owned(),
            (false, true) => BAR.to_owned(),
            (false, false) => format!("calc({}px + {BAR})", it.height),
        })
    }

    /// Folds or unfolds it.
    pub(crate) fn toggle(self) {
        self.0.update(|it| it.folded = !it.folded);
    }

    /// Sets the height of its panels in a window of this height.
    pub(crate) fn resize(self, height: i64, window: u32) {
        let most = window.saturating_sub(PAGE).max(LEAST_HEIGHT);
        let height = u32::try_from(height.max(0)).unwrap_or(u32::MAX);
        self.0
            .update(|it| it.height = height.clamp(LEAST_HEIGHT, most));
    }
}

/// What is in the dock. It knows the tabs of sandboxes, and these know the frame: hence the
/// application hands it in.
#[derive(Clone, Copy)]
pub(crate) struct DockContent(pub(crate) Part);

/// The place of the dock, empty until something is put into it.
#[component]
pub(super) fn DockPlace(dock: Dock) -> impl IntoView {
    let content = use_context::<DockContent>();
    let is_used = Memo::new(move |_| dock.0.with(|it| !it.panels.is_empty()));
    view! {
        <div class="dock-place">
            {move || {
                let content = content.filter(|_| is_used.get());
                content.map(|DockContent(part)| view! { <Lazy part /> })
            }}
        </div>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(sandbox: &str, shows: Shows) -> Panel {
        Panel {
            sandbox: sandbox.into(),
            shows,
            name: sandbox.to_owned(),
        }
    }

    #[test]
    fn a_panel_is_there_once() {
        let mut it = Arrangement::default();
        it.open(panel("a", Shows::Shell(0)));
        it.open(panel("a", Shows::Log));
        it.folded = true;
        it.open(panel("a", Shows::Shell(0)));
        assert_eq!((it.panels.len(), it.front, it.folded), (2, 0, false));
    }

    #[test]
    fn what_is_in_front_stays_there_while_others_close() {
        let mut it = Arrangement::default();
        for name in ["a", "b", "c"] {
            it.open(panel(name, Shows::Log));
        }
        let front = |it: &Arrangement| it.panels.get(it.front).map(|it| it.name.clone());
        assert_eq!(front(&it).as_deref(), Some("c"));
        it.close(&"a".into(), Shows::Log);
        assert_eq!(front(&it).as_deref(), Some("c"));
        it.close(&"c".into(), Shows::Log);
        assert_eq!(front(&it).as_deref(), Some("b"));
        it.close(&"nowhere".into(), Shows::Log);
        it.close(&"b".into(), Shows::Log);
        assert_eq!(front(&it), None);
    }

    #[test]
    fn a_further_shell_has_a_number_of_its_own() {
        let mut it = Arrangement::default();
        it.open_further_shell();
        assert!(it.panels.is_empty(), "no sandbox to open it in");
        it.open(panel("a", Shows::Log));
        it.open_further_shell();
        it.open_further_shell();
        it.close(&"a".into(), Shows::Shell(1));
        it.open_further_shell();
        let shells: Vec<_> = it.panels.iter().map(|it| it.shows).collect();
        assert_eq!(shells, [Shows::Log, Shows::Shell(2), Shows::Shell(1)]);
    }

    #[test]
    fn only_what_came_with_the_page_is_restored() {
        let shell = Shows::Shell(0);
        let mut it = Arrangement::default();
        it.open(panel("a", shell));
        assert!(!it.is_restored(&"a".into(), shell));
        let text = serde_json::to_string(&it).unwrap();
        let mut it = Arrangement::read(&text).unwrap();
        it.open(panel("b", shell));
        assert!(it.is_restored(&"a".into(), shell));
        assert!(!it.is_restored(&"a".into(), Shows::Shell(1)));
        assert!(!it.is_restored(&"b".into(), shell));
        it.close(&"a".into(), shell);
        it.open(panel("a", shell));
        assert!(
            !it.is_restored(&"a".into(), shell),
            "the user opened it again"
        );
    }

    #[test]
    fn what_the_tab_remembers_is_read_with_care() {
        let mut it = Arrangement::default();
        it.open(panel("a", Shows::Shell(3)));
        let text = serde_json::to_string(&it).unwrap();
        let read = Arrangement::read(&text).unwrap();
        assert_eq!(read.panels, it.panels);
        assert_eq!((read.front, read.height), (it.front, it.height));
        let odd = Arrangement::read(r#"{"front":7,"height":1}"#).unwrap();
        assert_eq!((odd.front, odd.height), (0, LEAST_HEIGHT));
        assert_eq!(Arrangement::read("[garbage"), None);
    }
}
