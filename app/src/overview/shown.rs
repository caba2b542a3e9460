//! What the cards show. The numbers that change all the time are pushed by the server; what has happened
//! is loaded again when they show that something did.

use std::time::Duration;

use leptos::{prelude::*, task::spawn_local};

use super::api;
use crate::{
    live::Live,
    view::{Activity, Host, Overview, Pulse},
};

/// Time after a change in which further changes are awaited before the rest is loaded again: it takes
/// the server a look at everything that ended within a day.
const REST: Duration = Duration::from_secs(3);

/// What the cards show. Copies share it.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    pub(super) pulse: RwSignal<Pulse>,
    pub(super) ended: RwSignal<Option<usize>>,
    pub(super) activity: RwSignal<Result<Activity, String>>,
    pub(super) host: RwSignal<Option<Host>>,
    /// Whether the rest is about to be loaded again.
    is_awaited: StoredValue<bool>,
}

impl Shown {
    pub(super) fn new(overview: Overview) -> Self {
        Self {
            pulse: RwSignal::new(overview.pulse),
            ended: RwSignal::new(overview.ended),
            activity: RwSignal::new(overview.activity),
            host: RwSignal::new(overview.host),
            is_awaited: StoredValue::new(false),
        }
    }

    /// Follows the numbers until the calling effect ends.
    pub(super) fn follow(self, live: Live) {
        live.watch_overview(move |pulse| {
            let before = self.pulse.read_untracked().seq;
            let after = pulse.seq;
            self.pulse.set(pulse);
            if before != after {
                self.load_rest();
            }
        });
    }

    /// Loads again what is not pushed, once the changes rest.
    fn load_rest(self) {
        if self.is_awaited.get_value() {
            return;
        }
        self.is_awaited.set_value(true);
        let load = move || {
            spawn_local(async move {
                let answer = api::read_overview().await;
                // The page may be gone.
                if self.is_awaited.try_set_value(false).is_some() {
                    return;
                }
                if let Ok(overview) = answer {
                    self.ended.set(overview.ended);
                    self.activity.set(overview.activity);
                    self.host.set(overview.host);
                }
            });
        };
        set_timeout(load, REST);
    }
}
