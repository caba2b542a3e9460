//! The create form as typed, and its create request.
//!
//! The form checks only what a request cannot express, such as a quote that is not closed. Every
//! other rule is the server's (contract: lifecycle §4.1, §4.4); its errors name a place in the
//! request, and [`Field::of`] finds the field that filled that place.

use std::collections::BTreeMap;

use osb_protocol::{FieldError, error::Loc, labels, resources::ResourceLimits};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    defaults::{IDLE, PUBLIC_IMAGE},
    field::{Field, MORE, NAME},
    lifetime, more, network, source, words,
};

/// Problem of a form without an entry point.
const NO_COMMAND: &str =
    "Name the command that the sandbox lives as long as, such as tail -f /dev/null.";

/// Content of the form, as typed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateForm {
    /// The label `name`.
    pub name: String,
    /// Which of the next three it is created from: `image`, `snapshot` or `template`.
    pub source: String,
    /// Container image.
    pub image: String,
    /// Id of a snapshot.
    pub snapshot: String,
    /// Id of a template, which also says what runs in the sandbox, and its limits.
    pub template: String,
    /// Command line.
    pub entrypoint: String,
    /// The chosen lifetime: seconds, `manual` or `other`.
    pub lifetime: String,
    /// Another lifetime, which comes before the chosen one.
    pub ttl: String,
    /// Processor limit.
    pub cpu: String,
    /// Memory limit.
    pub memory: String,
    /// `NAME=value` lines.
    pub env: String,
    /// `name=value` lines.
    pub metadata: String,
    /// The chosen network policy.
    pub network: String,
    /// Destinations of the policy, one a line, for the choices that have some.
    pub network_rules: String,
    /// `name=value` lines.
    pub extensions: String,
    /// User of the image's registry.
    pub auth_user: String,
    /// Password of that user. No page repeats it, see [`Self::forget_password`].
    pub auth_password: String,
    /// Whether endpoints need a token of their own.
    pub secure_access: bool,
    /// Command that runs before the entry point.
    pub pre_start: String,
    /// Further members of the request, as JSON.
    pub more: String,
    /// Id of the sandbox that this one is a copy of, if it is one.
    pub from: String,
    /// Names of the variables whose values the server takes over from that sandbox, one a line.
    pub kept: String,
}

