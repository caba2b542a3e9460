//! Every bound of the daemon, each with its reason.

use std::time::Duration;

/// Connections served at once: far above what clients of one sandbox open, far below the usual
/// limit of open files.
pub const CONNECTIONS: usize = 4096;
/// A connection without a request for this long is closed: longer than any client keeps one.
pub const IDLE_CONNECTION: Duration = Duration::from_secs(300);
/// Silence after which a client is asked whether it is still there.
pub const KEEPALIVE: Duration = Duration::from_secs(60);
/// Between two such questions.
pub const KEEPALIVE_PROBE: Duration = Duration::from_secs(15);
/// Questions without an answer that end the connection.
pub const KEEPALIVE_PROBES: u32 = 4;
/// JSON body of a request. `replace` carries texts of files, so it is generous.
pub const JSON_BODY: usize = 64 << 20;
/// A request id of the client is echoed up to this length.
pub const REQUEST_ID: usize = 128;

/// One read from a pipe.
pub const READ_CHUNK: usize = 64 << 10;
/// Events of one run in memory; older ones are on disk.
pub const WINDOW: u64 = 512 << 10;
/// What a piece in the window costs besides its bytes.
pub const BLOCK_COST: u64 = 96;
/// Events of all runs in memory; beyond it every further one goes to disk.
pub const JOURNALS: u64 = 64 << 20;
/// And no more than this part (one in so many) of the sandbox's memory.
pub const JOURNALS_PART: u64 = 8;
/// Events of one command that every client has seen, for those that come again: more than what the
/// sockets and proxies on the way to a client hold when its connection breaks.
pub const REPLAY: u64 = 64 << 20;
/// And no more than this part (one in so many) of what the filesystem has to spare.
pub const REPLAY_PART: u64 = 16;
/// Events of all runs on disk; beyond it less is kept for those that come again.
pub const JOURNALS_ON_DISK: u64 = 1 << 30;
/// Namely this of each.
pub const REPLAY_SHORT: u64 = 512 << 10;
/// After the disk refused output it is asked again.
pub const DISK_FULL: Duration = Duration::from_secs(1);
/// Between two places of a journal where a client that comes again can begin.
pub const JOURNAL_MARK: u64 = 256 << 10;
/// Old events are freed on disk in such pieces.
pub const JOURNAL_FREE: u64 = 4 << 20;
/// A journal up to this length becomes one piece of memory at its end.
pub const JOURNAL_COMPACT: u64 = 64 << 10;
/// A shorter piece is joined with those behind it when it is read.
pub const JOIN: usize = 16 << 10;
/// Output of one command on disk that is still to be read. What does not fit is dropped, and the
/// stream says so.
pub const SPILL: u64 = 4 << 30;
/// One read from disk.
pub const SPILL_READ: usize = 256 << 10;
/// How often memory is given back that is free.
pub const HEAP_TICK: Duration = Duration::from_secs(10);
/// Bytes by which the free memory must have changed for that.
pub const HEAP_FREE: usize = 512 << 10;
/// Output of a background command in memory before it moves to disk.
pub const LOG_MEMORY: usize = 64 << 10;
/// Output kept for finished commands altogether, on disk; the oldest goes first.
pub const FINISHED_OUTPUT: u64 = 8 << 30;
/// The same in files, each of which is open.
pub const FINISHED_FILES: usize = 256;
/// Bytes of a stream handed to the connection at once.
pub const STREAM_WRITE: usize = 256 << 10;
/// Output that is made into events at once.
pub const WRITE_SLICE: usize = 4 << 10;
/// A line up to this length is one event; a longer one is cut.
pub const LINE: usize = 64 << 20;
/// Unfinished lines of all streams together; beyond it they are cut early.
pub const PARTIAL_LINES: usize = 256 << 20;
/// And no more than this part (one in so many) of the sandbox's memory.
pub const PARTIAL_LINES_PART: u64 = 4;
/// A line is escaped in pieces of this length, each of which may become six times as long.
pub const ESCAPED_AT_ONCE: usize = 32 << 10;
/// Between two pings of a stream (contract: execd §4.3).
pub const PING: Duration = Duration::from_secs(3);
/// Commands whose pipes are still read after their end, because a child of theirs holds them open.
pub const LINGERING: usize = 1024;
/// How long a request with the same `Idempotency-Key` joins the first run.
pub const IDEMPOTENCY: Duration = Duration::from_secs(600);
/// Characters of such a key.
pub const IDEMPOTENCY_KEY: usize = 255;
/// Such keys in memory.
pub const IDEMPOTENCY_KEYS: usize = 10_000;
/// Commands that run at once.
pub const RUNNING: usize = 4096;
/// Records of finished commands.
pub const FINISHED: usize = 10_000;
/// How long a record of a finished command is kept (contract: execd A2.4).
pub const RETENTION: Duration = Duration::from_secs(24 * 3600);
/// Text of finished commands kept for their status, altogether.
pub const FINISHED_CONTENT: usize = 16 << 20;
/// How often records and logs past their time are looked for.
pub const SWEEP: Duration = Duration::from_secs(600);
/// From SIGTERM to SIGKILL when a command is interrupted (contract: execd §8).
pub const INTERRUPT_GRACE: Duration = Duration::from_secs(3);
/// From SIGKILL to the end that is told then.
pub const KILLED: Duration = Duration::from_secs(5);
/// How often a process group is asked whether somebody is left in it: the kernel has no event for it.
pub const GROUP_POLL: Duration = Duration::from_millis(20);

