//! Labels that are written, and read back.

use osb_protocol::lifecycle::Volume;

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
        volumes: vec![volume()],
        tenant: Some(Arc::from("team a")),
        owner: Some(Arc::from("user:1")),
        pool: Some(Arc::from("gold")),
        ..Origin::new("a", source, at(1_935_390_000_000_001))
    })
}

fn volume() -> Volume {
    let volume = serde_json::json!({
        "name": "a", "mountPath": "/a", "readOnly": true, "pvc": {"claimName": "data"},
    });
    serde_json::from_value(volume).unwrap()
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
    for source in [Source::Snapshot("s".into()), Source::Template("t".into())] {
        let mut origin = spec().origin;
        origin.source = source;
        let labels = of(&origin, "srv", Ports::default());
        let back = Read(&labels).origin(fallback()).unwrap();
        assert_eq!(back.source, origin.source);
    }
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
        (
            "opensandbox.io/egress-auth-token".to_owned(),
            "e".to_owned(),
        ),
    ]);
    let read = Read(&labels);
    assert_eq!(read.server(), None);
    let token = read.origin(fallback()).unwrap().egress_token;
    assert_eq!(token.unwrap().expose_secret(), "e", "its policy can change");
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
        (TEMPLATE_ID, "t"),
        (TENANT, "another"),
        (OWNER, "user:another"),
        (VOLUMES, r#"["another"]"#),
        (OSSFS_MOUNTS, r#"["/mnt/ossfs/another"]"#),
        (CLAIMS, r#"["another"]"#),
        (REQUESTED_VOLUMES, r#"[{"name": "b", "mountPath": "/b"}]"#),
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
    spec.origin.volumes = Vec::new();
    spec.origin
        .metadata
        .insert("com.docker.x".into(), "kept".into());
    merged.extend(of(&spec.origin, "srv", Ports::default()));
    let origin = Read(&merged).origin(fallback()).unwrap();
    assert_eq!(origin.expiry, Expiry::Manual);
    assert_eq!(origin.source.snapshot_id(), None);
    assert_eq!((origin.tenant, origin.owner), (None, None));
    assert_eq!(origin.volumes, []);
    assert_eq!(Read(&merged).claims(), [""; 0]);
    assert_eq!(Read(&merged).buckets(), [""; 0].map(PathBuf::from));
    put_volumes(
        &mut merged,
        &["a".to_owned()],
        &[],
        &["/mnt/ossfs/b".into()],
    );
    assert_eq!(Read(&merged).claims(), ["a"]);
    assert_eq!(Read(&merged).buckets(), [PathBuf::from("/mnt/ossfs/b")]);
    assert_eq!(merged[VOLUMES], "", "none is removed with it");
    assert_eq!(origin.metadata, spec.origin.metadata);
    assert_eq!(origin.extensions.len(), 1);
}

#[test]
fn an_unreadable_expiry_does_not_expire_the_sandbox() {
    let labels = HashMap::from([(EXPIRES_AT.to_owned(), "soon".to_owned())]);
    assert_eq!(Read(&labels).expiry(), Expiry::Unknown);
    assert_eq!(Read(&HashMap::new()).expiry(), Expiry::Unknown);
}
