//! Rules about sandboxes, in the contract's order (contract: lifecycle §4.4, §4.5, §5.1).

use std::collections::BTreeMap;

use osb_protocol::{
    Feature, WireTime,
    execd::HOOKS_ENV,
    labels,
    lifecycle::{CreateSandboxRequest, LifecycleHooks, Platform, Volume},
    resources::ResourceLimits,
};
use osb_runtime::{
    CreateSpec, Expiry, NetworkPolicy, Origin, SERVER_VARIABLES, Source, new_id, new_token,
};

use super::{ARGUMENT_MAX, ENTRYPOINT_MAX, MAP_MAX, Rules, claimed, network_policy, volumes};
use crate::sandbox::{Error, lifecycle::now};

const RENEW_EXTEND: &str = "access.renew.extend.seconds";
/// Fewest and most seconds that an access may add.
const RENEW_RANGE: std::ops::RangeInclusive<u32> = 300..=86_400;
const POOL_REF: &str = "poolRef";
/// Rule of what a sandbox must have from its start (contract: Kubernetes K1).
const NOT_WITH_POOL: &str = "must not be given with extensions.poolRef";
const ISOLATION: &str = "bootstrap.execd.isolation";
/// The only value of [`ISOLATION`].
const ISOLATION_ON: &str = "enable";
/// Least CPU time that the kernel accepts, in billionths of a core: 1 ms of each 100 ms.
const CPU_MIN: i64 = 10_000_000;
/// Least memory that container engines accept, in bytes.
const MEMORY_MIN: i64 = 6 << 20;
/// What a sandbox from a snapshot runs when the request names nothing (contract: lifecycle §9.5).
const RESTORED_ENTRYPOINT: [&str; 3] = ["tail", "-f", "/dev/null"];

/// The rules that a request breaks so far, at most [`super::REPORTED`].
#[derive(Debug, Default)]
pub(super) struct Broken(pub(super) Vec<Error>);

impl Broken {
    /// Notes the rule that a result says is broken.
    pub(super) fn note<T>(&mut self, checked: Result<T, Error>) -> Option<T> {
        match checked {
            Ok(value) => Some(value),
            Err(error) => {
                self.add([error]);
                None
            }
        }
    }

    pub(super) fn add(&mut self, errors: impl IntoIterator<Item = Error>) {
        let room = super::REPORTED.saturating_sub(self.0.len());
        self.0.extend(errors.into_iter().take(room));
    }
}

