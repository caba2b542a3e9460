//! Limits of the daemon, each with its reason.

use std::time::Duration;

/// Concurrent connections: far above the needs of one sandbox's clients, far below the usual limit
/// of open files.
pub const CONNECTIONS: usize = 4096;
/// Time after which an idle connection is closed: longer than any client keeps one.
pub const IDLE_CONNECTION: Duration = Duration::from_secs(300);
/// Idle time before TCP keepalive probes a client.
pub const KEEPALIVE: Duration = Duration::from_secs(60);
/// Interval between keepalive probes.
pub const KEEPALIVE_PROBE: Duration = Duration::from_secs(15);
/// Unanswered probes that close the connection.
pub const KEEPALIVE_PROBES: u32 = 4;
/// Delay after which a client may repeat a request that was refused for lack of room.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);
/// JSON body of a request. `replace` carries texts of files, so it is generous.
pub const JSON_BODY: usize = 64 << 20;
/// Maximum length of a client's request id that is echoed.
pub const REQUEST_ID: usize = 128;

/// One read from a pipe.
pub const READ_CHUNK: usize = 64 << 10;
/// Events of one run in memory; older ones are on disk.
pub const WINDOW: u64 = 512 << 10;
/// Overhead of a piece in the window in addition to its bytes.
pub const BLOCK_COST: u64 = 96;
/// Events of all runs in memory; further ones go to disk.
pub const JOURNALS: u64 = 64 << 20;
/// Also at most this fraction (one in N) of the sandbox's memory.
pub const JOURNALS_PART: u64 = 8;
/// Delivered events of one command that are kept for reconnecting clients: more than the sockets
/// and proxies on the way to a client hold when its connection breaks.
pub const REPLAY: u64 = 64 << 20;
/// Also at most this fraction (one in N) of the file system's free space.
pub const REPLAY_PART: u64 = 16;
/// Events of all runs on disk; above it less is kept for reconnecting clients.
pub const JOURNALS_ON_DISK: u64 = 1 << 30;
/// Amount that is kept for each run above that limit.
pub const REPLAY_SHORT: u64 = 512 << 10;
/// Pause before writing again after the disk rejected output.
pub const DISK_FULL: Duration = Duration::from_secs(1);
/// Distance between two positions of a journal where a reconnecting client can begin.
pub const JOURNAL_MARK: u64 = 256 << 10;
/// Granularity of freeing old events on disk.
pub const JOURNAL_FREE: u64 = 4 << 20;
/// A finished journal up to this length is stored as one piece of memory.
pub const JOURNAL_COMPACT: u64 = 64 << 10;
/// A shorter piece is joined with its successors on reading.
pub const JOIN: usize = 16 << 10;
/// Unread output of one command on disk. Further output is dropped, and the stream reports that.
pub const SPILL: u64 = 4 << 30;
/// One read from disk.
pub const SPILL_READ: usize = 256 << 10;
/// Output of a background command in memory before it moves to disk.
pub const LOG_MEMORY: usize = 64 << 10;
/// Output of all finished commands on disk; the oldest is dropped first.
pub const FINISHED_OUTPUT: u64 = 8 << 30;
/// Open files for that output.
pub const FINISHED_FILES: usize = 256;
/// Bytes of a stream passed to the connection at once.
pub const STREAM_WRITE: usize = 256 << 10;
/// Output converted to events at once.
pub const WRITE_SLICE: usize = 4 << 10;
/// A line up to this length is one event; a longer one is several. The official SDK in Go reads events
/// of up to 4 MiB.
pub const LINE: usize = 3 << 20;
/// Incomplete lines of all streams together; above it they are split early.
pub const PARTIAL_LINES: usize = 256 << 20;
/// Also at most this fraction (one in N) of the sandbox's memory.
pub const PARTIAL_LINES_PART: u64 = 4;
/// A line is escaped in pieces of this length, each of which may grow to six times its length.
pub const ESCAPED_AT_ONCE: usize = 32 << 10;
/// Interval between pings of a stream (contract: execd §4.3).
pub const PING: Duration = Duration::from_secs(3);
/// Commands whose pipes are still read after their end, because a descendant holds them open.
pub const LINGERING: usize = 1024;
/// How long a request with the same `Idempotency-Key` joins the first run.
pub const IDEMPOTENCY: Duration = Duration::from_secs(600);
/// Length of such a key in characters.
pub const IDEMPOTENCY_KEY: usize = 255;
/// Number of such keys in memory.
pub const IDEMPOTENCY_KEYS: usize = 10_000;
/// Commands that run at once.
pub const RUNNING: usize = 4096;
/// Records of finished commands.
pub const FINISHED: usize = 10_000;
/// Retention of a finished command's record (contract: execd A2.4).
pub const RETENTION: Duration = Duration::from_secs(24 * 3600);
/// Text of all finished commands kept for their status.
pub const FINISHED_CONTENT: usize = 16 << 20;
/// Interval of removing expired records and logs.
pub const SWEEP: Duration = Duration::from_secs(600);
/// From SIGTERM to SIGKILL when a command is interrupted (contract: execd §8).
pub const INTERRUPT_GRACE: Duration = Duration::from_secs(3);
/// From SIGKILL until the command is reported as ended.
pub const KILLED: Duration = Duration::from_secs(5);
/// Interval of polling whether a process group is empty: the kernel has no event for it.
pub const GROUP_POLL: Duration = Duration::from_millis(20);

