//! The stages of a create as a waterfall: when each began and how long it took.

use leptos::prelude::*;

use crate::{
    ui::{Clock, Icon, duration},
    view::{SandboxDetail, Stage, StageState},
};

/// Width of a bar in its own units, which the page stretches.
const WIDTH: i64 = 1_000;
/// Least width of a bar, so that it can be seen.
const LEAST: i64 = 8;

/// The stages, each with its time as text and as a bar, and the total.
#[component]
pub(crate) fn StageBar(
    /// The sandbox.
    current: RwSignal<SandboxDetail>,
) -> impl IntoView {
    let Clock(now) = Clock::current();
    // Only a create under way follows the clock.
    let until = Memo::new(move |_| is_under_way(&current.read().stages).then(|| now.get()));
    let steps = move || {
        current.with(|detail| {
            let now = until.get();
            let spans = spans(&detail.stages, now);
            let whole = whole(&detail.stages, now);
            let step = |(stage, span): (&Stage, Option<Span>)| {
                let (name, icon) = look(stage.state);
                view! {
                    <li data-state=name>
                        <Icon name=icon />
                        <span class="stage-name">{stage.name.clone()}</span>
                        {bar(span.zip(whole))}
                        <span class="stage-time num">
                            {note(stage.state, span.map(|span| span.length))}
                        </span>
                    </li>
                }
            };
            detail.stages.iter().zip(spans).map(step).collect_view()
        })
    };
    let total = move || current.with(|detail| total(&detail.stages));
    view! {
        <ol class="stages" aria-label="Stages">
            {steps}
        </ol>
        <p class="stages-total num">{total}</p>
    }
    .into_any()
}

/// The time that a stage took, in milliseconds since the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: i64,
    length: i64,
}

/// Whether a stage is being worked on.
fn is_under_way(stages: &[Stage]) -> bool {
    stages
        .iter()
        .any(|stage| stage.state == StageState::Current)
}

/// The first known moment, and the last one: now while a stage is being worked on.
fn edges(stages: &[Stage], now: Option<i64>) -> Option<(i64, i64)> {
    let mut known = stages
        .iter()
        .filter_map(|stage| stage.at.map(|at| at.unix_ms()));
    let first = known.next()?;
    let last = known.next_back().unwrap_or(first);
    Some((first, now.unwrap_or(last).max(last)))
}

/// Milliseconds from the first moment to the last.
fn whole(stages: &[Stage], now: Option<i64>) -> Option<i64> {
    edges(stages, now).map(|(first, last)| last - first)
}

/// The time of each stage: since the one before; `None` where either moment is unknown.
fn spans(stages: &[Stage], now: Option<i64>) -> Vec<Option<Span>> {
    let first = edges(stages, None).map_or(0, |(first, _)| first);
    let mut before: Option<i64> = None;
    let span = |stage: &Stage| {
        let at = match stage.state {
            StageState::Current => now,
            _ => stage.at.map(|at| at.unix_ms()),
        };
        let since = at.zip(before).map(|(at, before)| Span {
            start: before - first,
            length: (at - before).max(0),
        });
        before = at;
        since
    };
    stages.iter().map(span).collect()
}

/// The time from the request until the sandbox was ready, in words; empty while it is not known.
pub(crate) fn total(stages: &[Stage]) -> Option<String> {
    let of = |name: &str| {
        let stage = stages.iter().find(|stage| stage.name == name)?;
        Some(stage.at?.unix_ms())
    };
    let took = of("ready")?.saturating_sub(of("accepted")?);
    Some(format!("Ready after {}", milliseconds(took)))
}

/// A time of a stage: milliseconds, from a second on with two decimals.
fn milliseconds(ms: i64) -> String {
    match ms.max(0) {
        ms @ ..1_000 => format!("{ms} ms"),
        ms @ ..60_000 => format!("{}.{:02} s", ms / 1_000, ms % 1_000 / 10),
        ms => duration(ms / 1_000),
    }
}

/// The bar of a stage within the whole time; the text beside it has the same meaning.
fn bar(place: Option<(Span, i64)>) -> AnyView {
    let rect = place.map(|(Span { start, length }, whole)| {
        let of_whole = |ms: i64| ms * WIDTH / whole.max(1);
        let width = of_whole(length).max(LEAST);
        let x = of_whole(start).min(WIDTH - width);
        view! { <rect x=x width=width y="0" height="8" rx="2"></rect> }
    });
    view! {
        <svg
            class="stage-bar"
            viewBox=format!("0 0 {WIDTH} 8")
            preserveAspectRatio="none"
            aria-hidden="true"
        >
            {rect}
        </svg>
    }
    .into_any()
}

