//! Container labels: the attributes of a sandbox at its creation (contract: lifecycle §17.2).
//!
//! Labels under `opensandbox.io/` belong to the platform. Every other label that does not belong to
//! an image or to Docker tooling is the user's metadata. Labels marked as additions are not part of
//! the contract.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::Arc,
};

use bollard::models::ContainerCreateBody;
use osb_protocol::{
    SandboxId, WireTime,
    labels::{ECHOED_EXTENSION_PREFIX, RESERVED_PREFIX},
    lifecycle::Platform,
};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;

use crate::{Expiry, Origin, Ports, Role, Source};

pub(super) const ID: &str = "opensandbox.io/id";
pub(super) const EXPIRES_AT: &str = "opensandbox.io/expires-at";
pub(super) const MANUAL_CLEANUP: &str = "opensandbox.io/manual-cleanup";
pub(super) const PLATFORM_OS: &str = "opensandbox.io/platform-os";
pub(super) const PLATFORM_ARCH: &str = "opensandbox.io/platform-arch";
pub(super) const SNAPSHOT_ID: &str = "opensandbox.io/snapshot-id";
/// Addition: the template that the sandbox was created from.
pub(super) const TEMPLATE_ID: &str = "opensandbox.io/template-id";
pub(super) const EXECD_PORT: &str = "opensandbox.io/embedding-proxy-port";
pub(super) const HTTP_PORT: &str = "opensandbox.io/http-port";
pub(super) const RENEW_EXTEND: &str = "opensandbox.io/access-renew-extend-seconds";
pub(super) const EXTENSION_PREFIX: &str = "opensandbox.io/extensions.";
/// On sidecars of the reference, which have no other label of theirs: the sandbox.
pub(super) const SIDECAR_FOR: &str = "opensandbox.io/egress-sidecar-for";
/// On containers: names of volumes that were made for the sandbox to be removed with it, as a JSON list.
/// On volumes: `server` for one that a server made.
pub(super) const VOLUMES: &str = "opensandbox.io/volume-managed-by";
/// Paths of the mounted buckets that the sandbox uses, as a JSON list.
pub(super) const OSSFS_MOUNTS: &str = "opensandbox.io/ossfs-mounts";
/// Addition: names of the named volumes that the sandbox uses, as a JSON list.
pub(super) const CLAIMS: &str = "opensandbox.io/claims";
/// Addition: the volumes of the request as a JSON list, without credentials.
pub(super) const REQUESTED_VOLUMES: &str = "opensandbox.io/volumes";
/// Addition: numbers of the directories of the host that the sandbox has, and of those above them
/// (`volumes::places`).
pub(super) const HELD: &str = "opensandbox.io/held-directories";
/// Addition, on volumes: the sandbox that it was made for.
pub(super) const MADE_FOR: &str = "opensandbox.io/made-for";
/// Addition, on volumes: `true` on one that is removed with its last user.
pub(super) const TRANSIENT: &str = "opensandbox.io/transient";
/// Addition: installation that created the container.
pub(super) const SERVER: &str = "opensandbox.io/server";
/// Addition: when the request was accepted. Docker's own time is later.
pub(super) const CREATED_AT: &str = "opensandbox.io/created-at";
/// Addition: the requested reference. Docker may report another tag of the same image.
pub(super) const IMAGE: &str = "opensandbox.io/image";
/// Addition: the command as a JSON list. Docker's list has it joined and truncated.
pub(super) const ENTRYPOINT: &str = "opensandbox.io/entrypoint";
/// Addition: the requested limits as a JSON object.
pub(super) const RESOURCES: &str = "opensandbox.io/resource-limits";
/// Addition: the user's metadata as a JSON object. Docker mixes them with the image's, and some of their
/// prefixes belong to Docker tooling.
pub(super) const METADATA: &str = "opensandbox.io/metadata";
/// Addition: all extensions as a JSON object. An image may carry labels of other extensions.
pub(super) const EXTENSIONS: &str = "opensandbox.io/extensions";
/// Addition: token of the sandbox's execd. A client that can read labels can also enter the container.
pub(super) const EXECD_TOKEN: &str = "opensandbox.io/execd-access-token";
/// Token of a sandbox with secure access, named like the annotation of other runtimes.
pub(super) const SECURE_ACCESS: &str = "opensandbox.io/secure-access-token";
/// Token of the sidecar that enforces the sandbox's network policy.
pub(super) const EGRESS_TOKEN: &str = "opensandbox.io/egress-auth-token";
/// Addition: the network policy of the create, as JSON, if the sidecar was started before it. Any other
/// sidecar has it among its variables.
pub(super) const NETWORK_POLICY: &str = "opensandbox.io/network-policy";
/// Addition: `true` on a sandbox with lifecycle hooks.
pub(super) const HOOKS: &str = "opensandbox.io/lifecycle-hooks";
/// Addition: role of the container within the sandbox. Absent on a main container.
pub(super) const ROLE: &str = "opensandbox.io/role";
/// Addition, on helper containers: installation that created it.
pub(super) const HELPER: &str = "opensandbox.io/helper-of";
/// Addition, on volumes: the sandbox whose owner the volume records (see `adoption.rs`).
pub(super) const OWNER_OF: &str = "opensandbox.io/owner-of";
/// Name of the tenant that the sandbox belongs to (contract: lifecycle A7).
pub(super) const TENANT: &str = "opensandbox.io/tenant";
/// Addition: who created the sandbox, for quotas.
pub(super) const OWNER: &str = "opensandbox.io/owner";
/// Addition: name of the pool that the sandbox was started for. Who has claimed it is in the store.
pub(super) const POOL: &str = "opensandbox.io/pool";
/// Addition, on images: installation that stored the snapshot.
pub(super) const SNAPSHOT_SERVER: &str = "opensandbox.io/snapshot-server";
/// Addition, on images: the template that it was built for. Containers have [`TEMPLATE_ID`] instead.
pub(super) const TEMPLATE: &str = "opensandbox.io/template";
/// Addition, on images: the snapshot. Containers have [`SNAPSHOT_ID`] instead.
pub(super) const SNAPSHOT: &str = "opensandbox.io/snapshot";
/// Addition, on images: the sandbox that the snapshot was taken of.
pub(super) const SNAPSHOT_SOURCE: &str = "opensandbox.io/snapshot-source";
/// On images: its value [`VENDOR_NAME`] keeps an image from a prune with a filter (docs/operations.md).
/// Such filters cannot be combined, so that one label has to be on all images of the project.
pub(super) const VENDOR: &str = "org.opencontainers.image.vendor";
/// The project, as its images name it.
pub(super) const VENDOR_NAME: &str = "OpenSandbox";
/// Addition, on volumes: hash of the contained execd.
pub(super) const EXECD_BUILD: &str = "opensandbox.io/execd-build";

