//! Network of the session.
#![expect(
    unsafe_code,
    reason = "no dependency offers the requests that configure interfaces"
)]

use std::{io, os::fd::AsRawFd};

use nix::libc;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Brings up the loopback interface, the only one.
pub(super) fn loopback_up() -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    // SAFETY: all members may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_flags =
        i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).expect("flags fit");
    // SAFETY: the request has the layout that this call reads, and lives until it returns.
    let done = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
