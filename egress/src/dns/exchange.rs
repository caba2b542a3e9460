//! Queries to one upstream: over UDP on a few sockets that all queries share, over TCP when an
//! answer does not fit.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use osb_service::Supervisor;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, UdpSocket},
    sync::{Semaphore, oneshot},
};

use super::HEADER;

/// Sockets for one upstream. Each has a port of its own, which an attacker who forges an answer has
/// to guess.
const SOCKETS: usize = 4;
/// Largest datagram.
const DATAGRAM: usize = 65_535;
/// Attempts to find a free query id on a socket.
const IDS: usize = 16;
/// Pause after an error of a socket.
const RECOVERY: Duration = Duration::from_millis(10);

/// Reason why an upstream gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    /// A socket failed.
    #[error("cannot reach the name server")]
    Io(#[from] io::Error),
    /// Too many queries wait for this upstream.
    #[error("too many queries wait for the name server")]
    Busy,
    /// It did not answer in time.
    #[error("the name server did not answer in time")]
    Late,
    /// It answered something else.
    #[error("the name server's answer is malformed")]
    Malformed,
}

/// An upstream.
#[derive(Debug)]
pub(crate) struct Exchange {
    address: SocketAddr,
    /// Mark of the packets, which the packet filter knows.
    mark: Option<u32>,
    sockets: Vec<Shared>,
    /// Places for connections, which all upstreams share.
    connections: Arc<Semaphore>,
}

/// A socket. A task receives from it.
#[derive(Debug)]
struct Shared {
    socket: Arc<UdpSocket>,
    waiting: Arc<Waiting>,
}

/// Queries that wait for an answer, by id.
type Waiting = Mutex<HashMap<u16, Query>>;

#[derive(Debug)]
struct Query {
    /// Question as it was sent. An answer repeats it.
    question: Bytes,
    /// Sends its answer, or the error of its socket, to the client's task. `None` once there is one: the
    /// id is taken until its owner is done, because a later query with the same id would be forgotten
    /// together with this one.
    answer: Option<oneshot::Sender<io::Result<Bytes>>>,
}