/// Label prefixes that belong neither to the platform nor to the user.
const FOREIGN: [&str; 3] = [
    "org.opencontainers.image.",
    "com.docker.",
    "desktop.docker.",
];

/// Returns all labels of a new main container.
pub(super) fn of(origin: &Origin, instance: &str, ports: Ports) -> HashMap<String, String> {
    // All fields are named, so that the compiler asks for the label of a new one.
    let Origin {
        id,
        created_at,
        source,
        platform,
        entrypoint,
        resources,
        metadata,
        extensions,
        expiry,
        renew_extend_seconds,
        token,
        secure_access,
        egress_token,
        hooks,
        volumes,
        tenant,
        owner,
        pool,
    } = origin;
    // An image may have labels of a sandbox that it was committed from. Every label that is read back
    // is therefore written, and an empty value means that there is none.
    let mut labels: HashMap<String, String> = metadata
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut put = |key: &str, value: String| labels.insert(key.to_owned(), value);
    for inherited in [
        EXPIRES_AT,
        MANUAL_CLEANUP,
        PLATFORM_OS,
        PLATFORM_ARCH,
        SNAPSHOT_ID,
        TEMPLATE_ID,
        EXECD_PORT,
        HTTP_PORT,
        RENEW_EXTEND,
        EXECD_TOKEN,
        SECURE_ACCESS,
        EGRESS_TOKEN,
        NETWORK_POLICY,
        HOOKS,
        TENANT,
        OWNER,
        POOL,
        ROLE,
        HELPER,
        SNAPSHOT_SERVER,
        SNAPSHOT,
        SNAPSHOT_SOURCE,
        TEMPLATE,
        VOLUMES,
        OSSFS_MOUNTS,
        CLAIMS,
        REQUESTED_VOLUMES,
        HELD,
    ] {
        put(inherited, String::new());
    }
    put(METADATA, json(metadata));
    let extensions: BTreeMap<&str, &str> = extensions.iter().map(without_prefix).collect();
    put(EXTENSIONS, json(&extensions));
    put(ID, id.to_string());
    put(SERVER, instance.to_owned());
    put(CREATED_AT, created_at.to_string());
    put(IMAGE, source.image().unwrap_or_default().to_owned());
    put(ENTRYPOINT, json(entrypoint));
    put(RESOURCES, json(resources));
    match *expiry {
        Expiry::At(at) => put(EXPIRES_AT, at.to_string()),
        Expiry::Manual | Expiry::Unknown => put(MANUAL_CLEANUP, "true".to_owned()),
    };
    if let Some(snapshot) = source.snapshot_id() {
        put(SNAPSHOT_ID, snapshot.to_owned());
    }
    if let Some(template) = source.template_id() {
        put(TEMPLATE_ID, template.to_owned());
    }
    if let Some(platform) = platform {
        put(PLATFORM_OS, platform.os.clone());
        put(PLATFORM_ARCH, platform.arch.clone());
    }
    if let Some(port) = ports.execd {
        put(EXECD_PORT, port.to_string());
    }
    if let Some(port) = ports.http {
        put(HTTP_PORT, port.to_string());
    }
    if let Some(seconds) = renew_extend_seconds {
        put(RENEW_EXTEND, seconds.to_string());
    }
    for (suffix, value) in extensions {
        put(&format!("{EXTENSION_PREFIX}{suffix}"), value.to_owned());
    }
    if let Some(token) = token {
        put(EXECD_TOKEN, token.expose_secret().to_owned());
    }
    if let Some(token) = secure_access {
        put(SECURE_ACCESS, token.expose_secret().to_owned());
    }
    if let Some(token) = egress_token {
        put(EGRESS_TOKEN, token.expose_secret().to_owned());
    }
    if *hooks {
        put(HOOKS, "true".to_owned());
    }
    if !volumes.is_empty() {
        put(REQUESTED_VOLUMES, json(volumes));
    }
    if let Some(tenant) = tenant {
        put(TENANT, tenant.to_string());
    }
    if let Some(owner) = owner {
        put(OWNER, owner.to_string());
    }
    if let Some(pool) = pool {
        put(POOL, pool.to_string());
    }
    labels
}

