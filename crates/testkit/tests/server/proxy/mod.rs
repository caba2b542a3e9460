//! The server's proxy on the wire: secure access, renewal on access, pages for browsers, and pauses.

mod addresses;
mod forwarding;
mod pages;
mod pauses;
mod renewal;
mod secure_access;
mod support;
