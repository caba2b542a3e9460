//! The memory that the allocator keeps.
//!
//! Output passes through many buffers on several threads. The C library gives each thread an arena of
//! its own and keeps what is freed there for later: after large outputs tens of MiB stayed resident in
//! a daemon that did nothing. With one arena everything that is free can be given back, which happens
//! once the daemon is quiet.

use crate::limits;

/// Gives back what is free, whenever it has changed by a worthwhile amount.
pub async fn give_back() {
    let mut tick = tokio::time::interval(limits::HEAP_TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut seen = 0;
    loop {
        tick.tick().await;
        let free = allocator::free();
        if free.abs_diff(seen) >= limits::HEAP_FREE {
            // A pause of all that allocates, so not on the threads that serve requests.
            let _given = tokio::task::spawn_blocking(allocator::give_back).await;
            seen = allocator::free();
        }
    }
}

/// Keeps all memory in one arena. Must be called before the first thread starts.
pub fn use_one_arena() {
    allocator::use_one_arena();
}

#[cfg(target_env = "gnu")]
#[expect(
    unsafe_code,
    reason = "the allocator is controlled by functions of the C library"
)]
mod allocator {
    use nix::libc;

    pub(super) fn use_one_arena() {
        // SAFETY: it sets a number, and no other thread runs yet.
        let set = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        debug_assert_eq!(set, 1, "the number is valid");
    }

    /// Bytes that were freed and are kept.
    pub(super) fn free() -> usize {
        // SAFETY: it reads counters under the allocator's own lock.
        unsafe { libc::mallinfo2() }.fordblks
    }

    pub(super) fn give_back() {
        // SAFETY: it takes the allocator's own lock, and touches only what is free.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(not(target_env = "gnu"))]
mod allocator {
    pub(super) fn use_one_arena() {}

    pub(super) fn free() -> usize {
        0
    }

    pub(super) fn give_back() {}
}