impl Exchange {
    /// Opens the sockets. An upstream without a route has none and does not answer. `connections` are
    /// places for queries over TCP. Must be called within a runtime.
    pub(crate) fn open(
        address: SocketAddr,
        mark: Option<u32>,
        connections: Arc<Semaphore>,
        tasks: &Supervisor,
    ) -> io::Result<Self> {
        let sockets: io::Result<Vec<Option<Shared>>> = (0..SOCKETS)
            .map(|_| {
                let socket = socket(address, Type::DGRAM, mark)?;
                socket.bind(&unspecified(address).into())?;
                // Without a route, such as to an IPv6 server on a network without IPv6, the upstream
                // does not answer. Others may.
                if let Err(error) = socket.connect(&address.into()) {
                    tracing::warn!(%address, %error, "no route to a name server");
                    return Ok(None);
                }
                let socket = UdpSocket::from_std(socket.into())?;
                Ok(Some(Shared::new(socket, tasks)))
            })
            .collect();
        Ok(Self {
            address,
            mark,
            sockets: sockets?.into_iter().flatten().collect(),
            connections,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a query and returns the answer. Both have the client's id.
    ///
    /// # Errors
    /// See [`ExchangeError`].
    pub(crate) async fn ask(&self, query: &[u8], limit: Duration) -> Result<Bytes, ExchangeError> {
        const TRUNCATED: u8 = 0b10;
        let both = async {
            let answer = self.by_udp(query).await?;
            match answer[2] & TRUNCATED {
                0 => Ok(answer),
                _ => self.by_tcp(query).await,
            }
        };
        let in_time = tokio::time::timeout(limit, both).await;
        in_time.unwrap_or(Err(ExchangeError::Late))
    }

    async fn by_udp(&self, query: &[u8]) -> Result<Bytes, ExchangeError> {
        let question = question(query).ok_or(ExchangeError::Malformed)?;
        if self.sockets.is_empty() {
            return Err(io::Error::from(io::ErrorKind::NetworkUnreachable).into());
        }
        let shared = &self.sockets[rand::random_range(0..self.sockets.len())];
        let (answer, received) = oneshot::channel();
        let waiting = Query {
            question: Bytes::copy_from_slice(question),
            answer: Some(answer),
        };
        let id = shared.register(waiting).ok_or(ExchangeError::Busy)?;
        let _registered = Registered { shared, id };
        let mut sent = query.to_vec();
        sent[..2].copy_from_slice(&id.to_be_bytes());
        if let Err(error) = shared.socket.send(&sent).await {
            if error.kind() == io::ErrorKind::ConnectionRefused {
                // The kernel reports what came of an earlier query.
                fail_all(&shared.waiting, &error);
            }
            return Err(error.into());
        }
        let answer = received.await.map_err(|_| ExchangeError::Malformed)?;
        Ok(with_id(answer?, query))
    }

    async fn by_tcp(&self, query: &[u8]) -> Result<Bytes, ExchangeError> {
        // Waits at most until the time for the answer is over.
        let place = self.connections.acquire().await;
        let _place = place.map_err(|_| ExchangeError::Busy)?;
        let socket = socket(self.address, Type::STREAM, self.mark)?;
        let stream = TcpSocket::from_std_stream(socket.into());
        let mut stream = stream.connect(self.address).await?;
        let length = u16::try_from(query.len()).map_err(|_| ExchangeError::Malformed)?;
        let mut sent = length.to_be_bytes().to_vec();
        sent.extend_from_slice(query);
        stream.write_all(&sent).await?;
        let length = stream.read_u16().await?;
        let mut answer = vec![0; length.into()];
        stream.read_exact(&mut answer).await?;
        let asked = question(query);
        let is_answer = answer.len() >= HEADER
            && answer[..2] == query[..2]
            && question(&answer).is_some_and(|it| same_question(it, asked.unwrap_or_default()));
        match is_answer {
            true => Ok(answer.into()),
            false => Err(ExchangeError::Malformed),
        }
    }
}

impl Shared {
    fn new(socket: UdpSocket, tasks: &Supervisor) -> Self {
        let socket = Arc::new(socket);
        let waiting = Arc::<Waiting>::default();
        tasks.spawn_abortable(
            "upstream",
            receive(Arc::clone(&socket), Arc::clone(&waiting)),
        );
        Self { socket, waiting }
    }

    /// A free random id for a query.
    fn register(&self, query: Query) -> Option<u16> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let id = (0..IDS)
            .map(|_| rand::random())
            .find(|id| !waiting.contains_key(id))?;
        waiting.insert(id, query);
        Some(id)
    }
}

/// Removes a query, and frees its id, when its owner is done.
struct Registered<'a> {
    shared: &'a Shared,
    id: u16,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let waiting = &self.shared.waiting;
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(&self.id);
    }
}

/// Hands answers to their queries.
async fn receive(socket: Arc<UdpSocket>, waiting: Arc<Waiting>) {
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let received = match socket.recv(&mut buffer).await {
            Ok(length) => &buffer[..length],
            // The upstream's machine reports that nothing listens there. Later it may.
            Err(error) => {
                fail_all(&waiting, &error);
                tokio::time::sleep(RECOVERY).await;
                continue;
            }
        };
        let Some(found) = question(received) else {
            continue;
        };
        let id = u16::from_be_bytes([received[0], received[1]]);
        let answer = {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let asked = waiting.get_mut(&id);
            let asked = asked.filter(|query| same_question(&query.question, found));
            asked.and_then(|query| query.answer.take())
        };
        if let Some(answer) = answer {
            // The client may be gone.
            let _gone = answer.send(Ok(Bytes::copy_from_slice(received)));
        }
    }
}

/// Ends the queries of a socket that has an error. The kernel does not say which of them it is about, and
/// all went to the same port.
fn fail_all(waiting: &Waiting, error: &io::Error) {
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let waiting = waiting.values_mut();
    for answer in waiting.filter_map(|query| query.answer.take()) {
        // The client may be gone.
        let _gone = answer.send(Err(error.kind().into()));
    }
}

/// The answer with the client's id.
fn with_id(answer: Bytes, query: &[u8]) -> Bytes {
    let mut answer = answer
        .try_into_mut()
        .unwrap_or_else(|shared| (&*shared).into());
    answer[..2].copy_from_slice(&query[..2]);
    answer.freeze()
}

/// First question of a message: name, type and class. `None` if there is none.
fn question(message: &[u8]) -> Option<&[u8]> {
    const TYPE_AND_CLASS: usize = 4;
    const POINTER: u8 = 0b1100_0000;
    let count = u16::from_be_bytes([*message.get(4)?, *message.get(5)?]);
    if count == 0 {
        return None;
    }
    let mut at = HEADER;
    loop {
        match *message.get(at)? {
            0 => return message.get(HEADER..at + 1 + TYPE_AND_CLASS),
            length if length & POINTER != 0 => return None,
            length => at += usize::from(length) + 1,
        }
    }
}

