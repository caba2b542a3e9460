//! Short fuzz runs as tests. The long runs are `cargo fuzz run TARGET` in `fuzz/`.

pub use crate::{
    env::fuzz::{env_file, expansion},
    file::fuzz::{glob, multipart, range},
    output::fuzz::stream,
    pty::fuzz::frame,
};

#[cfg(test)]
pub(crate) use osb_fuzzing::short_run;
