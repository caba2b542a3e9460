//! Moments in the user's time, with UTC on hover.

use leptos::prelude::*;
use osb_protocol::WireTime;

use super::clock::{Clock, duration, parts, utc};
use crate::browser;

/// Seconds left from which on an expiry is a warning.
const SOON: i64 = 120;
/// Seconds above which minutes are exact enough.
const IN_MINUTES: i64 = 120;

/// Whether the page shows local times: it was rendered in UTC, and hydration must find the same text.
/// Provided as context by the frame.
#[derive(Clone, Copy)]
pub struct LocalTimes(pub RwSignal<bool>);

impl LocalTimes {
    /// Those of this page.
    #[must_use]
    pub fn current() -> Self {
        use_context().unwrap_or_else(|| Self(RwSignal::new(false)))
    }

    /// Minutes east of UTC at a moment. Tracks changes.
    fn minutes_at(self, at: WireTime) -> i64 {
        match self.0.get() {
            true => browser::minutes_east_at(at.unix_ms()),
            false => 0,
        }
    }

    /// Date and time of a moment, as `2026-11-23` and `09:31:02`.
    fn parts(self, at: WireTime) -> (String, String) {
        parts(at, self.minutes_at(at))
    }

    /// Date and time with seconds. Tracks changes.
    #[must_use]
    pub fn exact(self, at: WireTime) -> String {
        let (date, time) = self.parts(at);
        let zone = if self.0.get() { "" } else { " UTC" };
        format!("{date} {time}{zone}")
    }

    /// A time of a URL, in UTC, as fields for dates and times have it. Anything else stays as it is.
    /// Tracks changes.
    #[must_use]
    pub fn to_field(self, time: &str) -> String {
        let Some(at) = in_utc(time) else {
            return time.to_owned();
        };
        let (date, time) = self.parts(at);
        // Browsers leave seconds out that are zero.
        let time = time.strip_suffix(":00").unwrap_or(&time);
        format!("{date}T{time}")
    }

    /// The time in a field, in UTC as URLs have it. Anything else stays as it is.
    #[must_use]
    pub fn of_field(self, text: &str) -> String {
        let Some(read) = in_utc(text) else {
            return text.to_owned();
        };
        let east = |at| untrack(|| self.minutes_at(at));
        let earlier = |minutes| WireTime::from_unix_ms(read.unix_ms() - minutes * 60_000);
        // The offset is that of the moment, which is known only with an offset.
        let guess = earlier(east(read)).unwrap_or(read);
        let at = earlier(east(guess)).unwrap_or(read);
        let (date, time) = parts(at, 0);
        format!("{date}T{time}Z")
    }

    /// Hours and minutes, on another day with the date. Tracks changes.
    #[must_use]
    pub fn brief(self, at: WireTime, now_ms: i64) -> String {
        let (date, time) = self.parts(at);
        let today = WireTime::from_unix_ms(now_ms).map(|now| self.parts(now).0);
        let zone = if self.0.get() { "" } else { " UTC" };
        let minutes = &time[..5];
        match today.as_ref() == Some(&date) {
            true => format!("{minutes}{zone}"),
            false => format!("{date} {minutes}{zone}"),
        }
    }
}

/// A date and time of a URL, which without a zone is in UTC.
fn in_utc(time: &str) -> Option<WireTime> {
    let seconds = match time.len() {
        16 => ":00Z",
        _ if time.ends_with('Z') => "",
        _ => "Z",
    };
    WireTime::parse(&format!("{time}{seconds}")).ok()
}

/// A time to come: to the minute, and to the second when it is short.
#[must_use]
pub fn until(seconds: i64) -> String {
    match seconds {
        ..IN_MINUTES => duration(seconds),
        _ => duration((seconds + 30) / 60 * 60),
    }
}

/// An exact moment.
#[component]
pub fn When(
    /// When.
    #[prop(into)]
    at: Signal<WireTime>,
) -> impl IntoView {
    let local = LocalTimes::current();
    let text = move || local.exact(at.get());
    view! {
        <time class="num" datetime=move || at.get().to_string() title=move || utc(at.get())>
            {text}
        </time>
    }
    .into_any()
}

