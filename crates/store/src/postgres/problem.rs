//! Errors of PostgreSQL as problems of the store.

use crate::Problem;

/// What keeps the store from working for now; `None` for any other failure.
pub(super) fn problem(error: &sqlx::Error) -> Option<Problem> {
    match error {
        sqlx::Error::Database(error) => of_state(&error.code()?),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => Some(Problem::Unreachable),
        _ => None,
    }
}

/// The problem that an SQLSTATE stands for.
fn of_state(code: &str) -> Option<Problem> {
    match code {
        "53100" => return Some(Problem::Full),
        // Lock not available, serialization failure, deadlock.
        "55P03" | "40001" | "40P01" => return Some(Problem::Locked),
        // Read-only transaction, as on a standby or a full disk that an operator protects.
        "25006" => return Some(Problem::ReadOnly),
        "58030" => return Some(Problem::Disk),
        // Undefined table or schema: someone dropped it.
        "42P01" | "3F000" => return Some(Problem::Replaced),
        // Ended for being idle in a transaction for too long.
        "25P03" => return Some(Problem::Unreachable),
        _ => {}
    }
    match code.get(..2)? {
        // Connection exceptions, wrong credentials or database, no resources, and operator
        // intervention: shutdown, start-up, statement timeout.
        "08" | "28" | "3D" | "53" | "57" => Some(Problem::Unreachable),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_problems_or_defects() {
        for (code, want) in [
            ("53100", Some(Problem::Full)),
            ("53300", Some(Problem::Unreachable)),
            ("57P01", Some(Problem::Unreachable)),
            ("57014", Some(Problem::Unreachable)),
            ("55P03", Some(Problem::Locked)),
            ("25006", Some(Problem::ReadOnly)),
            ("42P01", Some(Problem::Replaced)),
            ("23505", None),
            ("42601", None),
            ("?", None),
        ] {
            assert_eq!(of_state(code), want, "{code}");
        }
    }
}
