//! The sandboxes that were created from a snapshot or a template, as pages name them.

use std::{collections::HashMap, sync::Arc};

use osb_app::{
    error::ConsoleError,
    view::{Kin, USERS_NAMED, kin_names, title},
};
use osb_runtime::Source;

use crate::sandbox::{Record, Service};

/// A sandbox as a page names it.
pub(super) fn kin(record: &Record) -> Kin {
    Kin {
        id: record.sandbox.id.clone(),
        title: title(&record.sandbox).to_owned(),
        state: Some(record.sandbox.status.state.clone()),
    }
}

/// The sandboxes that exist, by the ids of what they were created from, newest first.
pub(super) struct Users(HashMap<String, Vec<Arc<Record>>>);

impl Users {
    /// Those of snapshots.
    pub(super) fn of_snapshots(service: &Service) -> Self {
        Self::of(service, Source::snapshot_id)
    }

    /// Those of templates.
    pub(super) fn of_templates(service: &Service) -> Self {
        Self::of(service, Source::template_id)
    }

    /// None, where they are not shown.
    pub(super) fn none() -> Self {
        Self(HashMap::new())
    }

    fn of(service: &Service, id: fn(&Source) -> Option<&str>) -> Self {
        let mut users: HashMap<String, Vec<Arc<Record>>> = HashMap::new();
        let (records, _) = service.snapshot();
        for record in records {
            if let Some(id) = id(&record.facts.origin.source) {
                users.entry(id.to_owned()).or_default().push(record);
            }
        }
        Self(users)
    }

    /// The first sandboxes that were created from something, and how many there are.
    pub(super) fn named(&self, id: &str) -> (Vec<Kin>, usize) {
        let users = self.0.get(id).map(Vec::as_slice).unwrap_or_default();
        let named = users.iter().take(USERS_NAMED);
        (named.map(|record| kin(record)).collect(), users.len())
    }

    /// A refusal with the sandboxes that are the reason of it.
    pub(super) fn named_in(&self, error: ConsoleError, id: &str) -> ConsoleError {
        let (users, count) = self.named(id);
        match error {
            ConsoleError::Refused { message } if count > 0 => {
                let users = kin_names(&users, count);
                ConsoleError::Refused {
                    message: format!("{message} Created from it: {users}."),
                }
            }
            other => other,
        }
    }
}
