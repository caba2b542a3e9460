//! What the server functions of the list do.

use std::collections::HashSet;

use osb_protocol::SandboxId;

use super::{ListQuery, PAGE_ROWS, filter::Filter, query::first_of};
use crate::{
    backend::{ConsoleBackend, backend},
    browser::now_ms,
    error::ConsoleError,
    view::{BULK_MAX, BulkAct, BulkResult, ENDED_MAX, SandboxList, SandboxRow, StateCounts},
};

/// Ended sandboxes that are read at a time when they are searched.
const BATCH: usize = 500;

/// One page of the list, with the numbers by state.
pub(super) async fn of(
    backend: &dyn ConsoleBackend,
    query: &ListQuery,
) -> Result<SandboxList, ConsoleError> {
    let rows = backend.sandboxes();
    let mut counts = StateCounts::default();
    for row in &rows {
        counts.add(&row.sandbox.status.state);
    }
    let list = match query.is_of_ended() {
        true => {
            let count = backend.ended_count(ENDED_MAX).await?;
            counts.ended = Some(count);
            ended(backend, query, count).await?
        }
        false => {
            // The list is useful without this number.
            counts.ended = backend.ended_count(ENDED_MAX).await.ok();
            query.select(rows, now_ms())
        }
    };
    Ok(SandboxList {
        counts,
        warning: backend.trouble(),
        ..list
    })
}

/// A page of the sandboxes that are gone, of which there are `count`.
async fn ended(
    backend: &dyn ConsoleBackend,
    query: &ListQuery,
    count: usize,
) -> Result<SandboxList, ConsoleError> {
    let filter = Filter::parse(&query.q);
    let order = query.order();
    let (rows, matching, page) = match filter.is_empty() && order.is_default() {
        true => {
            let page = query.shown_page(count);
            let rows = backend.ended(first_of(page), PAGE_ROWS).await?;
            (rows, count, page)
        }
        false => {
            let (mut rows, now) = (Vec::new(), now_ms());
            // Sandboxes that end meanwhile move the others from one batch into the next.
            let mut seen = HashSet::new();
            let mut is_shown =
                |row: &SandboxRow| filter.matches(row, now) && seen.insert(row.id().clone());
            for skip in (0..count).step_by(BATCH) {
                let batch = backend.ended(skip, BATCH.min(count - skip)).await?;
                rows.extend(batch.into_iter().filter(&mut is_shown));
            }
            order.apply(&mut rows, |row| order.key(row));
            let (matching, page) = (rows.len(), query.shown_page(rows.len()));
            let rows = rows.into_iter().skip(first_of(page)).take(PAGE_ROWS);
            (rows.collect(), matching, page)
        }
    };
    Ok(SandboxList {
        rows,
        matching,
        total: count,
        page,
        of_ended: true,
        ..SandboxList::default()
    })
}

/// Does the same to several sandboxes.
pub(super) async fn bulk(
    act: BulkAct,
    ids: Vec<SandboxId>,
) -> Result<Vec<BulkResult>, ConsoleError> {
    run(&*backend()?, act, ids).await
}

/// Does the same to several sandboxes, each once.
///
/// # Errors
/// [`ConsoleError::Refused`] for none, and for more than [`BULK_MAX`].
pub async fn run(
    backend: &dyn ConsoleBackend,
    act: BulkAct,
    mut ids: Vec<SandboxId>,
) -> Result<Vec<BulkResult>, ConsoleError> {
    let mut known = HashSet::new();
    ids.retain(|id| known.insert(id.clone()));
    if ids.is_empty() || ids.len() > BULK_MAX {
        return Err(ConsoleError::Refused {
            message: format!(
                "ids: select between 1 and {BULK_MAX} sandboxes; {} are selected",
                ids.len()
            ),
        });
    }
    Ok(backend.bulk(act, ids).await)
}
