//! History of commands.

use bytes::BytesMut;
use osb_protocol::execd::history::CommandHistoryPage;
use reqwest::Method;

use super::ExecdClient;
use crate::{Error, http};

/// Most bytes of a page: twice of what an honest execd sends.
const PAGE_MAX: usize = 2 << 20;

impl ExecdClient {
    /// The commands that began or ended after a revision of an epoch, which came with an earlier page;
    /// 0 and 0 for all that execd keeps.
    ///
    /// # Errors
    /// See [`Error`]; 404 from an execd without a history.
    pub async fn command_history(
        &self,
        since: u64,
        epoch: i64,
    ) -> Result<CommandHistoryPage, Error> {
        let call = self
            .service
            .request(Method::GET, &["commands", "history"])
            .query(&[("since", since.to_string()), ("epoch", epoch.to_string())]);
        let mut response = http::send(call).await?;
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > PAGE_MAX {
                return Err(Error::Unexpected("a page of the history is too large"));
            }
        }
        serde_json::from_slice(&body).map_err(Error::Body)
    }
}
