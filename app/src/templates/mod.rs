//! The pages about templates: the list with the form that makes one, and one of them.

mod add;
mod api;
mod calls;
mod delete;
mod detail;
mod form;
mod log;
mod page;
mod row;
mod shown;

use detail::TemplatePage;
use page::TemplatesPage;

pub use form::{TemplateDraft, TemplateForm};

use crate::lazy::{Part, part};

/// The list, loaded when it is first shown.
pub(crate) const PART: Part = part!(templates, TemplatesPage);
/// The page of one template, loaded when it is first shown.
pub(crate) const DETAIL: Part = part!(template, TemplatePage);
