//! The connection string. It contains a password, so no error and no log line quotes any of it.

use std::{fs, io, str::FromStr};

use secrecy::ExposeSecret;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tracing::warn;
use url::Url;

use crate::PostgresOptions;

/// Parameters that the driver reads. It logs others with their values, which may be secrets.
const PARAMETERS: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// The names of the parameter with the certificate of a private authority.
const ROOT_CERTIFICATE: [&str; 3] = ["sslrootcert", "ssl-root-cert", "ssl-ca"];
/// The names of the parameter with the certificate of this server.
const OWN_CERTIFICATE: [&str; 2] = ["sslcert", "ssl-cert"];
/// The names of the parameter with the key to it.
const OWN_KEY: [&str; 2] = ["sslkey", "ssl-key"];

/// Why a connection string cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDsn {
    /// It is not a URL of PostgreSQL.
    #[error("must be a URL such as postgresql://user:password@host:5432/database")]
    NoUrl,
    /// The value of a parameter is invalid.
    #[error("has a parameter with an invalid value")]
    Parameter,
}

impl PostgresOptions {
    /// Checks the connection string without connecting.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn check_dsn(&self) -> Result<(), InvalidDsn> {
        self.parse_dsn().map(drop)
    }

    pub(super) fn parse_dsn(&self) -> Result<PgConnectOptions, InvalidDsn> {
        let mut url = Url::parse(self.dsn.expose_secret().trim()).map_err(|_| InvalidDsn::NoUrl)?;
        if !matches!(url.scheme(), "postgresql" | "postgres") {
            return Err(InvalidDsn::NoUrl);
        }
        let (known, unknown): (Vec<_>, Vec<_>) = url
            .query_pairs()
            .into_owned()
            .partition(|(key, _)| is_parameter(key));
        if !unknown.is_empty() {
            for (key, _) in unknown {
                warn!(
                    parameter = key,
                    "store.postgresql.dsn has a parameter without effect"
                );
            }
            url.query_pairs_mut().clear().extend_pairs(known);
        }
        let options =
            PgConnectOptions::from_str(url.as_str()).map_err(|_| InvalidDsn::Parameter)?;
        let options = match options.get_ssl_mode() {
            // As the database's own library does: who names an authority wants it to count.
            PgSslMode::Require if has_parameter(&url, &ROOT_CERTIFICATE) => {
                options.ssl_mode(PgSslMode::VerifyCa)
            }
            _ => options,
        };
        Ok(match options.get_application_name() {
            Some(_) => options,
            None => options.application_name("opensandbox-server"),
        })
    }

    /// Reads the files that the connection string names, whose absence the driver reports without
    /// saying which it is. Warns of a certificate that protects nothing.
    pub(super) fn check_files(&self) -> io::Result<()> {
        let Ok(url) = Url::parse(self.dsn.expose_secret().trim()) else {
            return Ok(());
        };
        for (names, mark) in [
            (&ROOT_CERTIFICATE[..], "-----BEGIN CERTIFICATE-----"),
            (&OWN_CERTIFICATE, "-----BEGIN CERTIFICATE-----"),
            (&OWN_KEY, "PRIVATE KEY-----"),
        ] {
            let named = url.query_pairs().find(|(key, _)| names.contains(&&**key));
            let Some((name, value)) = named else {
                continue;
            };
            let is_inline = value.trim().starts_with("-----BEGIN");
            let text = match is_inline {
                true => value.into_owned(),
                false => fs::read_to_string(&*value).map_err(|error| {
                    io::Error::new(error.kind(), format!("{name} of the dsn: {error}"))
                })?,
            };
            if !text.contains(mark) {
                let message = format!("{name} of the dsn: nothing in PEM format is in there");
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
        }
        let mode = self.parse_dsn().map(|options| options.get_ssl_mode());
        if has_parameter(&url, &ROOT_CERTIFICATE)
            && matches!(
                mode,
                Ok(PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer)
            )
        {
            warn!(
                "store.postgresql.dsn has sslrootcert, but the database is not verified; set sslmode=verify-full"
            );
        }
        Ok(())
    }
}

