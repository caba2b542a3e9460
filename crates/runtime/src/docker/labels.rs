//! Container labels: the attributes of a sandbox at its creation (contract: lifecycle §17.2).
//!
//! Labels under `opensandbox.io/` belong to the platform. Every other label that does not belong to
//! an image or to Docker tooling is the user's metadata. Labels marked as additions are not part of
//! the contract.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use osb_protocol::{
    SandboxId, WireTime,
    labels::{ECHOED_EXTENSION_PREFIX, RESERVED_PREFIX},
    lifecycle::Platform,
};
use secrecy::{ExposeSecret, SecretString};

use crate::{Expiry, Origin, Ports, Role, Source};

pub(super) const ID: &str = "opensandbox.io/id";
pub(super) const EXPIRES_AT: &str = "opensandbox.io/expires-at";
pub(super) const MANUAL_CLEANUP: &str = "opensandbox.io/manual-cleanup";
pub(super) const PLATFORM_OS: &str = "opensandbox.io/platform-os";
pub(super) const PLATFORM_ARCH: &str = "opensandbox.io/platform-arch";
pub(super) const SNAPSHOT_ID: &str = "opensandbox.io/snapshot-id";
pub(super) const EXECD_PORT: &str = "opensandbox.io/embedding-proxy-port";
pub(super) const HTTP_PORT: &str = "opensandbox.io/http-port";
pub(super) const RENEW_EXTEND: &str = "opensandbox.io/access-renew-extend-seconds";
pub(super) const EXTENSION_PREFIX: &str = "opensandbox.io/extensions.";
/// On sidecars of the reference, which have no other label of theirs: the sandbox.
pub(super) const SIDECAR_FOR: &str = "opensandbox.io/egress-sidecar-for";
/// On containers of the reference: names of volumes that are removed with the sandbox, as a JSON list.
pub(super) const VOLUMES: &str = "opensandbox.io/volume-managed-by";
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
    // An image may have labels of a sandbox that it was committed from. Every label that is read back
    // is therefore written, and an empty value means that there is none.
    let mut labels: HashMap<String, String> = origin
        .metadata
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
        EXECD_PORT,
        HTTP_PORT,
        RENEW_EXTEND,
        EXECD_TOKEN,
        SECURE_ACCESS,
        HOOKS,
        TENANT,
        OWNER,
        ROLE,
        HELPER,
    ] {
        put(inherited, String::new());
    }
    put(METADATA, json(&origin.metadata));
    let extensions: BTreeMap<&str, &str> = origin.extensions.iter().map(without_prefix).collect();
    put(EXTENSIONS, json(&extensions));
    put(ID, origin.id.to_string());
    put(SERVER, instance.to_owned());
    put(CREATED_AT, origin.created_at.to_string());
    put(IMAGE, origin.source.image().unwrap_or_default().to_owned());
    put(ENTRYPOINT, json(&origin.entrypoint));
    put(RESOURCES, json(&origin.resources));
    match origin.expiry {
        Expiry::At(at) => put(EXPIRES_AT, at.to_string()),
        Expiry::Manual | Expiry::Unknown => put(MANUAL_CLEANUP, "true".to_owned()),
    };
    if let Some(snapshot) = origin.source.snapshot_id() {
        put(SNAPSHOT_ID, snapshot.to_owned());
    }
    if let Some(platform) = &origin.platform {
        put(PLATFORM_OS, platform.os.clone());
        put(PLATFORM_ARCH, platform.arch.clone());
    }
    if let Some(port) = ports.execd {
        put(EXECD_PORT, port.to_string());
    }
    if let Some(port) = ports.http {
        put(HTTP_PORT, port.to_string());
    }
    if let Some(seconds) = origin.renew_extend_seconds {
        put(RENEW_EXTEND, seconds.to_string());
    }
    for (suffix, value) in extensions {
        put(&format!("{EXTENSION_PREFIX}{suffix}"), value.to_owned());
    }
    if let Some(token) = &origin.token {
        put(EXECD_TOKEN, token.expose_secret().to_owned());
    }
    if let Some(token) = &origin.secure_access {
        put(SECURE_ACCESS, token.expose_secret().to_owned());
    }
    if origin.hooks {
        put(HOOKS, "true".to_owned());
    }
    if let Some(tenant) = &origin.tenant {
        put(TENANT, tenant.to_string());
    }
    if let Some(owner) = &origin.owner {
        put(OWNER, owner.to_string());
    }
    labels
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
const PUBLIC: [&str; 15] = [
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
            source: match self.get(SNAPSHOT_ID) {
                Some(id) => Source::Snapshot(id.to_owned()),
                None => Source::Image(image),
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
            hooks: self.get(HOOKS).is_some(),
            tenant: self.get(TENANT).map(Arc::from),
            owner: self.get(OWNER).map(Arc::from),
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

    /// Reads which volumes are removed with a sandbox of the reference. Ours have none.
    pub(super) fn volumes(&self) -> Vec<String> {
        let list = self.get(VOLUMES).filter(|_| self.server().is_none());
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
pub(super) mod tests {
    use super::*;
    use crate::CreateSpec;

    pub(in crate::docker) fn spec() -> CreateSpec {
        let at = |us| WireTime::from_unix_us(us).unwrap();
        let source = Source::Image("debian:12".into());
        CreateSpec::new(Origin {
            platform: Some(Platform {
                os: "linux".into(),
                arch: "amd64".into(),
            }),
            entrypoint: vec!["sh".into(), "-c".into(), "echo \"ä b\"".into()],
            resources: BTreeMap::from([("cpu".into(), "1".into())]),
            metadata: BTreeMap::from([("team".into(), "core".into())]),
            extensions: BTreeMap::from([("opensandbox.extensions.x".into(), "1".into())]),
            renew_extend_seconds: Some(300),
            expiry: Expiry::At(at(1_935_396_000_123_456)),
            token: Some(SecretString::from("t0ken")),
            secure_access: Some(SecretString::from("s3cure")),
            hooks: true,
            tenant: Some(Arc::from("team a")),
            owner: Some(Arc::from("user:1")),
            ..Origin::new("a", source, at(1_935_390_000_000_001))
        })
    }

    fn fallback() -> Fallback {
        Fallback {
            created_at: WireTime::from_unix_us(1).unwrap(),
            image: "engine".into(),
            command: Vec::new(),
        }
    }

    #[test]
    fn written_labels_are_read_back() {
        let spec = spec();
        let labels = of(
            &spec.origin,
            "srv",
            Ports {
                execd: Some(40000),
                http: Some(40001),
            },
        );
        let read = Read(&labels);
        let (written, back) = (spec.origin, read.origin(fallback()).unwrap());
        assert_eq!(format!("{back:?}"), format!("{written:?}"));
        let tokens = |origin: &Origin| {
            let tokens = [&origin.token, &origin.secure_access];
            tokens.map(|token| token.as_ref().unwrap().expose_secret().to_owned())
        };
        assert_eq!(
            tokens(&back),
            tokens(&written),
            "not part of the Debug output"
        );
        assert_eq!(read.server(), Some("srv"));
        assert_eq!(
            read.ports(),
            Ports {
                execd: Some(40000),
                http: Some(40001)
            }
        );
    }

    #[test]
    fn labels_have_the_contracts_names_and_values() {
        let written = |expiry, source| {
            let origin = Origin {
                expiry,
                source,
                ..spec().origin
            };
            let ports = Ports {
                execd: Some(40000),
                http: Some(40001),
            };
            of(&origin, "srv", ports)
        };
        let at = WireTime::from_unix_us(1_935_396_000_123_456).unwrap();
        let labels = written(Expiry::At(at), Source::Image("debian:12".into()));
        for (name, value) in [
            ("opensandbox.io/id", "a"),
            ("opensandbox.io/expires-at", "2031-05-01T10:00:00.123456Z"),
            ("opensandbox.io/manual-cleanup", ""),
            ("opensandbox.io/platform-os", "linux"),
            ("opensandbox.io/platform-arch", "amd64"),
            ("opensandbox.io/snapshot-id", ""),
            ("opensandbox.io/embedding-proxy-port", "40000"),
            ("opensandbox.io/http-port", "40001"),
            ("opensandbox.io/access-renew-extend-seconds", "300"),
            ("opensandbox.io/extensions.x", "1"),
            ("opensandbox.io/secure-access-token", "s3cure"),
            ("opensandbox.io/tenant", "team a"),
            ("team", "core"),
        ] {
            assert_eq!(labels.get(name).map(String::as_str), Some(value), "{name}");
        }
        let manual = written(Expiry::Manual, Source::Snapshot("s".into()));
        for (name, value) in [
            ("opensandbox.io/expires-at", ""),
            ("opensandbox.io/manual-cleanup", "true"),
            ("opensandbox.io/snapshot-id", "s"),
        ] {
            assert_eq!(manual.get(name).map(String::as_str), Some(value), "{name}");
        }
        let back = Read(&manual).origin(fallback()).unwrap();
        assert_eq!(back.expiry, Expiry::Manual);
    }

    #[test]
    fn a_snapshot_source_is_read_back() {
        let mut origin = spec().origin;
        origin.source = Source::Snapshot("s".into());
        let labels = of(&origin, "srv", Ports::default());
        let back = Read(&labels).origin(fallback()).unwrap();
        assert_eq!(back.source, origin.source);
    }

    #[test]
    fn labels_of_the_reference_are_read() {
        let labels = HashMap::from([
            (ID.to_owned(), "b".to_owned()),
            (
                EXPIRES_AT.to_owned(),
                "2031-05-01T12:00:00.123456+02:00".to_owned(),
            ),
            ("com.docker.compose.project".to_owned(), "x".to_owned()),
            ("team".to_owned(), "core".to_owned()),
        ]);
        let read = Read(&labels);
        assert_eq!(read.server(), None);
        assert_eq!(
            read.metadata(),
            BTreeMap::from([("team".into(), "core".into())])
        );
        let Expiry::At(at) = read.expiry() else {
            panic!("expiry not read")
        };
        assert_eq!(at.to_string(), "2031-05-01T10:00:00.123456Z");
    }

    #[test]
    fn a_sidecar_of_the_reference_has_a_sandbox_and_a_role() {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let mut labels = HashMap::from([label(SIDECAR_FOR, "b")]);
        let read = Read(&labels);
        assert_eq!(
            (read.id(), read.role()),
            (Some("b".into()), Some(Role::Egress))
        );
        // A container of ours whose image was committed from one.
        labels.extend([
            label(ID, "c"),
            label(SERVER, "us"),
            label(VOLUMES, "[\"v\"]"),
        ]);
        let read = Read(&labels);
        assert_eq!(
            (read.id(), read.role()),
            (Some("c".into()), Some(Role::Main))
        );
        assert_eq!(read.volumes(), [""; 0]);
        labels.remove(SERVER);
        assert_eq!(Read(&labels).volumes(), ["v"]);
    }

    #[test]
    fn labels_of_an_image_are_not_the_sandboxs() {
        let image = [
            (EXPIRES_AT, "2001-01-01T00:00:00Z"),
            (SNAPSHOT_ID, "s"),
            (TENANT, "another"),
            (OWNER, "user:another"),
            ("opensandbox.io/extensions.old", "1"),
            ("maintainer", "alice"),
        ];
        let mut merged: HashMap<String, String> = image
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let mut spec = spec();
        spec.origin.expiry = Expiry::Manual;
        spec.origin.tenant = None;
        spec.origin.owner = None;
        spec.origin
            .metadata
            .insert("com.docker.x".into(), "kept".into());
        merged.extend(of(&spec.origin, "srv", Ports::default()));
        let origin = Read(&merged).origin(fallback()).unwrap();
        assert_eq!(origin.expiry, Expiry::Manual);
        assert_eq!(origin.source.snapshot_id(), None);
        assert_eq!((origin.tenant, origin.owner), (None, None));
        assert_eq!(origin.metadata, spec.origin.metadata);
        assert_eq!(origin.extensions.len(), 1);
    }

    #[test]
    fn an_unreadable_expiry_does_not_expire_the_sandbox() {
        let labels = HashMap::from([(EXPIRES_AT.to_owned(), "soon".to_owned())]);
        assert_eq!(Read(&labels).expiry(), Expiry::Unknown);
        assert_eq!(Read(&HashMap::new()).expiry(), Expiry::Unknown);
    }
}