/// Turns a request into a spec.
///
/// # Errors
/// All rules that it breaks, in the contract's order.
pub(super) fn spec(request: CreateSandboxRequest, rules: &Rules) -> Result<CreateSpec, Vec<Error>> {
    // All fields are named, so that the compiler asks what becomes of a new one.
    let CreateSandboxRequest {
        image,
        snapshot_id,
        platform,
        timeout,
        resource_limits,
        // Nothing is reserved on a single host.
        resource_requests: _,
        env,
        metadata,
        entrypoint: command,
        network_policy,
        credential_proxy,
        secure_access,
        volumes,
        lifecycle,
        template_id,
        extensions,
    } = request;
    let mut broken = Broken::default();
    let renew_extend_seconds = broken.note(renew_extension(&extensions));
    let isolation = broken.note(isolation(&extensions, rules));
    let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    let template = given(&template_id);
    let snapshot = given(&snapshot_id);
    let pool = given(&extensions.get(POOL_REF).cloned());
    for (feature, is_asked_for) in [
        (Feature::Snapshots, snapshot.is_some()),
        (Feature::Templates, template.is_some()),
        (Feature::LifecycleHooks, lifecycle.is_some()),
        (Feature::Pools, pool.is_some()),
    ] {
        broken.note(rules.require(feature, is_asked_for));
    }
    // Where there are no pools, that is said alone.
    let from_pool = pool.is_some() && rules.features.contains(Feature::Pools);
    for (field, is_given) in [
        ("networkPolicy", network_policy.is_some()),
        ("secureAccess", secure_access),
        ("volumes", !volumes.is_empty()),
    ] {
        if is_given && from_pool {
            broken.add([Error::rule(field, NOT_WITH_POOL)]);
        }
    }
    if template.is_some() && from_pool {
        // With a template it names a pool of another kind (contract: lifecycle §4.1).
        let rule = "must not be given with templateId: it would name a pool of micro-VMs";
        broken.add([extension_rule(POOL_REF, rule.to_owned())]);
    }
    if isolation == Some(true) && from_pool {
        broken.add([extension_rule(ISOLATION, NOT_WITH_POOL.to_owned())]);
    }
    let entrypoint = match (command, &snapshot, &pool) {
        (None, Some(_), _) => Some(RESTORED_ENTRYPOINT.map(str::to_owned).to_vec()),
        // The pool's or the template's.
        (None, _, Some(_)) => Some(Vec::new()),
        (None, ..) if template.is_some() => Some(Vec::new()),
        (given, ..) => broken.note(entrypoint(given)),
    };
    broken.add(labels::check_all(&metadata).into_iter().map(Error::from));
    for (field, map) in [("metadata", &metadata), ("extensions", &extensions)] {
        broken.note(total_size(field, map, None));
    }
    let platform = platform.as_ref();
    let platform = platform.map(|given| normalise_platform(given, rules, &mut broken));
    let created_at = now();
    let expiry = broken.note(expiry(timeout, created_at, rules));
    broken.note(rules.require(Feature::SecureAccess, secure_access));
    let mut wrong = Vec::new();
    // A sandbox of a pool has what it was started with.
    let policy = match pool {
        Some(_) => None,
        None => network_policy::text(network_policy.as_ref(), rules, &mut wrong),
    };
    let has_policy = policy.is_some();
    wrong.extend(network_policy::interception(
        credential_proxy,
        &env,
        has_policy,
    ));
    broken.add(wrong);
    let resources = resource_limits.unwrap_or_default();
    let limits = limits(&resources, &mut broken);
    environment(&env, &mut broken);
    if pool.is_some() {
        let entrypoint = entrypoint.as_deref().unwrap_or_default();
        broken.add(claimed::check(entrypoint, &env));
    }
    let lifecycle = match lifecycle {
        Some(hooks) => broken.note(hooks_text(&hooks)),
        None => None,
    };
    broken.note(rules.require(Feature::Volumes, !volumes.is_empty()));
    broken.add(volumes::check(&volumes, &rules.storage));
    let volumes = volumes::normalised(volumes);
    let (source, auth) = match (template, snapshot, pool, image) {
        (Some(template), ..) => (Some(Source::Template(template)), None),
        (None, Some(snapshot), ..) => (Some(Source::Snapshot(snapshot)), None),
        (None, None, Some(pool), _) => (Some(Source::Pool(pool)), None),
        (None, None, None, None) => (broken.note(Err(Error::rule("image", "is required"))), None),
        (None, None, None, Some(image)) => {
            let reference = broken.note(reference("image.uri", &image.uri));
            (reference.map(Source::Image), image.auth)
        }
    };
    let mut env = env;
    let network_policy = policy.map(|rules| NetworkPolicy {
        rules,
        variables: network_policy::variables(&env),
    });
    // Without a sidecar they have no effect (contract: lifecycle §A9).
    env.retain(|name, _| !network_policy::is_of_sidecar(name));
    let origin = |source, entrypoint, expiry, renew_extend_seconds| Origin {
        id: new_id(),
        created_at,
        source,
        platform,
        entrypoint,
        resources,
        metadata,
        extensions: echoed(extensions),
        expiry,
        renew_extend_seconds,
        token: rules.execd_auth.then(new_token),
        secure_access: secure_access.then(new_token),
        egress_token: has_policy.then(new_token),
        hooks: lifecycle.is_some(),
        volumes: volumes.iter().map(Volume::without_credentials).collect(),
        tenant: None,
        owner: None,
        pool: None,
    };
    match (source, entrypoint, expiry, renew_extend_seconds, isolation) {
        (Some(source), Some(entrypoint), Some(expiry), Some(renew), Some(isolation))
            if broken.0.is_empty() =>
        {
            Ok(CreateSpec {
                origin: origin(source, entrypoint, expiry, renew),
                auth,
                env,
                limits,
                lifecycle,
                isolation,
                waits: false,
                network_policy,
                prepared: None,
                volumes,
            })
        }
        _ => Err(broken.0),
    }
}

