//! Where the log goes (contract: execd §1.2, §1.4).
//!
//! To standard error, unless a file (`EXECD_LOG_FILE`) or a list of outputs
//! (`OPENSANDBOX_LOG_OUTPUT`) is named. Standard output belongs to the user's entry point.

mod rotate;

use std::{
    io::{self, Write},
    path::Path,
};

use rotate::{Bounds, Rotating};

/// Names a file for the log.
const ENV_FILE: &str = "EXECD_LOG_FILE";
/// Names outputs, separated by commas: `stdout`, `stderr`, and paths. The file wins over it.
const ENV_OUTPUTS: &str = "OPENSANDBOX_LOG_OUTPUT";

/// All outputs of the log. Each line goes to every one of them.
#[derive(Debug)]
pub struct Log(Vec<Output>);

#[derive(Debug)]
enum Output {
    Stdout,
    Stderr,
    File(Rotating),
}

/// The outputs that the environment names, and what is wrong with those that were left out. A log
/// that cannot be written keeps no sandbox from working; with no output left, it is standard error.
pub fn open(variable: impl Fn(&str) -> Option<String>) -> (Log, Vec<String>) {
    let set = |name| variable(name).filter(|value| !value.trim().is_empty());
    let names = match (set(ENV_FILE), set(ENV_OUTPUTS)) {
        (Some(file), _) => vec![file],
        (None, Some(list)) => list.split(',').map(|name| name.trim().to_owned()).collect(),
        (None, None) => Vec::new(),
    };
    let mut outputs = Vec::new();
    let mut problems = Vec::new();
    for name in names.iter().filter(|name| !name.is_empty()) {
        match name.as_str() {
            "stdout" => outputs.push(Output::Stdout),
            "stderr" => outputs.push(Output::Stderr),
            path => match Rotating::open(Path::new(path), Bounds::DEFAULT) {
                Ok(file) => outputs.push(Output::File(file)),
                Err(error) => problems.push(format!("{path}: {error}")),
            },
        }
    }
    if outputs.is_empty() {
        outputs.push(Output::Stderr);
    }
    (Log(outputs), problems)
}

impl Write for Log {
    /// Takes a whole line. An output that fails loses it; nobody could be told.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        for output in &mut self.0 {
            let _lost = match output {
                Output::Stdout => io::stdout().write_all(line),
                Output::Stderr => io::stderr().write_all(line),
                Output::File(file) => file.write_line(line),
            };
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(file: Option<&str>, outputs: Option<&str>) -> (Vec<String>, usize) {
        let (log, problems) = open(|name| {
            let value = match name {
                ENV_FILE => file,
                _ => outputs,
            };
            value.map(str::to_owned)
        });
        let names = log.0.iter().map(|output| match output {
            Output::File(_) => "file".to_owned(),
            other => format!("{other:?}"),
        });
        (names.collect(), problems.len())
    }

    #[test]
    fn the_file_wins_over_the_list() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new/execd.log");
        let path = path.to_str().unwrap();
        let list = format!("stdout, {path},,stderr");
        let all = ["Stdout", "file", "Stderr"].map(str::to_owned).to_vec();
        assert_eq!(named(None, Some(&list)), (all, 0));
        assert_eq!(
            named(Some(path), Some("stdout")),
            (vec!["file".to_owned()], 0)
        );
        for nothing in [None, Some(""), Some(" , ")] {
            assert_eq!(named(None, nothing), (vec!["Stderr".to_owned()], 0));
        }
        assert_eq!(
            named(Some("/dev/null/x"), None),
            (vec!["Stderr".to_owned()], 1)
        );
    }

    #[test]
    fn a_line_goes_everywhere() {
        let place = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| place.path().join(name));
        let list = format!("{},{}", one.display(), two.display());
        let (mut log, _) = open(|name| (name == ENV_OUTPUTS).then(|| list.clone()));
        log.write_all(b"line\n").unwrap();
        for path in [one, two] {
            assert_eq!(std::fs::read(path).unwrap(), b"line\n");
        }
    }
}
