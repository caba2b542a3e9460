//! The query language of the filter: `state:running image:python* ttl<10m -label.team=a word`.
//!
//! Every word has to match. A word that is not understood is left out and reported; a quote that is not
//! closed is reported, too.

mod parse;
mod pattern;
#[cfg(test)]
mod sample;
mod term;
mod words;

use self::term::{Term, Test};
use crate::view::SandboxRow;

/// What the help says: examples of each field.
pub(super) const SYNTAX: [(&str, &str); 12] = [
    ("word", "anywhere in name, id, image, state or labels"),
    ("\"two words\"", "a text with spaces or colons"),
    (
        "state:running",
        "a state, or how it ended: deleted, expired, failed …; several with commas",
    ),
    ("image:python*", "an image; * stands for anything"),
    ("name:search", "part of the title"),
    ("id:0b6c", "beginning of the id"),
    ("tenant:a", "of this tenant; tenant:none for no tenant"),
    (
        "label.team=a",
        "a label with this value; label:team for any value",
    ),
    (
        "reason:oom",
        "part of the reason or message of the state; reason=CODE for exactly this code, reason=none for none",
    ),
    (
        "ttl<10m age>1h",
        "time left, and age, in s, m, h or d; ttl:none for no expiry",
    ),
    (
        "changed<24h",
        "time since the state changed, or since the end",
    ),
    ("-state:paused", "all but these"),
];

/// A filter as it was understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    terms: Vec<Term>,
    problems: Vec<Problem>,
}

/// A word that was not understood, or perhaps not as it is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The word as it was typed.
    pub word: String,
    /// What becomes of it, and what is wrong with it.
    pub why: String,
}

impl Filter {
    /// Reads a filter. Never fails: what is not understood is in [`Self::problems`].
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut filter = Self::default();
        for word in words::words(text) {
            let why = match parse::term(&word) {
                Ok(term) => {
                    filter.terms.push(term);
                    // It is typed from left to right: the rows follow it all the same.
                    let open = "is read to its end: a quote is not closed";
                    word.is_open.then(|| open.to_owned())
                }
                Err(why) => Some(["is left out: ", &why].concat()),
            };
            filter.problems.extend(why.map(|why| Problem {
                word: word.raw,
                why,
            }));
        }
        filter
    }

    /// The words that were not understood, or perhaps not as they are meant.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Whether every sandbox matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether the passing of time changes what matches.
    #[must_use]
    pub fn depends_on_time(&self) -> bool {
        let is_timed = |term: &Term| {
            matches!(
                term.test,
                Test::Left(..) | Test::Age(..) | Test::Changed(..)
            )
        };
        self.terms.iter().any(is_timed)
    }

    /// Whether a row matches, at this moment in Unix milliseconds.
    #[must_use]
    pub fn matches(&self, row: &SandboxRow, now_ms: i64) -> bool {
        let holds = |term: &Term| term.test.holds(row, now_ms) != term.negated;
        self.terms.iter().all(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        sample::{NOW, at, sample},
        *,
    };
    use crate::view::{Ended, Outcome};

    fn matches(text: &str) -> bool {
        let filter = Filter::parse(text);
        assert_eq!(filter.problems(), [], "{text}");
        filter.matches(&sample(), NOW)
    }

    #[test]
    fn every_word_has_to_match() {
        for text in [
            "",
            "  ",
            "0B6C",
            "crawler python search RUNNING",
            "\"crawler one\"",
            "\"python:3.12\"",
            "state:running",
            "state:run",
            "state:R*g",
            "image:python",
            "image:*python:3*",
            "id:0b6c",
            "name:crawler",
            "name:\"crawler one\"",
            "label.team=search",
            "label.TEAM=sea*",
            "label:team",
            "label:team=search",
            "team=sea",
            "reason:oom",
            "reason:container_running",
            "reason=container_running",
            "state:paused,run",
            "state:running,",
            "changed<3h",
            "tenant:one",
            "tenant:o*",
            "-changed<1h",
            "ttl<10m",
            "ttl<=5m",
            "ttl>=300s",
            "ttl>4m59s",
            "age>1h",
            "age<2h1m",
            "-state:paused",
            "-label.team=a",
            "state:running image:*python* ttl<10m age>1h label.team=search reason:oom id:0b6c",
        ] {
            assert!(matches(text), "{text}");
        }
        for text in [
            "nothing",
            "crawler nothing",
            "state:paused",
            "image:python*",
            "id:b6c",
            "label.team=sea",
            "label.tea=search",
            "team=x",
            "ttl:none",
            "ttl<5m",
            "ttl>1h",
            "age<1h",
            "-python",
            "-state:running",
            "reason:pull",
            "reason=container",
            "reason=oom",
            "reason=none",
            "tenant:none",
            "tenant:on",
            "state:paused,failed",
            "-state:paused,running",
            "changed<1h",
            "<script>",
        ] {
            assert!(!matches(text), "{text}");
        }
    }

    #[test]
    fn a_sandbox_without_expiry_has_more_time_left_than_any() {
        let mut row = sample();
        row.sandbox.expires_at = None;
        let matches = |text| Filter::parse(text).matches(&row, NOW);
        assert!(matches("ttl:none") && matches("ttl>1000d") && !matches("ttl<1000d"));
    }

    #[test]
    fn an_ended_sandbox_is_found_by_how_it_ended() {
        let mut row = sample();
        row.ended = Some(Ended {
            outcome: Outcome::Expired,
            at: at(-60),
        });
        let matches = |text| Filter::parse(text).matches(&row, NOW);
        assert!(matches("state:expired") && matches("expired") && matches("reason:expired"));
        assert!(!matches("state:running") && !matches("ttl<10m") && !matches("ttl>1s"));
        assert!(matches("changed<2m state:failed,expired") && !matches("changed<60s"));
        row.sandbox.status.reason = None;
        row.tenant = None;
        assert!(Filter::parse("tenant:none").matches(&row, NOW));
        assert!(Filter::parse("reason=none").matches(&row, NOW));
    }

    /// A fixed sequence of pseudo-random texts over the characters that mean something.
    #[test]
    fn no_text_makes_it_panic() {
        const PARTS: [&str; 26] = [
            "state",
            "image",
            "id",
            "label",
            "ttl",
            "age",
            "reason",
            "name",
            ":",
            "=",
            "<",
            ">",
            "<=",
            "*",
            "\"",
            " ",
            "-",
            ".",
            "10",
            "m",
            "h",
            "9223372036854775807",
            "ü",
            "\u{0}",
            "\u{1f4a5}",
            "none",
        ];
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed % below as u64).unwrap()
        };
        let row = sample();
        let mut understood = 0;
        for _ in 0..20_000 {
            let text: String = (0..random(9)).map(|_| PARTS[random(PARTS.len())]).collect();
            let filter = Filter::parse(&text);
            let _ = filter.matches(&row, NOW);
            understood += usize::from(filter.problems().is_empty());
            for problem in filter.problems() {
                assert!(
                    text.contains(&problem.word) && !problem.why.is_empty(),
                    "{text:?}"
                );
            }
        }
        assert!((1_000..20_000).contains(&understood), "{understood}");
    }
}
