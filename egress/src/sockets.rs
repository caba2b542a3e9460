//! Sockets at the sidecar's fixed ports. The supervisor holds them while there is no worker, because
//! a program in the sandbox could take a free port and answer in the sidecar's place.
//!
//! ```text
//!  supervisor ── opens and holds ──▶ lends copies over the worker's standard input ──▶ worker
//! ```
//!
//! Connections and queries that come while there is no worker wait in the kernel for the next one.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
};
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};

use crate::limits;

/// Variable of a worker that gets sockets over its standard input.
pub const VARIABLE: &str = "OPENSANDBOX_EGRESS_SOCKETS";
/// Most sockets that are lent.
const MOST: usize = 8;

/// Reason why a socket is not held.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct HoldError {
    /// Its address.
    address: SocketAddr,
    /// Cause.
    #[source]
    source: io::Error,
}

/// Sockets that the supervisor holds.
#[derive(Debug)]
pub struct Held(Vec<Socket>);

impl Held {
    /// Opens the sockets of the API and of the DNS proxy.
    ///
    /// # Errors
    /// See [`HoldError`].
    pub fn open(api: SocketAddr, dns: &[SocketAddr]) -> Result<Self, HoldError> {
        let api = [(Type::STREAM, available(api, has_ipv6), Some(random_mark()))];
        let dns = dns
            .iter()
            .flat_map(|address| [Type::DGRAM, Type::STREAM].map(|kind| (kind, *address, None)));
        let open_named = |(kind, address, mark)| {
            let opened = open(kind, address, mark);
            opened.map_err(|source| HoldError { address, source })
        };
        let all = api.into_iter().chain(dns).map(open_named);
        Ok(Self(all.collect::<Result<_, _>>()?))
    }

    /// Standard input for a worker: it has copies of the sockets.
    ///
    /// # Errors
    /// When the kernel has no resources.
    pub fn lend(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let sockets: Vec<BorrowedFd<'_>> = self.0.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
            return Err(io::Error::other("too many sockets to lend"));
        }
        // The kernel wants a message with them.
        sendmsg(
            &ours,
            &[IoSlice::new(&[0])],
            &mut control,
            SendFlags::empty(),
        )?;
        Ok(theirs)
    }
}

/// A mark for packets of the sidecar, which other processes do not know.
fn random_mark() -> u32 {
    rand::random_range(1..=u32::MAX)
}

fn open(kind: Type, address: SocketAddr, mark: Option<u32>) -> io::Result<Socket> {
    /// Connections that wait for the worker.
    const WAITING: i32 = 1024;
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    if kind == Type::STREAM {
        // Connections of an earlier process may linger.
        socket.set_reuse_address(true)?;
    }
    if let Some(mark) = mark {
        // Before the first connection. A worker that may not mark packets fails by itself.
        let _refused = socket.set_mark(mark);
    }
    socket.bind(&address.into())?;
    if kind == Type::STREAM {
        socket.listen(WAITING)?;
    }
    Ok(socket)
}

/// Sockets of a worker. Those that it was not lent it opens itself.
#[derive(Debug, Default)]
pub struct Sockets(Vec<Socket>);

impl Sockets {
    /// Takes the sockets from standard input, which is empty afterwards.
    ///
    /// # Errors
    /// There are none.
    pub fn inherited() -> io::Result<Self> {
        let sockets = Self::receive(rustix::stdio::stdin())?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        Ok(sockets)
    }

    fn receive(from: impl AsFd) -> io::Result<Self> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        // They were sent before this process started.
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        recvmsg(from, &mut [IoSliceMut::new(&mut [0])], &mut control, flags)?;
        let mut sockets = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                sockets.extend(received.map(Socket::from));
            }
        }
        match sockets.is_empty() {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(Self(sockets)),
        }
    }

    /// The mark of the sidecar's packets. Connections to a lent API have it from the first packet on, also
    /// those from before this process: they inherit it from the listener.
    #[must_use]
    pub fn mark(&self) -> u32 {
        let mut marks = self.0.iter().filter_map(|socket| socket.mark().ok());
        marks.find(|mark| *mark != 0).unwrap_or_else(random_mark)
    }

    /// A listener at an address. All addresses are those of IPv4 where the kernel has no IPv6.
    ///
    /// # Errors
    /// The address is unavailable.
    pub async fn listener(&mut self, address: SocketAddr) -> io::Result<TcpListener> {
        let address = available(address, has_ipv6);
        match self.take(Type::STREAM, address)? {
            Some(socket) => TcpListener::from_std(socket.into()),
            None => TcpListener::bind(address).await,
        }
    }

    /// A socket for datagrams at an address.
    ///
    /// # Errors
    /// The address is unavailable.
    pub async fn datagrams(&mut self, address: SocketAddr) -> io::Result<UdpSocket> {
        match self.take(Type::DGRAM, address)? {
            Some(socket) => UdpSocket::from_std(socket.into()),
            None => UdpSocket::bind(address).await,
        }
    }

    /// The lent socket with this address.
    fn take(&mut self, kind: Type, address: SocketAddr) -> io::Result<Option<Socket>> {
        let is_at = |socket: &Socket| {
            let own = socket.local_addr().ok().and_then(|own| own.as_socket());
            own == Some(address) && socket.r#type().is_ok_and(|own| own == kind)
        };
        let Some(position) = self.0.iter().position(is_at) else {
            return Ok(None);
        };
        let socket = self.0.swap_remove(position);
        socket.set_nonblocking(true)?;
        Ok(Some(socket))
    }
}

