//! The connection string. It contains a password, so no error and no log line quotes any of it.

use std::str::FromStr;

use secrecy::ExposeSecret;
use sqlx::postgres::PgConnectOptions;
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
        Ok(match options.get_application_name() {
            Some(_) => options,
            None => options.application_name("opensandbox-server"),
        })
    }
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
