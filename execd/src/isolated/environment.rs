//! Initial variables of a session (contract: execd A6.4).

use crate::{
    env::{Variables, names::ENVIRONMENT_FILE},
    error::{ApiError, ApiResult},
};
use osb_protocol::execd::isolated::EnvPassthrough;

/// Prefixes and suffixes of variables that usually hold secrets.
const SECRET_PREFIXES: [&str; 5] = ["AWS_", "ALI_", "ALIYUN_", "K8S_", "KUBE_"];
const SECRET_SUFFIXES: [&str; 4] = ["_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD"];

/// Fills in the defaults.
///
/// # Errors
/// 400 for an unknown mode.
pub(super) fn rule(wanted: Option<EnvPassthrough>) -> ApiResult<EnvPassthrough> {
    let wanted = wanted.unwrap_or_default();
    let filled = match wanted.mode.as_deref() {
        // Keys without a mode are ignored.
        None | Some("") => EnvPassthrough {
            mode: Some("deny".to_owned()),
            keys: Vec::new(),
        },
        Some("deny" | "allow") => wanted,
        Some(mode) => {
            let message =
                format!("env_passthrough.mode: invalid mode {mode:?}, expected deny or allow");
            return Err(ApiError::invalid(message));
        }
    };
    Ok(filled)
}

/// Applies a rule to the variables of the user's other processes, which exclude the daemon's
/// configuration.
pub(super) fn passed(user: &Variables, rule: &EnvPassthrough) -> Variables {
    let named = |name: &str| rule.keys.iter().any(|key| key == name);
    let passes = |name: &str| match (rule.mode.as_deref(), rule.keys.is_empty()) {
        (Some("allow"), _) => named(name),
        (_, false) => !named(name),
        (_, true) => !is_secret(name),
    };
    user.iter()
        .filter(|(name, _)| {
            let name = name.to_string_lossy();
            name != ENVIRONMENT_FILE && passes(&name)
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || SECRET_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_outside_unless_they_are_asked_for() {
        let user = Variables::from_iter([
            ("PATH", "/bin"),
            ("My_Api_Key", "x"),
            ("aws_region", "x"),
            ("TOKENS", "x"),
            ("EXECD_ENVS", "/x"),
        ]);
        let names = |mode: Option<&str>, keys: &[&str]| {
            let wanted = EnvPassthrough {
                mode: mode.map(str::to_owned),
                keys: keys.iter().map(|&key| key.to_owned()).collect(),
            };
            let passed = passed(&user, &rule(Some(wanted)).unwrap());
            let names = passed
                .iter()
                .map(|(name, _)| name.to_str().unwrap().to_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(None, &["PATH"]), "PATH TOKENS");
        assert_eq!(names(Some("deny"), &[]), "PATH TOKENS");
        assert_eq!(
            names(Some("deny"), &["PATH"]),
            "My_Api_Key TOKENS aws_region"
        );
        assert_eq!(
            names(Some("allow"), &["My_Api_Key", "EXECD_ENVS"]),
            "My_Api_Key"
        );
        let odd = EnvPassthrough {
            mode: Some("some".into()),
            keys: Vec::new(),
        };
        assert!(matches!(rule(Some(odd)), Err(ApiError::Invalid(_))));
    }
}
