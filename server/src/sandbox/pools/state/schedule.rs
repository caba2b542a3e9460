//! What is to be started and removed, and when.

use std::time::Duration;

use osb_protocol::SandboxId;
use osb_runtime::Observed;
use osb_store::{MemberState, PoolRow};
use tokio::time::Instant;

use super::{Key, Pools, State};
use crate::sandbox::pools::failure::PoolFailure;

/// First pause after members could not be started.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What is to be done for the pools.
#[derive(Debug, Default)]
pub(in crate::sandbox::pools) struct Work {
    /// Members to remove. They are busy from now on.
    pub(in crate::sandbox::pools) drain: Vec<SandboxId>,
    /// Members to ask whether they wait. They are busy from now on.
    pub(in crate::sandbox::pools) verify: Vec<Observed>,
    /// A member to start for each.
    pub(in crate::sandbox::pools) start: Vec<PoolRow>,
}

/// A pool that is to have more members.
struct Wish {
    key: Key,
    row: PoolRow,
    /// How many more.
    missing: u32,
    /// Members that are being started.
    warming: usize,
    /// Whether a create waits for one of them.
    is_awaited: bool,
}

impl Pools {
    /// A member whose start began at `began` could not be started: its pool waits before the next
    /// attempt. Failures of starts that began before the last one was counted belong to its round.
    pub(in crate::sandbox::pools) fn start_failed(
        &self,
        key: &Key,
        began: Instant,
        failure: PoolFailure,
    ) {
        let mut state = self.locked();
        let Some(pool) = state.pools.get_mut(key) else {
            return;
        };
        pool.last_failure = Some(failure);
        if pool.failed_at.is_some_and(|at| began <= at) {
            return;
        }
        let at = Instant::now();
        let pause = FIRST_PAUSE * 2_u32.saturating_pow(pool.failures.min(10));
        pool.failures = pool.failures.saturating_add(1);
        pool.failed_at = Some(at);
        pool.paused_until = Some(at + pause.min(LONGEST_PAUSE));
    }

    /// What is to be done now, with at most so many starts at once.
    pub(in crate::sandbox::pools) fn work(&self, starts_at_once: usize) -> Work {
        let mut state = self.locked();
        let mut work = Work::default();
        state.mark_surplus();
        for member in state.members.values_mut().filter(|member| !member.is_busy) {
            match (member.row.state, &member.observed) {
                (MemberState::Draining, _) => {
                    member.is_busy = true;
                    work.drain.push(member.row.id.clone());
                }
                (MemberState::Ready, Some(observed)) if !member.is_verified => {
                    member.is_busy = true;
                    work.verify.push(observed.clone());
                }
                _ => {}
            }
        }
        work.start = state.deal_starts(starts_at_once);
        work
    }

    /// When a pool may try again to start a member; `None` if none waits for that.
    pub(in crate::sandbox::pools) fn next_attempt(&self) -> Option<Instant> {
        let (state, at) = (self.locked(), Instant::now());
        let attempts = state.pools.values().filter_map(|pool| pool.paused_until);
        attempts.filter(|until| *until > at).min()
    }
}

impl State {
    /// Deals one start to each pool in turn, so that none waits for another to be full: first to pools
    /// with creates that wait. While several want some, none has all starts at once.
    fn deal_starts(&mut self, starts_at_once: usize) -> Vec<PoolRow> {
        let warming = self.members.values();
        let warming = warming.filter(|it| it.row.state == MemberState::Warming);
        let mut room = starts_at_once.saturating_sub(warming.count());
        let mut wishes = self.wishes();
        let most = match wishes.len() {
            0 | 1 => starts_at_once,
            _ => starts_at_once.saturating_sub(1).max(1),
        };
        let mut starts = Vec::new();
        loop {
            let dealt = starts.len();
            for wish in &mut wishes {
                if room > 0 && wish.missing > 0 && wish.warming < most {
                    room -= 1;
                    wish.missing -= 1;
                    wish.warming += 1;
                    self.turns[usize::from(wish.is_awaited)] = Some(wish.key.clone());
                    starts.push(wish.row.clone());
                }
            }
            if starts.len() == dealt {
                return starts;
            }
        }
    }

    /// The pools that want members: those with creates that wait, then the others, each beginning after
    /// the one that got the latest start.
    fn wishes(&self) -> Vec<Wish> {
        let at = Instant::now();
        let pools = self.pools.iter();
        let pools = pools.filter(|(_, pool)| pool.paused_until.is_none_or(|until| until <= at));
        let wishes = pools.filter_map(|(key, pool)| {
            let counts = self.counts(key);
            let unclaimed = counts.warming + counts.ready;
            let capacity = &pool.row.capacity;
            let places = capacity.pool_max.saturating_sub(counts.total());
            let usable = unclaimed.saturating_sub(self.frozen(key));
            let awaited = pool.waiting.saturating_sub(usable).min(places);
            let missing = capacity.missing(unclaimed, counts.claimed).max(awaited);
            (missing > 0).then(|| Wish {
                key: key.clone(),
                row: pool.row.clone(),
                missing,
                warming: usize::try_from(counts.warming).unwrap_or(usize::MAX),
                is_awaited: awaited > 0,
            })
        });
        let (mut awaited, mut others): (Vec<_>, Vec<_>) = wishes.partition(|it| it.is_awaited);
        for (wishes, turn) in [&mut others, &mut awaited].into_iter().zip(&self.turns) {
            let next = wishes
                .iter()
                .position(|wish| Some(&wish.key) > turn.as_ref());
            wishes.rotate_left(next.unwrap_or_default());
        }
        awaited.append(&mut others);
        awaited
    }

    /// How many members of a pool wait and are frozen.
    fn frozen(&self, key: &Key) -> u32 {
        let members = self.members.values();
        let frozen = members.filter(|it| it.is_of(key) && it.is_idle() && !it.is_free());
        u32::try_from(frozen.count()).unwrap_or(u32::MAX)
    }

    /// Marks those that wait beyond the capacity of their pool, the newest first.
    fn mark_surplus(&mut self) {
        let keys: Vec<Key> = self.pools.keys().cloned().collect();
        for key in keys {
            let counts = self.counts(&key);
            let Some(pool) = self.pools.get(&key) else {
                continue;
            };
            let unclaimed = counts.warming + counts.ready;
            let surplus = pool.row.capacity.surplus(unclaimed, counts.claimed);
            let surplus = surplus.saturating_sub(pool.waiting);
            let surplus = usize::try_from(surplus).unwrap_or(usize::MAX);
            let free = self.members.values_mut();
            let mut free: Vec<_> = free.filter(|it| it.is_of(&key) && it.is_idle()).collect();
            free.sort_by_key(|member| std::cmp::Reverse(member.row.created_at));
            for member in free.into_iter().take(surplus) {
                member.row.state = MemberState::Draining;
            }
        }
    }
}
