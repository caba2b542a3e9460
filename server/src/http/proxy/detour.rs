//! The way through execd, for programs that listen on the loopback interface of their sandbox only. At
//! the sandbox's own address their port refuses connections; execd's proxy reaches them.
//!
//! execd's token opens this way, so it needs what opens execd: an API key that may run commands. A token
//! of the sandbox serves as well.

use http::{HeaderName, HeaderValue, StatusCode, header::HOST, uri::PathAndQuery};
use osb_forward::{Detour, ForwardError, HeaderRules};
use osb_protocol::{error::code, headers, identity::Role};
use secrecy::ExposeSecret;

use super::{super::error::ApiError, Caller, EXECD_TOKEN, destination, failed};
use crate::sandbox::{
    Service,
    endpoint::{Target, execd_path},
};

const NO_PROGRAM: HeaderName = HeaderName::from_static(headers::EXECD_NO_PROGRAM);

/// A request to a port whose program may listen on the loopback interface only.
pub(super) struct ThroughExecd {
    /// The port's own way.
    pub(super) target: Target,
    pub(super) port: u16,
    /// Path and query for the program.
    pub(super) rest: PathAndQuery,
}

impl ThroughExecd {
    /// Returns the way through execd, with header rules like those of the port's own way.
    pub(super) fn find(self, service: &Service, rules: &HeaderRules) -> Option<Detour> {
        let Self { target, port, rest } = self;
        let execd = service.through_execd(&target, port)?;
        let to = destination(&execd, rest).ok()?;
        let mut rules = rules.clone();
        // The program sees the same host on both ways.
        let host = HeaderValue::from_str(&target.route.authority).ok()?;
        rules.set_request.insert(HOST, host);
        if let Some(token) = execd.execd_token() {
            let mut token = HeaderValue::from_str(token.expose_secret()).ok()?;
            token.set_sensitive(true);
            rules.set_request.insert(EXECD_TOKEN, token);
        }
        rules.location_strip = Some(execd_path(port));
        Some(Detour {
            to,
            rules,
            refusal: Some(NO_PROGRAM),
        })
    }
}

/// Whether requests of a client may go through execd.
pub(super) fn may_enter(caller: &Caller) -> bool {
    match &caller.verdict {
        Ok(principal) => principal.role >= Role::Operator,
        Err(_) => caller.has_key,
    }
}

/// As [`failed`], for a client whose requests may not go through execd.
pub(super) fn failed_outside(error: ForwardError) -> ApiError {
    if !matches!(error, ForwardError::Connect(_)) {
        return failed(error);
    }
    let status = StatusCode::BAD_GATEWAY;
    let message = "Could not connect to the backend sandbox: nothing listens on that port at the \
                   sandbox's address, and a program on its loopback interface needs an API key";
    let answer = ApiError::new(status, code::BACKEND_CONNECTION_FAILED, message);
    answer.because(&error).unlogged()
}
