//! The create form as typed, and its create request.
//!
//! The form checks only what a request cannot express, such as a quote that is not closed. Every
//! other rule is the server's (contract: lifecycle §4.1, §4.4); its errors name a place in the
//! request, and [`Field::of`] finds the field that filled that place.

use std::collections::BTreeMap;

use osb_protocol::{FieldError, error::Loc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::words;

/// A small public image that has the default entry point.
pub(super) const PUBLIC_IMAGE: &str = "debian:bookworm-slim";
/// The image of this project. It exists only where `xtask up` built it, and needs no network there.
pub(super) const BASE_IMAGE: &str = "opensandbox/base:latest";

/// Problem of a form without an entry point.
const NO_COMMAND: &str =
    "Name the command that the sandbox lives as long as, such as tail -f /dev/null.";

/// Content of the form, as typed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateForm {
    /// Container image.
    pub image: String,
    /// Command line.
    pub entrypoint: String,
    /// `NAME=value` lines.
    pub env: String,
    /// Processor limit.
    pub cpu: String,
    /// Memory limit.
    pub memory: String,
    /// Whether the sandbox expires.
    pub lifetime: Lifetime,
    /// Time until it expires, when `lifetime` is [`Lifetime::Limited`].
    pub ttl: String,
    /// `key=value` lines.
    pub metadata: String,
}

/// Whether a sandbox expires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lifetime {
    /// It expires after a time.
    #[default]
    Limited,
    /// Never: the sandbox stays until it is deleted.
    Manual,
}

impl Default for CreateForm {
    fn default() -> Self {
        Self {
            image: String::new(),
            entrypoint: "tail -f /dev/null".to_owned(),
            env: String::new(),
            cpu: "1".to_owned(),
            memory: "512Mi".to_owned(),
            lifetime: Lifetime::Limited,
            ttl: "30m".to_owned(),
            metadata: String::new(),
        }
    }
}

/// A create request, and the fields that could not become part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Body of `POST /sandboxes`.
    pub body: Value,
    /// Fields that could not be read.
    pub problems: Vec<FieldError>,
}

/// A field of the form, in the order of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "named as in CreateForm")]
pub enum Field {
    /// No field: shown above the form.
    Form,
    Image,
    Entrypoint,
    Ttl,
    Cpu,
    Memory,
    Env,
    Metadata,
}

impl Field {
    /// The field for a place that an error names.
    #[must_use]
    pub fn of(problem: &FieldError) -> Self {
        let place = problem.field();
        let mut parts = place.split('.');
        match (parts.next().unwrap_or_default(), parts.next()) {
            ("image", _) => Self::Image,
            ("entrypoint", _) => Self::Entrypoint,
            ("env", _) => Self::Env,
            ("resourceLimits", Some("memory")) => Self::Memory,
            ("resourceLimits", _) => Self::Cpu,
            ("timeout", _) => Self::Ttl,
            ("metadata", _) => Self::Metadata,
            _ => Self::Form,
        }
    }
}

impl Field {
    /// All fields, in the order of the page.
    pub(super) const ALL: [Self; 8] = [
        Self::Form,
        Self::Image,
        Self::Entrypoint,
        Self::Ttl,
        Self::Cpu,
        Self::Memory,
        Self::Env,
        Self::Metadata,
    ];

    /// Its label in the page.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Form => "Request",
            Self::Image => "Image",
            Self::Entrypoint => "Entry point",
            Self::Ttl => "Time to live",
            Self::Cpu => "CPU",
            Self::Memory => "Memory",
            Self::Env => "Environment",
            Self::Metadata => "Labels",
        }
    }

    /// Id of its input in the page.
    pub(super) fn input_id(self) -> Option<&'static str> {
        match self {
            Self::Image => Some("image"),
            Self::Entrypoint => Some("entrypoint"),
            Self::Env => Some("env"),
            Self::Cpu => Some("cpu"),
            Self::Memory => Some("memory"),
            Self::Ttl => Some("ttl"),
            Self::Metadata => Some("metadata"),
            Self::Form => None,
        }
    }
}

impl CreateForm {
    /// Content of a text field.
    pub(super) fn text(&self, field: Field) -> &str {
        match field {
            Field::Image => &self.image,
            Field::Entrypoint => &self.entrypoint,
            Field::Env => &self.env,
            Field::Cpu => &self.cpu,
            Field::Memory => &self.memory,
            Field::Ttl => &self.ttl,
            Field::Metadata => &self.metadata,
            Field::Form => "",
        }
    }

    /// Sets the content of a text field.
    pub(super) fn set_text(&mut self, field: Field, text: String) {
        match field {
            Field::Image => self.image = text,
            Field::Entrypoint => self.entrypoint = text,
            Field::Env => self.env = text,
            Field::Cpu => self.cpu = text,
            Field::Memory => self.memory = text,
            Field::Ttl => self.ttl = text,
            Field::Metadata => self.metadata = text,
            Field::Form => {}
        }
    }

