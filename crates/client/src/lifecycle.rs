//! Sandboxes of a server (contract: lifecycle §3 to §6).

use std::{collections::BTreeMap, time::Duration};

use osb_protocol::{
    SandboxId, WireTime, execd,
    headers::API_KEY,
    lifecycle::{
        CreateSandboxRequest, CreateSandboxResponse, Endpoint, Health, ListSandboxesResponse,
        RenewRequest, RenewResponse, Sandbox, SandboxState, Version,
    },
};
use reqwest::{Client, Method};
use secrecy::{ExposeSecret, SecretString};
use url::{Url, form_urlencoded};

use crate::{
    Error, ExecdClient,
    http::{self, Service},
};

/// Limit of a create, which is answered when the container runs and may include an image pull.
const CREATE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// The lifecycle API of one server. Clones share connections.
#[derive(Clone, Debug)]
pub struct LifecycleClient {
    server: Service,
}

/// Route to a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Via {
    /// Directly to the host's published port.
    #[default]
    Direct,
    /// Through the server, for clients that reach only that.
    ServerProxy,
}

/// Filter and page of a list.
#[derive(Clone, Debug, Default)]
pub struct ListSandboxes {
    /// In any of these states; empty for all.
    pub states: Vec<SandboxState>,
    /// With all of these labels.
    pub metadata: BTreeMap<String, String>,
    /// Number of the page, from 1.
    pub page: Option<usize>,
    /// Items of a page.
    pub page_size: Option<usize>,
}

impl LifecycleClient {
    /// Creates a client of the server at `address`, such as `http://localhost:8080`. A trailing `/v1`
    /// is removed, a path before it is kept.
    ///
    /// # Errors
    /// [`Error::Argument`] when the address or the key cannot be used.
    pub fn new(address: &str, api_key: Option<SecretString>) -> Result<Self, Error> {
        Self::with_http(http::default_http()?, address, api_key)
    }

    /// Creates a client over an existing HTTP client, which should not follow redirects.
    ///
    /// # Errors
    /// See [`LifecycleClient::new`].
    pub fn with_http(
        http: Client,
        address: &str,
        api_key: Option<SecretString>,
    ) -> Result<Self, Error> {
        let address = address.trim_end_matches('/');
        let address = address.strip_suffix("/v1").unwrap_or(address);
        let base = Url::parse(address).map_err(|error| Error::argument("the address", error))?;
        let mut server = Service::new(http, base)?;
        if let Some(key) = api_key {
            server.set_header(API_KEY, key.expose_secret())?;
        }
        Ok(Self { server })
    }

