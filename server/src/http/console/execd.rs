//! The console's one way to the execd of a sandbox, and to the sidecar that enforces its network policy.
//!
//! It finds them through the domain, brings their tokens and explains failures to pages. Neither tokens
//! nor addresses reach the browser.

use std::sync::Arc;

use axum::http::StatusCode;
use osb_client::{EgressClient, ExecdClient};
use osb_protocol::{
    SandboxId,
    error::code,
    headers::{EGRESS_AUTH, EXECD_ACCESS_TOKEN},
    lifecycle::Endpoint,
};
use secrecy::ExposeSecret;
use tokio::time::error::Elapsed;

use super::super::error::answer_to;
use crate::{
    identity::Scope,
    sandbox::{self, Service},
    trace,
};

/// Makes clients of execd. Clones share connections.
#[derive(Clone)]
pub(super) struct Execds {
    service: Service,
    http: reqwest::Client,
}

impl Execds {
    pub(super) fn new(service: Service) -> Result<Self, osb_client::Error> {
        let http = osb_client::plain_http()?;
        Ok(Self { service, http })
    }

    /// A client of the execd of a sandbox within a scope.
    pub(super) fn client(
        &self,
        sandbox: &SandboxId,
        scope: &Scope,
    ) -> Result<ExecdClient, ExecdError> {
        let execd = self.service.within(scope).execd(sandbox)?;
        let token = execd.token.map(|token| token.expose_secret().to_owned());
        let token = token.map(|token| (EXECD_ACCESS_TOKEN.to_owned(), token));
        let endpoint = Endpoint {
            endpoint: execd.authority,
            headers: token.into_iter().chain(trace::context()).collect(),
        };
        let client = ExecdClient::with_http(self.http.clone(), "http", &endpoint)?;
        Ok(client)
    }

    /// A client of the sidecar that enforces the network policy of a sandbox within a scope.
    pub(super) fn sidecar(
        &self,
        sandbox: &SandboxId,
        scope: &Scope,
    ) -> Result<EgressClient, ExecdError> {
        let target = self.service.within(scope).sidecar(sandbox)?;
        let tokens = [
            (
                EGRESS_AUTH,
                target.record.facts.origin.egress_token.as_ref(),
            ),
            // The way may lead through execd.
            (EXECD_ACCESS_TOKEN, target.execd_token()),
        ];
        let tokens = tokens.into_iter().filter_map(|(name, token)| {
            let token = token?.expose_secret().to_owned();
            Some((name.to_owned(), token))
        });
        let endpoint = Endpoint {
            endpoint: format!("{}{}", target.route.authority, target.route.path_prefix),
            headers: tokens.chain(trace::context()).collect(),
        };
        let client = EgressClient::with_http(self.http.clone(), "http", &endpoint)?;
        Ok(client)
    }

    /// The tenant of a sandbox within a scope; `None` when there is no such sandbox.
    pub(super) fn tenant(&self, sandbox: &SandboxId, scope: &Scope) -> Option<Option<Arc<str>>> {
        let record = self.service.within(scope).find(sandbox)?;
        Some(record.facts.origin.tenant.clone())
    }

    /// Status and code that a failure has in the API.
    pub(super) fn answer_to<'error>(&self, error: &'error ExecdError) -> (StatusCode, &'error str) {
        let bad_gateway = StatusCode::BAD_GATEWAY;
        match error {
            ExecdError::Domain(error) => answer_to(error, &self.service.vocabulary().codes),
            ExecdError::Refused(refusal) => (refusal.status, refusal.code.as_str()),
            ExecdError::Unreachable(_) | ExecdError::TooLong(_) => {
                (bad_gateway, code::BACKEND_CONNECTION_FAILED)
            }
            ExecdError::Timeout(_) => (StatusCode::GATEWAY_TIMEOUT, code::BACKEND_TIMEOUT),
        }
    }
}

/// Why the execd of a sandbox did not do what a page asked for. The text may be shown to the page.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExecdError {
    /// The domain knows no way to it.
    #[error(transparent)]
    Domain(#[from] sandbox::Error),
    /// It refused.
    #[error("{}", .0.message)]
    Refused(osb_client::ApiError),
    /// It cannot be reached, or its answer makes no sense.
    #[error("execd cannot be reached")]
    Unreachable(#[source] osb_client::Error),
    /// Its answer has too many bytes.
    #[error("the answer of execd is longer than {} MiB: ask for less", .0 >> 20)]
    TooLong(usize),
    /// It took too long.
    #[error("execd does not answer")]
    Timeout(#[from] Elapsed),
}

impl From<osb_client::Error> for ExecdError {
    fn from(error: osb_client::Error) -> Self {
        match error {
            osb_client::Error::Api(refusal) => Self::Refused(refusal),
            osb_client::Error::TooLong(most) => Self::TooLong(most),
            other => Self::Unreachable(other),
        }
    }
}

impl ExecdError {
    /// Status of execd's answer, if it refused.
    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused(refusal) => Some(refusal.status),
            Self::Domain(_) | Self::Unreachable(_) | Self::TooLong(_) | Self::Timeout(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use osb_runtime::sim::SimRuntime;

    use super::{
        super::tests::{Console, running},
        *,
    };

    #[tokio::test]
    async fn a_sandbox_that_does_not_exist_is_said_to_be_gone() {
        let console = Console::open().await;
        let execds = Execds::new(console.service.clone()).unwrap();
        let error = execds.client(&"none".into(), &Scope::All).unwrap_err();
        assert_eq!(error.status(), None);
        let missing = matches!(error, ExecdError::Domain(sandbox::Error::NotFound(_)));
        assert!(missing, "{error:?}");
    }

    #[tokio::test]
    async fn an_execd_that_is_down_is_named_without_its_address() {
        let port = {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.local_addr().unwrap().port()
        };
        let console = Console::open_over(SimRuntime::with([running("a", port)])).await;
        let execds = Execds::new(console.service.clone()).unwrap();
        let failure = execds
            .client(&"a".into(), &Scope::All)
            .unwrap()
            .ping()
            .await;
        let error = ExecdError::from(failure.unwrap_err());
        assert_eq!(error.to_string(), "execd cannot be reached");
    }
}
