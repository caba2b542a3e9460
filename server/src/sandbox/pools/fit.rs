//! Creates that name no pool, and would make what waits in one (`[pools] serve_plain_creates`).

use osb_runtime::{CreateSpec, Observed, Origin};
use serde_json::Value;

use super::state::{Key, Taken};
use crate::sandbox::{Service, validate::claimed};

impl Service {
    /// A member that waits and is what a create asks for, with its entry point and its environment as the
    /// claim sets them. A create never waits for one: it can start a sandbox of its own.
    pub(super) fn fitting_member(&self, spec: &CreateSpec) -> Option<(Taken, Observed)> {
        let limits = &self.inner.limits;
        // Without `execd_auth` a sandbox of its own would have no token, as every member has.
        if !limits.pools.serves_plain_creates || !limits.execd_auth {
            return None;
        }
        let tenant = self.scope.tenant();
        let rows = self.inner.pools.of_tenant(tenant).into_iter();
        // Reading a template takes longer than the rest of a create without a pool.
        let image = spec.origin.source.to_string();
        let rows = rows.filter(|row| row.template.contains(&image));
        let mut fitting = rows.filter(|row| {
            let template = serde_json::from_str::<Value>(&row.template).unwrap_or_default();
            let member = self.check_template(&template);
            member.is_ok_and(|member| fits(spec, &member))
        });
        fitting.find_map(|row| {
            let key: Key = (row.tenant, row.name);
            self.inner.pools.take(&key)
        })
    }
}

/// Whether a create that claims this member gets what it would make.
fn fits(spec: &CreateSpec, member: &CreateSpec) -> bool {
    // All fields are named, so that the compiler asks what a claim does with a new one.
    let CreateSpec {
        origin,
        auth,
        env,
        // The amounts are compared as requested.
        limits: _,
        lifecycle,
        isolation,
        // Only members wait, and have something prepared.
        waits: _,
        network_policy,
        prepared: _,
        volumes,
    } = spec;
    let Origin {
        source,
        platform,
        entrypoint,
        resources,
        secure_access,
        // The claim sets them.
        created_at: _,
        metadata: _,
        extensions: _,
        expiry: _,
        renew_extend_seconds: _,
        tenant: _,
        owner: _,
        // Every member has its own, also a token.
        id: _,
        token: _,
        egress_token: _,
        pool: _,
        // They say what the spec has.
        hooks: _,
        volumes: _,
    } = origin;
    let is_plain = auth.is_none()
        && lifecycle.is_none()
        && !isolation
        && volumes.is_empty()
        && secure_access.is_none()
        && platform.is_none();
    // A claim adds variables, and removes only those that it names.
    let mut variables = member.env.iter();
    let has_variables = variables.all(|(name, value)| env.get(name) == Some(value));
    is_plain
        && has_variables
        && claimed::check(entrypoint, env).is_empty()
        && *source == member.origin.source
        && *resources == member.origin.resources
        && *network_policy == member.network_policy
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;
    use osb_runtime::{NetworkPolicy, Source};

    use super::*;

    fn spec() -> CreateSpec {
        let source = Source::Image("debian:12".to_owned());
        let at = WireTime::from_unix_us(1).unwrap();
        let mut spec = CreateSpec::new(Origin::new("a", source, at));
        spec.origin.resources = [("cpu".to_owned(), "1".to_owned())].into();
        spec.env = [("A".to_owned(), Some("1".to_owned()))].into();
        spec
    }

    #[test]
    fn a_create_fits_only_if_the_claim_makes_the_same() {
        let member = spec();
        let mut same = spec();
        same.origin.entrypoint = vec!["sleep".to_owned()];
        same.origin.metadata = [("k".to_owned(), "v".to_owned())].into();
        same.env.insert("B".to_owned(), None);
        assert!(fits(&same, &member));
        let others: [fn(&mut CreateSpec); 10] = [
            |it| it.origin.source = Source::Image("debian:13".to_owned()),
            |it| it.origin.source = Source::Snapshot("debian:12".to_owned()),
            |it| it.origin.resources.clear(),
            |it| it.env.clear(),
            |it| drop(it.env.insert("A".to_owned(), Some("2".to_owned()))),
            |it| drop(it.env.insert("JUPYTER_TOKEN".to_owned(), None)),
            |it| it.origin.entrypoint = vec!["x".repeat(100 << 10); 11],
            |it| it.isolation = true,
            |it| it.lifecycle = Some("{}".to_owned()),
            |it| it.network_policy = Some(NetworkPolicy::default()),
        ];
        for (number, change) in others.into_iter().enumerate() {
            let mut other = spec();
            change(&mut other);
            assert!(!fits(&other, &member), "{number}");
        }
    }
}
