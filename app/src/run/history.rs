//! What ran in the sandbox.

use leptos::{prelude::*, task::spawn_local};
use osb_protocol::{SandboxId, WireTime, lifecycle::SandboxCommand};

use super::{api, form::Fields, output::OUTPUT, runner::Runner, wire::RunOrder};
use crate::{
    frame::Toasts,
    quote::shell_line,
    ui::{Clock, Icon, duration},
    view::offers_trail,
};

/// What stands for a secret in a reported command.
const MASK: &str = "***";
/// The end of a reported command that was cut.
const CUT: char = '…';

/// Kinds of commands whose output execd keeps for a while.
const FOREGROUND: &str = "foreground";
const BACKGROUND: &str = "background";

/// The order that runs a reported command again, and whether it is complete: the sandbox leaves secrets
/// out, and the end of long texts. Its environment is not reported.
fn again(command: &SandboxCommand) -> (RunOrder, bool) {
    // A run without a shell is reported as the JSON text of its words.
    let words = serde_json::from_str::<Vec<String>>(&command.command);
    let text = match words {
        Ok(words) => shell_line(&words),
        Err(_) => command.command.clone(),
    };
    let is_complete = !text.contains(MASK) && !text.ends_with(CUT);
    let order = RunOrder {
        command: text,
        cwd: command.cwd.clone(),
        uid: command.uid.and_then(|uid| u32::try_from(uid).ok()),
        background: command.kind == BACKGROUND,
        ..RunOrder::default()
    };
    (order, is_complete)
}

/// How a command stands: tone, icon and words.
fn result(command: &SandboxCommand) -> (&'static str, &'static str, String) {
    match (command.finished_at, command.exit_code) {
        (None, _) => ("busy", "loader", "Running".to_owned()),
        (Some(_), Some(0)) => ("good", "circle-check", "Exit 0".to_owned()),
        (Some(_), Some(-1)) => ("bad", "circle-x", "Killed".to_owned()),
        (Some(_), Some(code)) => ("bad", "circle-x", format!("Exit {code}")),
        (Some(_), None) => ("quiet", "circle-help", "Ended".to_owned()),
    }
}

/// How long a command ran.
pub(super) fn took(millis: i64) -> String {
    match millis {
        ..1_000 => format!("{} ms", millis.max(0)),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => duration(millis / 1_000),
    }
}

/// `09:31:02` at this many minutes east of UTC.
fn clock_time(at: WireTime, offset_minutes: i64) -> String {
    let seconds = (at.unix_ms() + offset_minutes * 60_000).div_euclid(1_000);
    let of_day = seconds.rem_euclid(86_400);
    format!(
        "{:02}:{:02}:{:02}",
        of_day / 3_600,
        of_day / 60 % 60,
        of_day % 60
    )
}

/// The list of commands, newest first.
#[component]
pub(super) fn History(
    /// The sandbox.
    id: SandboxId,
    /// What it reports.
    commands: RwSignal<Vec<SandboxCommand>>,
    /// The form that a command is brought into.
    fields: Fields,
    /// What runs a command again.
    runner: Runner,
    /// Why nothing can be run now.
    #[prop(into)]
    hindrance: Signal<Option<String>>,
) -> impl IntoView {
    let offset_minutes = RwSignal::new(0);
    Effect::new(move |_| offset_minutes.set(crate::browser::minutes_east_of_utc()));
    let trail = offers_trail().then(|| {
        let events = format!("/console/events?sandbox={id}&action=command.run");
        view! {
            " Who ran commands in this console is in the "
            <a href=events>"events"</a>
            "."
        }
    });
    let row = move |command: SandboxCommand| {
        view! { <Row id=id.clone() command fields runner hindrance offset_minutes /> }
    };
    let key = |command: &SandboxCommand| {
        let is_over = command.finished_at.is_some();
        (
            command.started_at.unix_us(),
            command.command.clone(),
            is_over,
        )
    };
    view! {
        <section class="commands" aria-labelledby="commands-title">
            <h2 id="commands-title">"What ran here"</h2>
            <p class="fine">
                "As the sandbox reports it, newest first: without environment, and with secrets masked. It keeps the output of a command for a day at most. Terminals are not listed."
                {trail}
            </p>
            <Show
                when=move || !commands.read().is_empty()
                fallback=|| {
                    view! {
                        <p class="help">
                            "Nothing yet. What agents and you run in this sandbox is listed here, and stays for a while after its end."
                        </p>
                    }
                }
            >
                <ol class="command-list">
                    <For each=move || commands.get() key=key children=row.clone() />
                </ol>
            </Show>
        </section>
    }
    .into_any()
}

