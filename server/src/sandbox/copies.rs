//! Creates that take over what another sandbox was created with.
//!
//! The values of its variables stay on the server: a client gets their names, and says which of them the
//! new sandbox takes over.

use std::collections::BTreeMap;

use osb_protocol::SandboxId;
use osb_runtime::{Expiry, Origin, RequestEnvironment, Source};
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};

use super::{Error, Service};

/// What a client learns of a sandbox in order to create another like it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Original {
    /// Its image, unless it was made from something else.
    pub image: Option<String>,
    /// Its entry point.
    pub entrypoint: Vec<String>,
    /// Its resource limits as requested.
    pub resources: BTreeMap<String, String>,
    /// Its metadata now.
    pub metadata: BTreeMap<String, String>,
    /// The life that it was created for, in seconds; `None` for one without an end.
    pub timeout: Option<i64>,
    /// Names of the variables of its request; `None` when they are not known any more.
    pub variables: Option<Vec<String>>,
}

impl Service {
    /// What another sandbox like this one would be created with. Also of one that is gone, as far as
    /// the history has it.
    ///
    /// # Errors
    /// [`Error::NotFound`]; when the runtime fails.
    pub async fn original(&self, id: &SandboxId) -> Result<Original, Error> {
        let Some(record) = self.find(id) else {
            return self.original_of_history(id).await;
        };
        let origin = &record.facts.origin;
        let environment = self.environment(id).await?;
        let names = environment.map(|environment| {
            let set = environment.variables.into_iter();
            set.filter_map(|(name, value)| value.map(|_| name))
                .collect()
        });
        Ok(Original {
            image: match &origin.source {
                Source::Image(image) => Some(image.clone()),
                Source::Snapshot(_) | Source::Pool(_) => None,
            },
            entrypoint: origin.entrypoint.clone(),
            resources: origin.resources.clone(),
            metadata: record.sandbox.metadata.clone(),
            timeout: match origin.expiry {
                Expiry::At(at) => Some(whole_seconds(at.unix_ms() - origin.created_at.unix_ms())),
                Expiry::Manual | Expiry::Unknown => None,
            },
            variables: names,
        })
    }

    async fn original_of_history(&self, id: &SandboxId) -> Result<Original, Error> {
        let entry = self.history(id).await?;
        let entry = entry.ok_or_else(|| Error::NotFound(id.clone()))?;
        let expires = entry.spec.expires_at.map(|at| at.unix_ms());
        Ok(Original {
            image: Some(entry.image).filter(|image| !image.is_empty()),
            entrypoint: entry.spec.entrypoint,
            resources: entry.spec.resources,
            metadata: entry.spec.metadata,
            timeout: expires.map(|at| whole_seconds(at - entry.created_at.unix_ms())),
            variables: None,
        })
    }

    /// Accepts a create request like [`Self::accept`] that takes variables over from another sandbox, and
    /// what else a request can say and this one does not.
    ///
    /// # Errors
    /// Those of [`Self::accept`]; [`Error::NotFound`] for the other sandbox; when a variable is not one
    /// of its own.
    pub async fn accept_copy(
        &self,
        body: Value,
        of: &SandboxId,
        variables: &[String],
    ) -> Result<SandboxId, Error> {
        let body = self.completed(body, of, variables).await?;
        let id = self.accept(body)?;
        self.note_copy(of, variables);
        Ok(id)
    }

    /// A create request with what it takes over. The result has secrets.
    async fn completed(
        &self,
        mut body: Value,
        of: &SandboxId,
        variables: &[String],
    ) -> Result<Value, Error> {
        let record = self.find(of);
        let environment = match &record {
            Some(_) => self.environment(of).await?,
            None if self.history(of).await?.is_some() => None,
            None => return Err(Error::NotFound(of.clone())),
        };
        let environment = environment.unwrap_or_default();
        let unknown: Vec<_> = variables
            .iter()
            .filter(|name| !environment.variables.contains_key(*name))
            .map(|name| Error::Entry {
                map: "env",
                key: name.clone(),
                rule: format!("is no variable of sandbox {of} that could be taken over"),
            })
            .collect();
        if !unknown.is_empty() {
            return Err(Error::Broken(unknown));
        }
        if let Value::Object(body) = &mut body {
            take_environment(body, &environment, variables);
            if let Some(record) = record {
                take_settings(body, &record.facts.origin);
            }
        }
        Ok(body)
    }

    /// The environment of a sandbox's request; `None` if it cannot be read.
    async fn environment(&self, id: &SandboxId) -> Result<Option<RequestEnvironment>, Error> {
        let Some(copying) = self.inner.runtime.copying() else {
            return Ok(None);
        };
        match copying.read_environment(id).await {
            Ok(environment) => Ok(Some(environment)),
            // It has no container yet.
            Err(osb_runtime::RuntimeError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Adds variables, removed defaults and hooks. What the request says itself stays.
fn take_environment(
    body: &mut Map<String, Value>,
    environment: &RequestEnvironment,
    variables: &[String],
) {
    let env = body.entry("env").or_insert_with(|| json!({}));
    if let Value::Object(env) = env {
        for (name, value) in &environment.variables {
            if value.is_none() || variables.contains(name) {
                let value = value.as_ref().map(ExposeSecret::expose_secret);
                env.entry(name).or_insert_with(|| json!(value));
            }
        }
    }
    let hooks = environment.hooks.as_ref();
    let hooks = hooks.and_then(|hooks| serde_json::from_str(hooks.expose_secret()).ok());
    if let (Some(hooks), false) = (hooks, body.contains_key("lifecycle")) {
        body.insert("lifecycle".to_owned(), hooks);
    }
}

/// Adds what the console's form has no field for.
fn take_settings(body: &mut Map<String, Value>, origin: &Origin) {
    let mut take = |name: &str, value: Option<Value>| {
        if let (Some(value), false) = (value, body.contains_key(name)) {
            body.insert(name.to_owned(), value);
        }
    };
    take("platform", origin.platform.as_ref().map(|it| json!(it)));
    take(
        "secureAccess",
        origin.secure_access.as_ref().map(|_| json!(true)),
    );
    let mut extensions = origin.extensions.clone();
    if let Some(seconds) = origin.renew_extend_seconds {
        let name = "access.renew.extend.seconds";
        extensions.insert(name.to_owned(), seconds.to_string());
    }
    take(
        "extensions",
        (!extensions.is_empty()).then(|| json!(extensions)),
    );
    // Amounts that the form has no field for, such as graphics processors.
    let limits = body
        .get_mut("resourceLimits")
        .and_then(Value::as_object_mut);
    if let Some(limits) = limits {
        for (name, amount) in &origin.resources {
            if !matches!(name.as_str(), "cpu" | "memory") {
                limits.entry(name).or_insert_with(|| json!(amount));
            }
        }
    }
}

/// Rounded, because an expiry is computed a moment after the create.
fn whole_seconds(ms: i64) -> i64 {
    (ms + 500).div_euclid(1_000)
}
