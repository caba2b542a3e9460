//! What has happened within a day: creates, their times, failures.

use leptos::prelude::*;

use super::shown::Shown;
use crate::{
    sandboxes::ListQuery,
    ui::{Age, Chart, ChartData, Line, Unit},
    view::{Activity, FailureGroup, Split},
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
    let times = times(&activity);
    let created = Lists::created().links(activity.created, " created".into_any());
    let failed = Lists::failed().links(activity.failed, " failed".into_any());
    let data = chart(&activity);
    let cut = activity
        .is_cut
        .then(|| view! { <p class="help">"More sandboxes ended than are counted here."</p> });
    view! {
        <Chart data=Signal::stored(data) />
        <p class="activity-facts num">{created} " · " {failed} {times}</p>
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

/// How long creates took, in words.
fn times(activity: &Activity) -> Option<String> {
    let (median, p99) = (time(activity.median_ms?), time(activity.p99_ms?));
    Some([" · ready after ", &median, ", 99 of 100 within ", &p99].concat())
}

/// The two lists that have what a number counts: of sandboxes that exist, and of those that ended.
struct Lists {
    present: ListQuery,
    ended: ListQuery,
}

impl Lists {
    fn of(present: (&str, &str), ended: &str) -> Self {
        let list = |state: &str, q: &str| ListQuery {
            state: state.to_owned(),
            q: q.to_owned(),
            ..ListQuery::default()
        };
        Self {
            present: list(present.0, present.1),
            ended: list("Ended", ended),
        }
    }

    /// What was created within a day.
    fn created() -> Self {
        Self::of(("", "age<24h"), "age<24h")
    }

    /// What failed within a day.
    fn failed() -> Self {
        Self::of(
            ("Failed", "changed<24h"),
            "state:failed,vanished changed<24h",
        )
    }

    /// What failed within a day for a reason.
    fn failed_for(reason: &str) -> Self {
        let word = match reason {
            "" => "reason=none".to_owned(),
            code if code.contains(char::is_whitespace) => ["reason=\"", code, "\""].concat(),
            code => ["reason=", code].concat(),
        };
        let mut lists = Self::failed();
        for list in [&mut lists.present, &mut lists.ended] {
            list.q = [&list.q, " ", &word].concat();
        }
        lists
    }

    /// The number with what it counts. It leads to its list, or its parts lead to theirs.
    fn links(&self, count: Split, what: AnyView) -> AnyView {
        let total = count.total();
        let list = match count {
            Split { ended: 0, .. } => &self.present,
            Split { present: 0, .. } => &self.ended,
            Split { present, ended } => {
                let (exist, gone) = (self.present.url(), self.ended.url());
                return view! {
                    {total}
                    {what}
                    " ("
                    <a href=exist>{present} " present"</a>
                    ", "
                    <a href=gone>{ended} " ended"</a>
                    ")"
                }
                .into_any();
            }
        };
        view! { <a href=list.url()>{total} {what}</a> }.into_any()
    }
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

#[component]
fn FailureRow(group: FailureGroup) -> impl IntoView {
    let lists = Lists::failed_for(&group.reason);
    let reason = match group.reason.is_empty() {
        true => "no reason".to_owned(),
        false => group.reason,
    };
    let what = view! {
        " × "
        <span class="mono">{reason}</span>
    };
    let page = format!("/console/sandboxes/{}", group.newest);
    let others = match group.others {
        0 => None,
        1 => Some("1 of them has another message.".to_owned()),
        count => Some(format!("{count} of them have other messages.")),
    };
    let others = others.map(|text| view! { <p class="help">{text}</p> });
    view! {
        <li>
            <p class="failure-count num">{lists.links(group.count, what.into_any())}</p>
            <p class="failure-message">{group.message}</p>
            {others}
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
    use crate::{
        ui::sample::row,
        view::{Ended, HourCount, Outcome, SandboxRow},
    };

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
    fn times_of_creates_are_shown_in_words() {
        let text = " · ready after 820 ms, 99 of 100 within 61.2 s";
        assert_eq!(times(&activity()).as_deref(), Some(text));
        assert_eq!(times(&Activity::default()), None);
    }

    const NOW: i64 = 100 * 86_400_000;

    fn at(hours_ago: i64) -> WireTime {
        WireTime::from_unix_ms(NOW - hours_ago * 3_600_000).unwrap()
    }

    fn listed(query: &ListQuery, row: &SandboxRow) -> bool {
        let filter = crate::sandboxes::Filter::parse(&query.q);
        assert_eq!(filter.problems(), [], "{}", query.q);
        query.matches(&filter, row, NOW)
    }

    #[test]
    fn a_number_of_failures_leads_to_the_lists_of_exactly_these() {
        let failed = |reason: Option<&str>, hours_ago| {
            let mut row = row("a", "Failed");
            row.sandbox.status.reason = reason.map(str::to_owned);
            row.sandbox.status.last_transition_at = Some(at(hours_ago));
            row
        };
        let ended = |outcome, reason, hours_ago| SandboxRow {
            ended: Some(Ended {
                outcome,
                at: at(hours_ago),
            }),
            ..failed(Some(reason), 200)
        };
        let of_pull = Lists::failed_for("PULL");
        let present = |reason, hours_ago| listed(&of_pull.present, &failed(reason, hours_ago));
        assert!(present(Some("PULL"), 23));
        assert!(!present(Some("PULL"), 24) && !present(Some("PULL_LATE"), 1));
        let gone = |outcome, reason, hours| listed(&of_pull.ended, &ended(outcome, reason, hours));
        assert!(gone(Outcome::Failed, "PULL", 23) && gone(Outcome::Vanished, "PULL", 1));
        assert!(!gone(Outcome::Failed, "PULL", 24) && !gone(Outcome::Deleted, "PULL", 1));
        assert!(!gone(Outcome::Failed, "OOM", 1));
        assert!(listed(&Lists::failed_for("").present, &failed(None, 1)));
        assert!(listed(
            &Lists::failed_for("two words").present,
            &failed(Some("two words"), 1)
        ));
        assert!(listed(&Lists::failed().present, &failed(Some("OOM"), 1)));
        let mut fresh = row("a", "Running");
        fresh.sandbox.created_at = at(23);
        assert!(listed(&Lists::created().present, &fresh));
        fresh.sandbox.created_at = at(24);
        assert!(!listed(&Lists::created().present, &fresh));
    }

    #[test]
    fn a_number_leads_to_the_list_or_its_parts_to_theirs() {
        let html = |present, ended| {
            let count = Split { present, ended };
            Owner::new().with(|| Lists::failed().links(count, " failed".into_any()).to_html())
        };
        let (exists, gone) = (Lists::failed().present.url(), Lists::failed().ended.url());
        let (exists, gone) = (exists.replace('&', "&amp;"), gone.replace('&', "&amp;"));
        let has = |html: &str, url: &str| html.contains(&["href=\"", url, "\""].concat());
        assert!(has(&html(2, 0), &exists) && !has(&html(2, 0), &gone));
        assert!(!has(&html(0, 3), &exists) && has(&html(0, 3), &gone));
        assert!(has(&html(2, 3), &exists) && has(&html(2, 3), &gone));
        assert!(html(2, 3).starts_with('5'), "{}", html(2, 3));
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
