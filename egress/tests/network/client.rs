//! What a process in the sandbox does.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use hickory_server::proto::{
    op::{Edns, Message, Query, ResponseCode},
    rr::{Name, RData, RecordType, rdata::opt::EdnsOption},
};

use crate::world::{RESOLVER, SOON, World};

/// Bound for what must not get an answer, long enough for an answer on a busy machine. Most refusals are
/// answered at once.
const SILENCE: Duration = Duration::from_secs(10);

/// Answer to a query.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// Code.
    pub(crate) code: ResponseCode,
    /// Addresses in the answer.
    pub(crate) addresses: Vec<IpAddr>,
    /// Shortest lifetime in the answer.
    pub(crate) ttl: Option<u32>,
    /// Whether the server says that it asks others.
    pub(crate) is_recursive: bool,
    /// Number of the extended error.
    pub(crate) error: Option<u16>,
    /// Its text: the reason of a refusal.
    pub(crate) reason: Option<String>,
    /// Length in bytes of all texts.
    pub(crate) text: usize,
    /// Whether the answer was cut.
    pub(crate) is_cut: bool,
}

fn query(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.metadata.id = 4711;
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(
        Name::from_ascii(format!("{name}.")).unwrap(),
        kind,
    ));
    let mut edns = Edns::new();
    edns.set_max_payload(1232);
    message.set_edns(edns);
    message.to_vec().unwrap()
}

fn resolved(bytes: &[u8]) -> Resolved {
    const EXTENDED_ERROR: u16 = 15;
    let message = Message::from_vec(bytes).expect("it is an answer");
    assert_eq!(message.metadata.id, 4711);
    let options = message
        .edns
        .as_ref()
        .map(|edns| edns.options().options.clone());
    let extended = options
        .unwrap_or_default()
        .into_iter()
        .find_map(|(_, option)| match option {
            EdnsOption::Unknown(EXTENDED_ERROR, data) => Some((
                u16::from_be_bytes([data[0], data[1]]),
                String::from_utf8(data[2..].to_vec()).unwrap(),
            )),
            _ => None,
        });
    let (error, reason) = extended.unzip();
    Resolved {
        code: message.metadata.response_code,
        addresses: message
            .answers
            .iter()
            .filter_map(|it| it.data.ip_addr())
            .collect(),
        ttl: message.answers.iter().map(|it| it.ttl).min(),
        is_recursive: message.metadata.recursion_available,
        error,
        reason,
        text: message
            .answers
            .iter()
            .map(|it| match &it.data {
                RData::TXT(text) => text.txt_data.iter().map(|it| it.len()).sum(),
                _ => 0,
            })
            .sum(),
        is_cut: message.metadata.truncation,
    }
}

/// Sends a query to a name server over UDP.
pub(crate) fn ask(
    to: SocketAddr,
    name: &str,
    kind: RecordType,
    limit: Duration,
) -> io::Result<Resolved> {
    let own: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((own, 0))?;
    socket.set_read_timeout(Some(limit))?;
    socket.connect(to)?;
    socket.send(&query(name, kind))?;
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer)?;
    Ok(resolved(&buffer[..length]))
}

/// Sends a query to a name server over TCP.
pub(crate) fn ask_by_tcp(to: SocketAddr, name: &str, kind: RecordType) -> io::Result<Resolved> {
    let mut stream = TcpStream::connect_timeout(&to, SOON)?;
    stream.set_read_timeout(Some(SOON))?;
    let query = query(name, kind);
    let length = u16::try_from(query.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length, &query[..]].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer)?;
    Ok(resolved(&answer))
}

impl World {
    /// Resolves a name as the C library does: over UDP, by a server of `resolv.conf`.
    pub(crate) fn resolve(&self, name: &str) -> Resolved {
        self.resolve_kind(name, RecordType::A)
    }

    /// The same for another type.
    pub(crate) fn resolve_kind(&self, name: &str, kind: RecordType) -> Resolved {
        let server = SocketAddr::new(RESOLVER.parse().unwrap(), 53);
        self.inside(|| ask(server, name, kind, SOON))
            .expect("the proxy answers")
    }

    /// Whether a TCP connection to an address works: data that is sent comes back.
    pub(crate) fn reaches(&self, address: &str, port: u16) -> bool {
        self.inside(|| tcp(address, port)).is_ok()
    }

    /// Why a TCP connection fails.
    pub(crate) fn refused(&self, address: &str, port: u16) -> io::ErrorKind {
        let result = self.inside(|| tcp(address, port).map(drop));
        result.expect_err("it is refused").kind()
    }

    /// An open TCP connection.
    pub(crate) fn connected(&self, address: &str, port: u16) -> TcpStream {
        self.inside(|| tcp(address, port)).expect("it connects")
    }

    /// Whether a datagram to an address is answered.
    pub(crate) fn reaches_by_udp(&self, address: &str, port: u16) -> bool {
        self.inside(|| udp(address, port)).is_ok()
    }
}

/// Whether data that is sent on a connection comes back.
pub(crate) fn is_alive(stream: &mut TcpStream) -> bool {
    let exchange = |stream: &mut TcpStream| {
        stream.write_all(b"ping")?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer)
    };
    exchange(stream).is_ok()
}

fn tcp(address: &str, port: u16) -> io::Result<TcpStream> {
    let to = SocketAddr::new(address.parse().unwrap(), port);
    let mut stream = TcpStream::connect_timeout(&to, SILENCE)?;
    stream.set_read_timeout(Some(SILENCE))?;
    match is_alive(&mut stream) {
        true => Ok(stream),
        false => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

fn udp(address: &str, port: u16) -> io::Result<()> {
    let to = SocketAddr::new(address.parse().unwrap(), port);
    let own: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((own, 0))?;
    socket.set_read_timeout(Some(SILENCE))?;
    socket.connect(to)?;
    let exchange = || {
        socket.send(b"ping")?;
        socket.recv(&mut [0; 16]).map(drop)
    };
    // A datagram may be lost on a busy machine.
    exchange().or_else(|_| exchange())
}
