//! The form of a command.

use std::collections::BTreeMap;

use leptos::{ev, prelude::*};

use super::{
    runner::Runner,
    wire::{RunOrder, SECONDS_MAX},
};
use crate::ui::Icon;

/// The fields as they were typed.
#[derive(Clone, Copy)]
pub(super) struct Fields {
    pub(super) command: RwSignal<String>,
    pub(super) cwd: RwSignal<String>,
    pub(super) uid: RwSignal<String>,
    pub(super) seconds: RwSignal<String>,
    envs: RwSignal<String>,
    background: RwSignal<bool>,
    problem: RwSignal<Option<Problem>>,
    /// Whether the options are shown.
    pub(super) is_open: RwSignal<bool>,
}

/// A field that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Problem {
    /// Id of the field.
    field: &'static str,
    why: &'static str,
}

const COMMAND: &str = "run-command";
const UID: &str = "run-uid";
const SECONDS: &str = "run-seconds";
const ENVS: &str = "run-envs";

impl Fields {
    pub(super) fn new() -> Self {
        Self {
            command: RwSignal::default(),
            cwd: RwSignal::default(),
            uid: RwSignal::default(),
            seconds: RwSignal::default(),
            envs: RwSignal::default(),
            background: RwSignal::default(),
            problem: RwSignal::default(),
            is_open: RwSignal::default(),
        }
    }

    /// Fills the fields in with the order of a reported command, and returns the order. The environment
    /// is not reported: that of the form stays for the same command.
    pub(super) fn fill(self, mut order: RunOrder) -> RunOrder {
        let number = |number: Option<u32>| number.map(|it| it.to_string()).unwrap_or_default();
        let is_same = self.command.with_untracked(|known| *known == order.command);
        match self.envs.with_untracked(|envs| variables(envs)) {
            Some(envs) if is_same => order.envs = envs,
            _ => self.envs.set(String::new()),
        }
        self.is_open.set(
            order.cwd.is_some()
                || order.uid.is_some()
                || order.seconds.is_some()
                || !order.envs.is_empty(),
        );
        self.command.set(order.command.clone());
        self.cwd.set(order.cwd.clone().unwrap_or_default());
        self.uid.set(number(order.uid));
        self.seconds.set(number(order.seconds));
        self.background.set(order.background);
        self.problem.set(None);
        order
    }

    /// The order, or `None` with a problem shown.
    fn order(self) -> Option<RunOrder> {
        let order = read(
            &self.command.get_untracked(),
            &self.cwd.get_untracked(),
            &self.uid.get_untracked(),
            &self.seconds.get_untracked(),
        );
        let order = order.and_then(|order| {
            let (field, why) = (ENVS, ENVS_WHY);
            let envs = self.envs.with_untracked(|envs| variables(envs));
            Ok(RunOrder {
                envs: envs.ok_or(Problem { field, why })?,
                background: self.background.get_untracked(),
                ..order
            })
        });
        self.problem.set(order.as_ref().err().copied());
        if let Err(problem) = &order {
            if problem.field != COMMAND {
                self.is_open.set(true);
            }
            crate::browser::focus_when_shown(problem.field);
        }
        order.ok()
    }

    fn is_wrong(self, field: &'static str) -> Option<&'static str> {
        let is_wrong = self.problem.get().is_some_and(|it| it.field == field);
        is_wrong.then_some("true")
    }
}

const ENVS_WHY: &str =
    "Environment: one NAME=value a line; a name has letters, digits and _, and no digit first.";

/// The variables of a text with one NAME=value a line; `None` if one cannot be read. Of the same name,
/// the last one counts.
fn variables(text: &str) -> Option<BTreeMap<String, String>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let variable = |line: &str| {
        let (name, value) = line.split_once('=')?;
        let name = name.trim();
        is_variable(name).then(|| (name.to_owned(), value.to_owned()))
    };
    lines.map(variable).collect()
}

/// Whether shells take this as the name of a variable.
fn is_variable(name: &str) -> bool {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
    name.bytes().all(is_plain) && name.starts_with(|it: char| !it.is_ascii_digit())
}

fn read(command: &str, cwd: &str, uid: &str, seconds: &str) -> Result<RunOrder, Problem> {
    if command.trim().is_empty() {
        let (field, why) = (COMMAND, "Enter a command.");
        return Err(Problem { field, why });
    }
    let number = |text: &str, most: u32, field, why| match text.trim() {
        "" => Ok(None),
        text => match text.parse() {
            Ok(number) if number <= most => Ok(Some(number)),
            _ => Err(Problem { field, why }),
        },
    };
    let why = "User: a number from 0 to 4294967294, such as 1000.";
    let uid = number(uid, u32::MAX - 1, UID, why)?;
    let why = "Limit: whole seconds from 1 to 86400, or nothing.";
    let seconds = number(seconds, SECONDS_MAX, SECONDS, why)?;
    if seconds == Some(0) {
        let field = SECONDS;
        return Err(Problem { field, why });
    }
    Ok(RunOrder {
        command: command.to_owned(),
        cwd: Some(cwd.trim().to_owned()).filter(|cwd| !cwd.is_empty()),
        uid,
        seconds,
        ..RunOrder::default()
    })
}