/// Whether two questions are equal. The case of letters does not matter.
fn same_question(one: &[u8], other: &[u8]) -> bool {
    one.eq_ignore_ascii_case(other)
}

fn unspecified(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

fn socket(address: SocketAddr, kind: Type, mark: Option<u32>) -> io::Result<Socket> {
    let protocol = match kind {
        Type::STREAM => Protocol::TCP,
        _ => Protocol::UDP,
    };
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    if let Some(mark) = mark {
        socket.set_mark(mark)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A query for `name` with this id.
    fn query(id: u16, name: &str) -> Vec<u8> {
        let mut message = id.to_be_bytes().to_vec();
        message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        for label in name.split('.') {
            message.push(u8::try_from(label.len()).unwrap());
            message.extend(label.as_bytes());
        }
        message.extend([0, 0, 1, 0, 1]);
        message
    }

    fn answer(query: &[u8]) -> Vec<u8> {
        let mut answer = query.to_vec();
        answer[2] |= 0x80;
        answer
    }

    const LONG: Duration = Duration::from_secs(30);

    async fn upstream() -> (UdpSocket, Exchange) {
        let (socket, _, exchange) = upstream_with(1).await;
        (socket, exchange)
    }

    /// The same, which listens for TCP too, with so many places for connections.
    async fn upstream_with(places: usize) -> (UdpSocket, TcpListener, Exchange) {
        // A port that is free for UDP may be taken for TCP.
        let (socket, listener) = loop {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let address = socket.local_addr().unwrap();
            match TcpListener::bind(address).await {
                Ok(listener) => break (socket, listener),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::AddrInUse),
            }
        };
        let address = socket.local_addr().unwrap();
        let places = Arc::new(Semaphore::new(places));
        let exchange = Exchange::open(address, None, places, &Supervisor::new()).unwrap();
        (socket, listener, exchange)
    }

    #[test]
    fn questions_are_found() {
        let message = query(1, "a.example");
        assert_eq!(question(&message).unwrap().len(), 15);
        for length in 0..message.len() {
            assert_eq!(question(&message[..length]), None, "{length}");
        }
        let mut without = message;
        without[5] = 0;
        assert_eq!(question(&without), None);
        assert_eq!(question(&[0xff; 64]), None);
    }

    #[tokio::test]
    async fn answers_find_their_queries_in_any_order() {
        let (server, exchange) = upstream().await;
        let serve = async {
            let mut waiting = Vec::new();
            let mut buffer = [0; 512];
            for _ in 0..20 {
                let (length, client) = server.recv_from(&mut buffer).await.unwrap();
                waiting.push((buffer[..length].to_vec(), client));
            }
            for (query, client) in waiting.iter().rev() {
                server.send_to(&answer(query), client).await.unwrap();
            }
        };
        let queries: Vec<Vec<u8>> = (0..20)
            .map(|n| query(7, &format!("n{n}.example")))
            .collect();
        let asked = futures::future::join_all(queries.iter().map(|it| exchange.ask(it, LONG)));
        let ((), answers) = tokio::join!(serve, asked);
        for (query, found) in queries.iter().zip(answers) {
            assert_eq!(found.unwrap(), answer(query));
        }
        for shared in &exchange.sockets {
            assert!(shared.waiting.lock().unwrap().is_empty());
        }
    }

    #[tokio::test]
    async fn an_id_is_taken_until_its_owner_is_done() {
        let (server, exchange) = upstream().await;
        let shared = &exchange.sockets[0];
        let mut asked = query(3, "a.example");
        let (answered, received) = oneshot::channel();
        let waiting = Query {
            question: Bytes::copy_from_slice(question(&asked).unwrap()),
            answer: Some(answered),
        };
        let id = shared.register(waiting).unwrap();
        let registered = Registered { shared, id };
        asked[..2].copy_from_slice(&id.to_be_bytes());
        shared.socket.send(&asked).await.unwrap();
        let mut buffer = [0; 512];
        let (length, client) = server.recv_from(&mut buffer).await.unwrap();
        let real = answer(&buffer[..length]);
        // The second one has no query.
        for _ in 0..2 {
            server.send_to(&real, client).await.unwrap();
        }
        assert_eq!(received.await.unwrap().unwrap(), real);
        assert!(shared.waiting.lock().unwrap().contains_key(&id));
        drop(registered);
        assert!(shared.waiting.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn forged_answers_are_ignored() {
        let (server, exchange) = upstream().await;
        let serve = async {
            let mut buffer = [0; 512];
            let (length, client) = server.recv_from(&mut buffer).await.unwrap();
            let real = answer(&buffer[..length]);
            let mut other_id = real.clone();
            other_id[0] ^= 1;
            let mut other_name = real.clone();
            other_name[HEADER + 1] = b'x';
            for forged in [&b"short"[..], &other_id, &other_name] {
                server.send_to(forged, client).await.unwrap();
            }
            server.send_to(&real, client).await.unwrap();
        };
        let asked = query(9, "A.example");
        let ((), found) = tokio::join!(serve, exchange.ask(&asked, LONG));
        assert_eq!(found.unwrap(), answer(&asked));
    }

    #[tokio::test]
    async fn what_does_not_fit_is_fetched_over_tcp() {
        let (server, listener, exchange) = upstream_with(1).await;
        let asked = query(3, "big.example");
        let serve = async {
            let mut buffer = [0; 512];
            let (length, client) = server.recv_from(&mut buffer).await.unwrap();
            let mut cut = answer(&buffer[..length]);
            cut[2] |= 2;
            server.send_to(&cut, client).await.unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let length = stream.read_u16().await.unwrap();
            let mut query = vec![0; length.into()];
            stream.read_exact(&mut query).await.unwrap();
            let mut whole = answer(&query);
            whole.extend([0; 2000]);
            stream
                .write_u16(whole.len().try_into().unwrap())
                .await
                .unwrap();
            stream.write_all(&whole).await.unwrap();
        };
        let ((), found) = tokio::join!(serve, exchange.ask(&asked, LONG));
        assert_eq!(found.unwrap().len(), asked.len() + 2000);
    }

    #[tokio::test]
    async fn a_closed_port_ends_all_queries() {
        let (server, exchange) = upstream().await;
        // It takes the datagrams of one other peer only.
        server.connect("127.0.0.1:1").await.unwrap();
        let queries: Vec<Vec<u8>> = (0..20)
            .map(|n| query(7, &format!("n{n}.example")))
            .collect();
        let asked = queries.iter().map(|it| exchange.ask(it, LONG));
        for found in futures::future::join_all(asked).await {
            let refused = io::ErrorKind::ConnectionRefused;
            assert!(
                matches!(&found, Err(ExchangeError::Io(error)) if error.kind() == refused),
                "{found:?}"
            );
        }
        for shared in &exchange.sockets {
            assert!(shared.waiting.lock().unwrap().is_empty());
        }
    }

    #[tokio::test]
    async fn a_refused_connection_ends_a_query() {
        let (server, listener, exchange) = upstream_with(1).await;
        drop(listener);
        let asked = query(3, "big.example");
        let serve = async {
            let mut buffer = [0; 512];
            let (length, client) = server.recv_from(&mut buffer).await.unwrap();
            let mut cut = answer(&buffer[..length]);
            cut[2] |= 2;
            server.send_to(&cut, client).await.unwrap();
        };
        let ((), found) = tokio::join!(serve, exchange.ask(&asked, LONG));
        assert!(matches!(found, Err(ExchangeError::Io(_))), "{found:?}");
    }

    #[tokio::test]
    async fn no_more_connections_are_opened_than_there_are_places() {
        let (server, listener, exchange) = upstream_with(0).await;
        let asked = query(3, "big.example");
        let serve = async {
            let mut buffer = [0; 512];
            let (length, client) = server.recv_from(&mut buffer).await.unwrap();
            let mut cut = answer(&buffer[..length]);
            cut[2] |= 2;
            server.send_to(&cut, client).await.unwrap();
            listener.accept().await.unwrap();
        };
        let asked = exchange.ask(&asked, Duration::from_millis(200));
        tokio::select! {
            () = serve => panic!("it opens a connection"),
            found = asked => assert!(matches!(found, Err(ExchangeError::Late)), "{found:?}"),
        }
    }

    #[tokio::test]
    async fn silence_ends_at_the_limit_and_is_forgotten() {
        let (_server, exchange) = upstream().await;
        let asked = query(3, "a.example");
        let error = exchange
            .ask(&asked, Duration::from_millis(20))
            .await
            .unwrap_err();
        assert!(matches!(error, ExchangeError::Late));
        for shared in &exchange.sockets {
            assert!(shared.waiting.lock().unwrap().is_empty());
        }
    }
}
