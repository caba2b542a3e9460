//! The server's proxy on the wire: secure access, renewal on access, pages for browsers, pauses,
//! and programs behind execd.

mod addresses;
mod forwarding;
mod loopback;
mod pages;
mod pauses;
mod renewal;
mod secure_access;
mod support;
