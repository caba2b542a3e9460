//! Short fuzz runs as tests. The long runs are `cargo fuzz run TARGET` in `fuzz/`.

pub use crate::{dns::fuzz::answer, policy::fuzz::policy};

#[cfg(test)]
pub(crate) use osb_fuzzing::short_run;
