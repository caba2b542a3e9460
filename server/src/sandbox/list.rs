//! Lists (contract: lifecycle §5.3).

use std::sync::Arc;

use osb_protocol::{labels::MetadataFilter, lifecycle::PaginationInfo};

use super::{Record, Registry};
use crate::identity::Scope;

/// Most sandboxes of a page.
pub const PAGE_SIZE_MAX: usize = 200;
/// Sandboxes of a page when the client does not say.
pub const PAGE_SIZE: usize = 20;

/// Which sandboxes, and which page of them.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// Wanted states, compared without case; none means any.
    pub states: Vec<String>,
    /// Wanted metadata.
    pub metadata: MetadataFilter,
    /// Page from 1.
    pub page: usize,
    /// Sandboxes per page.
    pub page_size: usize,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self {
            states: Vec::new(),
            metadata: MetadataFilter::default(),
            page: 1,
            page_size: PAGE_SIZE,
        }
    }
}

/// One page.
#[derive(Clone, Debug)]
pub struct Page {
    /// Newest first.
    pub items: Vec<Arc<Record>>,
    /// Where it stands.
    pub pagination: PaginationInfo,
}

impl ListQuery {
    /// Reads a page of what is within a scope from the registry.
    #[must_use]
    pub fn run(&self, registry: &Registry, scope: &Scope) -> Page {
        let matches = |record: &Record| {
            if !scope.contains(record.facts.origin.tenant.as_deref()) {
                return false;
            }
            let state = record.sandbox.status.state.as_str();
            (self.states.is_empty() || self.states.iter().any(|s| s.eq_ignore_ascii_case(state)))
                && self.metadata.matches(&record.sandbox.metadata)
        };
        let filter: Option<&dyn Fn(&Record) -> bool> =
            if self.states.is_empty() && self.metadata.is_empty() && *scope == Scope::All {
                None
            } else {
                Some(&matches)
            };
        let skip = (self.page - 1).saturating_mul(self.page_size);
        let (items, total) = registry.page(skip, self.page_size, filter);
        Page {
            items,
            pagination: PaginationInfo::new(self.page, self.page_size, total),
        }
    }
}
