//! Configuration of lifecycle hooks and its rules.

use serde::{Deserialize, Deserializer, Serialize};

use super::schedule::{Schedule, ScheduleError};

/// Default time limit of a hook, in seconds.
const DEFAULT_TIMEOUT: u32 = 60;

/// Reason to reject a hook configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Invalid JSON.
    #[error("not the JSON of lifecycle hooks")]
    Json(#[source] serde_json::Error),
    /// Invalid TOML. The original error would show the text, which may contain secrets.
    #[error("not the TOML of lifecycle hooks: {0}")]
    Toml(String),
    /// Hook without a program.
    #[error("{hook}: command must name a program and hold no NUL")]
    Command {
        /// Name of the hook.
        hook: String,
    },
    /// Hook with a time limit of zero.
    #[error("{hook}: timeoutSeconds must be at least 1")]
    Timeout {
        /// Name of the hook.
        hook: String,
    },
    /// Hook with an invalid schedule.
    #[error("{hook}: schedule")]
    Schedule {
        /// Name of the hook.
        hook: String,
        /// Cause.
        #[source]
        source: ScheduleError,
    },
}

/// All hooks of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lifecycle {
    /// Hook that runs before the entry point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pre_start: Option<Hook>,
    /// Hooks that run on a schedule.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub(super) periodic: Vec<Periodic>,
}

/// Program and its time limit.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hook {
    pub(super) command: Vec<String>,
    #[serde(default = "default_timeout", deserialize_with = "or_timeout")]
    pub(super) timeout_seconds: u32,
}

/// Program that runs on a schedule.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Periodic {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) name: String,
    pub(super) schedule: Schedule,
    #[serde(flatten)]
    pub(super) hook: Hook,
}

fn default_timeout() -> u32 {
    DEFAULT_TIMEOUT
}

fn or_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(DEFAULT_TIMEOUT))
}

fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Lifecycle {
    /// Parses JSON, which begins with a brace, or TOML.
    pub(crate) fn read(text: &str) -> Result<Self, ConfigError> {
        let read: Self = match text.trim_start().starts_with('{') {
            true => serde_json::from_str(text).map_err(ConfigError::Json)?,
            false => toml::from_str(text).map_err(parse_error)?,
        };
        if let Some(hook) = &read.pre_start {
            hook.check("preStart")?;
        }
        for (index, periodic) in read.periodic.iter().enumerate() {
            let named = format!("periodic hook {index} {:?}", periodic.name);
            periodic.hook.check(&named)?;
            let schedule = periodic.schedule.check();
            schedule.map_err(|source| ConfigError::Schedule {
                hook: named,
                source,
            })?;
        }
        Ok(read)
    }
}

fn parse_error(error: toml::de::Error) -> ConfigError {
    ConfigError::Toml(error.message().to_owned())
}

impl Hook {
    fn check(&self, named: &str) -> Result<(), ConfigError> {
        let hook = || named.to_owned();
        let program = self.command.first().is_some_and(|name| !name.is_empty());
        if !program || self.command.iter().any(|arg| arg.contains('\0')) {
            return Err(ConfigError::Command { hook: hook() });
        }
        match self.timeout_seconds {
            0 => Err(ConfigError::Timeout { hook: hook() }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_stored_toml_are_parsed() {
        let json = r#"{"preStart":{"command":["sh","-c","true"],"timeoutSeconds":null},
            "periodic":[{"name":"sync","schedule":"*/5 * * * *","command":["a"],"timeoutSeconds":9}],
            "later":1}"#;
        let read = Lifecycle::read(json).unwrap();
        assert_eq!(read.pre_start.as_ref().unwrap().timeout_seconds, 60);
        assert_eq!(read.periodic[0].hook.timeout_seconds, 9);
        let kept = toml::to_string(&read).unwrap();
        assert_eq!(Lifecycle::read(&kept).unwrap(), read);
        let nulls = r#"{"preStart":null,"periodic":null}"#;
        assert_eq!(Lifecycle::read(nulls).unwrap(), Lifecycle::default());
    }

    #[test]
    fn broken_hooks_are_refused() {
        for bad in [
            "{",
            "nonsense",
            r#"{"preStart":{}}"#,
            r#"{"preStart":{"command":[]}}"#,
            r#"{"preStart":{"command":[""]}}"#,
            r#"{"preStart":{"command":["a\u0000"]}}"#,
            r#"{"preStart":{"command":["a"],"timeoutSeconds":0}}"#,
            r#"{"preStart":{"command":["a"],"timeoutSeconds":-1}}"#,
            r#"{"periodic":[{"command":["a"]}]}"#,
            r#"{"periodic":[{"command":["a"],"schedule":"soon"}]}"#,
            r#"{"periodic":[{"command":[],"schedule":"@daily"}]}"#,
        ] {
            assert!(Lifecycle::read(bad).is_err(), "{bad}");
        }
        let broken = "[preStart]\ncommand = [\"login\", \"hunter2\"";
        let message = Lifecycle::read(broken).unwrap_err().to_string();
        assert!(!message.contains("hunter2"), "{message}");
    }
}
