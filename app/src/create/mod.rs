//! Creating a sandbox: the form, its request, the request as code, the page and its server
//! functions.

mod advanced;
mod api;
mod as_json;
mod code;
mod copy;
mod defaults;
mod field;
mod fields;
mod form;
mod from_json;
mod host_images;
mod inputs;
mod kept;
mod lifetime;
mod more;
mod network;
mod network_field;
mod page;
mod pairs;
mod preset_list;
mod presets;
mod source;
mod source_field;
mod state;
mod summary;
#[cfg(feature = "ssr")]
mod trial;
mod unsent;
pub(crate) mod words;

pub use field::Field;
pub use form::{CreateForm, Request};
pub use page::CreatePage;
#[cfg(feature = "ssr")]
pub use presets::preset_images;
pub use state::Draft;
#[cfg(feature = "ssr")]
pub use trial::start_trial;

use crate::lazy::{Part, part};

/// The page, loaded when it is first shown.
pub(crate) const PART: Part = part!(create, CreatePage);
