//! Upstreams: which ones there are, which ones answer, and how they take turns (contract: egress
//! §3.2, §3.3).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use hickory_server::proto::{
    op::{Message, Query, ResponseCode},
    rr::{Name, RecordType},
};
use osb_service::Supervisor;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep_until},
};
use tracing::{error, info};

use super::exchange::{Exchange, ExchangeError};
use crate::{config::Config, firewall::is_asked_directly, limits};

/// DNS port.
const PORT: u16 = 53;
/// Asked if the machine names no name server (contract: egress §3.2).
const FALLBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8)), PORT);

/// Name servers that the sidecar asks: the configured ones, or those of a `resolv.conf`.
#[must_use]
pub fn addresses(config: &Config, resolv_conf: io::Result<String>) -> Vec<SocketAddr> {
    if let Some(configured) = &config.upstreams {
        return configured.clone();
    }
    let found = nameservers(&resolv_conf.unwrap_or_default());
    match found.is_empty() {
        true => vec![FALLBACK],
        false => found.into_iter().map(|it| (it, PORT).into()).collect(),
    }
}

/// Name servers of a `resolv.conf`: loopback addresses last, at most [`limits::NAMESERVERS`].
fn nameservers(text: &str) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("nameserver") {
            continue;
        }
        // A zone is of no use: the address is asked through a plain socket.
        let address = words
            .next()
            .and_then(|it| it.split('%').next()?.parse().ok());
        if let Some(address) = address.filter(|it: &IpAddr| !it.is_unspecified())
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found.sort_by_key(IpAddr::is_loopback);
    found.truncate(limits::NAMESERVERS);
    found
}

/// Why no upstream gave a usable answer.
#[derive(Debug, thiserror::Error)]
#[error("no name server gave an answer: {}", .0.join("; "))]
pub struct NoAnswer(Vec<String>);

/// Upstreams and their health.
#[derive(Debug)]
pub struct Upstreams {
    all: Vec<Exchange>,
    /// Positions of the ones to ask, in the configured order.
    active: RwLock<Arc<[usize]>>,
    /// Time for the answer of each. `None` if all of them share [`limits::UPSTREAMS`].
    limit: Option<Duration>,
    /// Longest time before the next one is asked.
    hedge: Duration,
}

impl Upstreams {
    /// Opens the sockets. `mark` is for packets that must not be redirected or refused; upstreams that
    /// the sandbox may ask directly need none (contract: egress §3.4). Must be called within a runtime.
    ///
    /// # Errors
    /// A socket cannot be opened, or must not be marked.
    pub fn open(
        addresses: &[SocketAddr],
        mark: Option<u32>,
        config: &Config,
        tasks: &Supervisor,
    ) -> io::Result<Self> {
        let connections = Arc::new(Semaphore::new(limits::UPSTREAM_CONNECTIONS));
        let all: io::Result<Vec<Exchange>> = addresses
            .iter()
            .map(|address| {
                let mark = mark.filter(|_| !is_asked_directly(*address, &config.exempt));
                Exchange::open(*address, mark, Arc::clone(&connections), tasks)
            })
            .collect();
        Ok(Self {
            active: RwLock::new((0..addresses.len()).collect()),
            all: all?,
            limit: config.upstream_timeout,
            hedge: limits::HEDGE,
        })
    }

    /// Asks the upstreams in turn: the next one at once when one fails, and beside one that is slow. The
    /// answer has the client's id.
    ///
    /// # Errors
    /// None gave an answer that is final.
    pub(crate) async fn ask(&self, query: &[u8]) -> Result<Bytes, NoAnswer> {
        let order = self.active();
        let turns = Turns::new(self, order.len());
        let mut rest = order.iter().map(|position| &self.all[*position]);
        let mut asked: FuturesUnordered<_> = rest
            .next()
            .map(|first| turns.ask(first, query))
            .into_iter()
            .collect();
        let mut reasons = Vec::new();
        let mut next_at = Instant::now() + turns.pause;
        loop {
            let is_waiting = rest.len() > 0;
            let is_next_due = tokio::select! {
                answered = asked.next() => match answered {
                    None if !is_waiting => return Err(NoAnswer(reasons)),
                    None => true,
                    Some((address, answer)) => match usable(answer) {
                        Ok(answer) => return Ok(answer),
                        Err(reason) => {
                            reasons.push(format!("{address}: {reason}"));
                            true
                        }
                    },
                },
                () = sleep_until(next_at), if is_waiting => true,
            };
            if is_next_due && let Some(exchange) = rest.next() {
                asked.push(turns.ask(exchange, query));
                next_at = Instant::now() + turns.pause;
            }
        }
    }

