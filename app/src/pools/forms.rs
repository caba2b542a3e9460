//! The forms as browsers send them, with and without script.

use osb_protocol::FieldError;
use serde::{Deserialize, Serialize};
#[cfg(feature = "ssr")]
use {
    crate::{
        backend::{NewPool, PoolBackend},
        error::ConsoleError,
        workload::{Workload, limit_text},
    },
    osb_protocol::lifecycle::PoolCapacity,
    serde_json::{Map, Value, json},
};

/// Place of a problem that is about no field.
pub(super) const FORM: &str = "form";

/// A number of a capacity.
pub(super) struct Number {
    /// Its name in the forms.
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    pub(super) help: &'static str,
}

/// The numbers of a capacity.
pub(super) const NUMBERS: [Number; 4] = [
    Number {
        name: "buffer_min",
        label: "Fewest that wait",
        help: "When fewer wait, more are started.",
    },
    Number {
        name: "buffer_max",
        label: "Most that wait",
        help: "So many are started then.",
    },
    Number {
        name: "pool_min",
        label: "Fewest in all",
        help: "Claimed ones included.",
    },
    Number {
        name: "pool_max",
        label: "Most in all",
        help: "Claimed ones included.",
    },
];

/// A pool to add, as typed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolForm {
    pub(super) name: String,
    pub(super) image: String,
    /// Command line; empty for one that does nothing.
    pub(super) entrypoint: String,
    pub(super) cpu: String,
    pub(super) memory: String,
    /// `NAME=value` lines.
    pub(super) env: String,
    pub(super) buffer_min: String,
    pub(super) buffer_max: String,
    pub(super) pool_min: String,
    pub(super) pool_max: String,
}

impl Default for PoolForm {
    fn default() -> Self {
        Self {
            name: String::new(),
            image: String::new(),
            entrypoint: String::new(),
            cpu: "1".to_owned(),
            memory: "512Mi".to_owned(),
            env: String::new(),
            buffer_min: "1".to_owned(),
            buffer_max: "2".to_owned(),
            pool_min: "0".to_owned(),
            pool_max: "10".to_owned(),
        }
    }
}

/// How many sandboxes a pool is to keep, as typed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapacityForm {
    buffer_min: String,
    buffer_max: String,
    pool_min: String,
    pool_max: String,
}

/// A form that was refused; the server puts it into the context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolDraft {
    /// The form as sent.
    pub form: PoolForm,
    /// Its problems.
    pub problems: Vec<FieldError>,
    /// Why nothing was added although no field is invalid.
    pub refusal: Option<String>,
}

#[cfg(feature = "ssr")]
impl CapacityForm {
    /// The numbers, or those that are none.
    fn read(&self) -> Result<PoolCapacity, Vec<FieldError>> {
        let mut problems = Vec::new();
        let mut number = |name: &str, text: &str| {
            let read = text.trim().parse::<u32>();
            if read.is_err() {
                let rule = "must be a whole number";
                problems.push(FieldError::body("int_type", [name], rule));
            }
            read.unwrap_or_default()
        };
        let capacity = PoolCapacity {
            buffer_max: number("buffer_max", &self.buffer_max),
            buffer_min: number("buffer_min", &self.buffer_min),
            pool_max: number("pool_max", &self.pool_max),
            pool_min: number("pool_min", &self.pool_min),
        };
        match problems.is_empty() {
            true => Ok(capacity),
            false => Err(problems),
        }
    }

    /// Changes the capacity of the pool of this name.
    ///
    /// # Errors
    /// [`ConsoleError::Invalid`] and [`ConsoleError::Refused`].
    pub async fn submit(&self, name: &str, backend: &dyn PoolBackend) -> Result<(), ConsoleError> {
        backend.resize(name, self.read()).await
    }

    /// A problem of the form where its fields are not at hand.
    #[must_use]
    pub fn problem_text(problem: &FieldError) -> String {
        let field = problem.field();
        let number = NUMBERS.iter().find(|number| number.name == field);
        let label = number.map_or(field.as_str(), |number| number.label);
        format!("{label} {}", problem.msg)
    }
}

#[cfg(feature = "ssr")]
impl PoolForm {
    /// What sandboxes are made from, and the fields that cannot be read.
    fn template(&self) -> (Value, Vec<FieldError>) {
        let workload = Workload {
            entrypoint: &self.entrypoint,
            cpu: &self.cpu,
            memory: &self.memory,
            env: &self.env,
        };
        let read = workload.read();
        let mut container = Map::from_iter([("name".to_owned(), json!("sandbox"))]);
        let image = self.image.trim();
        if !image.is_empty() {
            container.insert("image".to_owned(), json!(image));
        }
        if !read.entrypoint.is_empty() {
            container.insert("command".to_owned(), json!(read.entrypoint));
        }
        if !read.env.is_empty() {
            let pairs = read.env.into_iter();
            let env = pairs.map(|(name, value)| json!({ "name": name, "value": value }));
            container.insert("env".to_owned(), env.collect());
        }
        if !read.limits.is_empty() {
            container.insert("resources".to_owned(), json!({ "limits": read.limits }));
        }
        let template = json!({ "spec": { "containers": [container] } });
        (template, read.problems)
    }

    fn capacity(&self) -> CapacityForm {
        CapacityForm {
            buffer_min: self.buffer_min.clone(),
            buffer_max: self.buffer_max.clone(),
            pool_min: self.pool_min.clone(),
            pool_max: self.pool_max.clone(),
        }
    }

