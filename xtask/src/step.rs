//! Steps: named units of work, with their progress and duration on stderr.

use std::{
    cell::RefCell,
    fs,
    panic::resume_unwind,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::{
    duration::readable,
    progress::say,
    times::{self, Kind},
};

thread_local! {
    /// Names of the steps that this thread runs, the innermost last.
    static STEPS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Runs a step; prints its name before and its duration after. The name is an imperative, because
/// it also heads the error.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    say(&format!("==> {name}"));
    let started = Instant::now();
    STEPS.with_borrow_mut(|steps| steps.push(name.to_owned()));
    let result = work().with_context(|| name.to_owned());
    STEPS.with_borrow_mut(Vec::pop);
    times::record(Kind::Step, name, started);
    let verdict = if result.is_ok() { "done" } else { "FAILED" };
    say(&format!(
        "    {name}: {verdict} in {}",
        readable(started.elapsed())
    ));
    result
}

/// Name of the step that this thread runs.
pub(crate) fn current() -> String {
    STEPS.with_borrow(|steps| steps.last().cloned().unwrap_or_default())
}

/// Runs two functions at the same time. Their output is interleaved, so each line names its step.
/// Most builds end with one long step on one processor; this keeps the others busy.
pub(crate) fn in_parallel<A: Send, B>(
    one: impl FnOnce() -> Result<A> + Send,
    other: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    std::thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        let one = one.join().unwrap_or_else(|panic| resume_unwind(panic));
        match (one, other) {
            (Ok(one), Ok(other)) => Ok((one, other)),
            (Err(one), Err(other)) => Err(other.context(format!("{one:#}; and also"))),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        }
    })
}

/// Prints a message that stands out from the progress.
pub(crate) fn notice(text: &str) {
    say(&format!("\n!!! {}\n", text.replace('\n', "\n!!! ")));
}

/// A step that need not run again while its inputs stay the same.
pub(crate) struct Stamp {
    file: PathBuf,
    inputs: String,
}

impl Stamp {
    /// Hashes the inputs: the content of `inputs`, and `extra` for everything that is not a file.
    pub(crate) fn new(dir: &Path, name: &str, inputs: &[&Path], extra: &str) -> Result<Self> {
        let mut hash = Sha256::new();
        hash.update(extra);
        for input in inputs {
            let content =
                fs::read(input).with_context(|| format!("cannot read {}", input.display()))?;
            hash.update(content.len().to_le_bytes());
            hash.update(content);
        }
        Ok(Self {
            file: dir.join(name),
            inputs: hex(&hash.finalize()),
        })
    }

    /// Whether the step ran with these inputs and `output` is still there.
    pub(crate) fn is_fresh(&self, output: &Path) -> bool {
        output.exists() && fs::read_to_string(&self.file).is_ok_and(|known| known == self.inputs)
    }

    /// Records that the step ran.
    pub(crate) fn save(&self) -> Result<()> {
        let dir = self
            .file
            .parent()
            .context("the stamp file has no parent directory")?;
        fs::create_dir_all(dir)?;
        fs::write(&self.file, &self.inputs)
            .with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// Hash of the inputs.
    pub(crate) fn digest(&self) -> &str {
        &self.inputs
    }
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_step_is_the_current_one() {
        let inner = step("one", || step("two", || Ok(current()))).unwrap();
        assert_eq!((inner.as_str(), current().as_str()), ("two", ""));
        let failed = step("make it", || -> Result<()> { anyhow::bail!("no way") });
        assert_eq!(format!("{:#}", failed.unwrap_err()), "make it: no way");
        assert_eq!(current(), "");
    }

    #[test]
    fn parallel_failures_are_both_reported() {
        assert_eq!(in_parallel(|| Ok(1), || Ok(2)).unwrap(), (1, 2));
        let fail = |text| move || -> Result<()> { anyhow::bail!("{text}") };
        let both = format!("{:#}", in_parallel(fail("one"), fail("other")).unwrap_err());
        assert!(both.contains("one") && both.contains("other"), "{both}");
        assert!(in_parallel(|| Ok(1), fail("other")).is_err());
        assert!(in_parallel(fail("one"), || Ok(1)).is_err());
    }

    #[test]
    fn a_stamp_is_fresh_until_an_input_changes_or_the_output_goes() {
        let dir = std::env::temp_dir().join(format!("xtask-stamp-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (input, output) = (dir.join("in"), dir.join("out"));
        fs::write(&input, "one").unwrap();
        fs::write(&output, "made").unwrap();
        let stamp = |extra: &str| Stamp::new(&dir, "step", &[&input], extra).unwrap();

        assert!(!stamp("").is_fresh(&output));
        stamp("").save().unwrap();
        assert!(stamp("").is_fresh(&output));
        assert!(!stamp("other compiler").is_fresh(&output));
        fs::write(&input, "two").unwrap();
        assert!(!stamp("").is_fresh(&output));
        stamp("").save().unwrap();
        fs::remove_file(&output).unwrap();
        assert!(!stamp("").is_fresh(&output));
        fs::remove_dir_all(&dir).unwrap();
    }
}