fn expiry(timeout: Option<i64>, created_at: WireTime, rules: &Rules) -> Result<Expiry, Error> {
    let Some(seconds) = timeout else {
        return Ok(Expiry::Manual);
    };
    if let Some(most) = rules.max_timeout_seconds
        && seconds > most
    {
        let rule = format!("must be at most {most} seconds");
        return Err(Error::rule("timeout", rule));
    }
    let end = created_at.plus_seconds(seconds);
    end.map(Expiry::At)
        .ok_or_else(|| Error::rule("timeout", "must end before the year 10000"))
}

pub(super) fn limits(resources: &BTreeMap<String, String>, broken: &mut Broken) -> ResourceLimits {
    let limits = ResourceLimits::parse(resources).unwrap_or_else(|unreadable| {
        // The other amounts are checked all the same.
        let mut readable = resources.clone();
        readable.retain(|key, _| unreadable.iter().all(|error| error.key != key));
        broken.add([Error::Resources(unreadable)]);
        ResourceLimits::parse(&readable).unwrap_or_default()
    });
    if limits.nano_cpus.is_some_and(|nanos| nanos < CPU_MIN) {
        broken.add([Error::rule("resourceLimits.cpu", "must be at least 10m")]);
    }
    if limits.memory_bytes.is_some_and(|bytes| bytes < MEMORY_MIN) {
        broken.add([Error::rule("resourceLimits.memory", "must be at least 6Mi")]);
    }
    limits
}

/// The hooks as execd reads them from its environment.
fn hooks_text(hooks: &LifecycleHooks) -> Result<String, Error> {
    let text = serde_json::to_string(hooks).expect("texts and numbers");
    let most = ARGUMENT_MAX - HOOKS_ENV.len() - "=".len();
    if text.len() > most {
        let rule = format!("must not be longer than {most} bytes as JSON");
        return Err(Error::rule("lifecycle", rule));
    }
    Ok(text)
}

fn extension_rule(key: &str, rule: String) -> Error {
    Error::Entry {
        map: "extensions",
        key: key.to_owned(),
        rule,
    }
}

fn renew_extension(extensions: &BTreeMap<String, String>) -> Result<Option<u32>, Error> {
    let Some(text) = extensions.get(RENEW_EXTEND) else {
        return Ok(None);
    };
    let seconds = text
        .trim()
        .parse()
        .ok()
        .filter(|seconds| RENEW_RANGE.contains(seconds));
    let rule = || {
        let rule = "must be a whole number of seconds between 300 and 86400";
        extension_rule(RENEW_EXTEND, rule.to_owned())
    };
    seconds.ok_or_else(rule).map(Some)
}

/// Whether isolated sessions are asked for. Passing over another value would make a sandbox without
/// what was meant, which shows only when the first session is refused.
fn isolation(extensions: &BTreeMap<String, String>, rules: &Rules) -> Result<bool, Error> {
    let wrong = |rule| Err(extension_rule(ISOLATION, rule));
    match extensions.get(ISOLATION).map(String::as_str) {
        None => Ok(false),
        Some(ISOLATION_ON) if rules.execd_isolation => match rules.secure {
            Some(secure) if !secure.isolates_sessions() => wrong(format!(
                "is not available under {secure} (secure_runtime.type): execd cannot isolate \
                 sessions there"
            )),
            _ => Ok(true),
        },
        Some(ISOLATION_ON) => {
            let rule = "needs the role service_admin, and runtime.execd_isolation on the server";
            wrong(rule.to_owned())
        }
        Some(_) => wrong(format!("must be {ISOLATION_ON} or left out")),
    }
}

/// Checks the length of all entries of a map together: each change of a sandbox is sent with them to all who
/// watch. A map may stay `former` bytes long.
pub(super) fn total_size(
    field: &str,
    map: &BTreeMap<String, String>,
    former: Option<usize>,
) -> Result<(), Error> {
    let size = size_of(map);
    if size <= MAP_MAX.max(former.unwrap_or_default()) {
        return Ok(());
    }
    let rule = format!("must not be longer than {MAP_MAX} bytes in all, names included");
    Err(Error::rule(field, rule))
}

/// Length of all entries of a map, in bytes.
pub(super) fn size_of(map: &BTreeMap<String, String>) -> usize {
    map.iter().map(|(key, value)| key.len() + value.len()).sum()
}

