//! How many sandboxes there are, and whether more can be created.

use leptos::prelude::*;

use super::shown::Shown;
use crate::{
    sandboxes::ListQuery,
    ui::Icon,
    view::{EXPIRING_SECONDS, Readiness, StateCounts},
};

/// Whether sandboxes can be created, and why not.
#[component]
pub(super) fn ReadinessBanner(shown: Shown) -> impl IntoView {
    let readiness = Memo::new(move |_| shown.pulse.read().readiness.clone());
    let look = move || match &*readiness.read() {
        Readiness::Ready(_) => ("good", "circle-check"),
        Readiness::NotReady(_) => ("bad", "triangle-alert"),
    };
    let text = move || match readiness.get() {
        Readiness::Ready(None) => "Ready: sandboxes can be created.".to_owned(),
        Readiness::Ready(Some(note)) => format!("Ready: sandboxes can be created. Note: {note}."),
        Readiness::NotReady(why) => format!("Not ready: {why}"),
    };
    view! {
        <p class="banner readiness" data-tone=move || look().0 role="status">
            <Icon name=Signal::derive(move || look().1) />
            <span>{text}</span>
        </p>
    }
    .into_any()
}

/// A counter: its name, its icon, the list that it counts, and how to read it.
struct Counter {
    title: &'static str,
    icon: &'static str,
    query: ListQuery,
    read: fn(&StateCounts) -> usize,
}

fn of_state(state: &'static str, icon: &'static str, read: fn(&StateCounts) -> usize) -> Counter {
    let query = ListQuery {
        state: state.to_owned(),
        ..ListQuery::default()
    };
    Counter {
        title: state,
        icon,
        query,
        read,
    }
}

/// The counters of states that sandboxes can be in while they exist.
fn counters() -> [Counter; 4] {
    [
        of_state("Running", "circle-check", |counts| counts.running),
        of_state("Pending", "circle-dashed", |counts| counts.pending),
        of_state("Paused", "circle-pause", |counts| counts.paused),
        of_state("Failed", "circle-x", |counts| counts.failed),
    ]
}

/// The list of the sandboxes that expire soon: of those that live, as they are counted.
fn expiring() -> ListQuery {
    let minutes = (EXPIRING_SECONDS / 60).to_string();
    ListQuery {
        q: ["ttl<", &minutes, "m -state:failed,stopping,terminated"].concat(),
        ..ListQuery::default()
    }
}

/// The list of the sandboxes that ended.
fn ended() -> ListQuery {
    ListQuery {
        state: "Ended".to_owned(),
        ..ListQuery::default()
    }
}

/// How many sandboxes there are. Each number leads to its list.
#[component]
pub(super) fn Counters(shown: Shown, counts: Memo<StateCounts>) -> impl IntoView {
    let states = counters().map(|counter| {
        let number = Signal::derive(move || (counter.read)(&counts.read()).to_string());
        let is_quiet = Signal::derive(move || (counter.read)(&counts.read()) == 0);
        view! {
            <Tile title=counter.title icon=counter.icon query=counter.query number is_quiet />
        }
    });
    let expiring_now = move || shown.pulse.read().expiring;
    let ended_number = move || match shown.ended.get() {
        Some(crate::view::ENDED_MAX) => format!("{}+", crate::view::ENDED_MAX),
        Some(ended) => ended.to_string(),
        None => "?".to_owned(),
    };
    view! {
        <section aria-label="Sandboxes">
            <ul class="counters">
                {states.collect_view()}
                <Tile
                    title="Expire in 15 min"
                    icon="clock"
                    query=expiring()
                    number=Signal::derive(move || expiring_now().to_string())
                    is_quiet=Signal::derive(move || expiring_now() == 0)
                />
                <Tile
                    title="Ended"
                    icon="circle-stop"
                    query=ended()
                    number=Signal::derive(ended_number)
                    is_quiet=Signal::derive(move || shown.ended.get() == Some(0))
                />
            </ul>
        </section>
    }
    .into_any()
}

/// A number that leads to its list.
#[component]
fn Tile(
    title: &'static str,
    icon: &'static str,
    query: ListQuery,
    number: Signal<String>,
    is_quiet: Signal<bool>,
) -> impl IntoView {
    view! {
        <li>
            <a class="counter" href=query.url() data-quiet=move || is_quiet.get().then_some("true")>
                <span class="counter-number num">{number}</span>
                <span class="counter-title">
                    <Icon name=icon />
                    {title}
                </span>
            </a>
        </li>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_leads_to_the_list_that_it_counts() {
        let counts = StateCounts {
            all: 10,
            running: 1,
            pending: 2,
            paused: 3,
            failed: 4,
            ended: None,
        };
        let seen = counters().map(|counter| (counter.query.url(), (counter.read)(&counts)));
        let list = |state: &str| format!("/console/sandboxes?state={state}");
        let wanted = [
            (list("Running"), 1),
            (list("Pending"), 2),
            (list("Paused"), 3),
            (list("Failed"), 4),
        ];
        assert_eq!(seen, wanted);
        assert_eq!(ended().url(), list("Ended"));
    }

    #[test]
    fn the_list_of_those_that_expire_has_the_living_as_the_number() {
        let query = expiring();
        let filter = crate::sandboxes::Filter::parse(&query.q);
        assert_eq!(filter.problems(), []);
        for state in [
            "Pending",
            "Running",
            "Pausing",
            "Paused",
            "Resuming",
            "Stopping",
            "Terminated",
            "Failed",
            "Unknown",
        ] {
            let mut row = crate::ui::sample::row("a", state);
            let mut is_listed = |left_ms| {
                row.sandbox.expires_at = osb_protocol::WireTime::from_unix_ms(left_ms);
                query.matches(&filter, &row, 0)
            };
            let soon = 1_000 * EXPIRING_SECONDS;
            let is_alive = crate::view::is_alive(&state.into());
            assert_eq!(is_listed(soon - 1), is_alive, "{state}");
            assert!(!is_listed(soon), "{state}");
        }
    }
}
