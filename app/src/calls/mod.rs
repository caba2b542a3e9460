//! What the console does, as calls of the API in four languages: a create request, and the acts on a
//! sandbox, on a snapshot and on a template. Those on a pool as `curl` commands.

mod act;
mod language;
mod pool;
mod request;
mod snapshot;
mod tabs;
mod template;

pub(crate) use act::Call;
pub(crate) use language::{Language, Target};
pub(crate) use pool::PoolCall;
pub(crate) use request::create;
pub(crate) use snapshot::SnapshotCall;
pub(crate) use tabs::{CurlBlock, LanguageTabs};
pub(crate) use template::{TemplateCall, add_template};
