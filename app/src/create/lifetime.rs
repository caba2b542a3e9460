//! How long a sandbox is to live: offered times, another one as typed, or without an end.

use super::words;

/// Offered times, in seconds and in words.
const OFFERED: [(i64, &str); 8] = [
    (600, "10 minutes"),
    (1_800, "30 minutes"),
    (3_600, "1 hour"),
    (14_400, "4 hours"),
    (43_200, "12 hours"),
    (86_400, "1 day"),
    (604_800, "7 days"),
    (2_592_000, "30 days"),
];
/// Time that a new form has, if sandboxes may live so long.
const USUAL: i64 = 1_800;
/// Choice without an end.
pub(super) const MANUAL: &str = "manual";
/// Choice of a time that is typed.
pub(super) const OTHER: &str = "other";

/// Values and words of the choices, none longer than `most` seconds.
pub(super) fn choices(most: Option<i64>) -> impl Iterator<Item = (String, &'static str)> {
    let fits = move |(seconds, _): &(i64, _)| most.is_none_or(|most| *seconds <= most);
    let offered = OFFERED.into_iter().filter(fits);
    let rest = [(MANUAL, "Until it is deleted"), (OTHER, "Another time …")];
    offered
        .map(|(seconds, words)| (seconds.to_string(), words))
        .chain(rest.map(|(value, words)| (value.to_owned(), words)))
}

/// Choice of a new form where no sandbox lives longer than `most` seconds.
pub(super) fn usual(most: Option<i64>) -> String {
    let most = most.unwrap_or(USUAL).min(USUAL);
    let offered = OFFERED.into_iter().rev().map(|(seconds, _)| seconds);
    let mut fitting = offered.filter(|seconds| *seconds <= most);
    fitting.next().unwrap_or(most).to_string()
}

/// Choice and typed time that mean this many seconds; `None` is no end.
pub(super) fn of_seconds(seconds: Option<i64>) -> (String, String) {
    match seconds {
        None => (MANUAL.to_owned(), String::new()),
        Some(seconds) if OFFERED.iter().any(|(offered, _)| *offered == seconds) => {
            (seconds.to_string(), String::new())
        }
        Some(seconds) => (OTHER.to_owned(), format!("{seconds}s")),
    }
}

/// Seconds that a choice and a typed time mean; `None` is no end. What is typed comes first: without
/// script, a user may type a time and leave the choice as it is.
///
/// # Errors
/// What to do, in words.
pub(super) fn seconds(choice: &str, typed: &str) -> Result<Option<i64>, &'static str> {
    const UNREADABLE: &str = "Write a duration such as 90s, 30m, 2h or 1d.";
    if !typed.trim().is_empty() {
        return words::seconds(typed).map(Some).ok_or(UNREADABLE);
    }
    match choice {
        MANUAL => Ok(None),
        OTHER => Err(UNREADABLE),
        offered => match offered.parse() {
            Ok(seconds) => Ok(Some(seconds)),
            Err(_) => Err("Choose a time from the list."),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_comes_before_what_is_chosen() {
        assert_eq!(seconds("1800", ""), Ok(Some(1_800)));
        assert_eq!(seconds("1800", " 2h "), Ok(Some(7_200)));
        assert_eq!(seconds(MANUAL, " "), Ok(None));
        assert_eq!(seconds(MANUAL, "5m"), Ok(Some(300)));
        for (choice, typed) in [(OTHER, ""), (OTHER, "soon"), ("1800", "soon"), ("x", "")] {
            assert!(seconds(choice, typed).is_err(), "{choice} {typed}");
        }
    }

    #[test]
    fn no_choice_is_longer_than_sandboxes_may_live() {
        let values = |most| choices(most).map(|(value, _)| value).collect::<Vec<_>>();
        assert_eq!(values(Some(3_600)), ["600", "1800", "3600", MANUAL, OTHER]);
        assert_eq!(values(None).len(), OFFERED.len() + 2);
        assert_eq!(usual(None), "1800");
        assert_eq!(usual(Some(86_400)), "1800");
        assert_eq!(usual(Some(700)), "600");
        assert_eq!(usual(Some(60)), "60", "shorter than each");
    }

    #[test]
    fn a_time_is_chosen_or_typed() {
        for known in [None, Some(600), Some(601), Some(86_400)] {
            let (choice, typed) = of_seconds(known);
            assert_eq!(seconds(&choice, &typed), Ok(known), "{choice} {typed}");
        }
    }
}