/// Children reaped in one go, so that a storm of orphans cannot starve the requests.
pub const REAP_BATCH: usize = 64;
/// From SIGTERM to the end, but for the last lines of the log: with these under the ten seconds of
/// `docker stop`.
pub const STOP: Duration = Duration::from_millis(8500);
/// The part of it that the user's entry point may take.
pub const ENTRYPOINT_GRACE: Duration = Duration::from_secs(7);
/// What is left after the entry point gets this long between SIGTERM and SIGKILL.
pub const LEFTOVER_GRACE: Duration = Duration::from_secs(1);
/// Streams and connections get this long to end after the last process did.
pub const DRAIN: Duration = Duration::from_millis(500);
/// And this long in any case, however much of the stop went by before.
pub const DRAIN_LEAST: Duration = Duration::from_millis(100);
/// Body of `POST /internal/init`, of which one is read at a time: who sends it may have no token.
pub const ORDER: usize = 1 << 20;
/// How long it may take to come, since others wait for their turn.
pub const ORDER_READ: Duration = Duration::from_secs(10);
/// What measurements are told with besides.
pub const ATTRIBUTES: usize = 64;
/// The environment file is read up to this size: a runaway file must not take the daemon's memory.
pub const ENV_FILE: u64 = 4 << 20;
/// The environment that a start script leaves: above what the kernel passes to a program.
pub const ENVIRONMENT: usize = 8 << 20;

/// Kept lifecycle hooks are read up to this size.
pub const LIFECYCLE_FILE: u64 = 1 << 20;
/// Until a killed hook is given up.
pub const HOOK_KILL: Duration = Duration::from_secs(10);
/// Longest sleep of a hook that waits for its time: the clock may be set meanwhile.
pub const CLOCK_LOOK: Duration = Duration::from_secs(30);

/// Work on files at once: three quarters of the threads that may block.
pub const FILE_THREADS: usize = BLOCKING_THREADS / 4 * 3;
/// Threads that may block.
pub const BLOCKING_THREADS: usize = 32;
/// How long one of these without work stays: for ever, because commands may leave no process to be
/// had for another when it is needed.
pub const BLOCKING_THREAD_LIFE: Duration = Duration::from_secs(u32::MAX as u64);
/// Requests for files as somebody else at once. Each is a process of about a mebibyte, and lives as
/// long as its client takes to read.
pub const FILE_WORKERS: usize = 256;
/// Until such a process is who it should be.
pub const FILE_WORKER_START: Duration = Duration::from_secs(30);
/// From its client's leaving to its being killed.
pub const FILE_WORKER_END: Duration = Duration::from_secs(3);
/// How long it waits by itself for work that still blocks, so that nothing half made is left over.
pub const FILE_WORKER_CLEANUP: Duration = Duration::from_secs(1);
/// Threads of it that may block.
pub const FILE_WORKER_THREADS: usize = 4;
/// Parts of one upload: 500 files with their metadata (contract: execd §10.10).
pub const UPLOAD_PARTS: usize = 1000;
/// Headers of one part.
pub const PART_HEADERS: usize = 16 << 10;
/// Metadata of one file.
pub const METADATA: usize = 1 << 20;
/// Bytes of an upload that are written at once; as many arrive meanwhile.
pub const UPLOAD_WRITE: usize = 1 << 20;
/// After a refused upload this much of its body is still read, so that the client, which reads the
/// answer only after sending, gets to it.
pub const REFUSED_BODY: u64 = 256 << 20;
/// One read of a download: large, because each costs a hop between threads.
pub const DOWNLOAD_READ: usize = 512 << 10;
/// One read while replacing text.
pub const REPLACE_READ: usize = 1 << 20;
/// How often processor time is counted, so that a reading needs no second one.
pub const METRICS_MEMORY: Duration = Duration::from_secs(2);
/// Between two samples of a watch.
pub const METRICS_WATCH: Duration = Duration::from_secs(1);
/// Entries of one search or listing.
pub const ENTRIES: usize = 200_000;
/// Characters of a pattern: what a name can have, with escapes.
pub const PATTERN: usize = 1024;
/// Alternatives that one pattern may expand to.
pub const ALTERNATIVES: usize = 1024;
/// Characters of all of them.
pub const EXPANDED_PATTERN: usize = 64 << 10;