#[component]
fn Row(
    id: SandboxId,
    command: SandboxCommand,
    fields: Fields,
    runner: Runner,
    hindrance: Signal<Option<String>>,
    offset_minutes: RwSignal<i64>,
) -> impl IntoView {
    let (tone, icon, word) = result(&command);
    let Clock(now) = Clock::current();
    let began = command.started_at;
    let ended = command.finished_at;
    let time = move || {
        let end = ended.map_or_else(|| now.get(), WireTime::unix_ms);
        took(end - began.unix_ms())
    };
    let (order, is_complete) = again(&command);
    let has_output = [FOREGROUND, BACKGROUND].contains(&&*command.kind);
    let facts = [
        command.cwd.map(|cwd| format!("in {cwd}")),
        command.uid.map(|uid| format!("as user {uid}")),
        (command.kind != FOREGROUND).then_some(command.kind),
        // The badge has the exit status.
        command.error.filter(|why| !why.starts_with("exit status")),
    ];
    let facts: String = facts
        .into_iter()
        .flatten()
        .map(|fact| format!(" · {fact}"))
        .collect();
    let text = order.command.clone();
    let shown = text.clone();
    let repeat = move |_| {
        let order = fields.fill(order.clone());
        if is_complete && hindrance.with_untracked(Option::is_none) {
            runner.run(order);
        }
        crate::browser::focus("run-command");
    };
    let label = match is_complete {
        true => format!("Run again: {text}"),
        false => format!("Complete and run again: {text}"),
    };
    let why = move |otherwise: &str| hindrance.get().unwrap_or_else(|| otherwise.to_owned());
    let is_running = ended.is_none();
    let output_label = format!("Show the output: {text}");
    let output = has_output.then(|| {
        let (label, command) = (output_label.clone(), text.clone());
        let show = move |_| {
            runner.follow(command.clone(), began);
            crate::browser::focus_when_shown(OUTPUT);
        };
        view! {
            <button
                type="button"
                class="icon-button"
                disabled=move || hindrance.get().is_some()
                aria-label=output_label
                title=move || why(&label)
                on:click=show
            >
                <Icon name="scroll-text" />
            </button>
        }
    });
    let stop = is_running.then(|| view! { <StopButton id began text hindrance /> });
    view! {
        <li>
            <span class="badge" data-tone=tone>
                <Icon name=icon />
                <span>{word}</span>
            </span>
            <div class="command-text">
                <code title=shown.clone()>{shown.clone()}</code>
                <p class="fine">
                    <time class="num" datetime=began.to_string() title=began.to_string()>
                        {move || clock_time(began, offset_minutes.get())}
                    </time>
                    " · "
                    <span class="num">{time}</span>
                    {facts}
                </p>
            </div>
            <span class="command-acts needs-script">
                {stop}
                {output}
                <button
                    type="button"
                    class="icon-button"
                    disabled=move || hindrance.get().is_some()
                    aria-label=label.clone()
                    title=move || why(&label)
                    on:click=repeat
                >
                    <Icon name="refresh-cw" />
                </button>
            </span>
        </li>
    }
    .into_any()
}

/// Interrupts a command of the list.
#[component]
fn StopButton(
    id: SandboxId,
    began: WireTime,
    text: String,
    hindrance: Signal<Option<String>>,
) -> impl IntoView {
    let toasts = Toasts::current();
    let busy = RwSignal::new(false);
    let label = format!("Stop: {text}");
    let stop = move |_| {
        let id = id.clone();
        busy.set(true);
        spawn_local(async move {
            match api::interrupt(id, began).await {
                Ok(()) => {
                    toasts.good("The command was interrupted".to_owned());
                    // The button goes away with the end of the command.
                    crate::browser::focus_if_lost("run-command");
                }
                Err(error) => toasts.bad(error.to_string()),
            }
            // The row may be gone by now.
            let _ = busy.try_set(false);
        });
    };
    view! {
        <button
            type="button"
            class="icon-button"
            disabled=move || busy.get() || hindrance.get().is_some()
            aria-label=label.clone()
            title=move || hindrance.get().unwrap_or_else(|| label.clone())
            on:click=stop
        >
            <Icon name="circle-stop" />
        </button>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> SandboxCommand {
        SandboxCommand {
            kind: "foreground".to_owned(),
            command: text.to_owned(),
            cwd: Some("/srv".to_owned()),
            uid: Some(7),
            started_at: WireTime::from_unix_us(1_700_000_000_000_000).unwrap(),
            finished_at: None,
            exit_code: None,
            error: None,
        }
    }

    #[test]
    fn a_command_is_run_again_as_it_was() {
        let (order, is_complete) = again(&command("ls -l | wc"));
        assert_eq!((&*order.command, is_complete), ("ls -l | wc", true));
        assert_eq!((order.cwd.as_deref(), order.uid), (Some("/srv"), Some(7)));
        let (order, _) = again(&command(r#"["sh","-c","echo a b"]"#));
        assert_eq!(order.command, "sh -c 'echo a b'");
    }

    #[test]
    fn what_the_sandbox_left_out_is_not_run_without_it() {
        for text in ["login --password ***", "echo aaaa…"] {
            assert!(!again(&command(text)).1, "{text}");
        }
    }

    #[test]
    fn results_have_words() {
        let result = |finished, code| {
            let mut command = command("x");
            command.finished_at = finished;
            command.exit_code = code;
            result(&command).2
        };
        let end = WireTime::from_unix_us(1_700_000_001_000_000);
        assert_eq!(result(None, None), "Running");
        assert_eq!(result(end, Some(0)), "Exit 0");
        assert_eq!(result(end, Some(3)), "Exit 3");
        assert_eq!(result(end, Some(-1)), "Killed");
    }

    #[test]
    fn times_are_short() {
        assert_eq!(took(104), "104 ms");
        assert_eq!(took(-3), "0 ms");
        assert_eq!(took(1_250), "1.2 s");
        assert_eq!(took(61_000), "1 min 1 s");
        let at = WireTime::from_unix_us(1_700_000_000_000_000).unwrap();
        assert_eq!(clock_time(at, 120), "00:13:20");
    }
}
