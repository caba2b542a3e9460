//! Short fuzz runs as tests. The long runs are `cargo fuzz run TARGET` in `fuzz/`.

pub use crate::{
    env::fuzz::{env_file, expansion},
    file::fuzz::{glob, multipart, range},
    output::fuzz::stream,
    pty::fuzz::frame,
};

/// Number of inputs of a short run.
#[cfg(test)]
const INPUTS: usize = 4000;
/// Maximum length of an input of a short run.
#[cfg(test)]
const LENGTH: u64 = 200;

/// Runs a target on its seeds and on mutations of them. The inputs are the same every time.
#[cfg(test)]
pub(crate) fn short_run(target: &str, feed: fn(&[u8])) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/seeds")
        .join(target);
    let mut seeds: Vec<Vec<u8>> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "no seeds in {}", folder.display());
    seeds.iter().for_each(|seed| feed(seed));
    // xorshift: any deterministic sequence is sufficient.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below.max(1)).expect("small")
    };
    let alphabet: Vec<u8> = seeds.concat();
    for round in 0..INPUTS {
        let mut input = seeds[round % seeds.len()].clone();
        for _ in 0..=next(6) {
            let at = next(input.len() as u64 + 1);
            let byte = match next(3) {
                0 => u8::try_from(next(256)).expect("a byte"),
                _ => alphabet[next(alphabet.len() as u64)],
            };
            match next(4) {
                0 if at < input.len() => {
                    input.remove(at);
                }
                1 if at < input.len() => input[at] = byte,
                2 => {
                    let end = (at + next(LENGTH)).min(input.len());
                    let copy = input[at..end].to_vec();
                    input.splice(at..at, copy);
                }
                _ => input.insert(at, byte),
            }
        }
        feed(&input);
    }
}
