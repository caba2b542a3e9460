//! To which times a life can be extended, and which of them is offered first.

use leptos::{ev, html, prelude::*, task::spawn_local};
use osb_protocol::WireTime;

use crate::ui::duration;

/// Offered times from now, in seconds.
const OFFERED: [i64; 7] = [900, 1_800, 3_600, 14_400, 86_400, 604_800, 2_592_000];
/// Offered first for what has no expiry to extend, in seconds.
const USUAL: i64 = 1_800;
/// Offered for a life that is longer than each offered time, after what is left, in seconds.
const BEYOND: i64 = 2_592_000;

/// The time that is offered first, in seconds from now: the shortest that is longer than what is left
/// by a tenth at least. A minute more is not what a user who extends a life means.
pub(crate) fn first(expires_at: Option<WireTime>, now_ms: i64) -> i64 {
    let Some(expires_at) = expires_at else {
        return USUAL;
    };
    let left = (expires_at.unix_ms() - now_ms) / 1_000;
    let least = left.saturating_add(left / 10);
    let found = OFFERED.into_iter().find(|seconds| *seconds > least);
    // In whole days.
    found.unwrap_or_else(|| {
        (left / 86_400)
            .saturating_mul(86_400)
            .saturating_add(BEYOND)
    })
}

/// All offered times, in seconds from now, shortest first; the one that is offered first is among them.
fn offered(first: i64) -> Vec<i64> {
    let mut all = OFFERED.to_vec();
    if !all.contains(&first) {
        all.push(first);
    }
    all
}

/// The field of a form with the new time to live, in seconds.
#[component]
pub(crate) fn TimeSelect(
    /// The time that is offered first.
    first: Memo<i64>,
    /// The time that the user chose instead.
    chosen: RwSignal<Option<i64>>,
    /// What is written before a time.
    prefix: &'static str,
    /// Whether nothing can be chosen.
    #[prop(into)]
    disabled: Signal<bool>,
) -> impl IntoView {
    let options = move || {
        let first = first.get();
        let option = |seconds: i64| {
            let text = [prefix, &duration(seconds)].concat();
            view! {
                <option value=seconds selected=seconds == first>
                    {text}
                </option>
            }
        };
        offered(first).into_iter().map(option).collect_view()
    };
    let wanted = Memo::new(move |_| chosen.get().unwrap_or_else(|| first.get()));
    let select = NodeRef::<html::Select>::new();
    Effect::new(move |ran: Option<()>| {
        let wanted = wanted.get();
        let Some(select) = select.get() else {
            return;
        };
        if ran.is_none() {
            // The user may have chosen before the page was live.
            let shown: Option<i64> = select.value().parse().ok();
            chosen.set(shown.filter(|shown| *shown != wanted));
            return;
        }
        // After the options: what is wanted may be a new one.
        spawn_local(async move { select.set_value(&wanted.to_string()) });
    });
    let choose = move |event: ev::Event| chosen.set(event_target_value(&event).parse().ok());
    view! {
        <label class="select">
            <span class="visually-hidden">"New time to live"</span>
            <select
                name="seconds"
                node_ref=select
                autocomplete="off"
                disabled=move || disabled.get()
                on:change=choose
            >
                {options}
            </select>
        </label>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 10_000_000;

    fn first_for(left: i64) -> i64 {
        first(WireTime::from_unix_ms(NOW + 1_000 * left), NOW)
    }

    #[test]
    fn what_is_offered_first_lengthens_the_life() {
        for (left, seconds) in [
            (-5, 900),
            (0, 900),
            (600, 900),
            (890, 1_800),
            (1_799, 3_600),
            (3_000, 3_600),
            // One that was made or extended to an hour a moment ago.
            (3_599, 14_400),
            (86_390, 604_800),
            (604_790, 2_592_000),
            (2_591_990, 29 * 86_400 + 2_592_000),
            (40_000_000, 462 * 86_400 + 2_592_000),
        ] {
            assert_eq!(first_for(left), seconds, "{left}");
            assert!(seconds > left, "{left}");
            assert!(offered(seconds).contains(&seconds), "{left}");
        }
        assert_eq!(first(None, NOW), USUAL);
    }

    #[test]
    fn offered_times_grow() {
        for first in [900, 604_800, 5_000_000] {
            let all = offered(first);
            assert!(all.is_sorted(), "{all:?}");
            assert!(all.len() <= OFFERED.len() + 1, "{all:?}");
        }
    }
}
