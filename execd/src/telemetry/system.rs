//! Kernel counters of the sandbox besides CPU and memory, from the container's own `/proc`: its
//! processes and its network.

use std::{fs, path::Path};

/// State of an established connection in the kernel's TCP tables.
const ESTABLISHED: &str = "01";

/// Bytes through all network devices except the loopback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) received: u64,
    pub(super) sent: u64,
}

/// Number of processes.
pub(super) fn processes(proc: &Path) -> Option<u64> {
    let entries = fs::read_dir(proc).ok()?.flatten();
    let number = |name: &std::ffi::OsStr| {
        let name = name.as_encoded_bytes();
        name.iter().all(u8::is_ascii_digit)
    };
    Some(entries.filter(|entry| number(&entry.file_name())).count() as u64)
}

/// Bytes since the devices were created.
pub(super) fn traffic(proc: &Path) -> Option<Traffic> {
    let text = fs::read_to_string(proc.join("net/dev")).ok()?;
    let mut all = Traffic::default();
    for line in text.lines() {
        // The two header lines have no colon.
        let Some((device, counts)) = line.split_once(':') else {
            continue;
        };
        if device.trim() == "lo" {
            continue;
        }
        let mut counts = counts.split_ascii_whitespace().map(str::parse::<u64>);
        all.received += counts.next()?.ok()?;
        // Seven more receive counters come first.
        all.sent += counts.nth(7)?.ok()?;
    }
    Some(all)
}

/// Established TCP connections, over IPv4 and IPv6.
pub(super) fn tcp_connections(proc: &Path) -> Option<u64> {
    // Fields: number, local address, remote address, state, …
    sockets(proc, ["net/tcp", "net/tcp6"], |mut fields| {
        fields.nth(3) == Some(ESTABLISHED)
    })
}

/// UDP sockets, which have no connections.
pub(super) fn udp_sockets(proc: &Path) -> Option<u64> {
    sockets(proc, ["net/udp", "net/udp6"], |_| true)
}

/// Counts entries of two tables, the second of which may be absent.
fn sockets(
    proc: &Path,
    tables: [&str; 2],
    counts: impl Fn(std::str::SplitAsciiWhitespace<'_>) -> bool,
) -> Option<u64> {
    let [first, second] = tables.map(|table| fs::read_to_string(proc.join(table)));
    let count = |text: &str| {
        let rows = text.lines().skip(1).map(str::split_ascii_whitespace);
        rows.filter(|fields| counts(fields.clone())).count() as u64
    };
    Some(count(&first.ok()?) + second.map_or(0, |text| count(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1000       1    0    0    0     0          0         0     1000       1    0    0    0     0       0          0
  eth0: 10       1    0    0    0     0          0         0     20       1    0    0    0     0       0          0
  eth1:100       1    0    0    0     0          0         0     200       1    0    0    0     0       0          0
";
    const TCP: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:AEE4 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0100007F:AEE4 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 2 1
   2: 0100007F:C350 0100007F:AEE4 01 00000000:00000000 00:00000000 00000000     0        0 3 1
";

    #[test]
    fn files_of_the_kernel() {
        let place = tempfile::tempdir().unwrap();
        let proc = place.path();
        assert_eq!(traffic(proc), None);
        assert_eq!((tcp_connections(proc), udp_sockets(proc)), (None, None));
        for folder in ["1", "42", "net", "4x"] {
            fs::create_dir(proc.join(folder)).unwrap();
        }
        assert_eq!(processes(proc), Some(2));
        let write = |name: &str, text: &str| fs::write(proc.join("net").join(name), text).unwrap();
        write("dev", DEV);
        let want = Traffic {
            received: 110,
            sent: 220,
        };
        assert_eq!(traffic(proc), Some(want));
        write("tcp", TCP);
        assert_eq!(tcp_connections(proc), Some(2));
        write("tcp6", TCP);
        write("udp", TCP);
        assert_eq!(
            (tcp_connections(proc), udp_sockets(proc)),
            (Some(4), Some(3))
        );
    }

    #[test]
    fn files_of_this_machine_are_readable() {
        let proc = Path::new("/proc");
        assert!(processes(proc).is_some_and(|count| count > 0));
        assert!(traffic(proc).is_some());
        assert!(tcp_connections(proc).is_some() && udp_sockets(proc).is_some());
    }
}