/// For the last export of metrics, if the stop has as much left (contract: execd §13).
pub const TELEMETRY_FLUSH: Duration = Duration::from_secs(5);
/// What it has in any case.
pub const TELEMETRY_FLUSH_LEAST: Duration = Duration::from_millis(200);

/// Time without a use by a client after which a shell or terminal session ends.
pub const IDLE: Duration = Duration::from_secs(24 * 3600);
/// The same for the one that makes room, when there are as many as there may be.
pub const IDLE_AT_LIMIT: Duration = Duration::from_secs(600);
/// How often sessions without a use are looked for.
pub const IDLE_TICK: Duration = Duration::from_secs(60);
/// Of a longer time between two looks only this much counts: the sandbox was paused meanwhile.
pub const IDLE_GAP: Duration = Duration::from_secs(120);

/// Shell sessions.
pub const SESSIONS: usize = 1024;
/// Longest run in a session, where none is asked for (contract: execd §6.2).
pub const SESSION_RUN: Duration = Duration::from_secs(24 * 3600);

/// Terminal sessions.
pub const PTY_SESSIONS: usize = 1024;
/// Output of a session that is kept for replay (contract: execd §9.2).
pub const PTY_RING: usize = 1 << 20;
/// One read from a terminal; the kernel gives no more at once.
pub const PTY_READ: usize = 16 << 10;
/// Output in one frame (contract: execd §9.3).
pub const PTY_FRAME: usize = 32 << 10;
/// How long a process waits for a holder that is half a ring behind.
pub const PTY_PATIENCE: Duration = Duration::from_millis(250);
/// One message of a client: what is pasted at once. A longer one is refused with close code 1009.
pub const PTY_MESSAGE: usize = 16 << 20;
/// Input that waits for the process; then its client waits.
pub const PTY_INPUT: usize = 1 << 20;
/// The same in messages, which may be small.
pub const PTY_INPUT_FRAMES: usize = 4096;
/// How long the input of a client that left may take to reach the process. Less than a takeover waits.
pub const PTY_LAST_INPUT: Duration = Duration::from_secs(1);
/// Until a holder has let go (contract: execd §9.3, also for the four below).
pub const PTY_TAKEOVER: Duration = Duration::from_secs(5);
/// Between two pings to a client.
pub const PTY_PING: Duration = Duration::from_secs(30);
/// Silence after which a client counts as gone.
pub const PTY_SILENCE: Duration = Duration::from_secs(60);
/// For one frame to a client.
pub const PTY_WRITE: Duration = Duration::from_secs(10);
/// For the close frame.
pub const PTY_CLOSE: Duration = Duration::from_millis(200);
/// Frames that a viewer may not send, until it is disconnected (contract: execd A10).
pub const PTY_VIOLATIONS: u32 = 5;

/// Isolated sessions. Each is two small processes.
pub const ISOLATED_SESSIONS: usize = 256;
/// Overlays, binds and writable paths of one (contract: execd A4.2).
pub const ISOLATED_MOUNTS: usize = 16;
/// Processes of one.
pub const ISOLATED_PROCESSES: u32 = 4096;
/// Until one is there (contract: execd A4.2).
pub const ISOLATED_START: Duration = Duration::from_secs(10);
/// Until one is gone (contract: execd A4.3).
pub const ISOLATED_END: Duration = Duration::from_secs(5);
/// What its init or a keeper says at once.
pub const ISOLATED_LINE: u64 = 64 << 10;
/// What a shell hands to the next: above what the kernel passes to a program.
pub const ISOLATED_STATE: u64 = 64 << 20;
/// From SIGINT to SIGTERM when a run takes too long or nobody waits for it any more.
pub const ISOLATED_INTERRUPT: Duration = Duration::from_millis(500);
/// From there to SIGKILL.
pub const ISOLATED_TERMINATE: Duration = Duration::from_secs(2);
/// Background runs of one session at once.
pub const ISOLATED_RUNNING: usize = 64;
/// Background runs of one session that can be asked for.
pub const ISOLATED_RUNS: usize = 1000;
/// Background runs of sessions that ended by themselves.
pub const ISOLATED_ORPHANS: usize = 1000;
/// Log of a background run, once it ended (contract: execd A4.5).
pub const ISOLATED_LOG: u64 = 16 << 20;
/// The same while it runs.
pub const ISOLATED_LOG_RUNNING: u64 = 64 << 20;
/// What one answer has of it (contract: execd A4.5).
pub const ISOLATED_LOG_READ: u64 = 16 << 20;
/// How often what sessions wrote is measured, at most.
pub const ISOLATED_MEASURE: Duration = Duration::from_secs(2);
/// And so many times as long as it takes must pass in between.
pub const ISOLATED_MEASURE_PART: u32 = 20;
