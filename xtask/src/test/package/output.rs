//! What a program prints, also when it fails.

use std::process::Command;

use anyhow::{Result, bail};

use crate::{
    process::{Ended, QUERY_TIMEOUT, describe, watch},
    progress::Line,
};

/// Runs a program to its end; returns whether it succeeded, and its lines on both streams.
pub(super) fn of(command: &mut Command) -> Result<(bool, String)> {
    let mut text = String::new();
    let ended = watch(command, QUERY_TIMEOUT, &mut |line| match line {
        Line::Out(line) | Line::Err(line) | Line::Transient(line) => {
            text.push_str(line);
            text.push('\n');
        }
        Line::Idle => {}
    })?;
    match ended {
        Ended::Exited(status) => Ok((status.success(), text)),
        Ended::Killed => bail!("{} did not end in {QUERY_TIMEOUT:?}", describe(command)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_program_that_fails_is_kept() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo why >&2; exit 3"]);
        assert_eq!(of(&mut shell).unwrap(), (false, "why\n".to_owned()));
        let (succeeded, text) = of(Command::new("echo").arg("fine")).unwrap();
        assert!(succeeded && text == "fine\n", "{text}");
    }
}
