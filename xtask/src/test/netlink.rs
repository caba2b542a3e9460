//! Programs that do not hear of network interfaces. Those of containers come and go all the time beside
//! the tests, and Chromium breaks off whatever it is connecting then.

use std::thread;

use anyhow::{Context, Result};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// Does something on a thread of its own that cannot open netlink sockets, nor can programs that are
/// started there.
pub(super) fn without<T: Send>(act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let filter = filter()?;
    let thread = || {
        apply_filter(&filter)?;
        act()
    };
    thread::scope(|scope| match scope.spawn(thread).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn filter() -> Result<BpfProgram> {
    let family = u64::try_from(libc::AF_NETLINK)?;
    let is_netlink = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, family)?;
    let refused = SeccompRule::new(vec![is_netlink])?;
    let filter = SeccompFilter::new(
        [(libc::SYS_socket, vec![refused])].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(u32::try_from(libc::EPERM)?),
        std::env::consts::ARCH.try_into()?,
    )?;
    filter.try_into().context("the filter is no program")
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

    use super::*;

    #[test]
    fn only_netlink_is_refused_and_only_there() {
        let open = || {
            let kind = SockType::Raw;
            socket(AddressFamily::Netlink, kind, SockFlag::empty(), None).map(drop)
        };
        let seen = without(|| Ok((open(), UdpSocket::bind("127.0.0.1:0").map(drop).is_ok())));
        assert_eq!(seen.unwrap(), (Err(nix::Error::EPERM), true));
        assert_eq!(open(), Ok(()));
    }
}