pub(super) fn entrypoint(given: Option<Vec<String>>) -> Result<Vec<String>, Error> {
    let words = given.unwrap_or_default();
    let Some(first) = words.first() else {
        return Err(Error::Entrypoint("is required"));
    };
    if first.trim().is_empty() {
        return Err(Error::Entrypoint("must begin with a command"));
    }
    if words.iter().any(|word| word.contains('\0')) {
        return Err(Error::Entrypoint("must not contain NUL characters"));
    }
    if let Some(index) = words.iter().position(|word| word.len() > ARGUMENT_MAX) {
        let rule = format!("must not be longer than {ARGUMENT_MAX} bytes");
        return Err(Error::rule(format!("entrypoint.{index}"), rule));
    }
    if words.iter().map(String::len).sum::<usize>() > ENTRYPOINT_MAX {
        let rule = format!("must not be longer than {ENTRYPOINT_MAX} bytes in all");
        return Err(Error::rule("entrypoint", rule));
    }
    // A single word with a space is a command line (contract: lifecycle §17.4).
    if words.len() == 1 && first.contains(' ') {
        let line = shell_words::split(first)
            .map_err(|_| Error::rule("entrypoint", "has an unbalanced quote"))?;
        if line.first().is_none_or(|command| command.trim().is_empty()) {
            return Err(Error::Entrypoint("must begin with a command"));
        }
    }
    Ok(words)
}

/// Reads the platform and notes every rule that it breaks.
fn normalise_platform(given: &Platform, rules: &Rules, broken: &mut Broken) -> Platform {
    let os = given.os.trim().to_lowercase();
    let arch = given.arch.trim().to_lowercase();
    if os == "windows" {
        broken.note(rules.require(Feature::Windows, true));
    } else if os != "linux" {
        broken.add([Error::rule("platform.os", "must be linux or windows")]);
    }
    if !matches!(arch.as_str(), "amd64" | "arm64") {
        broken.add([Error::rule("platform.arch", "must be amd64 or arm64")]);
    }
    Platform { os, arch }
}

pub(super) fn environment(env: &BTreeMap<String, Option<String>>, broken: &mut Broken) {
    for (key, value) in env {
        let wrong = |rule: &str| Error::Entry {
            map: "env",
            key: key.clone(),
            rule: rule.to_owned(),
        };
        if network_policy::is_of_sidecar(key) && !network_policy::is_allowed(key) {
            broken.add([wrong(
                "is not a setting of the egress sidecar that requests may change",
            )]);
        }
        if key.is_empty() || key.contains(['=', '\0']) {
            broken.add([wrong(
                "names must not be empty or contain '=' or NUL characters",
            )]);
        }
        let Some(value) = value else {
            continue;
        };
        if value.contains('\0') {
            broken.add([wrong("must not contain NUL characters")]);
        }
        if key.len() + "=".len() + value.len() > ARGUMENT_MAX {
            let rule = format!("must not be longer than {ARGUMENT_MAX} bytes with its name");
            broken.add([wrong(&rule)]);
        }
    }
}

pub(super) fn reference(field: &str, image: &str) -> Result<String, Error> {
    let image = image.trim();
    osb_protocol::image::check(image).map_err(|rule| Error::rule(field, rule.to_string()))?;
    Ok(image.to_owned())
}

/// Whether a variable has an effect in a sandbox without a network policy.
pub(super) fn reads_variable(name: &str) -> bool {
    !network_policy::is_of_sidecar(name) && reads_variable_with_policy(name)
}

/// Whether a variable has an effect in a sandbox with a network policy, or on its sidecar.
pub(super) fn reads_variable_with_policy(name: &str) -> bool {
    !SERVER_VARIABLES.contains(&name)
}

/// Whether an extension means something here; any other is accepted and passed over.
pub(super) fn reads_extension(key: &str) -> bool {
    matches!(key, RENEW_EXTEND | POOL_REF | ISOLATION) || is_echoed(key)
}

fn is_echoed(key: &str) -> bool {
    key.strip_prefix(labels::ECHOED_EXTENSION_PREFIX)
        .is_some_and(|suffix| !suffix.is_empty())
}

fn echoed(mut extensions: BTreeMap<String, String>) -> BTreeMap<String, String> {
    extensions.retain(|key, _| is_echoed(key));
    extensions
}
