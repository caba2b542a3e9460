//! Limits of the sidecar, each with its reason.

use std::time::Duration;

/// Rules that a policy may have unless the operator says otherwise (contract: egress §5.8).
pub const RULES: usize = osb_protocol::network_policy::RULES_MAX;
/// Body of a request to the API (contract: egress §5.1).
pub const BODY: usize = 1 << 20;
/// Time for the head and the body of a request.
pub const REQUEST: Duration = Duration::from_secs(30);
/// Connections to the API. The sandbox reaches it, too.
pub const CONNECTIONS: usize = 256;

/// DNS port on the loopback interface that queries are redirected to (contract: egress §1).
pub const DNS_PORT: u16 = 15353;
/// Queries that wait for an upstream. Further ones are refused at once: a client repeats them.
pub const QUERIES: usize = 4096;
/// Queries over UDP that have a task, for each socket. Further ones wait in the kernel. More than those
/// that wait for an upstream, because the others end at once.
pub const QUERY_TASKS: usize = 2 * QUERIES;
/// Connections with queries over TCP. A further one takes the place of the oldest.
pub const TCP_CONNECTIONS: usize = 256;
/// Idle time of a client's TCP connection, and time for reading an answer.
pub const TCP_IDLE: Duration = Duration::from_secs(10);
/// Connections to upstreams for answers that do not fit into a datagram. Further ones wait.
pub const UPSTREAM_CONNECTIONS: usize = 256;
/// Time that all upstreams have for one query, unless the operator sets one for each of them. Resolvers
/// give up or ask again after 5 s: they must have the failure before.
pub const UPSTREAMS: Duration = Duration::from_secs(2);
/// Time after which the next upstream is asked as well.
pub const HEDGE: Duration = Duration::from_millis(800);
/// Probe of an upstream; the time-out of its queries, if that is shorter.
pub const PROBE: Duration = Duration::from_secs(2);
/// Time between two probes unless the operator says otherwise (contract: egress §3.3).
pub const PROBE_INTERVAL: Duration = Duration::from_secs(30);
/// Name servers that are read from `resolv.conf` (contract: egress §3.2).
pub const NAMESERVERS: usize = 10;

/// Longest lifetime that clients learn. A client that keeps an answer longer than its address is
/// let through would lose its connections.
pub const ANSWER_TTL: u32 = 300;
/// Life of an address beyond the answer's: a client connects a moment after it was answered.
pub const LEARNED_SLACK: Duration = Duration::from_secs(60);
/// Bounds for the life of an address (contract: egress §2.5).
pub const LEARNED_LIFE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(360));
/// Addresses that are let through at once. A sandbox that resolves more gets no answers until some
/// have expired.
pub const LEARNED: usize = 65_535;
/// Addresses that are remembered after their life, for the connections that they may still have.
pub const REMEMBERED: usize = 8192;
/// Addresses that are forgotten at once before their memory is returned to the kernel.
pub const FORGOTTEN: usize = 4096;
/// Addresses of one answer. Longer answers are cut.
pub const ADDRESSES: usize = 64;
/// Aliases (CNAME) of one name. Real ones have a few; all of them are remembered.
pub const ALIASES: usize = 16;
/// Bytes of the names that are remembered with the addresses that are let through. A sandbox that
/// resolves more gets no answers until some have expired.
pub const NAME_BYTES: usize = 64 << 20;
/// One change of the packet filter, with the wait for changes before it.
pub const FIREWALL: Duration = Duration::from_secs(30);
/// One run of `nft`. Shorter than a change, so that a change usually says why it failed.
pub const NFT: Duration = Duration::from_secs(20);
/// Opening the addresses of one answer (contract: egress §2.5). Clients give up soon after.
pub const LEARN: Duration = Duration::from_secs(5);

/// Destinations of which the decisions are kept, the ones that were longest unused go first.
pub const DECISIONS: usize = 2048;
/// Names that wait for the webhook. Further ones are dropped (contract: egress §9).
pub const WEBHOOK_QUEUE: usize = 256;
/// One attempt of the webhook.
pub const WEBHOOK_TRY: Duration = Duration::from_secs(5);
/// Interval at which the operator's files are checked (contract: egress §4.4).
pub const OVERLAY: Duration = Duration::from_secs(60);
/// Time for requests under way when the sidecar stops.
pub const STOP: Duration = Duration::from_secs(5);