/// The fields, a button that runs the command and one that stops it.
#[component]
pub(super) fn RunForm(
    /// Its fields.
    fields: Fields,
    /// What runs.
    runner: Runner,
    /// Why nothing can be run now.
    #[prop(into)]
    hindrance: Signal<Option<String>>,
) -> impl IntoView {
    let go = move || {
        if hindrance.with_untracked(Option::is_none)
            && let Some(order) = fields.order()
        {
            runner.run(order);
        }
    };
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        go();
    };
    let key = move |event: ev::KeyboardEvent| {
        // An input method uses Enter for itself.
        if event.key() == "Enter" && !event.shift_key() && !event.is_composing() {
            event.prevent_default();
            go();
        }
    };
    // A command that was stopped takes its button away.
    let was_stopped = StoredValue::new(false);
    Effect::new(move |_| {
        if !runner.can_stop() && was_stopped.get_value() {
            was_stopped.set_value(false);
            crate::browser::focus_if_lost(COMMAND);
        }
    });
    let stop = move |_| {
        was_stopped.set_value(true);
        runner.stop();
    };
    let input =
        |signal: RwSignal<String>| move |event: ev::Event| signal.set(event_target_value(&event));
    let problem = move || fields.problem.get().map(|problem| problem.why);
    view! {
        <form class="run-form needs-script" on:submit=submit>
            <label for=COMMAND class="visually-hidden">"Command"</label>
            <div class="run-line">
                <span class="run-prompt" aria-hidden="true">"$"</span>
                <textarea
                    id=COMMAND
                    class="mono"
                    rows="2"
                    spellcheck="false"
                    autocapitalize="off"
                    autocomplete="off"
                    placeholder="Command for the shell, such as: ls -l"
                    aria-describedby="run-help run-problem"
                    aria-invalid=move || fields.is_wrong(COMMAND)
                    prop:value=move || fields.command.get()
                    on:input=input(fields.command)
                    on:keydown=key
                ></textarea>
            </div>
            <details class="run-options" prop:open=move || fields.is_open.get()>
                <summary>"Directory, user, limit, environment"</summary>
                <div class="run-fields">
                    <label>
                        "Directory"
                        <input
                            type="text"
                            class="mono"
                            placeholder="default"
                            spellcheck="false"
                            autocomplete="off"
                            prop:value=move || fields.cwd.get()
                            on:input=input(fields.cwd)
                        />
                    </label>
                    <label>
                        "User (number)"
                        <input
                            type="text"
                            id=UID
                            inputmode="numeric"
                            placeholder="default"
                            autocomplete="off"
                            aria-describedby="run-problem"
                            aria-invalid=move || fields.is_wrong(UID)
                            prop:value=move || fields.uid.get()
                            on:input=input(fields.uid)
                        />
                    </label>
                    <label>
                        "Limit (seconds)"
                        <input
                            type="text"
                            id=SECONDS
                            inputmode="numeric"
                            placeholder="none"
                            autocomplete="off"
                            aria-describedby="run-problem"
                            aria-invalid=move || fields.is_wrong(SECONDS)
                            prop:value=move || fields.seconds.get()
                            on:input=input(fields.seconds)
                        />
                    </label>
                    <label class="run-envs">
                        "Environment"
                        <textarea
                            id=ENVS
                            class="mono"
                            rows="2"
                            spellcheck="false"
                            autocapitalize="off"
                            autocomplete="off"
                            placeholder="One per line: NAME=value"
                            aria-describedby="run-problem"
                            aria-invalid=move || fields.is_wrong(ENVS)
                            prop:value=move || fields.envs.get()
                            on:input=input(fields.envs)
                        ></textarea>
                    </label>
                </div>
            </details>
            <p id="run-problem" class="problem" role="alert">{problem}</p>
            <div class="choices">
                <button
                    type="submit"
                    class="button primary"
                    disabled=move || hindrance.get().is_some()
                    title=move || hindrance.get()
                >
                    <Icon name="play" />
                    "Run"
                </button>
                <label
                    class="check"
                    title="The sandbox keeps all of its output for a day; the list below shows it again"
                >
                    <input
                        type="checkbox"
                        prop:checked=move || fields.background.get()
                        on:change=move |event| fields.background.set(event_target_checked(&event))
                    />
                    "In the background"
                </label>
                <Show when=move || runner.can_stop()>
                    <button
                        type="button"
                        class="button"
                        on:click=stop
                        title="Asks the command to end; after three seconds it is killed"
                    >
                        <Icon name="circle-stop" />
                        "Stop"
                    </button>
                </Show>
                <span id="run-help" class="help">
                    {move || {
                        hindrance
                            .get()
                            .unwrap_or_else(|| "Enter runs it, Shift+Enter begins a new line.".to_owned())
                    }}
                </span>
            </div>
        </form>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_field_is_named() {
        let field = |command, uid, seconds| read(command, "", uid, seconds).unwrap_err().field;
        assert_eq!(field(" \n", "", ""), COMMAND);
        for uid in ["-1", "root", "4294967295", "1.5"] {
            assert_eq!(field("true", uid, ""), UID, "{uid}");
        }
        for seconds in ["0", "86401", "1m", "-5"] {
            assert_eq!(field("true", "", seconds), SECONDS, "{seconds}");
        }
    }

    #[test]
    fn an_environment_is_read_line_by_line() {
        let read = variables("A=1\n\n B =x=y \r\nC=\nA=2\n").unwrap();
        let read: Vec<_> = read.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(read, [("A", "2"), ("B", "x=y "), ("C", "")]);
        assert!(variables(" \n").unwrap().is_empty());
        for wrong in ["A", "=1", "1A=2", "A B=1", "export A=1", "ä=1"] {
            assert_eq!(variables(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_empty_is_left_to_the_daemon() {
        let order = read("echo  a ", " ", "", " ").unwrap();
        let expected = RunOrder {
            command: "echo  a ".to_owned(),
            ..RunOrder::default()
        };
        assert_eq!(order, expected);
        let order = read("true", " /srv ", " 0 ", "86400").unwrap();
        assert_eq!(order.cwd.as_deref(), Some("/srv"));
        assert_eq!((order.uid, order.seconds), (Some(0), Some(86_400)));
    }
}
