//! Reads what a page shows again while it may change by itself.

use std::{future::Future, time::Duration};

use leptos::{prelude::*, task::spawn_local};

use crate::{
    browser,
    error::ConsoleError,
    live::{Link, Live},
};

/// Reloads the page every 2 s. Browsers with script read it again without that.
pub(crate) const RELOAD: &str = r#"<meta http-equiv="refresh" content="2">"#;

/// Time between two looks at whether it is time to read again.
const TICK: Duration = Duration::from_secs(1);

/// Whether to read again so many ticks after the last change: often at first, then less and less. What
/// is under way may stay as it is for days.
fn is_due(ticks: u32) -> bool {
    match ticks {
        0..=20 => true,
        21..=120 => ticks.is_multiple_of(3),
        _ => ticks.is_multiple_of(15),
    }
}

/// Calls `again` every now and then while `may_change` says so of what the page shows, in the browser.
/// Whatever changes that makes the calls frequent again.
pub(crate) fn follow<T: Send + Sync + 'static>(
    shown: Memo<T>,
    may_change: fn(&T) -> bool,
    again: Callback<()>,
) {
    let live = use_context::<Live>();
    let ticks = StoredValue::new(0_u32);
    Effect::new(move |_| {
        shown.with(|_| ());
        ticks.set_value(0);
    });
    Effect::new(move |_| {
        let tick = move || {
            let count = ticks.try_update_value(|ticks| {
                *ticks = ticks.saturating_add(1);
                *ticks
            });
            let changes = shown.try_with_untracked(may_change);
            // Browsers log calls that fail, so none is made while the server is away.
            let is_live = live.is_none_or(|live| {
                live.link.get_untracked() == Link::Live && !live.paused.get_untracked()
            });
            let is_due = count.is_some_and(is_due) && changes == Some(true);
            if is_due && is_live && !browser::is_hidden() {
                let _ = again.try_run(());
            }
        };
        if let Ok(timer) = set_interval_with_handle(tick, TICK) {
            on_cleanup(move || timer.clear());
        }
    });
}

/// Reads something again. What cannot be read stays as it was.
pub(crate) fn read_list<T: PartialEq + Send + Sync + 'static>(
    known: RwSignal<T>,
    read: impl Future<Output = Result<T, ConsoleError>> + 'static,
) {
    spawn_local(async move {
        if let Ok(now) = read.await {
            set_if_new(known, now);
        }
    });
}

/// The same with something that may be gone by now.
pub(crate) fn read_one<T: PartialEq + Send + Sync + 'static>(
    known: RwSignal<T>,
    is_gone: RwSignal<bool>,
    read: impl Future<Output = Result<Option<T>, ConsoleError>> + 'static,
) {
    spawn_local(async move {
        match read.await {
            Ok(Some(now)) => set_if_new(known, now),
            Ok(None) => drop(is_gone.try_set(true)),
            Err(_) => {}
        }
    });
}

fn set_if_new<T: PartialEq + Send + Sync + 'static>(known: RwSignal<T>, now: T) {
    let is_new = known.try_with_untracked(|known| *known != now);
    // The page may have been left.
    if is_new == Some(true) {
        let _ = known.try_set(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_read_less_often() {
        let reads = |ticks: std::ops::Range<u32>| ticks.filter(|tick| is_due(*tick)).count();
        assert_eq!(reads(1..21), 20);
        assert_eq!(reads(21..121), 34);
        assert_eq!(reads(3_600..7_200), 240);
    }
}
