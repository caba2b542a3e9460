//! Rules about sandboxes, in the contract's order (contract: lifecycle §4.4, §4.5, §5.1).

use std::collections::BTreeMap;

use osb_protocol::{
    Feature, SandboxId, labels,
    lifecycle::{CreateSandboxRequest, Platform},
    resources::ResourceLimits,
};
use osb_runtime::{CreateSpec, Expiry, Origin, Source};
use rand::RngExt;
use secrecy::SecretString;

use super::Rules;
use crate::sandbox::{Error, lifecycle::now};

const RENEW_EXTEND: &str = "access.renew.extend.seconds";
/// Fewest and most seconds that an access may add.
const RENEW_RANGE: std::ops::RangeInclusive<u32> = 300..=86_400;
const POOL_REF: &str = "poolRef";
const ISOLATION: &str = "bootstrap.execd.isolation";
/// The only value of [`ISOLATION`].
const ISOLATION_ON: &str = "enable";
/// Least CPU time that the kernel accepts, in billionths of a core: 1 ms of each 100 ms.
const CPU_MIN: i64 = 10_000_000;
/// Least memory that container engines accept, in bytes.
const MEMORY_MIN: i64 = 6 << 20;
/// What a sandbox from a snapshot runs when the request names nothing (contract: lifecycle §9.5).
const RESTORED_ENTRYPOINT: [&str; 3] = ["tail", "-f", "/dev/null"];
const EGRESS_ENV: &str = "OPENSANDBOX_EGRESS_";

pub(super) fn spec(request: CreateSandboxRequest, rules: &Rules) -> Result<CreateSpec, Error> {
    let renew_extend_seconds = renew_extension(&request.extensions)?;
    let isolation = isolation(&request.extensions, rules)?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    let snapshot = given(&request.snapshot_id);
    let pool = given(&request.extensions.get(POOL_REF).cloned());
    for (feature, is_asked_for) in [
        (Feature::Snapshots, snapshot.is_some()),
        (Feature::LifecycleHooks, request.lifecycle.is_some()),
        (Feature::Pools, pool.is_some()),
    ] {
        rules.require(feature, is_asked_for)?;
    }
    let entrypoint = match (request.entrypoint, &snapshot, &pool) {
        (None, Some(_), _) => RESTORED_ENTRYPOINT.map(str::to_owned).to_vec(),
        // The pool's template has one.
        (None, _, Some(_)) => Vec::new(),
        (given, ..) => entrypoint(given)?,
    };
    if let Some(error) = labels::check_all(&request.metadata).into_iter().next() {
        return Err(error.into());
    }
    let platform = request.platform.as_ref();
    let platform = platform.map(|given| self::platform(given, rules));
    let platform = platform.transpose()?;
    let created_at = now();
    let expires_at = request.timeout.map(|seconds| {
        if rules.max_timeout_seconds.is_some_and(|most| seconds > most) {
            let most = rules.max_timeout_seconds.unwrap_or_default();
            return Err(Error::rule(
                "timeout",
                format!("must be at most {most} seconds"),
            ));
        }
        created_at
            .plus_seconds(seconds)
            .ok_or_else(|| Error::rule("timeout", "must end before the year 10000"))
    });
    let expires_at = expires_at.transpose()?;
    rules.require(Feature::SecureAccess, request.secure_access)?;
    rules.require(Feature::NetworkPolicy, request.network_policy.is_some())?;
    let resources = request.resource_limits.unwrap_or_default();
    let limits = ResourceLimits::parse(&resources).map_err(Error::Resources)?;
    if limits.nano_cpus.is_some_and(|nanos| nanos < CPU_MIN) {
        return Err(Error::rule("resourceLimits.cpu", "must be at least 10m"));
    }
    if limits.memory_bytes.is_some_and(|bytes| bytes < MEMORY_MIN) {
        return Err(Error::rule("resourceLimits.memory", "must be at least 6Mi"));
    }
    environment(&request.env)?;
    let lifecycle = request.lifecycle.map(|hooks| hooks.to_string());
    rules.require(Feature::Volumes, !request.volumes.is_empty())?;
    let (source, auth) = match (snapshot, pool, request.image) {
        (Some(snapshot), _, _) => (Source::Snapshot(snapshot), None),
        (None, Some(pool), _) => (Source::Pool(pool), None),
        (None, None, Some(image)) => (Source::Image(reference(&image.uri)?), image.auth),
        (None, None, None) => return Err(Error::rule("image", "is required")),
    };
    Ok(CreateSpec {
        origin: Origin {
            id: SandboxId::new(uuid::Uuid::new_v4().to_string()),
            created_at,
            source,
            platform,
            entrypoint,
            resources,
            metadata: request.metadata,
            extensions: echoed(request.extensions),
            expiry: expires_at.map_or(Expiry::Manual, Expiry::At),
            renew_extend_seconds,
            token: rules.execd_auth.then(token),
            secure_access: request.secure_access.then(token),
            hooks: lifecycle.is_some(),
        },
        auth,
        env: request.env,
        limits,
        lifecycle,
        isolation,
    })
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
        Error::rule(format!("extensions.{RENEW_EXTEND}"), rule)
    };
    seconds.ok_or_else(rule).map(Some)
}

