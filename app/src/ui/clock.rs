//! Ages and countdowns, with the exact time on hover.

use leptos::prelude::*;
use osb_protocol::WireTime;

use crate::browser;

/// The page's clock: one signal that every countdown of the page follows. Provided as context by
/// the frame, which lets it tick every second in the browser.
#[derive(Clone, Copy)]
pub struct Clock(pub RwSignal<i64>);

impl Clock {
    /// The clock of this page.
    #[must_use]
    pub fn current() -> Self {
        use_context().unwrap_or_else(|| Self(RwSignal::new(browser::now_ms())))
    }
}

/// `3 d 4 h`, `2 h 5 min`, `4 min 10 s`, `12 s`: the two largest units.
#[must_use]
pub fn duration(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let units = [
        (seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
        (seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        (seconds / 60, "min", seconds % 60, "s"),
    ];
    match units.into_iter().find(|(big, ..)| *big > 0) {
        None => format!("{seconds} s"),
        Some((big, unit, 0, _)) => format!("{big} {unit}"),
        Some((big, unit, small, part)) => format!("{big} {unit} {small} {part}"),
    }
}

/// Only the largest unit: what a list has room for.
fn brief(seconds: i64) -> String {
    match seconds.max(0) {
        s if s >= 86_400 => format!("{} d", s / 86_400),
        s if s >= 3_600 => format!("{} h", s / 3_600),
        s if s >= 60 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

/// Date and time of a moment, as `2026-11-23` and `09:31:02`, so many minutes east of UTC.
pub(super) fn parts(at: WireTime, minutes_east: i64) -> (String, String) {
    let shifted = WireTime::from_unix_ms(at.unix_ms() + minutes_east * 60_000);
    let text = shifted.unwrap_or(at).to_string();
    (text[..10].to_owned(), text[11..19].to_owned())
}

/// A moment in UTC.
#[must_use]
pub fn utc(at: WireTime) -> String {
    let (date, time) = parts(at, 0);
    format!("{date} {time} UTC")
}

/// How long ago something was, to the largest unit.
#[component]
pub fn Age(
    /// When it was.
    #[prop(into)]
    at: Signal<WireTime>,
) -> impl IntoView {
    let Clock(now) = Clock::current();
    let text = Memo::new(move |_| brief((now.get() - at.get().unix_ms()) / 1_000));
    view! {
        <time class="num" datetime=move || at.get().to_string() title=move || utc(at.get())>
            {text}
        </time>
    }
}

/// Time until a sandbox expires; a warning when it is short.
#[component]
pub fn Countdown(
    /// The expiry; `None` means never.
    #[prop(into)]
    until: Signal<Option<WireTime>>,
) -> impl IntoView {
    let Clock(now) = Clock::current();
    let left = Memo::new(move |_| until.get().map(|at| (at.unix_ms() - now.get()) / 1_000));
    let text = move || match left.get() {
        None => "no expiry".to_owned(),
        Some(left) if left <= 0 => "expiring".to_owned(),
        Some(left) => duration(left),
    };
    let soon = move || left.get().is_some_and(|left| left < 120);
    let exact = move || until.get().map(|at| at.to_string());
    let title = move || until.get().map(utc);
    view! {
        <time class="num countdown" class:soon=soon datetime=exact title=title>
            {text}
        </time>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_show_two_units() {
        for (seconds, text) in [
            (-5, "0 s"),
            (12, "12 s"),
            (60, "1 min"),
            (250, "4 min 10 s"),
            (3_600, "1 h"),
            (7_500, "2 h 5 min"),
            (273_600, "3 d 4 h"),
        ] {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!(brief(7_500), "2 h");
    }
}
