//! Pools for the console: more than the API shows of them.

use std::{collections::BTreeMap, time::Duration};

use osb_protocol::{FieldError, WireTime, lifecycle::PoolCapacity};
use serde::Deserialize;
use serde_json::Value;

use super::{
    failure::PoolFailure,
    state::{PoolCounts, PoolNow},
    template,
};
use crate::sandbox::{Error, Service, pool_error::PoolError};

/// A pool with its sandboxes, and what they are made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOverview {
    /// Its name.
    pub name: String,
    /// How many sandboxes it keeps.
    pub capacity: PoolCapacity,
    /// How many it has.
    pub counts: PoolCounts,
    /// Whether the latest start has failed.
    pub is_failing: bool,
    /// The latest start that has failed, since the server or the template is the present one.
    pub last_failure: Option<PoolFailure>,
    /// What its sandboxes are made from.
    pub template: TemplateOverview,
    /// Names the template.
    pub revision: String,
    /// When it was added.
    pub created_at: WireTime,
    /// When it was last changed.
    pub changed_at: WireTime,
}

/// What sandboxes of a pool are made from. Of variables only the names: their values may be secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateOverview {
    /// The image.
    pub image: String,
    /// What runs from the claim on, unless the claim says otherwise.
    pub entrypoint: Vec<String>,
    /// The resource limits.
    pub resources: BTreeMap<String, String>,
    /// Names of the variables.
    pub variables: Vec<String>,
}

impl TemplateOverview {
    /// A template that the server has accepted; empty if it does not accept it any more.
    fn of(template: &str) -> Self {
        /// The body of a request to create, as far as a template fills it.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Body {
            image: Image,
            entrypoint: Vec<String>,
            env: BTreeMap<String, String>,
            resource_limits: BTreeMap<String, String>,
        }
        #[derive(Deserialize)]
        struct Image {
            uri: String,
        }
        let template: Value = serde_json::from_str(template).unwrap_or_default();
        let body = template::create_body(&template).ok();
        let body: Option<Body> = body.and_then(|body| serde_json::from_value(body).ok());
        body.map_or_else(Self::default, |body| Self {
            image: body.image.uri,
            entrypoint: body.entrypoint,
            resources: body.resource_limits,
            variables: body.env.into_keys().collect(),
        })
    }
}

impl From<PoolNow> for PoolOverview {
    fn from(now: PoolNow) -> Self {
        let row = now.row;
        Self {
            capacity: row.capacity,
            counts: now.counts,
            is_failing: now.is_failing,
            last_failure: now.last_failure,
            template: TemplateOverview::of(&row.template),
            revision: row.revision,
            created_at: row.created_at,
            changed_at: row.changed_at,
            name: row.name,
        }
    }
}

impl Service {
    /// The pools of the scope's tenant, by name.
    ///
    /// # Errors
    /// When the runtime has no pools.
    pub fn pool_overviews(&self) -> Result<Vec<PoolOverview>, Error> {
        self.require_pools()?;
        let pools = self.inner.pools.now_of_tenant(self.scope.tenant());
        Ok(pools.into_iter().map(PoolOverview::from).collect())
    }

    /// One pool of the scope's tenant.
    ///
    /// # Errors
    /// [`PoolError::NotFound`].
    pub fn pool_overview(&self, name: &str) -> Result<PoolOverview, Error> {
        self.require_pools()?;
        let now = self.inner.pools.now(&self.pool_key(name));
        let now = now.ok_or_else(|| Error::Pool(PoolError::NotFound(name.to_owned())))?;
        Ok(now.into())
    }

    /// Every rule that a pool of this name and template breaks.
    #[must_use]
    pub fn pool_problems(&self, name: &str, template: &Value) -> Vec<FieldError> {
        let checked = self.check_pool(Some(name), Some(template));
        checked
            .err()
            .map(|error| error.fields())
            .unwrap_or_default()
    }

    /// Longest time that a create waits for a sandbox of its pool.
    #[must_use]
    pub fn pool_acquisition(&self) -> Duration {
        self.inner.limits.pools.acquisition
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_template_is_shown_without_the_values_of_its_variables() {
        let template = json!({"spec": {"containers": [{
            "image": "debian:12", "command": ["sleep"], "args": ["9"],
            "env": [{"name": "TOKEN", "value": "secret"}],
            "resources": {"limits": {"cpu": 1}},
        }]}});
        let shown = TemplateOverview::of(&template.to_string());
        assert_eq!(shown.image, "debian:12");
        assert_eq!(shown.entrypoint, ["sleep", "9"]);
        assert_eq!(shown.resources["cpu"], "1");
        assert_eq!(shown.variables, ["TOKEN"]);
        assert!(!format!("{shown:?}").contains("secret"), "{shown:?}");
        assert_eq!(TemplateOverview::of("{}"), TemplateOverview::default());
    }
}
