//! Memory retained by the allocator.
//!
//! Output and queries pass through many buffers on several threads. The C library gives each thread
//! its own arena and retains freed memory there: after large outputs, or changes of long policies,
//! tens of MiB stayed resident in an idle daemon. With few arenas nearly all free memory can be
//! returned to the kernel, once the daemon is quiet. There are two, so that the two threads that
//! serve requests do not wait for each other. Each keeps some unused memory, because output would
//! otherwise give back its buffers and fetch them again all the time.

use std::time::Duration;

/// Interval of returning free memory to the kernel.
const TICK: Duration = Duration::from_secs(10);
/// Minimum change of free memory, in bytes, for that.
const CHANGE: usize = 512 << 10;

/// Returns free memory to the kernel, whenever its size has changed enough. Never ends.
pub async fn give_back() {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut seen = 0;
    loop {
        tick.tick().await;
        let free = allocator::free();
        if free.abs_diff(seen) >= CHANGE {
            // This blocks every allocation, so it does not run on the threads that serve requests.
            let _given = tokio::task::spawn_blocking(allocator::give_back).await;
            seen = allocator::free();
        }
    }
}

/// Returns free memory to the kernel at once, after a task that freed much of it. The caller blocks,
/// and so does every allocation meanwhile.
pub fn give_back_now() {
    allocator::give_back();
}

/// Limits the number of arenas and the memory that each keeps. Must be called before the first
/// thread starts.
pub fn limit() {
    allocator::limit();
}

#[cfg(target_env = "gnu")]
#[expect(
    unsafe_code,
    reason = "the allocator is controlled by functions of the C library"
)]
mod allocator {
    use nix::libc;

    /// Arenas of the allocator.
    const ARENAS: i32 = 2;
    /// Free memory in bytes that the allocator keeps at the end of each arena: several buffers of a
    /// stream.
    const KEPT: i32 = 2 << 20;
    /// Size in bytes from which a block of memory is returned to the kernel as soon as it is free.
    const MAPPED: i32 = 1 << 20;

    pub(super) fn limit() {
        for (parameter, value) in [
            (libc::M_ARENA_MAX, ARENAS),
            (libc::M_TRIM_THRESHOLD, KEPT),
            (libc::M_MMAP_THRESHOLD, MAPPED),
        ] {
            // SAFETY: the call sets a number, and no other thread runs yet.
            let set = unsafe { libc::mallopt(parameter, value) };
            debug_assert_eq!(set, 1, "the number {value} is valid");
        }
    }

    /// Bytes that were freed but are retained.
    pub(super) fn free() -> usize {
        // SAFETY: the call reads counters under the allocator's own lock.
        unsafe { libc::mallinfo2() }.fordblks
    }

    pub(super) fn give_back() {
        // SAFETY: the call takes the allocator's own lock, and touches only free memory.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(not(target_env = "gnu"))]
mod allocator {
    pub(super) fn limit() {}

    pub(super) fn free() -> usize {
        0
    }

    pub(super) fn give_back() {}
}
