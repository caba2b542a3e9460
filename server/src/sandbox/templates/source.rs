//! What a create gets from a template.

use osb_protocol::{
    lifecycle::{TemplateFormat, TemplatePhase, TemplateSpec},
    resources::ResourceLimits,
};
use osb_runtime::CreateSpec;
use osb_store::TemplateRow;

use crate::sandbox::{Error, Service, TemplateError};

/// What a sandbox runs when its template names nothing (contract: lifecycle §A3).
const ENTRYPOINT: [&str; 3] = ["tail", "-f", "/dev/null"];
/// Limits of a sandbox whose template has none (contract: lifecycle §A3).
const LIMITS: [(&str, &str); 2] = [("cpu", "1"), ("memory", "512Mi")];

impl Service {
    /// Refuses a create whose snapshot or template cannot be started. A create from a template gets what
    /// its sandbox runs.
    ///
    /// # Errors
    /// [`Error::Snapshot`] and [`Error::Template`]; when the store cannot be read.
    pub(in crate::sandbox) async fn resolve_source(
        &self,
        spec: &mut CreateSpec,
    ) -> Result<(), Error> {
        self.check_source(spec).await?;
        let Some(id) = spec.origin.source.template_id() else {
            return Ok(());
        };
        let found = self.inner.store.template(id).await?;
        let found = found.filter(|row| self.scope.contains(row.tenant.as_deref()));
        let template = usable(id, found)?;
        apply(template, spec);
        Ok(())
    }
}

/// What sandboxes from a template run, if it was made.
fn usable(id: &str, found: Option<TemplateRow>) -> Result<TemplateSpec, TemplateError> {
    let row = found.ok_or_else(|| TemplateError::NoSource(id.to_owned()))?;
    if row.phase != TemplatePhase::Succeeded {
        return Err(TemplateError::NotMade {
            id: row.id,
            phase: row.phase,
        });
    }
    // One that cannot be read, which `store check` reports, is of no use.
    serde_json::from_str(&row.spec).map_err(|_| TemplateError::NoSource(row.id))
}

fn apply(template: TemplateSpec, spec: &mut CreateSpec) {
    let entrypoint = template.entrypoint;
    spec.origin.entrypoint = entrypoint.unwrap_or_else(|| ENTRYPOINT.map(str::to_owned).to_vec());
    let env = template.env.unwrap_or_default().into_iter();
    spec.env = env.map(|(name, value)| (name, Some(value))).collect();
    let mut resources = template.resource_limits.unwrap_or_default();
    resources.retain(|key, _| ResourceLimits::KEYS.contains(&key.as_str()));
    for (key, value) in LIMITS {
        let limit = resources.entry(key.to_owned());
        limit.or_insert_with(|| value.to_owned());
    }
    spec.limits = ResourceLimits::parse(&resources).unwrap_or_default();
    spec.origin.resources = resources;
}

/// Stands for a spec that cannot be read.
pub(super) fn empty_spec() -> TemplateSpec {
    TemplateSpec {
        image: None,
        build: None,
        resource_limits: None,
        entrypoint: None,
        env: None,
        readiness: None,
        publish: String::new(),
        format: TemplateFormat::default(),
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;
    use osb_runtime::{Origin, Source};
    use serde_json::{Value, json};

    use super::*;

    fn applied(template: Value) -> CreateSpec {
        let (source, at) = (
            Source::Template("t".to_owned()),
            WireTime::from_unix_us(1).unwrap(),
        );
        let mut spec = CreateSpec::new(Origin::new("a", source, at));
        apply(serde_json::from_value(template).unwrap(), &mut spec);
        spec
    }

    #[test]
    fn a_sandbox_gets_what_its_template_has_or_the_contracts_defaults() {
        let bare = applied(json!({"image": "a", "publish": "p"}));
        assert_eq!(bare.origin.entrypoint, ["tail", "-f", "/dev/null"]);
        assert_eq!(bare.limits.nano_cpus, Some(1_000_000_000));
        assert_eq!(bare.limits.memory_bytes, Some(512 << 20));
        assert!(bare.env.is_empty());
        let whole = applied(json!({
            "image": "a", "publish": "p", "entrypoint": ["run"], "env": {"A": "1"},
            "resourceLimits": {"cpu": "2", "disk": "4Gi"},
        }));
        assert_eq!(whole.origin.entrypoint, ["run"]);
        assert_eq!(whole.env["A"].as_deref(), Some("1"));
        assert_eq!(whole.limits.nano_cpus, Some(2_000_000_000));
        let shown: Vec<_> = whole.origin.resources.keys().collect();
        assert_eq!(shown, ["cpu", "memory"], "no disk is limited");
    }
}
