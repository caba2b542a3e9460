//! A sandbox that tests this installation: it is created, its stages are measured, and it is deleted.

use leptos::{ev, prelude::*, task::spawn_local};
use osb_protocol::{SandboxId, lifecycle::SandboxState};

use super::{activity::time, api};
use crate::{
    browser,
    live::Live,
    sandbox::{self, StageBar},
    ui::Icon,
    view::{SandboxDetail, StageState, TestSandbox, offers_changes},
};

/// The card. Without script the form leads to the page of the new sandbox.
#[component]
pub(super) fn TrialCard() -> impl IntoView {
    let run = RwSignal::new(None::<TestSandbox>);
    let problem = RwSignal::new(None::<String>);
    let busy = RwSignal::new(false);
    let may_create = offers_changes();
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        if busy.get_untracked() {
            return;
        }
        busy.set(true);
        problem.set(None);
        run.set(None);
        spawn_local(async move {
            match api::start_trial().await {
                Ok(test) => run.set(Some(test)),
                Err(error) => {
                    problem.set(Some(error.to_string()));
                    busy.set(false);
                }
            }
        });
    };
    view! {
        <section class="card trial" aria-labelledby="trial-title">
            <h2 id="trial-title">"Test sandbox"</h2>
            <p class="help">
                "Creates a small sandbox, measures each stage of it, and deletes it."
            </p>
            <form method="post" action="/console/test" on:submit=submit>
                <button
                    type="submit"
                    class="button"
                    disabled=!may_create
                    aria-describedby=(!may_create).then_some("may-not-test")
                    aria-disabled=move || busy.get().then_some("true")
                >
                    <Icon name="play" />
                    "Run a test sandbox"
                </button>
                {(!may_create)
                    .then(|| {
                        view! {
                            <p id="may-not-test" class="fine">
                                "Your role is read_only: this needs the role operator."
                            </p>
                        }
                    })}
            </form>
            <p class="problem" role="alert">{move || problem.get()}</p>
            {move || run.get().map(|test| view! { <Progress test busy /> })}
        </section>
    }
    .into_any()
}

/// How far a test is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The sandbox is being created.
    Creating,
    /// It is being deleted, since then in Unix milliseconds.
    Deleting(i64),
    /// It is gone. Milliseconds that its deletion took.
    Over(i64),
    /// It failed, or cannot be deleted.
    Failed,
}

#[component]
fn Progress(test: TestSandbox, busy: RwSignal<bool>) -> impl IntoView {
    let phase = RwSignal::new(Phase::Creating);
    let detail = RwSignal::new(None::<RwSignal<SandboxDetail>>);
    let problem = RwSignal::new(None::<String>);
    let id = test.id.clone();
    let live = use_context::<Live>();
    Effect::new(move |_| {
        let Some(live) = live else {
            return;
        };
        let id = id.clone();
        live.watch_sandbox(id.clone(), move |seen| {
            follow(&id, seen, detail, phase, problem);
            let is_over = matches!(phase.get_untracked(), Phase::Over(_) | Phase::Failed);
            busy.set(!is_over);
        });
    });
    let page = format!("/console/sandboxes/{}", test.id);
    let title = test.id.short().to_owned();
    let summary = move || {
        let total = detail.get().and_then(|detail| total(&detail.read()));
        let total = total.map(|ms| format!("Ready after {}.", time(ms)));
        let end = match phase.get() {
            Phase::Creating => "Creating it.".to_owned(),
            Phase::Deleting(_) => "Deleting it.".to_owned(),
            Phase::Over(ms) => format!("Deleted after {}.", time(ms)),
            Phase::Failed => "It failed.".to_owned(),
        };
        [total.unwrap_or_default(), end].join(" ")
    };
    let why = move || {
        let reason = detail
            .get()
            .and_then(|detail| detail.read().sandbox.status.message.clone());
        let failed = phase.get() == Phase::Failed;
        problem.get().or_else(|| reason.filter(|_| failed))
    };
    view! {
        <div class="trial-run">
            <p>
                <a class="mono" href=page>
                    {title}
                </a>
                " from "
                <span class="mono">{test.image}</span>
            </p>
            {move || detail.get().map(|current| view! { <StageBar current /> })}
            <p class="num" role="status">{summary}</p>
            <p class="problem">{why}</p>
        </div>
    }
    .into_any()
}

/// Notes what a message about the sandbox shows, and deletes it once it is ready.
fn follow(
    id: &SandboxId,
    seen: Option<SandboxDetail>,
    detail: RwSignal<Option<RwSignal<SandboxDetail>>>,
    phase: RwSignal<Phase>,
    problem: RwSignal<Option<String>>,
) {
    let is_gone = seen.as_ref().is_none_or(|seen| seen.ended.is_some());
    let state = seen.as_ref().map(|seen| seen.sandbox.status.state.clone());
    let is_ready = seen.as_ref().is_some_and(|seen| total(seen).is_some());
    // The stages of its end are not those of its create.
    if let (Phase::Creating, Some(seen)) = (phase.get_untracked(), seen) {
        match detail.get_untracked() {
            Some(known) => known.set(seen),
            None => detail.set(Some(RwSignal::new(seen))),
        }
    }
    match phase.get_untracked() {
        Phase::Creating if is_gone || state == Some(SandboxState::Failed) => {
            phase.set(Phase::Failed);
        }
        Phase::Creating if is_ready => {
            phase.set(Phase::Deleting(browser::now_ms()));
            let id = id.clone();
            spawn_local(async move {
                if let Err(error) = sandbox::delete(id).await {
                    problem.set(Some(error.to_string()));
                    phase.set(Phase::Failed);
                }
            });
        }
        Phase::Deleting(since) if is_gone => {
            phase.set(Phase::Over((browser::now_ms() - since).max(0)));
        }
        _ => {}
    }
}

/// Milliseconds from the first stage to the last, if all were reached.
fn total(detail: &SandboxDetail) -> Option<i64> {
    let stages = &detail.stages;
    if stages.iter().any(|stage| stage.state != StageState::Done) {
        return None;
    }
    let (first, last) = (stages.first()?.at?, stages.last()?.at?);
    Some((last.unix_ms() - first.unix_ms()).max(0))
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;

    use super::*;
    use crate::view::Stage;

    #[test]
    fn a_create_is_timed_once_all_stages_are_reached() {
        let row = crate::ui::sample::row("0b6c1f2e-aaaa", "Running");
        let stage = |name: &str, state, ms| Stage {
            name: name.to_owned(),
            state,
            at: WireTime::from_unix_ms(ms),
        };
        let mut detail = SandboxDetail {
            sandbox: row.sandbox,
            stages: vec![
                stage("accepted", StageState::Done, 1_000),
                stage("ready", StageState::Done, 1_700),
            ],
            resources: Default::default(),
            template: None,
            log_tail: Vec::new(),
            ended: None,
        };
        assert_eq!(total(&detail), Some(700));
        detail.stages[1].state = StageState::Current;
        assert_eq!(total(&detail), None);
        detail.stages.clear();
        assert_eq!(total(&detail), None);
    }
}
