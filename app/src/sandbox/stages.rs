//! The stage bar: progress of a create, with times.

use leptos::prelude::*;

use crate::{
    ui::{Icon, duration},
    view::{SandboxDetail, Stage, StageState},
};

/// The stage bar: each stage with the time since the one before.
#[component]
pub fn StageBar(
    /// The sandbox.
    current: RwSignal<SandboxDetail>,
) -> impl IntoView {
    let steps = move || {
        let stages = current.read().stages.clone();
        let took = times(&stages);
        let step = |(stage, took): (Stage, Option<i64>)| {
            let (name, icon) = look(stage.state);
            view! {
                <li data-state=name>
                    <Icon name=icon />
                    <span class="stage-name">{stage.name}</span>
                    <span class="stage-time num">{note(stage.state, took)}</span>
                </li>
            }
        };
        stages.into_iter().zip(took).map(step).collect_view()
    };
    view! { <ol class="stages" aria-label="Stages">{steps}</ol> }
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
        (StageState::Done, Some(ms)) => format!("+{ms} ms"),
        (StageState::Failed, Some(ms)) => format!("failed after {}", duration(ms / 1_000)),
        (StageState::Done, None) => "done".to_owned(),
        (StageState::Current, _) => "now".to_owned(),
        (StageState::Open, _) => "to come".to_owned(),
        (StageState::Failed, None) => "failed".to_owned(),
        (StageState::Missed, _) => "not reached".to_owned(),
        (StageState::Unknown, _) => "not known".to_owned(),
    }
}

/// Milliseconds of each stage since the one before; `None` where either time is unknown.
fn times(stages: &[Stage]) -> Vec<Option<i64>> {
    let mut before: Option<i64> = None;
    let took = |stage: &Stage| {
        let at = stage.at.map(|at| at.unix_ms());
        let since = at.zip(before).map(|(at, before)| (at - before).max(0));
        before = at;
        since
    };
    stages.iter().map(took).collect()
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;

    use super::*;

    #[test]
    fn times_are_between_stages_whose_moments_are_known() {
        let stage = |ms: Option<i64>| Stage {
            name: String::new(),
            state: StageState::Done,
            at: ms.and_then(WireTime::from_unix_ms),
        };
        let stages = [
            stage(Some(1_000)),
            stage(Some(1_250)),
            stage(None),
            stage(Some(1_300)),
            stage(Some(1_340)),
        ];
        assert_eq!(times(&stages), [None, Some(250), None, None, Some(40)]);
    }

    #[test]
    fn only_what_was_reached_has_the_look_and_the_words_of_it() {
        use StageState::{Current, Done, Failed, Missed, Open, Unknown};
        assert_eq!(note(Done, Some(12)), "+12 ms");
        assert_eq!(note(Failed, Some(62_000)), "failed after 1 min 2 s");
        assert_eq!(note(Failed, None), "failed");
        for state in [Current, Open, Failed, Missed, Unknown] {
            assert_ne!(look(state), look(Done), "{state:?}");
            assert_ne!(look(state).1, look(Done).1, "{state:?}");
            assert_ne!(note(state, None), note(Done, None), "{state:?}");
        }
    }
}