/// Adds the network policy to the labels of a new main container.
pub(super) fn put_network_policy(main: &mut ContainerCreateBody, rules: &str) {
    let labels = main.labels.get_or_insert_default();
    labels.insert(NETWORK_POLICY.to_owned(), rules.to_owned());
}

/// Adds the labels of what a sandbox uses besides its containers.
pub(super) fn put_volumes(
    labels: &mut HashMap<String, String>,
    claims: &[String],
    managed: &[String],
    buckets: &[PathBuf],
) {
    let mut put = |key: &str, value| labels.insert(key.to_owned(), value);
    if !claims.is_empty() {
        put(CLAIMS, json(&claims));
    }
    if !managed.is_empty() {
        put(VOLUMES, json(&managed));
    }
    if !buckets.is_empty() {
        let buckets = buckets.iter().map(|path| path.to_string_lossy());
        put(OSSFS_MOUNTS, json(&buckets.collect::<Vec<_>>()));
    }
}

/// Returns all labels of a sidecar. The sandbox's attributes are on its main container.
pub(super) fn of_sidecar(id: &SandboxId, role: Role, instance: &str) -> HashMap<String, String> {
    let labels = [
        (ID, id.to_string()),
        (SERVER, instance.to_owned()),
        (ROLE, role.as_str().to_owned()),
        (HELPER, String::new()),
    ];
    let labels = labels.into_iter();
    labels.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Platform labels whose values may be shown. A label of another release may be secret.
const PUBLIC: [&str; 16] = [
    ID,
    EXPIRES_AT,
    MANUAL_CLEANUP,
    PLATFORM_OS,
    PLATFORM_ARCH,
    SNAPSHOT_ID,
    EXECD_PORT,
    HTTP_PORT,
    RENEW_EXTEND,
    SERVER,
    CREATED_AT,
    IMAGE,
    ENTRYPOINT,
    RESOURCES,
    ROLE,
    POOL,
];

/// Whether a label belongs to the platform.
pub(super) fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX)
}