/// Children reaped in one batch, so that many orphans cannot starve the requests.
pub const REAP_BATCH: usize = 64;
/// From SIGTERM to the exit, except for the last lines of the log: together less than the ten
/// seconds of `docker stop`.
pub const STOP: Duration = Duration::from_millis(8500);
/// Part of that time for the user's entry point.
pub const ENTRYPOINT_GRACE: Duration = Duration::from_secs(7);
/// From SIGTERM to SIGKILL for processes that the entry point left behind.
pub const LEFTOVER_GRACE: Duration = Duration::from_secs(1);
/// Time for streams and connections to end after the last process.
pub const DRAIN: Duration = Duration::from_millis(500);
/// Minimum of that time, however late the shutdown is.
pub const DRAIN_LEAST: Duration = Duration::from_millis(100);
/// Body of `POST /internal/init`. One is read at a time, because the client may have no token.
pub const ORDER: usize = osb_protocol::execd::INIT_BODY_MAX;
/// Time to receive it, since other requests wait for their turn.
pub const ORDER_READ: Duration = Duration::from_secs(10);
/// Additional attributes of measurements.
pub const ATTRIBUTES: usize = 64;
/// Size of the environment file: a larger one must not exhaust the daemon's memory.
pub const ENV_FILE: u64 = 4 << 20;
/// Environment that a start script leaves: above what the kernel passes to a program.
pub const ENVIRONMENT: usize = 8 << 20;
/// Bytes of one message of a shell's report: even the smallest send buffer of a socket holds one.
pub const REPORT_MESSAGE: usize = 4 << 10;
/// Messages of a shell's report that are read after its writer ended. By default the kernel queues
/// fewer than 300, because each counts as at least 768 bytes of a send buffer of 208 KiB.
pub const REPORT_QUEUE: usize = 4096;

/// Size of the file with stored lifecycle hooks.
pub const LIFECYCLE_FILE: u64 = 1 << 20;
/// Time to wait for a killed hook.
pub const HOOK_KILL: Duration = Duration::from_secs(10);
/// Longest sleep of a periodic hook until its time: the clock may be set meanwhile.
pub const CLOCK_LOOK: Duration = Duration::from_secs(30);

