//! Templates of pools: the part of a `PodTemplateSpec` that means something on a container engine.
//!
//! A template becomes the body of a request to create, so that the same rules hold, and a sandbox of a
//! pool is made like any other.

use osb_protocol::{FieldError, error::Loc};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// What a sandbox of a pool runs when neither its claim nor the template names anything.
const IDLE: [&str; 3] = ["tail", "-f", "/dev/null"];
/// Members of a pod that say nothing about its container, or what holds here in any case.
const POD_IGNORED: [&str; 6] = [
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "nodeSelector",
    "tolerations",
];
/// Such members of a container.
const CONTAINER_IGNORED: [&str; 3] = ["name", "imagePullPolicy", "ports"];
/// Characters of a revision.
const REVISION: usize = 10;

/// Name of a template: the same for the same template.
pub(super) fn revision(template: &Value) -> String {
    // Members of objects are in order.
    let mut digits = digest(&template.to_string());
    digits.truncate(REVISION);
    digits
}

/// SHA-256 of a text, in hexadecimal digits.
pub(super) fn digest(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The image that a template names.
pub(super) fn image(template: &Value) -> Option<String> {
    let image = template.pointer("/spec/containers/0/image")?;
    image.as_str().map(str::to_owned)
}

/// The body of a request to create for a template.
///
/// # Errors
/// Every member that is wrong, or means nothing here.
pub(super) fn create_body(template: &Value) -> Result<Value, Vec<FieldError>> {
    let mut reader = Reader::default();
    let body = reader.template(template);
    match reader.wrong.is_empty() {
        true => Ok(body),
        false => Err(reader.wrong),
    }
}

/// An error about the body of a request to create, as one about the template.
pub(super) fn of_template(mut error: FieldError) -> FieldError {
    let rest = error.loc.iter().skip(1);
    let rest: Vec<_> = rest.map(ToString::to_string).collect();
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let member: Vec<Loc> = match rest.as_slice() {
        ["image", ..] => vec!["image".into()],
        ["entrypoint", ..] => vec!["command".into()],
        ["env", name, ..] => vec!["env".into(), (*name).into()],
        ["resourceLimits", name, ..] => {
            vec!["resources".into(), "limits".into(), (*name).into()]
        }
        _ => Vec::new(),
    };
    error.loc = container_path().chain(member).collect();
    error
}

/// The way to the container of a template.
fn container_path() -> impl Iterator<Item = Loc> {
    let names = ["body", "template", "spec", "containers"].into_iter();
    names.map(Loc::from).chain([Loc::Index(0)])
}

#[derive(Default)]
struct Reader {
    wrong: Vec<FieldError>,
}

impl Reader {
    fn template(&mut self, template: &Value) -> Value {
        let at: Vec<Loc> = vec!["template".into()];
        let Some(template) = self.object(&at, Some(template)) else {
            return Value::Null;
        };
        // Names, labels and annotations of pods have no meaning here.
        self.refuse_others(&at, template, &["metadata", "spec", "apiVersion", "kind"]);
        let at = with(&at, "spec");
        let Some(pod) = self.object(&at, template.get("spec")) else {
            return Value::Null;
        };
        let known: Vec<&str> = POD_IGNORED.into_iter().chain(["containers"]).collect();
        self.refuse_others(&at, pod, &known);
        let at = with(&at, "containers");
        let containers = match pod.get("containers") {
            Some(Value::Array(containers)) if !containers.is_empty() => containers,
            None => {
                self.note("missing", &at, "is required");
                return Value::Null;
            }
            Some(_) => {
                self.note("list_type", &at, "must be a list of one container");
                return Value::Null;
            }
        };
        if containers.len() > 1 {
            let at = with(&at, Loc::Index(1));
            self.note(
                "value_error",
                &at,
                "a sandbox of this runtime has one container",
            );
        }
        self.container(&with(&at, Loc::Index(0)), containers.first())
    }

    fn container(&mut self, at: &[Loc], container: Option<&Value>) -> Value {
        let Some(container) = self.object(at, container) else {
            return Value::Null;
        };
        let known = ["image", "command", "args", "env", "resources"].into_iter();
        let known: Vec<&str> = known.chain(CONTAINER_IGNORED).collect();
        self.refuse_others(at, container, &known);
        let image = match container.get("image") {
            Some(Value::String(image)) if !image.trim().is_empty() => image.as_str(),
            None => {
                self.note("missing", &with(at, "image"), "is required");
                ""
            }
            Some(_) => {
                self.note("string_type", &with(at, "image"), "must name an image");
                ""
            }
        };
        let mut entrypoint = self.words(&with(at, "command"), container.get("command"));
        entrypoint.extend(self.words(&with(at, "args"), container.get("args")));
        if entrypoint.is_empty() {
            entrypoint.extend(IDLE.map(str::to_owned));
        }
        let env = self.env(&with(at, "env"), container.get("env"));
        let limits = self.limits(&with(at, "resources"), container.get("resources"));
        json!({
            "image": {"uri": image},
            "entrypoint": entrypoint,
            "env": env,
            "resourceLimits": limits,
        })
    }

    fn words(&mut self, at: &[Loc], words: Option<&Value>) -> Vec<String> {
        let words = match words {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(words)) => words,
            Some(_) => {
                self.note("list_type", at, "must be a list of strings");
                return Vec::new();
            }
        };
        let read: Vec<String> = words
            .iter()
            .filter_map(|word| word.as_str().map(str::to_owned))
            .collect();
        if read.len() < words.len() {
            self.note("string_type", at, "must be a list of strings");
        }
        read
    }

    fn env(&mut self, at: &[Loc], env: Option<&Value>) -> Map<String, Value> {
        let mut read = Map::new();
        let variables = match env {
            None | Some(Value::Null) => return read,
            Some(Value::Array(variables)) => variables,
            Some(_) => {
                self.note("list_type", at, "must be a list of variables");
                return read;
            }
        };
        for (index, variable) in variables.iter().enumerate() {
            let at = with(at, Loc::Index(index));
            let Some(variable) = self.object(&at, Some(variable)) else {
                continue;
            };
            self.refuse_others(&at, variable, &["name", "value"]);
            let value = match variable.get("value") {
                None | Some(Value::Null) => "",
                Some(Value::String(value)) => value,
                Some(_) => {
                    self.note("string_type", &with(&at, "value"), "must be a string");
                    continue;
                }
            };
            match variable.get("name").and_then(Value::as_str) {
                Some(name) if !name.is_empty() => {
                    read.insert(name.to_owned(), value.into());
                }
                _ => self.note("string_type", &with(&at, "name"), "must name a variable"),
            }
        }
        read
    }

    /// The limits. Requests are for a scheduler, which a single host does not have.
    fn limits(&mut self, at: &[Loc], resources: Option<&Value>) -> Map<String, Value> {
        if resources.is_none_or(Value::is_null) {
            return Map::new();
        }
        let Some(resources) = self.object(at, resources) else {
            return Map::new();
        };
        self.refuse_others(at, resources, &["limits", "requests"]);
        let at = with(at, "limits");
        let limits = resources.get("limits").filter(|limits| !limits.is_null());
        if limits.is_none() {
            return Map::new();
        }
        let Some(limits) = self.object(&at, limits) else {
            return Map::new();
        };
        let mut read = Map::new();
        for (name, amount) in limits {
            match amount {
                Value::String(_) => drop(read.insert(name.clone(), amount.clone())),
                Value::Number(number) => {
                    drop(read.insert(name.clone(), number.to_string().into()));
                }
                _ => self.note(
                    "string_type",
                    &with(&at, name.as_str()),
                    "must be an amount",
                ),
            }
        }
        read
    }

    fn object<'a>(
        &mut self,
        at: &[Loc],
        value: Option<&'a Value>,
    ) -> Option<&'a Map<String, Value>> {
        match value {
            Some(Value::Object(object)) => Some(object),
            None => {
                self.note("missing", at, "is required");
                None
            }
            Some(_) => {
                self.note("dict_type", at, "must be an object");
                None
            }
        }
    }

    fn refuse_others(&mut self, at: &[Loc], object: &Map<String, Value>, known: &[&str]) {
        for (name, value) in object {
            if !value.is_null() && !known.contains(&name.as_str()) {
                let rule = "is not available in pools of this runtime";
                self.note("value_error", &with(at, name.as_str()), rule);
            }
        }
    }

    fn note(&mut self, kind: &str, at: &[Loc], rule: &str) {
        let error = FieldError::body(kind, at.iter().cloned(), rule);
        self.wrong.push(error);
    }
}