/// Whether the value of a platform label may be shown.
pub(super) fn is_public(name: &str) -> bool {
    let is_extension = name == EXTENSIONS || name.starts_with(EXTENSION_PREFIX);
    is_extension || PUBLIC.contains(&name)
}

fn without_prefix<'a>((key, value): (&'a String, &'a String)) -> (&'a str, &'a str) {
    (
        key.strip_prefix(ECHOED_EXTENSION_PREFIX).unwrap_or(key),
        value,
    )
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("strings and maps of strings always serialise")
}

/// The engine's values for attributes that a container's labels lack.
pub(super) struct Fallback {
    pub(super) created_at: WireTime,
    pub(super) image: String,
    pub(super) command: Vec<String>,
}

/// Reader of an existing container's labels.
pub(super) struct Read<'a>(pub(super) &'a HashMap<String, String>);

impl Read<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0
            .get(key)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Reads the origin of a sandbox. `fallback` has the engine's values for missing labels, as on
    /// containers of the reference.
    pub(super) fn origin(&self, fallback: Fallback) -> Option<Origin> {
        let image = self.get(IMAGE).map_or(fallback.image, str::to_owned);
        Some(Origin {
            id: self.id()?,
            created_at: self.created_at().unwrap_or(fallback.created_at),
            source: match (self.get(SNAPSHOT_ID), self.get(TEMPLATE_ID)) {
                (Some(id), _) => Source::Snapshot(id.to_owned()),
                (None, Some(id)) => Source::Template(id.to_owned()),
                (None, None) => Source::Image(image),
            },
            platform: self.platform(),
            entrypoint: self.entrypoint().unwrap_or(fallback.command),
            resources: self.object(RESOURCES).unwrap_or_default(),
            metadata: self.metadata(),
            extensions: self.extensions(),
            expiry: self.expiry(),
            renew_extend_seconds: self.get(RENEW_EXTEND).and_then(|text| text.parse().ok()),
            token: self.get(EXECD_TOKEN).map(SecretString::from),
            secure_access: self.get(SECURE_ACCESS).map(SecretString::from),
            egress_token: self.get(EGRESS_TOKEN).map(SecretString::from),
            hooks: self.get(HOOKS).is_some(),
            volumes: self.list(REQUESTED_VOLUMES),
            tenant: self.get(TENANT).map(Arc::from),
            owner: self.get(OWNER).map(Arc::from),
            pool: self.get(POOL).map(Arc::from),
        })
    }

    pub(super) fn id(&self) -> Option<SandboxId> {
        let id = self.get(ID).or_else(|| self.get(SIDECAR_FOR));
        id.map(SandboxId::new)
    }

    /// Whether the container is a sidecar that the reference made.
    fn is_foreign_sidecar(&self) -> bool {
        self.get(ID).is_none() && self.get(SIDECAR_FOR).is_some()
    }

    /// Reads which volumes are removed with a sandbox of the reference. Those of ours carry that
    /// themselves.
    pub(super) fn volumes(&self) -> Vec<String> {
        match self.server() {
            None => self.list(VOLUMES),
            Some(_) => Vec::new(),
        }
    }

    /// Reads which named volumes a sandbox uses.
    pub(super) fn claims(&self) -> Vec<String> {
        self.list(CLAIMS)
    }

    /// Reads which mounted buckets a sandbox uses.
    pub(super) fn buckets(&self) -> Vec<PathBuf> {
        self.list(OSSFS_MOUNTS)
    }

    /// The note of the host's directories that a sandbox has.
    pub(super) fn held(&self) -> Option<&str> {
        self.get(HELD)
    }

    /// Reads a JSON list. An unreadable one is empty.
    fn list<T: DeserializeOwned>(&self, key: &str) -> Vec<T> {
        let list = self.get(key);
        list.and_then(|list| serde_json::from_str(list).ok())
            .unwrap_or_default()
    }

    /// Reads the container's role. `None` for a role of a later release.
    pub(super) fn role(&self) -> Option<Role> {
        match self.get(ROLE) {
            None if self.is_foreign_sidecar() => Some(Role::Egress),
            None => Some(Role::Main),
            Some(name) => Role::ALL.into_iter().find(|role| role.as_str() == name),
        }
    }

    /// The network policy that a main container was created with, if it is a label.
    pub(super) fn network_policy(&self) -> Option<&str> {
        self.get(NETWORK_POLICY)
    }

    pub(super) fn server(&self) -> Option<&str> {
        self.get(SERVER)
    }

    fn created_at(&self) -> Option<WireTime> {
        WireTime::parse(self.get(CREATED_AT)?).ok()
    }

    fn entrypoint(&self) -> Option<Vec<String>> {
        serde_json::from_str(self.get(ENTRYPOINT)?).ok()
    }

    /// Reads the expiry. An unreadable one is not "now", as in the reference: that would remove the
    /// sandbox.
    fn expiry(&self) -> Expiry {
        match (self.get(EXPIRES_AT), self.get(MANUAL_CLEANUP)) {
            (Some(text), _) => WireTime::parse(text).map_or(Expiry::Unknown, Expiry::At),
            (None, Some(_)) => Expiry::Manual,
            (None, None) => Expiry::Unknown,
        }
    }

    fn platform(&self) -> Option<Platform> {
        let os = self.get(PLATFORM_OS)?.to_owned();
        Some(Platform {
            os,
            arch: self.get(PLATFORM_ARCH)?.to_owned(),
        })
    }

    pub(super) fn ports(&self) -> Ports {
        let port = |key| self.get(key).and_then(|text| text.parse().ok());
        Ports {
            execd: port(EXECD_PORT),
            http: port(HTTP_PORT),
        }
    }

    fn extensions(&self) -> BTreeMap<String, String> {
        let one_by_one = || {
            let pairs = self.0.iter().filter_map(|(key, value)| {
                let suffix = key.strip_prefix(EXTENSION_PREFIX)?;
                Some((suffix.to_owned(), value.clone()))
            });
            pairs.collect()
        };
        let all = self.object(EXTENSIONS).unwrap_or_else(one_by_one);
        all.into_iter()
            .map(|(suffix, value)| (format!("{ECHOED_EXTENSION_PREFIX}{suffix}"), value))
            .collect()
    }

    fn object(&self, key: &str) -> Option<BTreeMap<String, String>> {
        serde_json::from_str(self.get(key)?).ok()
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        if let Some(metadata) = self.object(METADATA) {
            return metadata;
        }
        // A container of the reference.
        let user = |key: &str| {
            !key.starts_with(RESERVED_PREFIX)
                && !FOREIGN.iter().any(|prefix| key.starts_with(prefix))
        };
        let pairs = self.0.iter().filter(|(key, _)| user(key));
        pairs
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

#[cfg(test)]
pub(super) mod tests;
