//! The form as browsers send it, with and without script.

use osb_protocol::FieldError;
use serde::{Deserialize, Serialize};
#[cfg(feature = "ssr")]
use {
    crate::{
        backend::TemplateBackend,
        error::ConsoleError,
        workload::{Workload, limit_text},
    },
    serde_json::{Map, Value, json},
};

/// Place of a problem that is about no field.
pub(super) const FORM: &str = "form";
/// Where the image is published, which the API wants to know; container engines publish none.
pub(super) const PUBLISH: &str = "local";

/// A template to make, as typed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateForm {
    /// The label `name`.
    pub(super) name: String,
    pub(super) image: String,
    /// Text of a Dockerfile, in place of the image.
    pub(super) dockerfile: String,
    /// Command line; empty for one that does nothing.
    pub(super) entrypoint: String,
    pub(super) cpu: String,
    pub(super) memory: String,
    /// `NAME=value` lines.
    pub(super) env: String,
}

impl Default for TemplateForm {
    fn default() -> Self {
        Self {
            name: String::new(),
            image: String::new(),
            dockerfile: String::new(),
            entrypoint: String::new(),
            cpu: "1".to_owned(),
            memory: "512Mi".to_owned(),
            env: String::new(),
        }
    }
}

/// A form that was refused; the server puts it into the context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TemplateDraft {
    /// The form as sent.
    pub form: TemplateForm,
    /// Its problems.
    pub problems: Vec<FieldError>,
    /// Why nothing was made although no field is invalid.
    pub refusal: Option<String>,
}

#[cfg(feature = "ssr")]
impl TemplateForm {
    /// Body of `POST /templates`, and the fields that cannot be read.
    fn request(&self) -> (Value, Vec<FieldError>) {
        let workload = Workload {
            entrypoint: &self.entrypoint,
            cpu: &self.cpu,
            memory: &self.memory,
            env: &self.env,
        };
        let read = workload.read();
        let mut body = Map::new();
        let mut set = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
        set("publish", json!(PUBLISH));
        let (name, image) = (self.name.trim(), self.image.trim());
        if !image.is_empty() {
            set("image", json!(image));
        }
        if !self.dockerfile.trim().is_empty() {
            let text = self.dockerfile.replace("\r\n", "\n");
            set("build", json!({ "dockerfile": text }));
        }
        if !name.is_empty() {
            set("metadata", json!({ "name": name }));
        }
        if !read.entrypoint.is_empty() {
            set("entrypoint", json!(read.entrypoint));
        }
        if !read.env.is_empty() {
            set("env", json!(read.env));
        }
        if !read.limits.is_empty() {
            set("resourceLimits", json!(read.limits));
        }
        (Value::Object(body), read.problems)
    }

    /// Makes the template. Returns its id.
    ///
    /// # Errors
    /// [`ConsoleError::Invalid`] with every problem at its field, and [`ConsoleError::Refused`].
    pub async fn submit(&self, backend: &dyn TemplateBackend) -> Result<String, ConsoleError> {
        let (body, unreadable) = self.request();
        let created = backend.create(body, unreadable).await;
        created.map_err(|error| match error {
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
        ["image", ..] if problem.kind == "missing" => (
            "image",
            "Name an image, or write a Dockerfile where that is allowed.".to_owned(),
        ),
        ["image", ..] => ("image", msg.clone()),
        ["build", ..] => ("dockerfile", msg.clone()),
        ["entrypoint", ..] => ("entrypoint", msg.clone()),
        ["env"] => ("env", msg.clone()),
        ["env", name, ..] => ("env", format!("{name} {msg}.")),
        ["resourceLimits", name @ ("cpu" | "memory"), ..] => (*name, limit_text(msg)),
        ["metadata", "name", ..] => ("name", format!("{msg}.")),
        _ => (FORM, format!("{}: {msg}.", problem.field())),
    };
    FieldError::body(&problem.kind, [field], text)
}

#[cfg(all(test, feature = "ssr"))]
mod tests {
    use super::*;

    #[test]
    fn a_form_becomes_a_request() {
        let form = TemplateForm {
            name: " base ".to_owned(),
            image: " debian:12 ".to_owned(),
            entrypoint: "sh -c 'sleep 9'".to_owned(),
            env: "A=1".to_owned(),
            memory: String::new(),
            ..TemplateForm::default()
        };
        let (body, problems) = form.request();
        assert!(problems.is_empty(), "{problems:?}");
        let wanted = json!({
            "publish": "local", "image": "debian:12", "metadata": { "name": "base" },
            "entrypoint": ["sh", "-c", "sleep 9"], "env": { "A": "1" },
            "resourceLimits": { "cpu": "1" },
        });
        assert_eq!(body, wanted);
        let build = TemplateForm {
            dockerfile: "FROM a\r\nRUN b".to_owned(),
            cpu: String::new(),
            memory: String::new(),
            ..TemplateForm::default()
        };
        let wanted = json!({ "publish": "local", "build": { "dockerfile": "FROM a\nRUN b" } });
        assert_eq!(build.request().0, wanted);
    }

    #[test]
    fn rules_of_the_api_are_at_the_fields_of_the_form() {
        for (path, msg, field, text) in [
            (vec!["image"], "must be a name", "image", "must be a name"),
            (
                vec!["build", "dockerfile"],
                "is long",
                "dockerfile",
                "is long",
            ),
            (vec!["env", "A"], "is reserved", "env", "A is reserved."),
            (
                vec!["resourceLimits", "cpu"],
                "expected 500m or 2",
                "cpu",
                "must be 500m or 2",
            ),
            (vec!["metadata", "name"], "is long", "name", "is long."),
            (
                vec!["publish"],
                "is required",
                FORM,
                "publish: is required.",
            ),
        ] {
            let problem = at_field(FieldError::body("value_error", path, msg));
            assert_eq!(
                (problem.field().as_str(), problem.msg.as_str()),
                (field, text)
            );
        }
        let missing = at_field(FieldError::body("missing", ["image"], "is required"));
        assert!(missing.msg.starts_with("Name an image"), "{}", missing.msg);
    }
}
