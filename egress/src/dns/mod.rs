//! The DNS proxy: every query of the sandbox ends here (contract: egress §3).

mod answer;
mod exchange;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod name;
mod proxy;
mod tcp;
mod upstreams;

pub use proxy::{Observers, Proxy, Serving, serve};
pub use upstreams::{NoAnswer, Upstreams, addresses};
