//! Validation of a command request (contract: execd §5.1, §5.3, §5.4, A2.1, A2.2).

use std::{io, path::PathBuf, time::Duration};

use osb_protocol::execd::command::RunCommand;

use crate::{
    base::Base,
    env::Variables,
    error::{ApiError, ApiResult},
    identity::Credentials,
    process::Program,
    request,
};

/// Validated command. A missing program is not an error here: clients learn of it from the stream.
#[derive(Debug)]
pub(super) struct Plan {
    /// Command text for the status.
    pub(super) content: String,
    pub(super) program: io::Result<Program>,
    pub(super) variables: Variables,
    pub(super) cwd: Option<PathBuf>,
    /// Set only if it differs from the daemon's own identity.
    pub(super) credentials: Option<Credentials>,
    pub(super) timeout: Option<Duration>,
    pub(super) background: bool,
}

impl Plan {
    /// Validates a request.
    ///
    /// # Errors
    /// 400 for every broken rule.
    pub(super) fn new(request: RunCommand, base: &Base) -> ApiResult<Self> {
        let timeout = request::timeout(request.timeout)?;
        if request.gid.is_some() && request.uid.is_none() {
            return Err(ApiError::invalid("uid is required when gid is provided"));
        }
        for (name, value) in &request.envs {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let message = format!("invalid environment variable {name:?}");
                return Err(ApiError::invalid(message));
            }
        }
        let credentials = request
            .uid
            .map(|uid| base.accounts.names().credentials(uid, request.gid))
            .filter(|wanted| differs(wanted, request.gid.is_some(), &Credentials::own()));
        let mut variables = match &credentials {
            Some(user) => base.variables_of(user.uid),
            None => base.environment.for_user(),
        };
        for (name, value) in &request.envs {
            variables.set(name, value);
        }
        let cwd =
            request::working_directory(request.cwd.as_deref(), &variables, &base.environment)?;
        if let Some(cwd) = cwd.as_ref().filter(|_| !request.envs.contains_key("PWD")) {
            variables.set("PWD", cwd);
        }
        let (content, program) = match (request.command, request.argv) {
            (Some(text), None) if !text.is_empty() => {
                request::no_nul(&text)?;
                (text.clone(), Program::shell(text, &variables))
            }
            (None, Some(argv)) if argv.first().is_some_and(|name| !name.is_empty()) => {
                argv.iter().try_for_each(|arg| request::no_nul(arg))?;
                let content = serde_json::to_string(&argv).expect("a list of strings is JSON");
                let argv = argv.into_iter().map(Into::into).collect();
                (content, Program::direct(argv, &variables, cwd.as_deref()))
            }
            (None, Some(_)) => return Err(ApiError::invalid("argv[0] must not be empty")),
            _ => {
                let message = "exactly one of command and argv is required";
                return Err(ApiError::invalid(message));
            }
        };
        Ok(Self {
            content,
            program,
            variables,
            cwd,
            credentials,
            timeout,
            background: request.background,
        })
    }
}

/// Whether the command needs another identity. Without an explicit group, supplementary groups
/// count too (contract: execd A2.2).
fn differs(wanted: &Credentials, explicit_group: bool, own: &Credentials) -> bool {
    (wanted.uid, wanted.gid) != (own.uid, own.gid)
        || (!explicit_group && wanted.supplementary() != own.supplementary())
}

#[cfg(test)]
mod tests {
    use osb_service::Supervisor;

    use super::*;
    use crate::env::Environment;

    fn plan(json: &str) -> ApiResult<Plan> {
        let variables = Variables::from_iter([("HOME", "/tmp"), ("PATH", "/usr/bin:/bin")]);
        let base = Base::new(Environment::new(variables), Supervisor::new());
        Plan::new(crate::json::object(json.as_bytes())?, &base)
    }

    #[test]
    fn broken_rules_are_refused() {
        for bad in [
            "{}",
            r#"{"command":""}"#,
            r#"{"argv":[]}"#,
            r#"{"argv":[""]}"#,
            r#"{"argv":["a"],"command":"a"}"#,
            r#"{"argv":["a\u0000"]}"#,
            r#"{"command":"a","timeout":-1}"#,
            r#"{"command":"a","gid":1}"#,
            r#"{"command":"a","envs":{"A=B":""}}"#,
            r#"{"command":"a","cwd":"/nonexistent"}"#,
            r#"{"command":"a","cwd":"/etc/passwd"}"#,
            r#"{"command":"a","cwd":"/$NONE"}"#,
        ] {
            let error = plan(bad).unwrap_err();
            assert!(matches!(error, ApiError::Invalid(_)), "{bad}: {error:?}");
            assert_eq!(
                bad.contains("cwd"),
                error.to_string().contains("working directory")
            );
        }
    }

    #[test]
    fn the_working_directory_expands_the_request_s_variables() {
        let plan = plan(r#"{"command":"a","cwd":"$D/..","envs":{"D":"/usr/bin"}}"#).unwrap();
        assert_eq!(plan.cwd, Some(PathBuf::from("/usr")));
        assert_eq!(plan.variables.text("PWD").as_deref(), Some("/usr"));
    }

    #[test]
    fn a_missing_program_breaks_no_rule() {
        let plan = plan(r#"{"argv":["no-such-program"],"timeout":0}"#).unwrap();
        assert_eq!(plan.content, r#"["no-such-program"]"#);
        assert_eq!(plan.timeout, None);
        assert!(plan.program.is_err());
    }

    #[test]
    fn the_daemon_s_own_identity_needs_no_switch() {
        let own = Credentials {
            uid: 5,
            gid: 6,
            groups: vec![6, 7],
        };
        let other = |groups: &[u32]| Credentials {
            groups: groups.to_vec(),
            ..own.clone()
        };
        assert!(!differs(&own, false, &own));
        assert!(differs(&other(&[6]), false, &own));
        assert!(!differs(&other(&[6]), true, &own));
        // The primary group may also be a supplementary one.
        assert!(!differs(&other(&[7]), false, &own));
    }
}