/// The address to listen on: a kernel without IPv6 (`ipv6.disable=1`) has no sockets for `[::]`, which
/// stands for all addresses, those of IPv4 as well.
fn available(address: SocketAddr, has_ipv6: impl FnOnce() -> bool) -> SocketAddr {
    let is_all = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    match is_all && !has_ipv6() {
        true => (Ipv4Addr::UNSPECIFIED, address.port()).into(),
        false => address,
    }
}

/// Whether the kernel has IPv6. It may still have no addresses.
fn has_ipv6() -> bool {
    let opened = Socket::new(Domain::IPV6, Type::STREAM, None);
    let unsupported = Errno::AFNOSUPPORT.raw_os_error();
    !opened.is_err_and(|error| error.raw_os_error() == Some(unsupported))
}

/// Addresses of the DNS proxy: IPv6 only if this network namespace has it.
#[must_use]
pub fn dns_addresses() -> Vec<SocketAddr> {
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, limits::DNS_PORT));
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, limits::DNS_PORT));
    let has_v6 = std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    match has_v6 {
        true => vec![v4, v6],
        false => vec![v4],
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    /// Sockets at free ports, and their addresses: of the API, of UDP and of TCP.
    fn held() -> (Held, [SocketAddr; 3]) {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let held = Held::open(free, &[free]).unwrap();
        let addresses = [0, 1, 2].map(|n| {
            let socket: &Socket = &held.0[n];
            socket.local_addr().unwrap().as_socket().unwrap()
        });
        (held, addresses)
    }

    #[tokio::test]
    async fn each_worker_gets_the_sockets_and_their_ports_are_never_free() {
        let (held, [api, udp, tcp]) = held();
        let are_taken = || {
            let error = |result: io::Result<()>| result.unwrap_err().kind();
            let listeners = [api, tcp].map(|it| std::net::TcpListener::bind(it).map(drop));
            let datagrams = std::net::UdpSocket::bind(udp).map(drop);
            let kinds = listeners.into_iter().chain([datagrams]).map(error);
            kinds.eq([io::ErrorKind::AddrInUse; 3])
        };
        assert!(are_taken());
        // It connects although there is no worker.
        let waiting = TcpStream::connect(api).await.unwrap();
        for _ in 0..2 {
            let mut sockets = Sockets::receive(held.lend().unwrap()).unwrap();
            let listener = sockets.listener(api).await.unwrap();
            let dns = sockets.listener(tcp).await.unwrap();
            let datagrams = sockets.datagrams(udp).await.unwrap();
            assert_eq!(datagrams.local_addr().unwrap(), udp);
            let client = TcpStream::connect(api).await.unwrap();
            let mut peers = vec![listener.accept().await.unwrap().1];
            if peers[0] == waiting.local_addr().unwrap() {
                peers.push(listener.accept().await.unwrap().1);
            }
            assert!(peers.contains(&client.local_addr().unwrap()));
            drop((sockets, listener, dns, datagrams));
            assert!(are_taken());
        }
    }

    #[tokio::test]
    async fn a_worker_opens_what_it_was_not_lent() {
        let (held, [api, udp, tcp]) = held();
        let mut sockets = Sockets::receive(held.lend().unwrap()).unwrap();
        drop(held);
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let own = sockets.listener(free).await.unwrap();
        assert!(![api, tcp].contains(&own.local_addr().unwrap()));
        // An address of UDP is none of TCP.
        assert!(sockets.take(Type::STREAM, udp).unwrap().is_none());
        assert!(sockets.take(Type::DGRAM, udp).unwrap().is_some());
    }

    #[test]
    fn without_ipv6_all_addresses_are_those_of_ipv4() {
        for (text, without) in [
            ("[::]:18080", "0.0.0.0:18080"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:1", "[::1]:1"),
        ] {
            let (address, without) = (text.parse().unwrap(), without.parse().unwrap());
            assert_eq!(available(address, || true), address);
            assert_eq!(available(address, || false), without);
        }
    }

    #[test]
    fn without_a_supervisor_there_is_nothing_to_take() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Sockets::receive(&theirs).is_err(), "nothing was sent");
        drop(ours);
        assert!(Sockets::receive(&theirs).is_err(), "the sender is gone");
        assert!(Sockets::receive(File::open("/dev/null").unwrap()).is_err());
    }
}
