//! The Rust SDK: a thin, typed, asynchronous client of OpenSandbox.
//!
//! ```no_run
//! # async fn example() -> Result<(), osb_client::Error> {
//! use osb_client::{LifecycleClient, Via, protocol::execd::command::RunCommand};
//!
//! let server = LifecycleClient::new("http://localhost:8080", None)?;
//! let sandbox = server.get(&"0b6c1f2e".into()).await?;
//! let execd = server.execd(&sandbox.id, Via::Direct).await?;
//! let output = execd
//!     .run_to_end(&RunCommand { command: Some("uname -a".into()), ..RunCommand::default() })
//!     .await?;
//! println!("{} ({:?})", output.stdout, output.exit_code);
//! # Ok(()) }
//! ```
//!
//! * [`LifecycleClient`]: sandboxes of a server.
//! * [`ExecdClient`]: commands, files, metrics and terminals of one sandbox.
//! * [`EgressClient`]: the network policy of one sandbox, and what was decided by it.
//! * [`Error`]: failures, with the server's code, message and request id.
//! * [`frames`]: the parser of event streams, for use with another transport.
//!
//! The models are those of `osb-protocol`, re-exported as [`protocol`]. The client never retries:
//! [`Error::retryable`] says when a retry makes sense.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod egress;
mod error;
pub mod execd;
pub mod frames;
mod http;
mod lifecycle;

pub use osb_protocol as protocol;

pub use egress::EgressClient;
pub use error::{ApiError, Error};
pub use execd::ExecdClient;
pub use http::{default_http, plain_http};
pub use lifecycle::{LifecycleClient, ListSandboxes, Via};
