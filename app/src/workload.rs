//! What the sandboxes of a pool or a template run: its fields, and how they are read.

use leptos::prelude::*;
#[cfg(feature = "ssr")]
use {
    crate::create::words,
    osb_protocol::FieldError,
    serde_json::{Map, Value, json},
    std::collections::BTreeMap,
};

use crate::form::{Field, Progress, TextField, raw_text};

/// Fields for the entry point, the limits and the variables.
#[component]
pub(crate) fn WorkloadFields(
    /// Begins the ids.
    id: &'static str,
    progress: Progress,
    /// What they begin with: entry point, CPU, memory, variables.
    first: [String; 4],
    /// What helps with the entry point.
    entrypoint_help: &'static str,
    /// What helps with the limits.
    limit_helps: [&'static str; 2],
    /// What helps with the variables.
    env_help: &'static str,
) -> impl IntoView {
    let [entrypoint, cpu, memory, env] = first;
    let [cpu_help, memory_help] = limit_helps;
    view! {
        <TextField
            id=format!("{id}-entrypoint")
            label="Entry point"
            name="entrypoint"
            progress
            value=entrypoint
            help=entrypoint_help
        />
        <TextField
            id=format!("{id}-cpu")
            label="CPU"
            name="cpu"
            progress
            value=cpu
            help=cpu_help
        />
        <TextField
            id=format!("{id}-memory")
            label="Memory"
            name="memory"
            progress
            value=memory
            help=memory_help
        />
        <AreaField
            id=format!("{id}-env")
            label="Environment"
            name="env"
            progress
            first=env
            rows=3
            help=env_help
        />
    }
    .into_any()
}

/// A field of several lines.
#[component]
pub(crate) fn AreaField(
    id: String,
    label: &'static str,
    name: &'static str,
    progress: Progress,
    /// The text that it begins with.
    first: String,
    rows: u32,
    help: &'static str,
) -> impl IntoView {
    let is_wrong = move || progress.problem(name).is_some().then_some("true");
    let described = format!("{id}-help {id}-problem");
    view! {
        <Field id=id.clone() label name progress help>
            <textarea
                id=id
                name=name
                rows=rows
                spellcheck="false"
                autocapitalize="off"
                aria-describedby=described
                aria-invalid=is_wrong
            >
                {raw_text(&first)}
            </textarea>
        </Field>
    }
    .into_any()
}

/// The fields as typed.
#[cfg(feature = "ssr")]
pub(crate) struct Workload<'a> {
    /// Command line; empty for one that does nothing.
    pub(crate) entrypoint: &'a str,
    pub(crate) cpu: &'a str,
    pub(crate) memory: &'a str,
    /// `NAME=value` lines.
    pub(crate) env: &'a str,
}

/// What could be read of them.
#[cfg(feature = "ssr")]
#[derive(Debug, Default)]
pub(crate) struct ReadWorkload {
    pub(crate) entrypoint: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    /// Limits that are not empty.
    pub(crate) limits: Map<String, Value>,
    /// The fields that could not be read.
    pub(crate) problems: Vec<FieldError>,
}

#[cfg(feature = "ssr")]
impl Workload<'_> {
    pub(crate) fn read(&self) -> ReadWorkload {
        let mut read = ReadWorkload::default();
        let mut unreadable = |field: &str, why: String| {
            read.problems
                .push(FieldError::body("unreadable", [field], why));
        };
        match words::split(&self.entrypoint.replace("\r\n", "\n")) {
            Ok(words) => read.entrypoint = words,
            Err(why) => unreadable("entrypoint", format!("The command {why}.")),
        }
        match words::pairs(self.env) {
            Ok(pairs) => read.env = pairs,
            Err(line) => unreadable("env", format!("Line {line} is not NAME=value.")),
        }
        let limits = [("cpu", self.cpu), ("memory", self.memory)];
        let limits = limits.map(|(name, text)| (name.to_owned(), text.trim()));
        let limits = limits.into_iter().filter(|(_, text)| !text.is_empty());
        read.limits = limits.map(|(name, text)| (name, json!(text))).collect();
        read
    }
}

/// The rule of a limit in the words of its field. The rule of the API is what was expected.
#[cfg(feature = "ssr")]
pub(crate) fn limit_text(rule: &str) -> String {
    match rule.strip_prefix("expected ") {
        Some(expected) => format!("must be {expected}"),
        None => rule.to_owned(),
    }
}

#[cfg(all(test, feature = "ssr"))]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_what_cannot_be_is_named() {
        let read = Workload {
            entrypoint: "sh -c 'sleep 9'",
            cpu: " 1 ",
            memory: " ",
            env: "A=1\nB=x=y",
        };
        let read = read.read();
        assert_eq!(read.entrypoint, ["sh", "-c", "sleep 9"]);
        assert_eq!(read.env["B"], "x=y");
        assert_eq!(Value::Object(read.limits), json!({ "cpu": "1" }));
        assert_eq!(read.problems, []);
        let wrong = Workload {
            entrypoint: "'",
            cpu: "",
            memory: "",
            env: "A",
        };
        let fields: Vec<_> = wrong
            .read()
            .problems
            .iter()
            .map(FieldError::field)
            .collect();
        assert_eq!(fields, ["entrypoint", "env"]);
        assert_eq!(limit_text("expected 500m"), "must be 500m");
        assert_eq!(limit_text("is long"), "is long");
    }
}
