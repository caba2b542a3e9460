//! The TCP ports on which programs of the sandbox listen: an addition to the contract.

use std::{
    collections::HashMap,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use axum::{Json, Router, routing::get};
use osb_protocol::execd::port::ListeningPort;

use crate::{
    blocking::blocking,
    error::{ApiError, ApiResult},
};

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// Docker's resolver, which the engine runs in the network of the sandbox.
const RESOLVER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11));
/// Most ports of an answer.
const MOST: usize = 200;

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Socket {
    address: IpAddr,
    port: u16,
    inode: u64,
}

/// A process that has a socket.
#[derive(Clone, Debug)]
struct Holder {
    pid: u32,
    name: String,
}

/// All routes.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/ports", get(list))
}

/// Handles `GET /ports`.
async fn list() -> ApiResult<Json<Vec<ListeningPort>>> {
    let found = blocking(|| {
        listening(Path::new("/proc"), std::process::id())
            .map_err(|error| ApiError::runtime(format!("cannot read the sockets: {error}")))
    });
    Ok(Json(found.await?))
}

/// Ports that are listened on, in order, without those of process `own`.
fn listening(proc: &Path, own: u32) -> io::Result<Vec<ListeningPort>> {
    let mut sockets = sockets(&fs::read_to_string(proc.join("self/net/tcp"))?);
    // Absent without IPv6.
    if let Ok(table) = fs::read_to_string(proc.join("self/net/tcp6")) {
        sockets.extend(self::sockets(&table));
    }
    sockets.retain(|socket| socket.address != RESOLVER);
    let holders = holders(proc, &sockets);
    sockets.retain(|socket| holders.get(&socket.inode).is_none_or(|it| it.pid != own));
    // Of several sockets with a port, the one that most clients reach stands for it.
    let reach = |socket: &Socket| match socket.address {
        address if address.is_unspecified() => 0,
        address if address.is_loopback() => 2,
        _ => 1,
    };
    sockets.sort_by_key(|socket| (socket.port, reach(socket), socket.address.is_ipv6()));
    sockets.dedup_by_key(|socket| socket.port);
    sockets.truncate(MOST);
    let ports = sockets.into_iter().map(|socket| {
        let holder = holders.get(&socket.inode);
        ListeningPort {
            port: socket.port,
            address: socket.address.to_string(),
            pid: holder.map(|it| it.pid),
            process: holder.map(|it| it.name.clone()),
        }
    });
    Ok(ports.collect())
}

/// The listening sockets of a table of the kernel.
fn sockets(table: &str) -> Vec<Socket> {
    table.lines().skip(1).filter_map(socket).collect()
}

fn socket(line: &str) -> Option<Socket> {
    let mut fields = line.split_whitespace();
    let (address, port) = fields.nth(1)?.split_once(':')?;
    (fields.nth(1)? == LISTEN).then_some(())?;
    Some(Socket {
        address: ip(address)?,
        port: u16::from_str_radix(port, 16).ok()?,
        inode: fields.nth(5)?.parse().ok()?,
    })
}

/// An address: words of 32 bits in the order of bytes of this machine.
fn ip(hex: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let digits = hex.get(index * 8..index * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (index, part) in bytes.chunks_mut(4).enumerate() {
                part.copy_from_slice(&word(index)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical())
        }
        _ => None,
    }
}

/// Which process has each of these sockets. Processes that end meanwhile or may not be looked into have
/// none.
fn holders(proc: &Path, sockets: &[Socket]) -> HashMap<u64, Holder> {
    let mut holders = HashMap::new();
    let Ok(processes) = fs::read_dir(proc) else {
        return holders;
    };
    for process in processes.flatten() {
        if holders.len() == sockets.len() {
            break;
        }
        let Some(pid) = process.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        let Ok(files) = fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        for file in files.flatten() {
            let Some(inode) = fs::read_link(file.path()).ok().and_then(inode) else {
                continue;
            };
            if sockets.iter().any(|socket| socket.inode == inode) {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                let name = name.trim_end().to_owned();
                holders.entry(inode).or_insert(Holder { pid, name });
            }
        }
    }
    holders
}

/// The number in `socket:[123]`.
fn inode(link: std::path::PathBuf) -> Option<u64> {
    let text = link.to_str()?;
    text.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn tables_of_the_kernel_are_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n   1: 00000000:0016 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0\n garbage\n";
        let expected = Socket {
            address: Ipv4Addr::LOCALHOST.into(),
            port: 8080,
            inode: 4711,
        };
        if cfg!(target_endian = "little") {
            assert_eq!(sockets(table), [expected]);
            let mapped = "0000000000000000FFFF00000100007F";
            assert_eq!(ip(mapped), Some(Ipv4Addr::LOCALHOST.into()));
        }
        assert_eq!(
            ip("00000000000000000000000000000000"),
            Some(Ipv6Addr::UNSPECIFIED.into())
        );
        for bad in ["", "0", "0100007G", "ü00007F"] {
            assert_eq!(ip(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_program_that_listens_is_found_and_the_own_process_left_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let find = |own| {
            let ports = listening(Path::new("/proc"), own).unwrap();
            ports.into_iter().find(|it| it.port == port)
        };
        let found = find(0).unwrap();
        assert_eq!(found.address, "127.0.0.1");
        assert_eq!(found.pid, Some(std::process::id()));
        assert!(found.process.is_some_and(|name| !name.is_empty()));
        assert_eq!(find(std::process::id()), None);
        drop(listener);
        assert_eq!(find(0), None);
    }
}