/// Class in style/sandbox.css, and icon.
fn look(state: StageState) -> (&'static str, &'static str) {
    match state {
        StageState::Done => ("done", "circle-check"),
        StageState::Current => ("current", "circle-dashed"),
        StageState::Open => ("open", "circle-dashed"),
        StageState::Failed => ("failed", "circle-x"),
        StageState::Missed => ("missed", "circle-dashed"),
        StageState::Unknown => ("unknown", "circle-help"),
    }
}

/// Text of a stage, with its time in milliseconds.
fn note(state: StageState, took: Option<i64>) -> String {
    match (state, took) {
        (StageState::Done, Some(ms)) => format!("+{}", milliseconds(ms)),
        (StageState::Failed, Some(ms)) => format!("failed after {}", duration(ms / 1_000)),
        (StageState::Done, None) => "done".to_owned(),
        // The page's clock ticks each second.
        (StageState::Current, Some(ms)) => format!("now, for {}", duration(ms / 1_000)),
        (StageState::Current, None) => "now".to_owned(),
        (StageState::Open, _) => "to come".to_owned(),
        (StageState::Failed, None) => "failed".to_owned(),
        (StageState::Missed, _) => "not reached".to_owned(),
        (StageState::Unknown, _) => "not known".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;

    use super::*;

    fn stage(name: &str, state: StageState, ms: Option<i64>) -> Stage {
        Stage {
            name: name.to_owned(),
            state,
            at: ms.and_then(WireTime::from_unix_ms),
        }
    }

    fn done(name: &str, ms: i64) -> Stage {
        stage(name, StageState::Done, Some(ms))
    }

    fn span(start: i64, length: i64) -> Option<Span> {
        Some(Span { start, length })
    }

    #[test]
    fn times_are_between_stages_whose_moments_are_known() {
        let stages = [
            done("accepted", 1_000),
            done("image", 1_250),
            stage("created", StageState::Done, None),
            done("network", 1_300),
            done("execd", 1_340),
        ];
        let expected = [None, span(0, 250), None, None, span(300, 40)];
        assert_eq!(spans(&stages, None), expected);
        assert_eq!(whole(&stages, None), Some(340));
        assert_eq!(total(&stages), None);
    }

    #[test]
    fn a_stage_under_way_lasts_until_now() {
        let stages = [
            done("accepted", 1_000),
            stage("image", StageState::Current, None),
            stage("created", StageState::Open, None),
        ];
        assert!(is_under_way(&stages));
        assert_eq!(spans(&stages, Some(4_000)), [None, span(0, 3_000), None]);
        assert_eq!(whole(&stages, Some(4_000)), Some(3_000));
        // A clock that is behind the server's.
        assert_eq!(spans(&stages, Some(900)), [None, span(0, 0), None]);
        assert_eq!(whole(&stages, Some(900)), Some(0));
        assert_eq!(whole(&[], Some(900)), None);
    }

    #[test]
    fn the_total_is_the_time_until_ready() {
        let stages = [done("accepted", 1_000), done("ready", 2_245)];
        assert_eq!(total(&stages).as_deref(), Some("Ready after 1.24 s"));
        let failed = stage("command", StageState::Failed, Some(9_000));
        let later = [done("accepted", 1_000), done("ready", 1_240), failed];
        assert_eq!(total(&later).as_deref(), Some("Ready after 240 ms"));
    }

    #[test]
    fn only_what_was_reached_has_the_look_and_the_words_of_it() {
        use StageState::{Current, Done, Failed, Missed, Open, Unknown};
        assert_eq!(note(Done, Some(12)), "+12 ms");
        assert_eq!(note(Done, Some(61_500)), "+1 min 1 s");
        assert_eq!(note(Current, Some(3_400)), "now, for 3 s");
        assert_eq!(note(Failed, Some(62_000)), "failed after 1 min 2 s");
        assert_eq!(note(Failed, None), "failed");
        for state in [Current, Open, Failed, Missed, Unknown] {
            assert_ne!(look(state), look(Done), "{state:?}");
            assert_ne!(look(state).1, look(Done).1, "{state:?}");
            assert_ne!(note(state, None), note(Done, None), "{state:?}");
        }
    }
}
