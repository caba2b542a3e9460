//! What has happened within a day: creates, their times, failures.

use leptos::prelude::*;

use super::shown::Shown;
use crate::{
    sandboxes::ListQuery,
    ui::{Age, Chart, ChartData, Line, Unit},
    view::{Activity, FailureGroup},
};

/// Creates and failures of each hour, and how long creates took.
#[component]
pub(super) fn ActivityCard(shown: Shown) -> impl IntoView {
    let activity = Memo::new(move |_| shown.activity.get());
    let content = move || match activity.get() {
        Ok(activity) => view! { <Known activity /> }.into_any(),
        Err(why) => view! { <Unknown why /> }.into_any(),
    };
    view! {
        <section class="card activity" aria-label="Activity">{content}</section>
    }
    .into_any()
}

/// Why a card shows nothing.
#[component]
fn Unknown(why: String) -> impl IntoView {
    view! {
        <h2>"Last 24 hours"</h2>
        <p class="help">{format!("This is not known: {why}")}</p>
    }
    .into_any()
}

#[component]
fn Known(activity: Activity) -> impl IntoView {
    let facts = facts(&activity);
    let data = chart(&activity);
    let cut = activity
        .is_cut
        .then(|| view! { <p class="help">"More sandboxes ended than are counted here."</p> });
    view! {
        <Chart data=Signal::stored(data) />
        <p class="activity-facts num">{facts}</p>
        {cut}
    }
    .into_any()
}

/// Counts of each hour as lines.
fn chart(activity: &Activity) -> ChartData {
    let seconds = |at: osb_protocol::WireTime| at.unix_ms().div_euclid(1_000);
    let line = |name, count: fn(&crate::view::HourCount) -> u32| Line {
        name,
        points: activity
            .hours
            .iter()
            .map(|hour| (seconds(hour.start), Some(f64::from(count(hour)))))
            .collect(),
    };
    let first = activity.hours.first().map(|hour| seconds(hour.start));
    let last = activity.hours.last().map(|hour| seconds(hour.start));
    ChartData {
        title: "Last 24 hours, by hour",
        unit: Unit::Count,
        lines: vec![
            line("created", |hour| hour.creates),
            line("failed", |hour| hour.failures),
        ],
        limit: None,
        from: first.unwrap_or_default(),
        to: last.unwrap_or_default(),
    }
}

/// Sums of the day, in words.
fn facts(activity: &Activity) -> String {
    let sum = |count: fn(&crate::view::HourCount) -> u32| -> u32 {
        activity.hours.iter().map(count).sum()
    };
    let (creates, failures) = (sum(|hour| hour.creates), sum(|hour| hour.failures));
    let mut text = format!("{creates} created · {failures} failed");
    if let (Some(median), Some(p99)) = (activity.median_ms, activity.p99_ms) {
        text += &format!(
            " · ready after {}, 99 of 100 within {}",
            time(median),
            time(p99)
        );
    }
    text
}

/// Milliseconds for people.
pub(super) fn time(ms: i64) -> String {
    match ms {
        ms if ms < 1_000 => format!("{ms} ms"),
        ms => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
    }
}

/// Failures by reason.
#[component]
pub(super) fn FailuresCard(shown: Shown) -> impl IntoView {
    let groups = Memo::new(move |_| {
        let activity = shown.activity.read();
        activity
            .as_ref()
            .map_or_else(|_| Vec::new(), |it| it.failures.clone())
    });
    let is_known = Memo::new(move |_| shown.activity.read().is_ok());
    let rows = move || {
        let row = |group| view! { <FailureRow group /> };
        groups.get().into_iter().map(row).collect_view()
    };
    let none = move || match is_known.get() {
        true => "None within 24 hours.",
        false => "They are not known.",
    };
    view! {
        <section class="card" aria-labelledby="failures-title">
            <h2 id="failures-title">"Recent failures"</h2>
            <Show
                when=move || !groups.read().is_empty()
                fallback=move || view! { <p class="help">{none}</p> }
            >
                <ul class="failures">{rows}</ul>
            </Show>
        </section>
    }
    .into_any()
}

/// The list of the sandboxes that failed for a reason.
fn list_of(group: &FailureGroup) -> ListQuery {
    ListQuery {
        state: "Ended".to_owned(),
        q: format!("reason:{}", group.reason),
        ..ListQuery::default()
    }
}

#[component]
fn FailureRow(group: FailureGroup) -> impl IntoView {
    let list = list_of(&group).url();
    let page = format!("/console/sandboxes/{}", group.newest);
    view! {
        <li>
            <a class="failure-count num" href=list title="All with this reason that ended">
                {group.count}
                " × "
                <span class="mono">{group.reason}</span>
            </a>
            <p class="failure-message">{group.message}</p>
            <p class="help">
                "Last: "
                <a href=page>{group.title}</a>
                ", "
                <Age at=Signal::stored(group.at) />
                " ago"
            </p>
        </li>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;

    use super::*;
    use crate::view::HourCount;

    fn activity() -> Activity {
        let hour = |hour: i64, creates, failures| HourCount {
            start: WireTime::from_unix_ms(hour * 3_600_000).unwrap(),
            creates,
            failures,
        };
        Activity {
            hours: vec![hour(1, 3, 0), hour(2, 4, 1)],
            timed: 6,
            median_ms: Some(820),
            p99_ms: Some(61_250),
            ..Activity::default()
        }
    }

    #[test]
    fn a_day_is_summed_in_words() {
        let text = "7 created · 1 failed · ready after 820 ms, 99 of 100 within 61.2 s";
        assert_eq!(facts(&activity()), text);
        let none = Activity::default();
        assert_eq!(facts(&none), "0 created · 0 failed");
    }

    #[test]
    fn the_chart_has_a_line_for_each_count() {
        let data = chart(&activity());
        assert_eq!((data.from, data.to), (3_600, 7_200));
        assert_eq!(
            data.lines[0].points,
            [(3_600, Some(3.0)), (7_200, Some(4.0))]
        );
        assert_eq!(
            data.lines[1].points,
            [(3_600, Some(0.0)), (7_200, Some(1.0))]
        );
    }
}
