//! The view of the run tab.

use leptos::prelude::*;
use osb_protocol::{
    SandboxId,
    lifecycle::{SandboxCommand, SandboxState},
};

use super::{
    api,
    buffer::Output,
    form::{Fields, RunForm},
    history::{History, took},
    output::OutputView,
    runner::{Phase, Runner},
    wire::Ended,
};
use crate::{
    live::Live,
    tab::Current,
    ui::{Clock, CopyButton, Icon, LoadError, SignInLink},
    view::offers_changes,
};

/// A command with its output, and what ran before.
#[component]
pub fn RunTab() -> impl IntoView {
    let Some(Current(current)) = use_context() else {
        return ().into_any();
    };
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    let runner = Runner::new();
    #[cfg(feature = "hydrate")]
    super::connection::mount(id.clone(), runner);
    let may_run = offers_changes();
    let hindrance = Memo::new(move |_| match &current.read().sandbox.status.state {
        _ if !may_run => Some("Your role may look at sandboxes, and not run commands.".to_owned()),
        SandboxState::Running => None,
        state => Some(format!(
            "Commands run only in a running sandbox; it is {state}."
        )),
    });
    let fields = Fields::new();
    let asked = id.clone();
    let first = Resource::new_blocking(|| (), move |()| api::commands(asked.clone()));
    view! {
        <div class="run">
            <noscript>
                <p class="banner" data-tone="quiet">
                    "Running a command here needs JavaScript. Without it, use the API: "
                    <code>"POST /command"</code>
                </p>
            </noscript>
            <RunForm fields runner hindrance />
            <RunResult runner />
            <Transition fallback=|| view! { <div class="skeleton" aria-busy="true"><div class="skeleton-row"></div></div> }>
                {move || {
                    let id = id.clone();
                    Suspend::new(async move {
                        match first.await {
                            Ok(Ok(list)) => {
                                let commands = followed(id.clone(), list);
                                view! { <History id commands fields runner hindrance /> }.into_any()
                            }
                            Ok(Err(why)) => view! { <p class="help">{why}</p> }.into_any(),
                            Err(error) => {
                                view! { <LoadError error again=move |()| first.refetch() /> }.into_any()
                            }
                        }
                    })
                }}
            </Transition>
        </div>
    }
    .into_any()
}

/// The commands of a sandbox, kept up to date.
fn followed(id: SandboxId, list: Vec<SandboxCommand>) -> RwSignal<Vec<SandboxCommand>> {
    let commands = RwSignal::new(list);
    let live = use_context::<Live>();
    Effect::new(move |_| {
        if let Some(live) = live {
            live.watch_commands(id.clone(), move |list| commands.set(list));
        }
    });
    commands
}

/// How the command of the tab stands, and what it wrote.
#[component]
fn RunResult(runner: Runner) -> impl IntoView {
    let Clock(now) = Clock::current();
    let line = move || -> AnyView {
        let (tone, icon, text) = match runner.phase.get() {
            Phase::Idle => return ().into_any(),
            Phase::Starting => ("busy", "loader", "Starting …".to_owned()),
            Phase::Running(since) => {
                let text = format!(
                    "Running for {}",
                    took((now.get() - since).max(0) / 1_000 * 1_000)
                );
                ("busy", "loader", text)
            }
            Phase::Ended(ended) => ended_line(&ended),
            Phase::Refused(why) => ("bad", "circle-x", why),
            Phase::Lost => {
                let text = "The connection broke. The command goes on; how it ends is shown below.";
                ("bad", "wifi-off", text.to_owned())
            }
            Phase::SignedOut => ("bad", "log-out", "You are signed out.".to_owned()),
        };
        view! {
            <span class="badge" data-tone=tone>
                <Icon name=icon />
                <span>{text}</span>
            </span>
        }
        .into_any()
    };
    let text = Signal::derive(move || {
        runner.revision.track();
        runner.output.with_value(Output::text)
    });
    let command = move || {
        let wanted = runner.wanted.read();
        wanted.as_ref().map(|wanted| wanted.command().to_owned())
    };
    view! {
        <Show when=move || *runner.phase.read() != Phase::Idle>
            <section class="run-result" aria-label="Result">
                <div class="run-head">
                    <code>{command}</code>
                    <CopyButton text what="the output" />
                </div>
                <OutputView runner />
                <p class="run-status" role="status">
                    {line}
                    {move || (*runner.phase.read() == Phase::SignedOut).then(|| view! { <SignInLink /> })}
                </p>
            </section>
        </Show>
    }
    .into_any()
}

fn ended_line(ended: &Ended) -> (&'static str, &'static str, String) {
    let took = took(ended.millis);
    match (ended.exit_code, &ended.error) {
        (Some(0), _) => ("good", "circle-check", format!("Exit 0 in {took}")),
        (Some(-1), error) => {
            let why = error.as_deref().unwrap_or("killed");
            (
                "bad",
                "circle-x",
                format!("Ended by a signal after {took}: {why}"),
            )
        }
        (Some(code), _) => ("bad", "circle-x", format!("Exit {code} in {took}")),
        (None, error) => {
            let why = error.as_deref().unwrap_or("no reason was given");
            ("bad", "circle-x", format!("It failed after {took}: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_put_in_words() {
        let line = |exit_code, error: Option<&str>| {
            let error = error.map(str::to_owned);
            let ended = Ended {
                exit_code,
                millis: 104,
                error,
            };
            ended_line(&ended).2
        };
        assert_eq!(line(Some(0), None), "Exit 0 in 104 ms");
        assert_eq!(line(Some(3), None), "Exit 3 in 104 ms");
        assert_eq!(
            line(Some(-1), Some("signal: killed")),
            "Ended by a signal after 104 ms: signal: killed"
        );
    }
}