/// A moment to the minute.
#[component]
pub fn AtMinute(
    /// When.
    #[prop(into)]
    at: Signal<WireTime>,
) -> impl IntoView {
    let local = LocalTimes::current();
    let Clock(now) = Clock::current();
    let text = Memo::new(move |_| local.brief(at.get(), now.get()));
    view! {
        <time class="num" datetime=move || at.get().to_string() title=move || utc(at.get())>
            {text}
        </time>
    }
    .into_any()
}

/// When a sandbox expires, with the time until then: `Expires 09:31 (in 30 min)`. For one that does not
/// run any more, no time is counted.
#[component]
pub fn Expiry(
    /// The expiry; `None` means never.
    #[prop(into)]
    at: Signal<Option<WireTime>>,
    /// Whether the time counts.
    #[prop(into)]
    counts: Signal<bool>,
) -> impl IntoView {
    let Clock(now) = Clock::current();
    let left = Memo::new(move |_| {
        let at = at.get().filter(|_| counts.get());
        at.map(|at| (at.unix_ms() - now.get()) / 1_000)
    });
    let is_soon = move || left.get().is_some_and(|left| left < SOON);
    let is_set = Memo::new(move |_| at.get().is_some());
    let moment = Signal::derive(move || at.get().unwrap_or_else(epoch));
    let counted = move || {
        left.get().map(|left| match left {
            ..=0 => " (now)".to_owned(),
            left => format!(" (in {})", until(left)),
        })
    };
    let word = move || {
        if counts.get() {
            "Expires "
        } else {
            "Kept until "
        }
    };
    let expires = move || {
        is_set.get().then(|| {
            view! {
                {word} <AtMinute at=moment />
                <span class="num countdown" class:soon=is_soon>{counted}</span>
            }
        })
    };
    let never = move || (!is_set.get()).then_some("No expiry");
    view! { <span class="expiry">{expires} {never}</span> }.into_any()
}

fn epoch() -> WireTime {
    WireTime::from_unix_ms(0).expect("the epoch can be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> WireTime {
        WireTime::parse(text).unwrap()
    }

    #[test]
    fn a_moment_is_shown_in_another_zone() {
        let moment = at("2026-11-23T23:31:02.5Z");
        assert_eq!(
            parts(moment, 60),
            ("2026-11-24".to_owned(), "00:31:02".to_owned())
        );
        assert_eq!(parts(moment, -330).1, "18:01:02");
        assert_eq!(utc(moment), "2026-11-23 23:31:02 UTC");
    }

    #[test]
    fn a_field_and_its_url_name_the_same_moment() {
        Owner::new().with(|| {
            let times = LocalTimes(RwSignal::new(false));
            for (url, field) in [
                ("2026-11-23T09:31", "2026-11-23T09:31"),
                ("2026-11-23T10:00:00Z", "2026-11-23T10:00"),
                ("2026-11-23T09:31:02Z", "2026-11-23T09:31:02"),
                ("yesterday", "yesterday"),
                ("", ""),
            ] {
                assert_eq!(times.to_field(url), field);
            }
            assert_eq!(times.of_field("2026-11-23T09:31"), "2026-11-23T09:31:00Z");
            assert_eq!(times.of_field("soon"), "soon");
        });
    }

    #[test]
    fn the_date_is_shown_on_other_days_only() {
        Owner::new().with(|| {
            let times = LocalTimes(RwSignal::new(false));
            let moment = at("2026-11-23T09:31:02Z");
            let brief = |now: &str| times.brief(moment, at(now).unix_ms());
            assert_eq!(brief("2026-11-23T23:59:59Z"), "09:31 UTC");
            assert_eq!(brief("2026-11-22T23:59:59Z"), "2026-11-23 09:31 UTC");
            assert_eq!(times.exact(moment), "2026-11-23 09:31:02 UTC");
        });
    }

    #[test]
    fn a_time_to_come_is_rounded_to_minutes_unless_it_is_short() {
        for (seconds, text) in [
            (1_799, "30 min"),
            (1_770, "30 min"),
            (1_769, "29 min"),
            (119, "1 min 59 s"),
            (86_399, "1 d"),
            (-1, "0 s"),
        ] {
            assert_eq!(until(seconds), text, "{seconds}");
        }
    }
}
