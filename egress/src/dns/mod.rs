//! The DNS proxy: every query of the sandbox ends here (contract: egress §3).

mod answer;
mod exchange;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod name;
mod proxy;
mod refusal;
mod respond;
mod tcp;
mod udp;
mod upstreams;

pub use proxy::{Observers, Proxy, Serving, serve};
pub use upstreams::{NoAnswer, Upstreams, addresses};

/// Bytes of the header of a message.
const HEADER: usize = 12;
