//! The program `nft`, by the crate `nftables`, which waits for it without a limit and drops its
//! messages. The thread of the packet filter waits for both.

use std::time::{Duration, Instant};

use nftables::helper::{NftablesError, apply_ruleset_raw};

use crate::limits;

/// Program that applies whole rulesets and lists them.
const NFT: &str = "nft";
/// Runs a program (`$1`) with a time limit in seconds (`$0`), and with its messages in its output.
const BOUNDED: &str = r#"exec timeout --signal=KILL "$0" "$@" 2>&1"#;

/// Reason why `nft` did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// It cannot be run.
    #[error("cannot run nft")]
    Run(#[source] NftablesError),
    /// It refused the rules.
    #[error("nft failed: {0}")]
    Refused(String),
    /// It took too long and was killed. The change may have taken effect.
    #[error("nft did not end within {} s and was killed", .0.as_secs_f64())]
    Late(Duration),
}

/// Gives `nft` a document of commands as JSON, and returns its output. The caller blocks.
///
/// # Errors
/// See [`NftError`].
pub(super) fn nft(document: &str) -> Result<String, NftError> {
    run(NFT, document, limits::NFT)
}

fn run(program: &str, document: &str, limit: Duration) -> Result<String, NftError> {
    /// Characters of a message that are of use: it repeats the document.
    const SHOWN: usize = 300;
    let began = Instant::now();
    let seconds = limit.as_secs_f64().to_string();
    let ran = apply_ruleset_raw(
        document,
        Some("sh"),
        ["-c", BOUNDED, seconds.as_str(), program],
    );
    ran.map_err(|error| match error {
        _ if began.elapsed() >= limit => NftError::Late(limit),
        NftablesError::NftFailed { stdout, .. } => {
            NftError::Refused(stdout.trim().chars().take(SHOWN).collect())
        }
        other => NftError::Run(other),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// Only stops a hang.
    const LONG: Duration = Duration::from_secs(600);

    fn shell(script: &str, document: &str, limit: Duration) -> Result<String, NftError> {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("nft");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        run(program.to_str().unwrap(), document, limit)
    }

    #[test]
    fn a_program_gets_its_document_and_says_why_it_fails() {
        assert_eq!(
            shell("echo \"$@\"; cat", "rules", LONG).unwrap(),
            "-j -f -\nrules"
        );
        let refused = shell("cat >/dev/null; echo ' no such set ' >&2; exit 1", "", LONG);
        assert_eq!(refused.unwrap_err().to_string(), "nft failed: no such set");
        let missing = run("/no/such/program", "", LONG).unwrap_err().to_string();
        assert!(missing.contains("/no/such/program"), "{missing}");
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let late = shell("exec sleep 100000", "", Duration::from_millis(50));
        assert!(matches!(late, Err(NftError::Late(_))), "{late:?}");
    }
}
