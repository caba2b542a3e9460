//! Creates that take over what another sandbox was created with.
//!
//! The values of its variables stay on the server: a client gets their names, and says which of them the
//! new sandbox takes over.

use std::collections::BTreeMap;

use osb_protocol::{
    SandboxId,
    lifecycle::{NetworkPolicy, Volume},
};
use osb_runtime::{Expiry, Origin, RequestEnvironment, Source};
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};

use super::{Error, Service};

/// Extension by which requests through the server's proxy extend a life.
const RENEW_EXTEND: &str = "access.renew.extend.seconds";

/// What a client learns of a sandbox in order to create another like it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Original {
    /// Its image, unless it was made from something else.
    pub image: Option<String>,
    /// Id of the snapshot that it was made from, if it was.
    pub snapshot: Option<String>,
    /// Id of the template that it was made from, if it was.
    pub template: Option<String>,
    /// Its entry point.
    pub entrypoint: Vec<String>,
    /// Its resource limits as requested.
    pub resources: BTreeMap<String, String>,
    /// Its metadata now.
    pub metadata: BTreeMap<String, String>,
    /// Its extensions, as far as they are known.
    pub extensions: BTreeMap<String, String>,
    /// Its volumes, without credentials, as far as they are known.
    pub volumes: Vec<Volume>,
    /// Whether its endpoints need a token of their own.
    pub secure_access: bool,
    /// Whether a sidecar enforces a network policy for it.
    pub has_network_policy: bool,
    /// The network policy that it was created with; `None` without one, and when it is not known any
    /// more. Only its sidecar knows what was changed since.
    pub network_policy: Option<NetworkPolicy>,
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
        // All fields are named, so that the compiler asks what a copy does with a new one.
        let Origin {
            source,
            entrypoint,
            resources,
            volumes,
            secure_access,
            egress_token,
            created_at,
            expiry,
            // See `extensions`.
            extensions: _,
            renew_extend_seconds: _,
            // What it has now counts.
            metadata: _,
            // See `completed`.
            platform: _,
            hooks: _,
            // Every sandbox has its own.
            id: _,
            token: _,
            tenant: _,
            owner: _,
            pool: _,
        } = &*record.facts.origin;
        let mut environment = self.environment(id).await?;
        let policy = environment.as_mut().and_then(|it| it.network_policy.take());
        let template = source.template_id();
        let names = environment.map(|environment| {
            // Those of a template come with it.
            let own = environment.variables.into_iter();
            let own = own.filter(|_| template.is_none());
            own.filter_map(|(name, value)| value.map(|_| name))
                .collect()
        });
        Ok(Original {
            image: match source {
                Source::Image(image) => Some(image.clone()),
                Source::Snapshot(_) | Source::Pool(_) | Source::Template(_) => None,
            },
            snapshot: source.snapshot_id().map(str::to_owned),
            template: template.map(str::to_owned),
            entrypoint: entrypoint.clone(),
            resources: resources.clone(),
            metadata: record.sandbox.metadata.clone(),
            extensions: extensions(&record.facts.origin),
            volumes: volumes.clone(),
            secure_access: secure_access.is_some(),
            has_network_policy: egress_token.is_some(),
            network_policy: policy.and_then(|text| serde_json::from_str(&text).ok()),
            timeout: match *expiry {
                Expiry::At(at) => Some(whole_seconds(at.unix_ms() - created_at.unix_ms())),
                Expiry::Manual | Expiry::Unknown => None,
            },
            variables: names,
        })
    }

    async fn original_of_history(&self, id: &SandboxId) -> Result<Original, Error> {
        let entry = self.history(id).await?;
        let entry = entry.ok_or_else(|| Error::NotFound(id.clone()))?;
        let expires = entry.spec.expires_at.map(|at| at.unix_ms());
        let source = Source::of_text(&entry.image);
        Ok(Original {
            image: source
                .image()
                .filter(|it| !it.is_empty())
                .map(str::to_owned),
            snapshot: source.snapshot_id().map(str::to_owned),
            template: source.template_id().map(str::to_owned),
            entrypoint: entry.spec.entrypoint,
            resources: entry.spec.resources,
            metadata: entry.spec.metadata,
            // The history does not have them.
            extensions: BTreeMap::new(),
            volumes: Vec::new(),
            secure_access: false,
            has_network_policy: false,
            network_policy: None,
            timeout: expires.map(|at| whole_seconds(at - entry.created_at.unix_ms())),
            variables: None,
        })
    }

    /// Accepts a create request like [`Self::accept`] that takes variables over from another sandbox, and
    /// settings that the console's form has no field for, unless the request has them.
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
        let id = self.accept(body).await?;
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
            // A template brings all that is taken over here. Variables that are asked for are refused.
            let is_whole = is_of_template(body) && variables.is_empty();
            if !is_whole {
                take_environment(body, &environment, variables);
            }
            if let Some(record) = record {
                let origin = &record.facts.origin;
                self.refuse_lost_policy(body, origin)?;
                if !is_whole {
                    take_settings(body, origin);
                }
            }
        }
        Ok(body)
    }

    /// Refuses a request that does not mention a network policy although the original has one: the copy
    /// would reach more than its original does. `null` says that it is to have none. Where every sandbox
    /// has the server's default, the copy has that.
    fn refuse_lost_policy(&self, body: &Map<String, Value>, origin: &Origin) -> Result<(), Error> {
        let is_lost = origin.egress_token.is_some()
            && self.inner.limits.default_policy.is_none()
            && !["networkPolicy", "network_policy"]
                .iter()
                .any(|name| body.contains_key(*name));
        if is_lost {
            let rule = "is missing, but the original has a network policy: send it, another one, or null for none";
            return Err(Error::Broken(vec![Error::rule("networkPolicy", rule)]));
        }
        Ok(())
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

/// Whether a request asks for a sandbox from a template.
fn is_of_template(body: &Map<String, Value>) -> bool {
    let given = ["templateId", "template_id"]
        .iter()
        .find_map(|name| body.get(*name)?.as_str());
    given.is_some_and(|id| !id.trim().is_empty())
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

/// The extensions of a request, as far as they are kept.
fn extensions(origin: &Origin) -> BTreeMap<String, String> {
    let mut extensions = origin.extensions.clone();
    if let Some(seconds) = origin.renew_extend_seconds {
        extensions.insert(RENEW_EXTEND.to_owned(), seconds.to_string());
    }
    extensions
}

/// Adds what the console's form has no field for. What it has one for, such as extensions, may be left
/// out on purpose.
fn take_settings(body: &mut Map<String, Value>, origin: &Origin) {
    if let Some(platform) = &origin.platform {
        let platform = || json!(platform);
        body.entry("platform").or_insert_with(platform);
    }
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