/// Whether isolated sessions are asked for. Passing over another value would make a sandbox without
/// what was meant, which shows only when the first session is refused.
fn isolation(extensions: &BTreeMap<String, String>, rules: &Rules) -> Result<bool, Error> {
    let wrong = |rule: String| Err(Error::rule(format!("extensions.{ISOLATION}"), rule));
    match extensions.get(ISOLATION).map(String::as_str) {
        None => Ok(false),
        Some(ISOLATION_ON) if rules.execd_isolation => Ok(true),
        Some(ISOLATION_ON) => wrong("is not allowed here (runtime.execd_isolation)".to_owned()),
        Some(_) => wrong(format!("must be {ISOLATION_ON} or left out")),
    }
}

fn entrypoint(given: Option<Vec<String>>) -> Result<Vec<String>, Error> {
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
    if words.len() == 1 && shell_words::split(first).is_err() {
        return Err(Error::rule("entrypoint", "has an unbalanced quote"));
    }
    Ok(words)
}

fn platform(platform: &Platform, rules: &Rules) -> Result<Platform, Error> {
    let os = platform.os.trim().to_lowercase();
    let arch = platform.arch.trim().to_lowercase();
    if os == "windows" {
        rules.require(Feature::Windows, true)?;
    }
    if os != "linux" && os != "windows" {
        return Err(Error::rule("platform.os", "must be linux or windows"));
    }
    if !matches!(arch.as_str(), "amd64" | "arm64") {
        return Err(Error::rule("platform.arch", "must be amd64 or arm64"));
    }
    Ok(Platform { os, arch })
}

fn environment(env: &BTreeMap<String, Option<String>>) -> Result<(), Error> {
    for (key, value) in env {
        if key.starts_with(EGRESS_ENV) {
            let rule = "names of the egress sidecar need networkPolicy";
            return Err(Error::rule(format!("env.{key}"), rule));
        }
        if key.is_empty() || key.contains(['=', '\0']) {
            let rule = "names must not be empty or contain '=' or NUL characters";
            return Err(Error::rule("env", rule));
        }
        if value.as_deref().is_some_and(|value| value.contains('\0')) {
            return Err(Error::rule(
                format!("env.{key}"),
                "must not contain NUL characters",
            ));
        }
    }
    Ok(())
}

fn reference(image: &str) -> Result<String, Error> {
    let image = image.trim();
    osb_protocol::image::check(image).map_err(|rule| Error::rule("image.uri", rule.to_string()))?;
    Ok(image.to_owned())
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

/// 256 random bits that open one sandbox.
fn token() -> SecretString {
    let bytes: [u8; 32] = rand::rng().random();
    SecretString::from(
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>(),
    )
}
