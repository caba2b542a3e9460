//! How far a sandbox came on its way, and when.

use leptos::prelude::*;

use crate::{
    ui::Icon,
    view::{SandboxDetail, Stage},
};

/// The stage bar: each step with the time it took since the one before.
#[component]
pub(super) fn StageBar(
    /// The sandbox.
    current: RwSignal<SandboxDetail>,
) -> impl IntoView {
    let failed = move || {
        use osb_protocol::lifecycle::SandboxState::Failed;
        current.read().sandbox.status.state == Failed
    };
    let steps = move || {
        let failed = failed();
        let stages = current.read().stages.clone();
        let reached = stages.iter().take_while(|stage| stage.at.is_some()).count();
        let took = times(&stages);
        let step = |(at, (stage, took)): (usize, (Stage, Option<i64>))| {
            let state = match at {
                done if done < reached => "done",
                next if next == reached && failed => "failed",
                next if next == reached => "current",
                _ => "open",
            };
            let icon = match state {
                "done" => "circle-check",
                "failed" => "circle-x",
                _ => "circle-dashed",
            };
            let note = match took {
                Some(ms) => format!("+{ms} ms"),
                None if state == "done" => String::new(),
                None => match state {
                    "failed" => "not reached".to_owned(),
                    "current" => "now".to_owned(),
                    _ => "to come".to_owned(),
                },
            };
            view! {
                <li data-state=state>
                    <Icon name=icon />
                    <span class="stage-name">{stage.name}</span>
                    <span class="stage-time num">{note}</span>
                </li>
            }
        };
        stages
            .into_iter()
            .zip(took)
            .enumerate()
            .map(step)
            .collect_view()
    };
    view! { <ol class="stages" aria-label="Stages">{steps}</ol> }
}

/// Milliseconds of each stage since the one before; none for the first and for what is open.
fn times(stages: &[Stage]) -> Vec<Option<i64>> {
    let mut before: Option<i64> = None;
    let took = |stage: &Stage| {
        let at = stage.at?.unix_ms();
        let since = before.map(|before| (at - before).max(0));
        before = Some(at);
        since
    };
    stages.iter().map(took).collect()
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;

    use super::*;

    #[test]
    fn times_are_between_stages_that_were_reached() {
        let stage = |ms: Option<i64>| Stage {
            name: String::new(),
            at: ms.and_then(WireTime::from_unix_ms),
        };
        let stages = [
            stage(Some(1_000)),
            stage(Some(1_250)),
            stage(None),
            stage(Some(1_300)),
        ];
        assert_eq!(times(&stages), [None, Some(250), None, Some(50)]);
    }
}
