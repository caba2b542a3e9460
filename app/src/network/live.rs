//! State of the tab: the network of the sandbox, which is read again while the tab is shown, and changes
//! of its policy.

use std::time::Duration;

use leptos::{prelude::*, task::spawn_local};
use osb_protocol::{SandboxId, network_policy::Policy};

use super::{Network, NetworkView, PolicyChange, api, decided::Decided};
use crate::{
    browser,
    error::ConsoleError,
    frame::Toasts,
    live::{Link, Live},
    tab::Current,
    view::offers_changes,
};

/// Pause between two readings.
const PERIOD: Duration = Duration::from_secs(2);

/// A change that can be taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Undo {
    /// What was done.
    pub(super) text: String,
    change: PolicyChange,
}

/// State of the tab. Copies share it.
#[derive(Clone, Copy)]
pub(super) struct State {
    id: StoredValue<SandboxId>,
    /// Without the decisions.
    pub(super) network: RwSignal<Network>,
    pub(super) decided: RwSignal<Option<Decided>>,
    /// The policy as the sidecar reads it.
    pub(super) policy: Memo<Option<Policy>>,
    /// Why the last reading failed.
    pub(super) failure: RwSignal<Option<String>>,
    pub(super) undo: RwSignal<Option<Undo>>,
    /// Whether a change is under way.
    pub(super) busy: RwSignal<bool>,
    /// Whether the user may change the policy.
    pub(super) may_change: bool,
    /// Number of the last reading that began, and of the last one that ended.
    begun: StoredValue<u64>,
    ended: StoredValue<u64>,
    toasts: Toasts,
}

impl State {
    pub(super) fn new(id: SandboxId, mut network: Network) -> Self {
        let decided = network.decisions.take().map(Decided::new);
        let network = RwSignal::new(network);
        let policy = Memo::new(move |_| {
            let text = serde_json::to_vec(&network.read().policy).ok()?;
            Policy::parse(&text).ok()
        });
        Self {
            id: StoredValue::new(id),
            network,
            decided: RwSignal::new(decided),
            policy,
            failure: RwSignal::new(None),
            undo: RwSignal::new(None),
            busy: RwSignal::new(false),
            may_change: offers_changes(),
            begun: StoredValue::new(0),
            ended: StoredValue::new(0),
            toasts: Toasts::current(),
        }
    }

    pub(super) fn id(self) -> SandboxId {
        self.id.get_value()
    }

    /// Reads the network again every few seconds until the tab is left or the sandbox ends.
    pub(super) fn follow(self) {
        let (current, live) = (use_context::<Current>(), use_context::<Live>());
        Effect::new(move |_| {
            let read = move || {
                // Browsers log calls that fail, so none is made while the server is away.
                let is_live = live.is_none_or(|live| live.link.get_untracked() == Link::Live);
                let has_ended = current.is_some_and(|Current(current)| {
                    current.with_untracked(|detail| detail.ended.is_some())
                });
                let is_idle =
                    self.begun.get_value() == self.ended.get_value() && !self.busy.get_untracked();
                if is_live && is_idle && !has_ended && !browser::is_hidden() {
                    spawn_local(self.read());
                }
            };
            if let Ok(timer) = set_interval_with_handle(read, PERIOD) {
                on_cleanup(move || timer.clear());
            }
        });
    }

    /// Reads the network again. The tab may be left meanwhile.
    async fn read(self) {
        let since = self.decided.try_with_untracked(|decided| {
            let decided = decided.as_ref();
            decided.map_or(0, Decided::next)
        });
        let Some(since) = since else {
            return;
        };
        let number = self.begun.get_value() + 1;
        self.begun.set_value(number);
        let answer = api::read_network(self.id.get_value(), since).await;
        // An answer that is older than a change would show the policy as it was before.
        if self.begun.try_get_value() != Some(number) {
            return;
        }
        // A session does not come back: without an end, no further reading begins.
        if !matches!(answer, Err(ConsoleError::SignedOut)) {
            self.ended.set_value(number);
        }
        let failure = match answer {
            Ok(Ok(NetworkView::Policy(network))) => {
                self.take(*network);
                None
            }
            // A sandbox does not lose its sidecar.
            Ok(Ok(NetworkView::NoSidecar)) => None,
            Ok(Err(why)) => Some(why),
            Err(error) => Some(error.to_string()),
        };
        let is_new = self
            .failure
            .try_with_untracked(|known| *known != failure)
            .unwrap_or_default();
        if is_new {
            self.failure.try_set(failure);
        }
    }

    fn take(self, mut network: Network) {
        let newer = network.decisions.take();
        self.decided.try_update(|known| match (known, newer) {
            (Some(known), Some(newer)) => known.take(newer),
            (known, newer) => *known = newer.map(Decided::new),
        });
        let is_new = self
            .network
            .try_with_untracked(|known| *known != network)
            .unwrap_or_default();
        if is_new {
            self.network.try_set(network);
        }
    }

    /// Makes a change, and says what was done with a way back. `then` runs once it is shown.
    pub(super) fn change(self, change: PolicyChange, done: String, then: impl FnOnce() + 'static) {
        if self.busy.get_untracked() {
            return;
        }
        let before = self.network.with_untracked(|it| it.policy.clone());
        let way_back = change.undo(&before);
        self.start(change, move || {
            match way_back {
                Some(change) => {
                    self.undo.try_set(Some(Undo { text: done, change }));
                }
                None => {
                    self.undo.try_set(None);
                    self.toasts.good(done);
                }
            }
            then();
        });
    }

    /// Takes the last change back.
    pub(super) fn take_back(self) {
        let undo = self.undo.get_untracked();
        if let (Some(undo), false) = (undo, self.busy.get_untracked()) {
            self.start(undo.change, move || {
                self.undo.try_set(None);
                self.toasts.good("The policy is as before");
            });
        }
    }

    fn start(self, change: PolicyChange, then: impl FnOnce() + 'static) {
        self.busy.set(true);
        let id = self.id.get_value();
        spawn_local(async move {
            match send(id, change).await {
                Ok(Ok(())) => {
                    self.read().await;
                    then();
                }
                Ok(Err(why)) => self.toasts.bad(why),
                Err(error) => self.toasts.bad(error.to_string()),
            }
            self.busy.try_set(false);
        });
    }
}

async fn send(id: SandboxId, change: PolicyChange) -> Result<Result<(), String>, ConsoleError> {
    match change {
        PolicyChange::Add(rule) => api::add_rule(id, rule.action, rule.target).await,
        PolicyChange::Remove(target) => api::remove_rule(id, target).await,
        other => {
            let text = serde_json::to_string(&other).unwrap_or_default();
            api::replace_policy(id, text).await
        }
    }
}
