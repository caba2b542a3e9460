//! TLS to PostgreSQL, with a certificate of a private authority.

use std::{error::Error, path::Path};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use super::{Database, location};

/// Files of the database's certificate and key, in its data folder.
struct ServerFiles {
    certificate: String,
    key: String,
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Lets the database write a file that only its user can read; `false` when this is not allowed.
async fn write_file(database: &mut PgConnection, name: &str, text: &str) -> bool {
    let lines: Vec<String> = text.lines().map(|line| format!("('{line}')")).collect();
    let copy = format!(
        "COPY (VALUES {}) TO PROGRAM 'umask 077; cat > {name}'",
        lines.join(", ")
    );
    let copied = sqlx::raw_sql(AssertSqlSafe(copy)).execute(database).await;
    copied.is_ok()
}

/// Reloads the configuration and waits until new connections see it.
async fn reload(database: &Database, statements: &[String], ssl: &str) {
    let mut admin = database.connect().await;
    for statement in statements {
        super::run(&mut admin, statement.clone()).await;
    }
    super::run(&mut admin, "SELECT pg_reload_conf()".to_owned()).await;
    loop {
        let mut fresh = database.connect().await;
        let seen: String = sqlx::query_scalar("SHOW ssl")
            .fetch_one(&mut fresh)
            .await
            .unwrap();
        if seen == ssl {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Opens the store with these parameters. Returns whether its connection is encrypted, or the error.
async fn open(
    database: &Database,
    host: &str,
    parameters: &[(&str, &str)],
) -> Result<bool, String> {
    let mut dsn = database.dsn();
    dsn.set_host(Some(host)).unwrap();
    dsn.set_password(Some("hunter2")).unwrap();
    dsn.query_pairs_mut().extend_pairs(parameters);
    let opened = crate::open(&location(&dsn)).await;
    let store = opened.map_err(|error| {
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        let cause = error.source().map(ToString::to_string);
        format!("{error}: {}", cause.unwrap_or_default())
    })?;
    store.check().await.unwrap();
    // The lock's connection and the pool's.
    let encrypted: Vec<bool> = sqlx::query_scalar(
        "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
         WHERE application_name = $1",
    )
    .bind(&database.schema)
    .fetch_all(&mut database.connect().await)
    .await
    .unwrap();
    store.close().await;
    assert!(encrypted.len() >= 2, "{encrypted:?}");
    assert!(
        encrypted.iter().all(|it| *it == encrypted[0]),
        "{encrypted:?}"
    );
    Ok(encrypted[0])
}

fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_database_is_verified_as_configured() {
    let Some(database) = Database::find().await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (right, wrong) = (authority(), authority());
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["localhost".to_owned()])
        .unwrap()
        .signed_by(&key, &right)
        .unwrap();
    let id = Uuid::new_v4().simple();
    let files = ServerFiles {
        certificate: format!("test-{id}.crt"),
        key: format!("test-{id}.key"),
    };
    let mut admin = database.connect().await;
    if !write_file(&mut admin, &files.certificate, &certificate.pem()).await {
        eprintln!("SKIPPED: TLS to PostgreSQL is not tested, the role may not write files");
        return;
    }
    assert!(write_file(&mut admin, &files.key, &key.serialize_pem()).await);
    // Without TLS at the database.
    let off = |parameters| open(&database, "127.0.0.1", parameters);
    assert_eq!(off(&[("sslmode", "prefer")]).await, Ok(false));
    let refused = off(&[("sslmode", "require")]).await.unwrap_err();
    assert!(refused.contains("does not support TLS"), "{refused}");

    let on = [
        format!("ALTER SYSTEM SET ssl_cert_file = '{}'", files.certificate),
        format!("ALTER SYSTEM SET ssl_key_file = '{}'", files.key),
        "ALTER SYSTEM SET ssl = 'on'".to_owned(),
    ];
    reload(&database, &on, "on").await;
    let right = file(folder.path(), "right.pem", &right.pem());
    let wrong = file(folder.path(), "wrong.pem", &wrong.pem());
    let (right, wrong) = (Some(right.as_str()), Some(wrong.as_str()));
    // The mode, the authority and the host; then whether the connection is encrypted, or why not.
    let cases = [
        ("disable", None, "localhost", Ok(false)),
        ("prefer", None, "localhost", Ok(true)),
        ("require", None, "127.0.0.1", Ok(true)),
        ("require", right, "127.0.0.1", Ok(true)),
        ("require", wrong, "localhost", Err("certificate")),
        ("verify-ca", right, "127.0.0.1", Ok(true)),
        ("verify-ca", wrong, "localhost", Err("certificate")),
        ("verify-ca", None, "localhost", Err("certificate")),
        ("verify-full", right, "localhost", Ok(true)),
        ("verify-full", right, "127.0.0.1", Err("not valid for name")),
        ("verify-full", wrong, "localhost", Err("certificate")),
        ("verify-full", None, "localhost", Err("certificate")),
    ];
    let mut failures = Vec::new();
    for (mode, authority, host, want) in cases {
        let mut parameters = vec![("sslmode", mode)];
        parameters.extend(authority.map(|path| ("sslrootcert", path)));
        let found = open(&database, host, &parameters).await;
        let is_right = match (&found, want) {
            (Ok(found), Ok(want)) => *found == want,
            (Err(found), Err(want)) => found.contains(want),
            _ => false,
        };
        if !is_right {
            failures.push(format!(
                "{mode}, {authority:?}, {host}: {found:?}, not {want:?}"
            ));
        }
    }
    let off =
        ["ssl", "ssl_cert_file", "ssl_key_file"].map(|key| format!("ALTER SYSTEM RESET {key}"));
    reload(&database, &off, "off").await;
    let remove = format!("cat > /dev/null; rm {} {}", files.certificate, files.key);
    super::run(&mut admin, format!("COPY (SELECT 1) TO PROGRAM '{remove}'")).await;
    assert!(failures.is_empty(), "{failures:#?}");
}
