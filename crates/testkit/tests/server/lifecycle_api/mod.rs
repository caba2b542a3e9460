//! The REST API over the simulated runtime, as clients see it.

mod calls;
mod failures;
mod hooks;
mod life;
mod lists;
mod refusals;
mod requests;
mod resync;
mod volumes;