    /// The request of this form. Empty fields are left out, so that the server reports what is
    /// missing.
    #[must_use]
    pub fn request(&self) -> Request {
        let mut body = serde_json::Map::new();
        let mut problems = Vec::new();
        let mut problem = |field: &'static str, msg: String| {
            problems.push(FieldError::body("unreadable", [Loc::from(field)], msg));
        };
        if !self.image.trim().is_empty() {
            body.insert("image".to_owned(), json!({ "uri": self.image.trim() }));
        }
        match words::split(&self.entrypoint) {
            Ok(words) if words.is_empty() => {}
            Ok(words) => {
                body.insert("entrypoint".to_owned(), json!(words));
            }
            Err(why) => problem("entrypoint", format!("The command {why}.")),
        }
        for (field, text) in [("env", &self.env), ("metadata", &self.metadata)] {
            match words::pairs(text) {
                Ok(pairs) if pairs.is_empty() => {}
                Ok(pairs) => {
                    body.insert(field.to_owned(), json!(pairs));
                }
                Err(line) => problem(field, format!("Line {line} is not NAME=value.")),
            }
        }
        let limits = [("cpu", &self.cpu), ("memory", &self.memory)];
        let limits = limits.map(|(name, text)| (name, text.trim()));
        let limits: BTreeMap<_, _> = limits
            .into_iter()
            .filter(|(_, it)| !it.is_empty())
            .collect();
        body.insert("resourceLimits".to_owned(), json!(limits));
        if self.lifetime == Lifetime::Limited {
            match words::seconds(&self.ttl) {
                Some(seconds) => {
                    body.insert("timeout".to_owned(), json!(seconds));
                }
                None => problem(
                    "timeout",
                    "Write a duration such as 90s, 30m, 2h or 1d.".to_owned(),
                ),
            }
        }
        Request {
            body: Value::Object(body),
            problems,
        }
    }

    /// Problems of this form in the order of the page: unreadable fields, and the rules that its
    /// request breaks. Some rules are reworded: the API's names members that this form has no field
    /// for, or counts in seconds.
    #[must_use]
    pub fn problems(&self, unreadable: Vec<FieldError>, rules: Vec<FieldError>) -> Vec<FieldError> {
        // The request lacks what cannot be read, which is not what is wrong with it.
        let is_readable = |rule: &FieldError| {
            let field = Field::of(rule);
            field == Field::Form || unreadable.iter().all(|it| Field::of(it) != field)
        };
        let mut problems: Vec<_> = rules.into_iter().filter(is_readable).collect();
        problems.iter_mut().for_each(|rule| self.reword(rule));
        problems.extend(unreadable);
        // The API misses the command only of a request that names an image.
        let has_command_problem = problems
            .iter()
            .any(|problem| Field::of(problem) == Field::Entrypoint);
        if self.entrypoint.trim().is_empty() && !has_command_problem {
            let path = [Loc::from("entrypoint")];
            problems.push(FieldError::body("missing", path, NO_COMMAND));
        }
        problems.sort_by_key(Field::of);
        problems
    }

    /// Puts a rule of the API into words of this form.
    fn reword(&self, rule: &mut FieldError) {
        match Field::of(rule) {
            Field::Image if self.image.trim().is_empty() => {
                rule.msg = format!("Name an image, such as {PUBLIC_IMAGE}.");
            }
            Field::Entrypoint if self.entrypoint.trim().is_empty() => {
                NO_COMMAND.clone_into(&mut rule.msg);
            }
            Field::Ttl if rule.kind == "greater_than_equal" => {
                "A sandbox lives for at least 1 minute.".clone_into(&mut rule.msg);
            }
            Field::Env => {
                if let Some(Loc::Name(name)) = rule.loc.get(2) {
                    rule.msg = format!("{name} {}", rule.msg);
                }
            }
            _ => {}
        }
    }

    /// Creates the sandbox.
    ///
    /// # Errors
    /// [`crate::error::ConsoleError::Invalid`] with every problem of the form and of the request,
    /// else the domain's error.
    #[cfg(feature = "ssr")]
    pub async fn submit(
        &self,
        backend: &dyn crate::backend::ConsoleBackend,
    ) -> Result<osb_protocol::SandboxId, crate::error::ConsoleError> {
        let Request { body, problems } = self.request();
        let problems = self.problems(problems, backend.validate(&body));
        if !problems.is_empty() {
            return Err(crate::error::ConsoleError::Invalid { problems });
        }
        backend.create(body).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_says_what_was_typed() {
        let form = CreateForm {
            image: " debian:12 ".to_owned(),
            entrypoint: "sh -c 'sleep 1'".to_owned(),
            env: "A=1\nEMPTY=".to_owned(),
            ttl: "2h".to_owned(),
            metadata: "team=a".to_owned(),
            ..CreateForm::default()
        };
        let request = form.request();
        assert_eq!(request.problems, []);
        assert_eq!(
            request.body,
            json!({
                "image": { "uri": "debian:12" },
                "entrypoint": ["sh", "-c", "sleep 1"],
                "env": { "A": "1", "EMPTY": "" },
                "resourceLimits": { "cpu": "1", "memory": "512Mi" },
                "timeout": 7200,
                "metadata": { "team": "a" },
            })
        );
    }

    #[test]
    fn manual_cleanup_sends_no_timeout() {
        let form = CreateForm {
            lifetime: Lifetime::Manual,
            ttl: "nonsense".to_owned(),
            ..CreateForm::default()
        };
        assert_eq!(form.request().problems, []);
        assert_eq!(form.request().body.get("timeout"), None);
    }

    #[test]
    fn unreadable_input_is_reported_at_its_field() {
        let form = CreateForm {
            entrypoint: "'".to_owned(),
            env: "novalue".to_owned(),
            metadata: "k=v\n=x".to_owned(),
            ttl: "soon".to_owned(),
            ..CreateForm::default()
        };
        let fields: Vec<_> = form.request().problems.iter().map(Field::of).collect();
        assert_eq!(
            fields,
            [Field::Entrypoint, Field::Env, Field::Metadata, Field::Ttl]
        );
    }

    #[test]
    fn an_empty_image_field_has_a_message_of_the_form() {
        let rule = |field: &'static str| {
            FieldError::body(
                "missing",
                [Loc::from(field)],
                "one of image.uri and snapshotId is required",
            )
        };
        let problems = |image: &str| {
            let form = CreateForm {
                image: image.to_owned(),
                ..CreateForm::default()
            };
            form.problems(Vec::new(), vec![rule("image"), rule("networkPolicy")])
        };
        let empty = problems(" ");
        assert_eq!(empty[0], rule("networkPolicy"), "above the form");
        assert_eq!(empty[1].msg, "Name an image, such as debian:bookworm-slim.");
        assert_eq!(Field::of(&empty[1]), Field::Image);
        assert_eq!(problems("x")[1], rule("image"), "an image that was named");
    }

    #[test]
    fn what_cannot_be_read_is_not_called_missing() {
        let form = CreateForm {
            image: "debian:12".to_owned(),
            entrypoint: "sh -c 'x".to_owned(),
            ..CreateForm::default()
        };
        let request = form.request();
        let missing = FieldError::body("missing", ["entrypoint"], "is required with image");
        let problems = form.problems(request.problems, vec![missing]);
        let texts: Vec<_> = problems.iter().map(|problem| &*problem.msg).collect();
        assert_eq!(texts, ["The command has a quote that is not closed."]);
    }

    #[test]
    fn an_empty_form_misses_image_and_command_at_once() {
        let form = CreateForm {
            entrypoint: " ".to_owned(),
            ..CreateForm::default()
        };
        let no_image = FieldError::body("missing", ["image"], "is required");
        let problems = form.problems(form.request().problems, vec![no_image]);
        let fields: Vec<_> = problems.iter().map(Field::of).collect();
        assert_eq!(fields, [Field::Image, Field::Entrypoint]);
        let rule = FieldError::body("missing", ["entrypoint"], "is required with image");
        let problems = form.problems(Vec::new(), vec![rule]);
        assert_eq!(problems.len(), 1, "once: {problems:?}");
        assert_eq!(problems[0].msg, NO_COMMAND);
    }

    #[test]
    fn problems_are_in_the_order_of_the_page_and_name_variables() {
        let form = CreateForm {
            ttl: "soon".to_owned(),
            ..CreateForm::default()
        };
        let rules = vec![
            FieldError::body(
                "value_error",
                ["env", "A"],
                "must not contain NUL characters",
            ),
            FieldError::body("value_error", ["resourceLimits", "cpu"], "expected cores"),
        ];
        let problems = form.problems(form.request().problems, rules);
        let texts: Vec<_> = problems.iter().map(|problem| &*problem.msg).collect();
        assert_eq!(
            texts,
            [
                "Write a duration such as 90s, 30m, 2h or 1d.",
                "expected cores",
                "A must not contain NUL characters",
            ]
        );
        assert!(Field::ALL.is_sorted());
    }

    #[test]
    fn a_short_time_has_a_message_of_the_form() {
        let message = |kind: &str, msg: &str| {
            let rule = FieldError::body(kind, ["timeout"], msg);
            CreateForm::default()
                .problems(Vec::new(), vec![rule])
                .remove(0)
        };
        let short = message("greater_than_equal", "must be at least 60");
        assert_eq!(short.msg, "A sandbox lives for at least 1 minute.");
        let long = message("value_error", "must be at most 3600 seconds");
        assert_eq!(long.msg, "must be at most 3600 seconds", "another rule");
    }

    #[test]
    fn errors_of_the_server_find_their_field() {
        let at = |path: &[&'static str]| {
            let path = path.iter().map(|part| Loc::from(*part));
            Field::of(&FieldError::body("x", path, "x"))
        };
        assert_eq!(at(&["image", "uri"]), Field::Image);
        assert_eq!(at(&["resourceLimits", "memory"]), Field::Memory);
        assert_eq!(at(&["resourceLimits", "cpu"]), Field::Cpu);
        assert_eq!(at(&["metadata", "a.b"]), Field::Metadata);
        assert_eq!(at(&["networkPolicy"]), Field::Form);
        assert_eq!(at(&[]), Field::Form);
    }
}
