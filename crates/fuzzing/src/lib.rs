//! Short runs of fuzz targets as tests. The long runs are `cargo fuzz run TARGET` in `fuzz/`.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

use std::{fs, path::Path};

/// Folder with a folder of seeds for each target.
const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds");
/// Number of inputs of a short run.
const INPUTS: usize = 4000;
/// Maximum length of a piece that a mutation repeats.
const PIECE: u64 = 200;

/// Runs a target on its seeds and on mutations of them. The inputs are the same every time.
///
/// # Panics
/// If the target has no seeds, or panics.
pub fn short_run(target: &str, feed: fn(&[u8])) {
    let seeds = seeds(&Path::new(SEEDS).join(target));
    seeds.iter().for_each(|seed| feed(seed));
    mutations(&seeds, feed);
}

/// Seeds in a folder, in the order of their bytes.
fn seeds(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut seeds: Vec<Vec<u8>> = entries
        .map(|entry| fs::read(entry.expect("the folder is readable").path()))
        .map(|seed| seed.expect("seeds are readable"))
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "no seeds in {}", folder.display());
    seeds
}

/// Feeds mutations of the seeds.
fn mutations(seeds: &[Vec<u8>], mut feed: impl FnMut(&[u8])) {
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
                    let end = (at + next(PIECE)).min(input.len());
                    let copy = input[at..end].to_vec();
                    input.splice(at..at, copy);
                }
                _ => input.insert(at, byte),
            }
        }
        feed(&input);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn inputs_differ_from_each_other_and_not_from_run_to_run() {
        let run = || {
            let mut inputs = Vec::new();
            mutations(&[b"seed".to_vec(), b"another".to_vec()], |input| {
                inputs.push(input.to_vec());
            });
            inputs
        };
        let inputs = run();
        assert_eq!(inputs, run());
        let different: HashSet<_> = inputs.iter().collect();
        assert!(different.len() > INPUTS / 2, "{}", different.len());
    }

    #[test]
    #[should_panic(expected = "fuzz/seeds/none")]
    fn a_target_without_seeds_fails() {
        short_run("none", |_| {});
    }
}