/// Concurrent file operations.
pub const FILE_THREADS: usize = 24;
/// Time that a request waits while all of them are in use: less than clients wait for a response.
pub const FILE_THREAD_WAIT: Duration = Duration::from_secs(10);
/// Starts of processes that may hang in a file system at once. Each holds a thread.
pub const STARTS: usize = 16;
/// Time that another start waits then: less than clients wait for a response.
pub const START_WAIT: Duration = Duration::from_secs(10);
/// Time after which work on a worker thread may have blocked it, and another worker is woken.
pub const WATCH_TICK: Duration = Duration::from_millis(50);
/// Time without such work after which its watcher sleeps.
pub const WATCH_QUIET: Duration = Duration::from_secs(1);
/// Stack of the watcher in bytes.
pub const WATCH_STACK: usize = 64 << 10;
/// Blocking threads: those of file operations and starts, all of which may hang, and some for output
/// and for workers that serve the other requests meanwhile.
pub const BLOCKING_THREADS: usize = FILE_THREADS + STARTS + 8;
/// Idle time before a blocking thread ends: for ever, because commands may use up all processes, so
/// that no other thread can start when it is needed.
pub const BLOCKING_THREAD_LIFE: Duration = Duration::from_secs(u32::MAX as u64);
/// Concurrent file requests with another identity. Each is a process of about 1 MiB, and lives as
/// long as its client reads.
pub const FILE_WORKERS: usize = 256;
/// Time that a request waits while all of them are in use: less than clients wait for a response.
pub const FILE_WORKER_WAIT: Duration = Duration::from_secs(10);
/// Time for such a process to assume its identity.
pub const FILE_WORKER_START: Duration = Duration::from_secs(30);
/// From the disconnect of its client to SIGKILL.
pub const FILE_WORKER_END: Duration = Duration::from_secs(3);
/// Time that it waits for blocked work before it exits, so that no partial file is left.
pub const FILE_WORKER_CLEANUP: Duration = Duration::from_secs(1);
/// Blocking threads of such a process.
pub const FILE_WORKER_THREADS: usize = 4;
/// Parts of one upload: 500 files with their metadata (contract: execd §10.10).
pub const UPLOAD_PARTS: usize = 1000;
/// Headers of one part.
pub const PART_HEADERS: usize = 16 << 10;
/// Metadata of one file: the longest path, with every byte escaped, and two names. The metadata of
/// all files of an upload may be in memory at once.
pub const METADATA: usize = 64 << 10;
/// Bytes of an upload that are written at once; as many arrive meanwhile.
pub const UPLOAD_WRITE: usize = 1 << 20;
/// Bytes of a rejected upload that are still read, because the client reads the response only after
/// sending.
pub const REFUSED_BODY: u64 = 256 << 20;
/// One read of a download: large, because each needs a switch between threads.
pub const DOWNLOAD_READ: usize = 512 << 10;
/// One read while replacing text.
pub const REPLACE_READ: usize = 1 << 20;
/// Interval of sampling CPU time, so that a reading needs no second sample.
pub const METRICS_MEMORY: Duration = Duration::from_secs(2);
/// Interval between two samples of a watch.
pub const METRICS_WATCH: Duration = Duration::from_secs(1);
/// Entries of one search or listing.
pub const ENTRIES: usize = 200_000;
/// Entries that `GET /files/find` returns at most.
pub const FIND_ENTRIES: usize = 1000;
/// Lines of one file that it returns: a page shows no more.
pub const FIND_LINES: usize = 20;
/// Lines of all files together that it returns.
pub const FIND_ALL_LINES: usize = 2000;
/// Bytes of the text that it searches for.
pub const FIND_TEXT: usize = 1024;
/// Bytes before the text that it returns of a line.
pub const FIND_BEFORE: usize = 100;
/// Bytes after the text that it returns of a line.
pub const FIND_AFTER: usize = 200;
/// One read of it.
pub const FIND_READ: usize = 256 << 10;
/// A longer line is searched in pieces.
pub const FIND_LINE: usize = 1 << 20;
/// Bytes of one file that it reads.
pub const FIND_FILE: u64 = 64 << 20;
/// Bytes of all files together.
pub const FIND_BYTES: u64 = 2 << 30;
/// Time that it takes: less than clients wait.
pub const FIND_TIME: Duration = Duration::from_secs(8);
/// Such searches at once: each keeps a disk or a processor busy.
pub const FINDS: usize = 4;
/// Time that a request waits while all of them are under way: with the time of its own search less
/// than clients wait for a response.
pub const FIND_WAIT: Duration = Duration::from_secs(5);
/// Characters of a pattern: the length of a name, with escapes.
pub const PATTERN: usize = 1024;
/// Alternatives that one pattern may expand to.
pub const ALTERNATIVES: usize = 1024;
/// Characters of all alternatives.
pub const EXPANDED_PATTERN: usize = 64 << 10;

/// Time for the last export of metrics, within the shutdown (contract: execd §13).
pub const TELEMETRY_FLUSH: Duration = Duration::from_secs(5);
/// Minimum of that time.
pub const TELEMETRY_FLUSH_LEAST: Duration = Duration::from_millis(200);

/// Idle time after which a shell or terminal session ends.
pub const IDLE: Duration = Duration::from_secs(24 * 3600);
/// Idle time after which a session may be ended to make room, when the limit is reached.
pub const IDLE_AT_LIMIT: Duration = Duration::from_secs(600);
/// Interval of searching for idle sessions.
pub const IDLE_TICK: Duration = Duration::from_secs(60);
/// Maximum time between two readings that counts as awake: a longer gap means that the sandbox was
/// paused.
pub const IDLE_GAP: Duration = Duration::from_secs(120);

/// Shell sessions.
pub const SESSIONS: usize = 1024;
/// Default time limit of a run in a session (contract: execd §6.2).
pub const SESSION_RUN: Duration = Duration::from_secs(24 * 3600);

