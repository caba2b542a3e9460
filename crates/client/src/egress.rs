//! The sidecar that enforces the network policy of one sandbox (contract: egress §5).

use osb_protocol::lifecycle::{
    Endpoint, NetworkDecisions, NetworkPolicy, NetworkPolicyStatus, NetworkRule,
};
use reqwest::{Client, Method, RequestBuilder};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Error,
    http::{self, Service},
};

/// Most bytes of an answer: more than the full lists of a sidecar have. If the sidecar is gone, a program
/// of the sandbox can take its port.
const ANSWER_MAX: usize = 16 << 20;

/// The sidecar of one sandbox. Clones share connections.
#[derive(Clone, Debug)]
pub struct EgressClient {
    service: Service,
}

impl EgressClient {
    /// A client of the sidecar at `endpoint`, as the lifecycle API returns it for port 18080: with its
    /// headers, and without a scheme, which is `http` or `https` as for the server.
    ///
    /// # Errors
    /// [`Error::Argument`] when the endpoint cannot be used.
    pub fn with_http(http: Client, scheme: &str, endpoint: &Endpoint) -> Result<Self, Error> {
        let service = Service::at(http, scheme, endpoint)?;
        Ok(Self { service })
    }

    /// The policy in force, as it was given and changed since.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn policy(&self) -> Result<NetworkPolicyStatus, Error> {
        answer(self.call(Method::GET)).await
    }

    /// Replaces the policy.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn replace(&self, policy: &NetworkPolicy) -> Result<NetworkPolicyStatus, Error> {
        answer(self.call(Method::PUT).json(policy)).await
    }

    /// Replaces the policy if it is still the expected one. Sidecars of older releases replace any.
    ///
    /// # Errors
    /// See [`Error`]; 412 when the policy was changed meanwhile.
    pub async fn replace_expected(
        &self,
        policy: &NetworkPolicy,
        expected: &NetworkPolicy,
    ) -> Result<NetworkPolicyStatus, Error> {
        #[derive(Serialize)]
        struct Replacement<'a> {
            #[serde(flatten)]
            policy: &'a NetworkPolicy,
            expected: &'a NetworkPolicy,
        }
        let body = Replacement { policy, expected };
        answer(self.call(Method::PUT).json(&body)).await
    }

    /// Puts rules in front. A rule replaces the one with the same target, in whatever spelling.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn merge(&self, rules: &[NetworkRule]) -> Result<NetworkPolicyStatus, Error> {
        answer(self.call(Method::PATCH).json(rules)).await
    }

    /// Removes the rules with these targets, in whatever spelling. Sidecars of older releases compare
    /// texts.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn remove(&self, targets: &[&str]) -> Result<NetworkPolicyStatus, Error> {
        answer(self.call(Method::DELETE).json(targets)).await
    }

    /// What was decided; of names only what changed after the number `since`.
    ///
    /// # Errors
    /// See [`Error`]; 404 from a sidecar that keeps no decisions.
    pub async fn decisions(&self, since: u64) -> Result<NetworkDecisions, Error> {
        let call = self.service.request(Method::GET, &["decisions"]);
        answer(call.query(&[("since", since)])).await
    }

    fn call(&self, method: Method) -> RequestBuilder {
        self.service.request(method, &["policy"])
    }
}

async fn answer<T: DeserializeOwned + Send + 'static>(call: RequestBuilder) -> Result<T, Error> {
    http::json_within(call, ANSWER_MAX).await
}