fn with(at: &[Loc], name: impl Into<Loc>) -> Vec<Loc> {
    at.iter().cloned().chain([name.into()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(template: &Value) -> Vec<String> {
        let wrong = create_body(template).unwrap_err();
        wrong.iter().map(FieldError::field).collect()
    }

    fn of_container(container: Value) -> Value {
        json!({"spec": {"containers": [container]}})
    }

    #[test]
    fn a_template_becomes_a_request_to_create() {
        let template = json!({
            "metadata": {"labels": {"app": "x"}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "main", "image": "debian:12", "command": ["sh"], "args": ["-c", "x"],
                    "env": [{"name": "A", "value": "1"}, {"name": "B"}],
                    "resources": {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "1"}},
                }],
            },
        });
        let body = json!({
            "image": {"uri": "debian:12"}, "entrypoint": ["sh", "-c", "x"],
            "env": {"A": "1", "B": ""}, "resourceLimits": {"cpu": "1", "memory": "1Gi"},
        });
        assert_eq!(create_body(&template).unwrap(), body);
        let bare = create_body(&of_container(json!({"image": "debian:12"}))).unwrap();
        assert_eq!(bare["entrypoint"], json!(IDLE));
        assert_eq!(
            (&bare["env"], &bare["resourceLimits"]),
            (&json!({}), &json!({}))
        );
    }

    #[test]
    fn what_means_nothing_here_is_named() {
        for (template, wrong) in [
            (json!([]), "template"),
            (json!({}), "template.spec"),
            (json!({"spec": {}}), "template.spec.containers"),
            (
                json!({"spec": {"containers": []}}),
                "template.spec.containers",
            ),
            (
                json!({"spec": {"containers": [1]}}),
                "template.spec.containers.0",
            ),
            (of_container(json!({})), "template.spec.containers.0.image"),
            (
                of_container(json!({"image": 1})),
                "template.spec.containers.0.image",
            ),
        ] {
            assert_eq!(fields(&template), [wrong], "{template}");
        }
        let pod = json!({"spec": {
            "containers": [{"image": "a"}, {"image": "b"}], "volumes": [], "initContainers": [],
        }});
        assert_eq!(
            fields(&pod),
            [
                "template.spec.initContainers",
                "template.spec.volumes",
                "template.spec.containers.1",
            ]
        );
        for (member, value, wrong) in [
            ("command", json!("sh"), "command"),
            ("args", json!([1]), "args"),
            ("env", json!({}), "env"),
            (
                "env",
                json!([{"name": "A", "valueFrom": {}}]),
                "env.0.valueFrom",
            ),
            ("env", json!([{"value": "1"}]), "env.0.name"),
            ("env", json!([{"name": "A", "value": 1}]), "env.0.value"),
            ("resources", json!({"claims": []}), "resources.claims"),
            (
                "resources",
                json!({"limits": {"cpu": []}}),
                "resources.limits.cpu",
            ),
            ("workingDir", json!("/"), "workingDir"),
            ("securityContext", json!({}), "securityContext"),
        ] {
            let mut container = json!({"image": "a"});
            container[member] = value;
            let wrong = format!("template.spec.containers.0.{wrong}");
            assert_eq!(fields(&of_container(container)), [wrong]);
        }
    }

    #[test]
    fn errors_of_a_request_are_about_the_template() {
        for (path, wrong) in [
            (vec!["image", "uri"], "image"),
            (vec!["entrypoint"], "command"),
            (vec!["env", "A"], "env.A"),
            (vec!["resourceLimits", "cpu"], "resources.limits.cpu"),
        ] {
            let error = of_template(FieldError::body("value_error", path, "is wrong"));
            assert_eq!(error.field(), format!("template.spec.containers.0.{wrong}"));
            assert_eq!(error.msg, "is wrong");
        }
    }

    #[test]
    fn a_revision_names_its_template() {
        let one = revision(&of_container(json!({"image": "a"})));
        assert_eq!(one, revision(&of_container(json!({"image": "a"}))));
        assert_ne!(one, revision(&of_container(json!({"image": "b"}))));
        assert_eq!(one.len(), REVISION);
    }
}