/// Terminal sessions.
pub const PTY_SESSIONS: usize = 1024;
/// Output of a session that is kept for replay (contract: execd §9.2).
pub const PTY_RING: usize = 1 << 20;
/// One read from a terminal; the kernel returns no more at once.
pub const PTY_READ: usize = 16 << 10;
/// Output in one frame (contract: execd §9.3).
pub const PTY_FRAME: usize = 32 << 10;
/// Least and most output that a client with flow control lets be on its way.
pub const PTY_WINDOW: std::ops::RangeInclusive<u64> = 16 << 10..=512 << 10;
/// How long a process waits for a holder that is behind: half a ring, or its window.
pub const PTY_PATIENCE: Duration = Duration::from_millis(250);
/// One message of a client, such as pasted text. A longer one is rejected with close code 1009.
pub const PTY_MESSAGE: usize = 16 << 20;
/// One message of a client of a tunnel. A longer one is rejected with close code 1009.
pub const TUNNEL_MESSAGE: usize = 1 << 20;
/// Most bytes of a program that become one message.
pub const TUNNEL_READ: usize = 32 << 10;
/// How long a program has to accept a connection.
pub const TUNNEL_CONNECT: Duration = Duration::from_secs(5);
/// How long a client has to take the end of a tunnel.
pub const TUNNEL_CLOSE: Duration = Duration::from_secs(2);
/// Input that waits for the process; above it the client waits.
pub const PTY_INPUT: usize = 1 << 20;
/// The same in messages, which may be small.
pub const PTY_INPUT_FRAMES: usize = 4096;
/// Time for the input of a disconnected client to reach the process. Less than a takeover waits.
pub const PTY_LAST_INPUT: Duration = Duration::from_secs(1);
/// Time for a holder to release the session (contract: execd §9.3, also for the four below).
pub const PTY_TAKEOVER: Duration = Duration::from_secs(5);
/// Interval between pings to a client.
pub const PTY_PING: Duration = Duration::from_secs(30);
/// Silence after which a client counts as disconnected.
pub const PTY_SILENCE: Duration = Duration::from_secs(60);
/// Time to write one frame to a client.
pub const PTY_WRITE: Duration = Duration::from_secs(10);
/// Time to write the close frame.
pub const PTY_CLOSE: Duration = Duration::from_millis(200);
/// Forbidden frames from a viewer before it is disconnected (contract: execd A10).
pub const PTY_VIOLATIONS: u32 = 5;

/// Isolated sessions. Each is two small processes.
pub const ISOLATED_SESSIONS: usize = 256;
/// Overlays, binds and writable paths of one session (contract: execd A4.2).
pub const ISOLATED_MOUNTS: usize = 16;
/// Processes of one session.
pub const ISOLATED_PROCESSES: u32 = 4096;
/// Time to start a session (contract: execd A4.2).
pub const ISOLATED_START: Duration = Duration::from_secs(10);
/// Time to end a session (contract: execd A4.3).
pub const ISOLATED_END: Duration = Duration::from_secs(5);
/// Length of a message from its init or a keeper.
pub const ISOLATED_LINE: u64 = 64 << 10;
/// Size of the shell state that passes between runs: above what the kernel passes to a program.
pub const ISOLATED_STATE: u64 = 64 << 20;
/// From SIGINT to SIGTERM when a run exceeds its time limit or its client disconnects.
pub const ISOLATED_INTERRUPT: Duration = Duration::from_millis(500);
/// From SIGTERM to SIGKILL.
pub const ISOLATED_TERMINATE: Duration = Duration::from_secs(2);
/// Concurrent background runs of one session.
pub const ISOLATED_RUNNING: usize = 64;
/// Background runs of one session that clients can query.
pub const ISOLATED_RUNS: usize = 1000;
/// Background runs of sessions that ended on their own.
pub const ISOLATED_ORPHANS: usize = 1000;
/// Log of a finished background run (contract: execd A4.5).
pub const ISOLATED_LOG: u64 = 16 << 20;
/// Log of a background run that is active.
pub const ISOLATED_LOG_RUNNING: u64 = 64 << 20;
/// Part of a log in one response (contract: execd A4.5).
pub const ISOLATED_LOG_READ: u64 = 16 << 20;
/// Minimum interval between measurements of what sessions wrote.
pub const ISOLATED_MEASURE: Duration = Duration::from_secs(2);
/// The interval is also at least this many times the duration of a measurement.
pub const ISOLATED_MEASURE_PART: u32 = 20;

/// Commands in the history.
pub const HISTORY_ENTRIES: usize = 1000;
/// Bytes of texts in the history.
pub const HISTORY_BYTES: usize = 768 << 10;
/// Bytes of a directory or an error in the history.
pub const HISTORY_TEXT: usize = 512;
/// Bytes of a page of the history.
pub const HISTORY_PAGE: usize = 1 << 20;
/// Bytes of an entry of the history beside its texts, as JSON.
pub const HISTORY_NUMBERS: usize = 368;