    /// Adds the pool. Returns its name.
    ///
    /// # Errors
    /// [`ConsoleError::Invalid`] with every problem at its field, and [`ConsoleError::Refused`].
    pub async fn submit(&self, backend: &dyn PoolBackend) -> Result<String, ConsoleError> {
        let (template, mut problems) = self.template();
        let capacity = match self.capacity().read() {
            Ok(capacity) if problems.is_empty() => Ok(capacity),
            read => {
                problems.extend(read.err().unwrap_or_default());
                Err(problems)
            }
        };
        let new = NewPool {
            name: self.name.trim().to_owned(),
            template,
            capacity,
        };
        backend.create(new).await.map_err(|error| match error {
            ConsoleError::Invalid { problems } => ConsoleError::Invalid {
                problems: problems.into_iter().map(at_field).collect(),
            },
            other => other,
        })
    }
}

/// A rule of the API at the field that filled the place it names.
#[cfg(feature = "ssr")]
fn at_field(problem: FieldError) -> FieldError {
    let path = problem.loc.iter().skip(1);
    let path: Vec<_> = path.map(ToString::to_string).collect();
    let path: Vec<_> = path.iter().map(String::as_str).collect();
    let msg = &problem.msg;
    let (field, text) = match path.as_slice() {
        ["template", "spec", "containers", "0", member @ ..] => match member {
            ["image", ..] => ("image", msg.clone()),
            ["command" | "args", ..] => ("entrypoint", msg.clone()),
            ["env", name, ..] => ("env", format!("{name} {msg}.")),
            ["resources", "limits", name @ ("cpu" | "memory"), ..] => (*name, limit_text(msg)),
            _ => (FORM, format!("{}: {msg}.", problem.field())),
        },
        ["capacitySpec"] => (FORM, format!("The pool {msg}.")),
        ["template", ..] => (FORM, format!("{}: {msg}.", problem.field())),
        _ => return problem,
    };
    FieldError::body(&problem.kind, [field], text)
}

#[cfg(all(test, feature = "ssr"))]
mod tests {
    use super::*;

    #[test]
    fn a_form_becomes_a_template() {
        let form = PoolForm {
            image: " debian:12 ".to_owned(),
            entrypoint: "sh -c 'sleep 9'".to_owned(),
            env: "A=1\nB=x=y".to_owned(),
            memory: String::new(),
            ..PoolForm::default()
        };
        let (template, problems) = form.template();
        assert!(problems.is_empty(), "{problems:?}");
        let container = json!({
            "name": "sandbox", "image": "debian:12", "command": ["sh", "-c", "sleep 9"],
            "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": "x=y" }],
            "resources": { "limits": { "cpu": "1" } },
        });
        assert_eq!(template, json!({ "spec": { "containers": [container] } }));
        let bare = PoolForm {
            cpu: String::new(),
            memory: String::new(),
            ..PoolForm::default()
        };
        let bare = bare.template().0;
        let container = json!({ "name": "sandbox" });
        assert_eq!(bare, json!({ "spec": { "containers": [container] } }));
    }

    #[test]
    fn what_cannot_be_read_is_named_at_its_field() {
        let form = PoolForm {
            entrypoint: "'".to_owned(),
            env: "A".to_owned(),
            ..PoolForm::default()
        };
        let fields: Vec<_> = form.template().1.iter().map(FieldError::field).collect();
        assert_eq!(fields, ["entrypoint", "env"]);
        let capacity = CapacityForm {
            buffer_min: " 1 ".to_owned(),
            buffer_max: "-1".to_owned(),
            pool_min: String::new(),
            pool_max: "4294967296".to_owned(),
        };
        let problems = capacity.read().unwrap_err();
        let fields: Vec<_> = problems.iter().map(FieldError::field).collect();
        assert_eq!(fields, ["buffer_max", "pool_max", "pool_min"]);
        assert_eq!(
            CapacityForm::problem_text(&problems[1]),
            "Most in all must be a whole number"
        );
        let capacity = PoolForm::default().capacity().read().unwrap();
        let numbers = (capacity.buffer_min, capacity.buffer_max);
        assert_eq!((numbers, capacity.pool_max), ((1, 2), 10));
    }

    #[test]
    fn rules_of_the_api_are_at_the_fields_of_the_form() {
        let container = ["template", "spec", "containers", "0"];
        for (member, msg, field, text) in [
            (vec!["image"], "is required", "image", "is required"),
            (vec!["command"], "is long", "entrypoint", "is long"),
            (vec!["env", "A"], "is set", "env", "A is set."),
            (
                vec!["resources", "limits", "cpu"],
                "expected 500m or 2",
                "cpu",
                "must be 500m or 2",
            ),
            (
                vec!["workingDir"],
                "is wrong",
                FORM,
                "template.spec.containers.0.workingDir: is wrong.",
            ),
        ] {
            let path: Vec<&str> = container.into_iter().chain(member).collect();
            let problem = at_field(FieldError::body("value_error", path, msg));
            assert_eq!(
                (problem.field().as_str(), problem.msg.as_str()),
                (field, text)
            );
        }
        let name = FieldError::body("value_error", ["name"], "is taken");
        assert_eq!(at_field(name.clone()), name);
    }
}
