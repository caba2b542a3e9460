//! Which sandboxes' records are kept no longer.

use std::collections::HashSet;

use osb_protocol::SandboxId;

/// Sandboxes whose records one statement deletes.
pub(crate) const IDS: usize = 100;
/// Bytes of a stored command besides its texts, about.
pub(crate) const COMMAND_OVERHEAD: i64 = 100;

/// The records of one sandbox: its id, when it ended, when the newest was written, and their bytes.
/// Times are Unix seconds.
pub(crate) type Kept = (String, Option<i64>, i64, i64);

/// Returns the sandboxes whose records go: those that ended before `before`, and the oldest beyond
/// `most` bytes. A sandbox in `alive` has not ended. One that is neither alive nor in the history ended
/// with its newest record.
pub(crate) fn outdated(
    mut kept: Vec<Kept>,
    before: i64,
    alive: &[SandboxId],
    most: u64,
) -> Vec<String> {
    let alive: HashSet<&str> = alive.iter().map(SandboxId::as_str).collect();
    let time = |(id, ended, newest, _): &Kept| match alive.contains(id.as_str()) {
        true => *newest,
        false => ended.unwrap_or(*newest),
    };
    kept.sort_by_key(|row| std::cmp::Reverse(time(row)));
    let mut total = 0_u64;
    kept.retain(|row| {
        if !alive.contains(row.0.as_str()) && time(row) < before {
            return true;
        }
        total = total.saturating_add(u64::try_from(row.3).unwrap_or_default());
        total > most
    });
    kept.into_iter().map(|(id, ..)| id).collect()
}

/// The ids in parts for a statement each. At least one, so that a store that must not be written
/// refuses also when nothing is to be deleted.
pub(crate) fn parts(ids: &[String]) -> impl Iterator<Item = &[String]> {
    let none = ids.is_empty().then_some(ids);
    none.into_iter().chain(ids.chunks(IDS))
}
