//! Ports of programs in the sandbox.

use osb_protocol::execd::port::ListeningPort;
use reqwest::Method;

use super::{ExecdClient, answer};
use crate::Error;

impl ExecdClient {
    /// The TCP ports on which programs of the sandbox listen.
    ///
    /// # Errors
    /// See [`Error`]; 404 from an execd that does not know them.
    pub async fn ports(&self) -> Result<Vec<ListeningPort>, Error> {
        answer(self.service.request(Method::GET, &["ports"])).await
    }
}