    /// Creates a sandbox and waits until its container runs.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create(
        &self,
        request: &CreateSandboxRequest,
    ) -> Result<CreateSandboxResponse, Error> {
        let call = self.server.request(Method::POST, &["v1", "sandboxes"]);
        http::json(call.timeout(CREATE_TIMEOUT).json(request)).await
    }

    /// Lists one page of sandboxes, newest first.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list(&self, which: &ListSandboxes) -> Result<ListSandboxesResponse, Error> {
        let call = self.server.request(Method::GET, &["v1", "sandboxes"]);
        http::json(call.query(&which.query())).await
    }

    /// Returns a sandbox.
    ///
    /// # Errors
    /// See [`Error`]; 404 when there is none.
    pub async fn get(&self, id: &SandboxId) -> Result<Sandbox, Error> {
        http::json(self.sandbox(Method::GET, id, &[])).await
    }

    /// Removes a sandbox.
    ///
    /// # Errors
    /// See [`Error`]; 404 when there is none.
    pub async fn delete(&self, id: &SandboxId) -> Result<(), Error> {
        http::done(self.sandbox(Method::DELETE, id, &[])).await
    }

    /// Moves the expiry of a sandbox; returns the new one.
    ///
    /// # Errors
    /// See [`Error`]; 409 for a sandbox without expiry.
    pub async fn renew(&self, id: &SandboxId, expires_at: WireTime) -> Result<WireTime, Error> {
        let call = self.sandbox(Method::POST, id, &["renew-expiration"]);
        let renewed: RenewResponse = http::json(call.json(&RenewRequest { expires_at })).await?;
        Ok(renewed.expires_at)
    }

    /// Changes labels: a value sets a label, `None` removes it, others are kept.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn patch_metadata(
        &self,
        id: &SandboxId,
        changes: &BTreeMap<String, Option<String>>,
    ) -> Result<Sandbox, Error> {
        http::json(self.sandbox(Method::PATCH, id, &["metadata"]).json(changes)).await
    }

    /// Returns the endpoint of a sandbox's port.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn endpoint(&self, id: &SandboxId, port: u16, via: Via) -> Result<Endpoint, Error> {
        let call = self.sandbox(Method::GET, id, &["endpoints", &port.to_string()]);
        let proxied = via == Via::ServerProxy;
        http::json(call.query(&[("use_server_proxy", proxied)])).await
    }

    /// Creates a client of a sandbox's execd, with the same connection pool and scheme.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn execd(&self, id: &SandboxId, via: Via) -> Result<ExecdClient, Error> {
        let endpoint = self.endpoint(id, execd::DEFAULT_PORT, via).await?;
        ExecdClient::with_http(
            self.server.http.clone(),
            self.server.base().scheme(),
            &endpoint,
        )
    }

    /// Checks that the server serves requests.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn health(&self) -> Result<Health, Error> {
        http::json(self.server.request(Method::GET, &["health"])).await
    }

    /// Returns the server's version.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn version(&self) -> Result<Version, Error> {
        http::json(self.server.request(Method::GET, &["version"])).await
    }

    fn sandbox(&self, method: Method, id: &SandboxId, rest: &[&str]) -> reqwest::RequestBuilder {
        let path = [&["v1", "sandboxes", id.as_str()], rest].concat();
        self.server.request(method, &path)
    }
}

impl ListSandboxes {
    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query: Vec<_> = self
            .states
            .iter()
            .map(|state| ("state", state.to_string()))
            .collect();
        if !self.metadata.is_empty() {
            // contract: clients §3.9 - each pair is encoded, so that a value may contain & and =, and the
            // whole is encoded again.
            let pairs = form_urlencoded::Serializer::new(String::new())
                .extend_pairs(&self.metadata)
                .finish();
            query.push(("metadata", pairs));
        }
        query.extend(self.page.map(|page| ("page", page.to_string())));
        query.extend(self.page_size.map(|size| ("pageSize", size.to_string())));
        query
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_become_one_doubly_encoded_value() {
        let list = ListSandboxes {
            states: vec![SandboxState::Running, SandboxState::Paused],
            metadata: [
                ("a".to_owned(), "b&c=d".to_owned()),
                ("e".to_owned(), String::new()),
            ]
            .into(),
            page: Some(2),
            page_size: Some(50),
        };
        let expected = [
            ("state", "Running"),
            ("state", "Paused"),
            ("metadata", "a=b%26c%3Dd&e="),
            ("page", "2"),
            ("pageSize", "50"),
        ];
        let expected: Vec<_> = expected
            .map(|(name, value)| (name, value.to_owned()))
            .into();
        assert_eq!(list.query(), expected);
        assert!(ListSandboxes::default().query().is_empty());
    }

    #[tokio::test]
    async fn addresses_are_normalised_and_secrets_stay_out_of_debug_output() {
        let key = SecretString::from("hunter2");
        for address in [
            "http://a/x",
            "http://a/x/",
            "http://a/x/v1",
            "http://a/x/v1/",
        ] {
            let client = LifecycleClient::new(address, Some(key.clone())).unwrap();
            let request = client
                .sandbox(Method::GET, &"i/d".into(), &[])
                .build()
                .unwrap();
            assert_eq!(request.url().as_str(), "http://a/x/v1/sandboxes/i%2Fd");
            assert_eq!(request.headers()[API_KEY], "hunter2");
            assert!(!format!("{client:?}").contains("hunter2"));
        }
        for bad in ["", "localhost:8080", "ftp://a", "mailto:a"] {
            assert!(LifecycleClient::new(bad, None).is_err(), "{bad}");
        }
        let error = LifecycleClient::new("http://a", Some("a\nb".into())).unwrap_err();
        assert!(!error.to_string().contains("a\nb"), "{error}");
    }
}