    /// Probes all upstreams at an interval. Returns only if the name is no domain name.
    pub async fn watch(&self, probe: Option<&str>, interval: Duration) {
        let limit = limits::PROBE.min(self.limit.unwrap_or(limits::UPSTREAMS));
        let Some(query) = probe_query(probe) else {
            error!(
                probe,
                "the name for probes is no domain name; upstreams are not probed"
            );
            return;
        };
        let mut ticks = tokio::time::interval(interval);
        loop {
            ticks.tick().await;
            let probes = self.all.iter().map(|exchange| exchange.ask(&query, limit));
            let probed = join_all(probes).await;
            let healthy: Vec<usize> = probed
                .into_iter()
                .enumerate()
                .filter_map(|(position, answer)| match answer {
                    Ok(_) => Some(position),
                    Err(error) => {
                        let address = self.all[position].address();
                        error!(
                            error = &error as &dyn std::error::Error,
                            "[dns] upstream probe {address} failed"
                        );
                        None
                    }
                })
                .collect();
            self.set_active(healthy);
        }
    }

    fn active(&self) -> Arc<[usize]> {
        Arc::clone(&self.active.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// If none is healthy, all are asked: a probe may fail where a query does not.
    fn set_active(&self, healthy: Vec<usize>) {
        let active: Arc<[usize]> = match healthy.is_empty() {
            true => (0..self.all.len()).collect(),
            false => healthy.into(),
        };
        let mut current = self.active.write().unwrap_or_else(PoisonError::into_inner);
        if *current != active {
            info!(
                count = active.len(),
                of = self.all.len(),
                "upstreams in use changed"
            );
            *current = active;
        }
    }
}

/// Times of one query.
struct Turns {
    /// Time before the next upstream is asked beside a slow one.
    pause: Duration,
    /// Time for the answer of each.
    limit: Option<Duration>,
    /// End of the time that they share, if each has none of its own.
    end: Instant,
}

impl Turns {
    fn new(upstreams: &Upstreams, count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
        let whole = limits::UPSTREAMS;
        Self {
            pause: match upstreams.limit {
                Some(_) => upstreams.hedge,
                // The last one must have time to answer, too.
                None => upstreams.hedge.min(whole / count),
            },
            limit: upstreams.limit,
            end: Instant::now() + whole,
        }
    }

    async fn ask(
        &self,
        upstream: &Exchange,
        query: &[u8],
    ) -> (SocketAddr, Result<Bytes, ExchangeError>) {
        let left = || self.end.saturating_duration_since(Instant::now());
        let limit = self.limit.unwrap_or_else(left);
        (upstream.address(), upstream.ask(query, limit).await)
    }
}

/// Whether an answer is final: the name exists, or it does not. Everything else may be better
/// elsewhere.
fn usable(answer: Result<Bytes, ExchangeError>) -> Result<Bytes, String> {
    const CODE: u8 = 0b1111;
    let answer = answer.map_err(|error| osb_service::ErrorChain(&error).to_string())?;
    match ResponseCode::from_low(answer[3] & CODE) {
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(answer),
        code => Err(format!("answered {code}")),
    }
}

/// Query of a probe: the root's name servers, or the address of a name.
fn probe_query(name: Option<&str>) -> Option<Vec<u8>> {
    let query = match name {
        None => Query::query(Name::root(), RecordType::NS),
        Some(name) => Query::query(Name::from_ascii(format!("{name}.")).ok()?, RecordType::A),
    };
    let mut message = Message::query();
    message.metadata.id = rand::random();
    message.metadata.recursion_desired = true;
    message.add_query(query);
    message.to_vec().ok()
}

#[cfg(test)]
mod tests {
    use tokio::{net::UdpSocket, time::timeout};

    use super::*;

    async fn within<T>(work: impl Future<Output = T>) -> T {
        timeout(Duration::from_secs(30), work)
            .await
            .expect("it ends")
    }

    #[test]
    fn nameservers_are_found_in_order_loopback_last() {
        let text = "# comment\nsearch corp\nnameserver 127.0.0.11\nnameserver  10.0.0.2\n\
                    nameserver 0.0.0.0\nnameserver 10.0.0.2\nnameserver fe80::1%eth0\n\
                    nameserver x\noptions ndots:5\n";
        let found: Vec<String> = nameservers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.2", "fe80::1", "127.0.0.11"]);
        let many: String = (1..30)
            .map(|n| format!("nameserver 10.0.0.{n}\n"))
            .collect();
        assert_eq!(nameservers(&many).len(), 10);
        let (config, _) = Config::read(|_| None).unwrap();
        let missing = || io::Error::other("missing");
        assert_eq!(addresses(&config, Err(missing())), [FALLBACK]);
        assert_eq!(addresses(&config, Ok(String::new())), [FALLBACK]);
        let found = addresses(&config, Ok("nameserver ::1".to_owned()));
        assert_eq!(found, ["[::1]:53".parse().unwrap()]);
    }

    /// An upstream that answers every query with a code, or never.
    async fn upstream(code: Option<u8>) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        Supervisor::new().spawn("upstream", async move {
            let mut buffer = [0; 512];
            loop {
                let (length, client) = socket.recv_from(&mut buffer).await.unwrap();
                if let Some(code) = code {
                    buffer[2] |= 0x80;
                    buffer[3] = code;
                    socket.send_to(&buffer[..length], client).await.unwrap();
                }
            }
        });
        address
    }

    /// The port of an upstream that does not run. It is taken, but only for datagrams of one peer: a free
    /// one could become that of a socket that asks.
    fn closed() -> std::net::UdpSocket {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect("127.0.0.1:1").unwrap();
        socket
    }

    async fn asked(codes: &[Option<u8>]) -> Result<u8, NoAnswer> {
        let addresses = join_all(codes.iter().map(|code| upstream(*code))).await;
        answered_by(&upstreams(&addresses, Some(Duration::from_secs(3)))).await
    }

    fn upstreams(addresses: &[SocketAddr], limit: Option<Duration>) -> Upstreams {
        let (mut config, _) = Config::read(|_| None).unwrap();
        config.upstream_timeout = limit;
        Upstreams::open(addresses, None, &config, &Supervisor::new()).unwrap()
    }

    async fn answered_by(upstreams: &Upstreams) -> Result<u8, NoAnswer> {
        let query = probe_query(Some("a.example")).unwrap();
        let answer = within(upstreams.ask(&query)).await?;
        assert_eq!(answer[..2], query[..2]);
        Ok(answer[3])
    }

    const NO_ERROR: u8 = 0;
    const SERVFAIL: u8 = 2;
    const NX_DOMAIN: u8 = 3;
    const REFUSED: u8 = 5;

    #[tokio::test]
    async fn a_final_answer_ends_the_search_and_others_do_not() {
        assert_eq!(
            asked(&[Some(NO_ERROR), Some(NX_DOMAIN)]).await.unwrap(),
            NO_ERROR
        );
        assert_eq!(
            asked(&[Some(NX_DOMAIN), Some(NO_ERROR)]).await.unwrap(),
            NX_DOMAIN
        );
        for code in [SERVFAIL, REFUSED] {
            assert_eq!(
                asked(&[Some(code), Some(NO_ERROR)]).await.unwrap(),
                NO_ERROR
            );
        }
        let error = asked(&[Some(SERVFAIL), Some(REFUSED)])
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("Server Failure") || error.contains("ServFail"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_silent_upstream_is_overtaken() {
        assert_eq!(asked(&[None, Some(NO_ERROR)]).await.unwrap(), NO_ERROR);
        assert!(asked(&[None]).await.is_err());
    }

    /// Longer than any test waits.
    const NEVER: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn a_closed_port_is_left_at_once() {
        let closed = [closed(), closed()];
        let [one, two] = closed.each_ref().map(|it| it.local_addr().unwrap());
        let good = upstream(Some(NO_ERROR)).await;
        let only_by_refusal = |addresses: &[SocketAddr]| Upstreams {
            hedge: NEVER,
            ..upstreams(addresses, Some(NEVER))
        };
        for addresses in [vec![one, good], vec![one, two, good]] {
            let upstreams = only_by_refusal(&addresses);
            assert_eq!(answered_by(&upstreams).await.unwrap(), NO_ERROR);
        }
        let upstreams = only_by_refusal(&[one, two]);
        let error = answered_by(&upstreams).await.unwrap_err().to_string();
        assert_eq!(error.matches("refused").count(), 2, "{error}");
    }

    /// The clock stands while there is work, and then goes to the next timer.
    #[tokio::test(start_paused = true)]
    async fn upstreams_share_their_time_unless_each_has_its_own() {
        let second = Duration::from_secs(1);
        for (count, limit, whole) in [
            (1, None, 2 * second),
            (2, None, 2 * second),
            (10, None, 2 * second),
            (1, Some(5 * second), 5 * second),
            (3, Some(5 * second), 2 * limits::HEDGE + 5 * second),
        ] {
            let silent = join_all((0..count).map(|_| upstream(None))).await;
            let upstreams = upstreams(&silent, limit);
            let begin = Instant::now();
            let error = answered_by(&upstreams).await.unwrap_err();
            assert_eq!(error.0.len(), count, "all are asked: {error}");
            let took = begin.elapsed();
            let expected = whole..whole + second / 10;
            assert!(expected.contains(&took), "{count} {limit:?}: {took:?}");
        }
    }

    #[tokio::test]
    async fn probes_find_the_healthy_ones() {
        let addresses = [upstream(None).await, upstream(Some(REFUSED)).await];
        let upstreams = upstreams(&addresses, Some(Duration::from_secs(2)));
        assert_eq!(*upstreams.active(), [0, 1]);
        let probing = upstreams.watch(None, Duration::from_secs(3600));
        let changed = async {
            while upstreams.active().len() != 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within(async {
            tokio::select! { () = probing => {}, () = changed => {} }
        })
        .await;
        // Any answer counts, whatever its code.
        assert_eq!(*upstreams.active(), [1]);
        upstreams.set_active(Vec::new());
        assert_eq!(*upstreams.active(), [0, 1]);
    }
}