fn has_parameter(url: &Url, names: &[&str]) -> bool {
    url.query_pairs().any(|(key, _)| names.contains(&&*key))
}

fn is_parameter(key: &str) -> bool {
    PARAMETERS.contains(&key) || key.starts_with("options[")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(dsn: &str) -> Result<PgConnectOptions, InvalidDsn> {
        let options = PostgresOptions {
            dsn: dsn.into(),
            ..PostgresOptions::default()
        };
        assert!(!format!("{options:?}").contains("hunter2"));
        options.parse_dsn()
    }

    #[test]
    fn urls_are_parsed_and_unknown_parameters_dropped() {
        let dsn =
            "postgresql://me:hunter2@db.example:5433/boxes?sslpassword=hunter2&sslmode=require";
        let options = parse(dsn).unwrap();
        let seen = (
            options.get_host(),
            options.get_port(),
            options.get_username(),
        );
        assert_eq!(seen, ("db.example", 5433, "me"));
        assert_eq!(options.get_database(), Some("boxes"));
        assert_eq!(options.get_application_name(), Some("opensandbox-server"));
        let named = parse("postgres:///boxes?user=me&application_name=own&host=/run/pg").unwrap();
        assert_eq!(named.get_application_name(), Some("own"));
        assert_eq!(named.get_socket().unwrap().to_str(), Some("/run/pg"));
    }

    #[test]
    fn an_authority_that_is_named_counts() {
        for (mode, with_authority, without) in [
            ("sslmode=disable&", PgSslMode::Disable, PgSslMode::Disable),
            ("", PgSslMode::Prefer, PgSslMode::Prefer),
            ("sslmode=require&", PgSslMode::VerifyCa, PgSslMode::Require),
            (
                "sslmode=verify-ca&",
                PgSslMode::VerifyCa,
                PgSslMode::VerifyCa,
            ),
            (
                "sslmode=verify-full&",
                PgSslMode::VerifyFull,
                PgSslMode::VerifyFull,
            ),
        ] {
            for (authority, want) in [("sslrootcert=/ca.pem", with_authority), ("", without)] {
                let options = parse(&format!("postgres://me:hunter2@db/boxes?{mode}{authority}"));
                let found = options.unwrap().get_ssl_mode();
                let same = std::mem::discriminant(&found) == std::mem::discriminant(&want);
                assert!(same, "{mode}{authority}: {found:?}");
            }
        }
    }

    #[test]
    fn files_that_cannot_be_used_are_named_by_their_parameter() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty.pem");
        fs::write(&empty, "").unwrap();
        for (file, want) in [
            ("/nonexistent", "No such file"),
            (empty.to_str().unwrap(), "PEM"),
        ] {
            for parameter in ["sslrootcert", "sslcert", "sslkey"] {
                let options = PostgresOptions {
                    dsn: format!("postgres://me:hunter2@db/boxes?{parameter}={file}").into(),
                    ..PostgresOptions::default()
                };
                let error = options.check_files().unwrap_err().to_string();
                assert!(
                    error.starts_with(parameter) && error.contains(want),
                    "{error}"
                );
                assert!(!error.contains("hunter2"), "{error}");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named_without_the_string() {
        for (dsn, want) in [
            ("", InvalidDsn::NoUrl),
            ("host=db password=hunter2", InvalidDsn::NoUrl),
            ("mysql://me:hunter2@db/boxes", InvalidDsn::NoUrl),
            (
                "postgres://me:hunter2@db/boxes?port=hunter2",
                InvalidDsn::Parameter,
            ),
        ] {
            let error = parse(dsn).unwrap_err();
            assert_eq!(error, want, "{dsn}");
            assert!(!error.to_string().contains("hunter2"));
        }
    }
}