impl Default for CreateForm {
    fn default() -> Self {
        Self {
            name: String::new(),
            source: source::IMAGE.to_owned(),
            image: String::new(),
            snapshot: String::new(),
            template: String::new(),
            entrypoint: IDLE.to_owned(),
            lifetime: lifetime::usual(None),
            ttl: String::new(),
            cpu: "1".to_owned(),
            memory: "512Mi".to_owned(),
            env: String::new(),
            metadata: String::new(),
            network: network::USUAL.to_owned(),
            network_rules: String::new(),
            extensions: String::new(),
            auth_user: String::new(),
            auth_password: String::new(),
            secure_access: false,
            pre_start: String::new(),
            more: String::new(),
            from: String::new(),
            kept: String::new(),
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

impl CreateForm {
    /// Content of a text field.
    pub(super) fn text(&self, field: Field) -> &str {
        match field {
            Field::Name => &self.name,
            Field::Image => &self.image,
            Field::Snapshot => &self.snapshot,
            Field::Template => &self.template,
            Field::Entrypoint => &self.entrypoint,
            Field::Env => &self.env,
            Field::Cpu => &self.cpu,
            Field::Memory => &self.memory,
            Field::Ttl => &self.ttl,
            Field::Metadata => &self.metadata,
            Field::Network => &self.network_rules,
            Field::Extensions => &self.extensions,
            Field::AuthUser => &self.auth_user,
            Field::AuthPassword => &self.auth_password,
            Field::PreStart => &self.pre_start,
            Field::More => &self.more,
            Field::Form | Field::SecureAccess => "",
        }
    }

    /// Sets the content of a text field.
    pub(super) fn set_text(&mut self, field: Field, text: String) {
        match field {
            Field::Name => self.name = text,
            Field::Image => self.image = text,
            Field::Snapshot => self.snapshot = text,
            Field::Template => self.template = text,
            Field::Entrypoint => self.entrypoint = text,
            Field::Env => self.env = text,
            Field::Cpu => self.cpu = text,
            Field::Memory => self.memory = text,
            Field::Ttl => self.ttl = text,
            Field::Metadata => self.metadata = text,
            Field::Network => self.network_rules = text,
            Field::Extensions => self.extensions = text,
            Field::AuthUser => self.auth_user = text,
            Field::AuthPassword => self.auth_password = text,
            Field::PreStart => self.pre_start = text,
            Field::More => self.more = text,
            Field::Form | Field::SecureAccess => {}
        }
    }

    /// Drops the password of the registry, also from the further members: browsers type it again.
    pub fn forget_password(&mut self) {
        self.auth_password.clear();
        self.more = more::without_password(std::mem::take(&mut self.more));
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
        if let Some((member, value)) = self.source_of_request() {
            body.insert(member.to_owned(), value);
        }
        let is_whole = self.is_of_template() && !self.template.trim().is_empty();
        match words::split(&self.entrypoint.replace("\r\n", "\n")) {
            // A template has both.
            _ if is_whole => {}
            Ok(words) if words.is_empty() => {}
            Ok(words) => {
                body.insert("entrypoint".to_owned(), json!(words));
            }
            Err(why) => problem("entrypoint", format!("The command {why}.")),
        }
        match words::pairs(&self.env) {
            Ok(pairs) if pairs.is_empty() => {}
            Ok(pairs) => {
                body.insert("env".to_owned(), json!(pairs));
            }
            Err(line) => problem("env", format!("Line {line} is not NAME=value.")),
        }
        match self.labels() {
            Ok(labels) if labels.is_empty() => {}
            Ok(labels) => {
                body.insert("metadata".to_owned(), json!(labels));
            }
            Err(why) => problem("metadata", why),
        }
        let limits = [("cpu", &self.cpu), ("memory", &self.memory)];
        let limits = limits.map(|(name, text)| (name, text.trim()));
        let limits: BTreeMap<_, _> = limits
            .into_iter()
            .filter(|(_, it)| !it.is_empty())
            .collect();
        if !is_whole {
            body.insert("resourceLimits".to_owned(), json!(limits));
        }
        match lifetime::seconds(&self.lifetime, &self.ttl) {
            Ok(None) => {}
            Ok(Some(seconds)) => {
                body.insert("timeout".to_owned(), json!(seconds));
            }
            Err(why) => problem("timeout", why.to_owned()),
        }
        match network::policy_of(&self.network, &self.network_rules) {
            Ok(None) => {}
            Ok(Some(policy)) => {
                body.insert("networkPolicy".to_owned(), policy);
            }
            Err(why) => problem("networkPolicy", why),
        }
        match words::pairs(&self.extensions) {
            Ok(pairs) if pairs.is_empty() => {}
            Ok(pairs) => {
                body.insert("extensions".to_owned(), json!(pairs));
            }
            Err(line) => problem("extensions", format!("Line {line} is not name=value.")),
        }
        if self.secure_access {
            body.insert("secureAccess".to_owned(), json!(true));
        }
        match words::split(&self.pre_start.replace("\r\n", "\n")) {
            Ok(words) if words.is_empty() => {}
            Ok(words) => {
                let hooks = json!({ "preStart": { "command": words } });
                body.insert("lifecycle".to_owned(), hooks);
            }
            Err(why) => problems.push(FieldError::body(
                "unreadable",
                ["lifecycle", "preStart"],
                format!("The command {why}."),
            )),
        }
        if let Err(why) = more::merge(&mut body, &self.more) {
            problems.push(FieldError::body("unreadable", [MORE], why));
        }
        Request {
            body: Value::Object(body),
            problems,
        }
    }

    /// Whether it asks for a sandbox from a snapshot.
    pub(super) fn is_of_snapshot(&self) -> bool {
        self.source == source::SNAPSHOT
    }

    /// Has the page's address decide what it is created from.
    pub(super) fn begin_from(&mut self, start: source::Start) {
        match start {
            source::Start::Snapshot(id) => self.set_snapshot(id),
            source::Start::Template(id) => self.set_template(id),
        }
    }

    /// Fills a snapshot in.
    pub(super) fn set_snapshot(&mut self, snapshot: String) {
        source::SNAPSHOT.clone_into(&mut self.source);
        self.snapshot = snapshot;
    }

    /// Whether it asks for a sandbox from a template.
    pub(super) fn is_of_template(&self) -> bool {
        self.source == source::TEMPLATE
    }

    /// Fills a template in.
    pub(super) fn set_template(&mut self, template: String) {
        source::TEMPLATE.clone_into(&mut self.source);
        self.template = template;
    }

    /// The member that says what the sandbox is created from.
    fn source_of_request(&self) -> Option<(&'static str, Value)> {
        let (member, id) = match self.source.as_str() {
            source::SNAPSHOT => ("snapshotId", self.snapshot.trim()),
            source::TEMPLATE => ("templateId", self.template.trim()),
            _ => return Some(("image", self.image_of_request()?)),
        };
        (!id.is_empty()).then(|| (member, json!(id)))
    }

    /// The image with the credentials of its registry.
    fn image_of_request(&self) -> Option<Value> {
        let (image, user) = (self.image.trim(), self.auth_user.trim());
        let mut members = serde_json::Map::new();
        if !image.is_empty() {
            members.insert("uri".to_owned(), json!(image));
        }
        let mut auth = serde_json::Map::new();
        if !user.is_empty() {
            auth.insert("username".to_owned(), json!(user));
        }
        if !self.auth_password.is_empty() {
            auth.insert("password".to_owned(), json!(self.auth_password));
        }
        if !auth.is_empty() {
            members.insert("auth".to_owned(), Value::Object(auth));
        }
        (!members.is_empty()).then_some(Value::Object(members))
    }

    /// All labels, the name included.
    fn labels(&self) -> Result<BTreeMap<String, String>, String> {
        let mut labels = words::pairs(&self.metadata)
            .map_err(|line| format!("Line {line} is not name=value."))?;
        let name = self.name.trim();
        if !name.is_empty() && labels.insert(NAME.to_owned(), name.to_owned()).is_some() {
            return Err(format!("The label {NAME} has a field of its own, above."));
        }
        Ok(labels)
    }

    /// What the sandbox that it created is called: its name, else its short id.
    #[must_use]
    pub fn title<'a>(&'a self, id: &'a osb_protocol::SandboxId) -> &'a str {
        match self.name.trim() {
            "" => id.short(),
            name => name,
        }
    }

    /// Names of the variables that are taken over: those that the form does not set itself.
    pub(super) fn kept_names(&self) -> Vec<String> {
        let set = words::pairs(&self.env).unwrap_or_default();
        let names = self.kept.lines().map(str::trim);
        names
            .filter(|name| !name.is_empty() && !set.contains_key(*name))
            .map(str::to_owned)
            .collect()
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
        // A policy that is no choice of the field is a further member.
        if self.network == network::USUAL && self.more.contains("networkPolicy") {
            let of_field = problems.iter_mut();
            let of_field = of_field.filter(|rule| Field::of(rule) == Field::Network);
            of_field.for_each(|rule| {
                let text = format!("{}: {}", rule.field(), rule.msg);
                *rule = FieldError::body("value_error", [MORE], text);
            });
        }
        problems.iter_mut().for_each(|rule| self.reword(rule));
        problems.extend(unreadable);
        // The API misses the command only of a request that names an image.
        let has_command_problem = problems
            .iter()
            .any(|problem| Field::of(problem) == Field::Entrypoint);
        // Other sources bring a command of their own.
        let has_other_source = self.is_of_snapshot()
            || self.is_of_template()
            || ["snapshotId", "templateId"]
                .iter()
                .any(|member| self.more.contains(member));
        if self.entrypoint.trim().is_empty() && !has_command_problem && !has_other_source {
            let path = [Loc::from("entrypoint")];
            problems.push(FieldError::body("missing", path, NO_COMMAND));
        }
        problems.sort_by_key(Field::of);
        problems
    }

    /// Problems that show without the server: what cannot be read, and the rules of the wire types.
    pub(super) fn local_problems(&self) -> Vec<FieldError> {
        let Request { body, problems } = self.request();
        let mut rules = Vec::new();
        let image = body.pointer("/image/uri").and_then(Value::as_str);
        if let Some(Err(error)) = image.map(osb_protocol::image::check) {
            let place = ["image", "uri"];
            rules.push(FieldError::body("value_error", place, error.to_string()));
        }
        for error in labels::check_all(&texts(&body["metadata"])) {
            let place = ["metadata", error.key()];
            rules.push(FieldError::body("value_error", place, error.to_string()));
        }
        if let Err(errors) = ResourceLimits::parse(&texts(&body["resourceLimits"])) {
            for error in errors {
                let place = ["resourceLimits", error.key];
                let text = format!("expected {}", error.expected);
                rules.push(FieldError::body("value_error", place, text));
            }
        }
        self.problems(problems, rules)
    }

    /// Puts a rule of the API into words of this form.
    fn reword(&self, rule: &mut FieldError) {
        match Field::of(rule) {
            // The API names the image where both are missing.
            Field::Image if self.is_of_snapshot() && self.snapshot.trim().is_empty() => {
                let text = "Choose a snapshot that is ready.";
                *rule = FieldError::body("missing", ["snapshotId"], text);
            }
            Field::Image if self.is_of_template() && self.template.trim().is_empty() => {
                let text = "Choose a template that is made.";
                *rule = FieldError::body("missing", ["templateId"], text);
            }
            Field::Ttl if self.is_of_template() && rule.kind == "missing" => {
                "A sandbox from a template needs an end.".clone_into(&mut rule.msg);
            }
            Field::Image if self.image.trim().is_empty() => {
                rule.msg = format!("Name an image, such as {PUBLIC_IMAGE}.");
            }
            Field::Entrypoint if self.entrypoint.trim().is_empty() => {
                NO_COMMAND.clone_into(&mut rule.msg);
            }
            Field::Ttl if rule.kind == "greater_than_equal" => {
                "A sandbox lives for at least 1 minute.".clone_into(&mut rule.msg);
            }
            Field::More if rule.loc.len() > 1 && rule.field() != MORE => {
                rule.msg = format!("{}: {}", rule.field(), rule.msg);
            }
            Field::Network => rule.msg = format!("{}: {}", rule.field(), rule.msg),
            Field::Env | Field::Extensions => {
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
        use crate::error::ConsoleError;
        let Request { body, problems } = self.request();
        let problems = self.problems(problems, backend.validate(&body));
        if !problems.is_empty() {
            return backend.refuse_create(problems);
        }
        let created = match self.from.trim() {
            "" => backend.create(body).await,
            from => {
                let mut body = body;
                if let Value::Object(members) = &mut body {
                    // The form began with the policy of the original: it was taken out on purpose.
                    members.entry("networkPolicy").or_insert(Value::Null);
                }
                backend
                    .create_copy(body, &from.into(), self.kept_names())
                    .await
            }
        };
        created.map_err(|error| match error {
            ConsoleError::Invalid { problems } => ConsoleError::Invalid {
                problems: self.problems(Vec::new(), problems),
            },
            other => other,
        })
    }
}

/// The texts of an object of texts.
fn texts(object: &Value) -> BTreeMap<String, String> {
    let members = object.as_object().into_iter().flatten();
    members
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests;
