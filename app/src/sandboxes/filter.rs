//! The query language of the filter: `state:running image:python* ttl<10m -label.team=a word`.
//!
//! Every word has to match. A word that is not understood is left out and reported.

use osb_protocol::{WireTime, lifecycle::SandboxState};

use crate::view::{self, SandboxRow};

/// States that `state:` may name.
const STATES: [&str; 13] = [
    "pending",
    "running",
    "pausing",
    "paused",
    "resuming",
    "stopping",
    "terminated",
    "failed",
    "unknown",
    "deleted",
    "expired",
    "abandoned",
    "vanished",
];

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

/// A word that was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The word as it was typed.
    pub word: String,
    /// What is wrong with it.
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    negated: bool,
    test: Test,
}

/// Texts are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Anywhere(String),
    /// Any of these.
    State(Vec<Pattern>),
    Image(Pattern),
    Id(Pattern),
    Name(Pattern),
    Tenant(Pattern),
    Reason(Pattern),
    /// Exactly this code; empty for none.
    Code(String),
    HasLabel(Pattern),
    Label(String, Pattern),
    NoExpiry,
    Left(Order, i64),
    Age(Order, i64),
    Changed(Order, i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Is(String),
    Begins(String),
    Contains(String),
    /// With `*` for any text.
    Glob(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Below,
    Above,
    AtMost,
    AtLeast,
}

impl Order {
    fn holds(self, value: i64, bound: i64) -> bool {
        match self {
            Self::Below => value < bound,
            Self::Above => value > bound,
            Self::AtMost => value <= bound,
            Self::AtLeast => value >= bound,
        }
    }
}

impl Pattern {
    /// `otherwise` is how a value without `*` is compared.
    fn of(value: &str, otherwise: fn(String) -> Self) -> Self {
        let value = value.to_lowercase();
        match value.contains('*') {
            true => Self::Glob(value),
            false => otherwise(value),
        }
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Is(value) => text.to_lowercase() == *value,
            Self::Begins(value) => text.to_lowercase().starts_with(value.as_str()),
            Self::Contains(value) => contains(text, value),
            Self::Glob(value) => glob(value.as_bytes(), text.to_lowercase().as_bytes()),
        }
    }
}

/// Whether a text contains a word, which is in lower case.
fn contains(text: &str, word: &str) -> bool {
    if !text.is_ascii() || !word.is_ascii() {
        return text.to_lowercase().contains(word);
    }
    // Rows are compared often, so without a copy of the text.
    word.is_empty()
        || text
            .as_bytes()
            .windows(word.len())
            .any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether the whole text has this form. Takes time in proportion to the product of the lengths at
/// most.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // After the last `*`: where the pattern goes on, and how far the `*` reaches.
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, read));
            at += 1;
        } else if pattern.get(at) == Some(&text[read]) {
            at += 1;
            read += 1;
        } else if let Some((after, reached)) = star {
            star = Some((after, reached + 1));
            at = after;
            read = reached + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

impl Filter {
    /// Reads a filter. Never fails: what is not understood is in [`Self::problems`].
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut filter = Self::default();
        for word in words(text) {
            match term(&word) {
                Ok(term) => filter.terms.push(term),
                Err(why) => filter.problems.push(Problem {
                    word: word.raw,
                    why,
                }),
            }
        }
        filter
    }

    /// The words that were not understood.
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

impl Test {
    fn holds(&self, row: &SandboxRow, now_ms: i64) -> bool {
        let sandbox = &row.sandbox;
        let status = &sandbox.status;
        let labels = &sandbox.metadata;
        let outcome = row.ended.map_or("", |ended| ended.outcome.word());
        let seconds = |at: WireTime| (at.unix_ms() - now_ms) / 1_000;
        match self {
            Self::Anywhere(word) => {
                contains(sandbox.id.as_str(), word)
                    || contains(row.origin(), word)
                    || contains(row.state_word(), word)
                    || labels
                        .iter()
                        .any(|(key, value)| contains(key, word) || contains(value, word))
            }
            Self::State(any) => any.iter().any(|it| it.matches(row.state_word())),
            Self::Image(pattern) => pattern.matches(row.origin()),
            Self::Id(pattern) => pattern.matches(sandbox.id.as_str()),
            Self::Name(pattern) => pattern.matches(view::title(sandbox)),
            Self::Tenant(pattern) => pattern.matches(row.tenant.as_deref().unwrap_or("none")),
            Self::Reason(pattern) => {
                pattern.matches(status.reason.as_deref().unwrap_or_default())
                    || pattern.matches(status.message.as_deref().unwrap_or_default())
                    || pattern.matches(outcome)
            }
            Self::Code(code) => {
                let reason = status.reason.as_deref().unwrap_or_default();
                reason.to_lowercase() == *code
            }
            Self::HasLabel(pattern) => labels.keys().any(|key| pattern.matches(key)),
            Self::Label(name, pattern) => labels
                .iter()
                .any(|(key, value)| key.to_lowercase() == *name && pattern.matches(value)),
            Self::NoExpiry => sandbox.expires_at.is_none(),
            Self::Left(order, bound) => {
                let left = sandbox.expires_at.map_or(i64::MAX, seconds);
                row.ended.is_none() && order.holds(left, *bound)
            }
            Self::Age(order, bound) => order.holds(-seconds(sandbox.created_at), *bound),
            Self::Changed(order, bound) => order.holds(-seconds(row.changed_at()), *bound),
        }
    }
}

/// A word of the filter.
struct Word {
    /// As it was typed.
    raw: String,
    /// Without its quotes.
    text: String,
    /// Whether it begins with a quote, and so names no field.
    is_quoted: bool,
}

/// Splits at spaces outside of quotes. A quote that is not closed reaches to the end.
fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut inside = false;
    for char in text.chars() {
        if char.is_whitespace() && !inside {
            words.extend(word.take());
            continue;
        }
        let current = word.get_or_insert_with(|| Word {
            raw: String::new(),
            text: String::new(),
            is_quoted: char == '"',
        });
        current.raw.push(char);
        match char {
            '"' => inside = !inside,
            other => current.text.push(other),
        }
    }
    words.extend(word);
    words
}

fn term(word: &Word) -> Result<Term, String> {
    if word.is_quoted {
        return Ok(Term {
            negated: false,
            test: Test::Anywhere(word.text.to_lowercase()),
        });
    }
    let (negated, text) = match word.text.strip_prefix('-') {
        Some(rest) if !rest.is_empty() => (true, rest),
        _ => (false, word.text.as_str()),
    };
    Ok(Term {
        negated,
        test: test(text)?,
    })
}

fn test(text: &str) -> Result<Test, String> {
    // Without a name in front of the operator, it is a text like any other.
    let Some(at) = text.find([':', '=', '<', '>']).filter(|at| *at > 0) else {
        return Ok(Test::Anywhere(text.to_lowercase()));
    };
    let (name, rest) = text.split_at(at);
    let field = name.to_lowercase();
    let (operator, value) = match rest.strip_prefix(['<', '>']) {
        Some(value) if value.starts_with('=') => rest.split_at(2),
        _ => rest.split_at(1),
    };
    if value.is_empty() {
        return Err("a value is missing".to_owned());
    }
    if let (Some(key), ":" | "=") = (field.strip_prefix("label."), operator) {
        return label(key, value);
    }
    match (field.as_str(), operator) {
        ("state", ":" | "=") => state(value),
        ("image", ":" | "=") => Ok(Test::Image(Pattern::of(value, Pattern::Contains))),
        ("id", ":" | "=") => Ok(Test::Id(Pattern::of(value, Pattern::Begins))),
        ("name", ":" | "=") => Ok(Test::Name(Pattern::of(value, Pattern::Contains))),
        ("tenant", ":" | "=") => Ok(Test::Tenant(Pattern::of(value, Pattern::Is))),
        ("reason", "=") => Ok(Test::Code(match value.to_lowercase() {
            none if none == "none" => String::new(),
            code => code,
        })),
        ("reason", ":") => Ok(Test::Reason(Pattern::of(value, Pattern::Contains))),
        ("label", ":" | "=") => match value.split_once('=') {
            Some((key, value)) => label(key, value),
            None => Ok(Test::HasLabel(Pattern::of(value, Pattern::Is))),
        },
        ("ttl", ":" | "=") if value.eq_ignore_ascii_case("none") => Ok(Test::NoExpiry),
        ("ttl", _) => Ok(Test::Left(order(operator)?, seconds(value)?)),
        ("age", _) => Ok(Test::Age(order(operator)?, seconds(value)?)),
        ("changed", _) => Ok(Test::Changed(order(operator)?, seconds(value)?)),
        // A label may also be given as it is shown.
        (_, "=") => Ok(Test::Label(field, Pattern::of(value, Pattern::Contains))),
        _ => Err([
            "there is no field ",
            name,
            "; put a word with a colon in quotes",
        ]
        .concat()),
    }
}

fn label(key: &str, value: &str) -> Result<Test, String> {
    if key.is_empty() || value.is_empty() {
        return Err("write label.key=value".to_owned());
    }
    Ok(Test::Label(
        key.to_lowercase(),
        Pattern::of(value, Pattern::Is),
    ))
}

/// States with commas between them. The beginning of one is enough, so that typing it shows no problem
/// in between; for the same reason a comma may be the last character.
fn state(value: &str) -> Result<Test, String> {
    let mut any = Vec::new();
    for word in value.split(',').filter(|word| !word.is_empty()) {
        let pattern = Pattern::of(word, Pattern::Begins);
        if !STATES.iter().any(|state| pattern.matches(state)) {
            return Err(["there is no state ", word].concat());
        }
        any.push(pattern);
    }
    match any.is_empty() {
        true => Err("a value is missing".to_owned()),
        false => Ok(Test::State(any)),
    }
}

fn order(operator: &str) -> Result<Order, String> {
    match operator {
        "<" => Ok(Order::Below),
        ">" => Ok(Order::Above),
        "<=" => Ok(Order::AtMost),
        ">=" => Ok(Order::AtLeast),
        _ => Err("compare a time with < or >".to_owned()),
    }
}

/// Seconds of `90s`, `10m`, `1h30m`, `2d`.
fn seconds(text: &str) -> Result<i64, String> {
    let unreadable = || [text, " is no time; write 30s, 10m, 2h or 1d"].concat();
    let mut total = 0_i64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|char: char| !char.is_ascii_digit());
        let (number, after) = rest.split_at(digits.ok_or_else(unreadable)?);
        let letters = after.find(|char: char| char.is_ascii_digit());
        let (unit, next) = after.split_at(letters.unwrap_or(after.len()));
        let unit = match unit.to_lowercase().as_str() {
            "s" => 1,
            "m" | "min" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return Err(unreadable()),
        };
        let number: i64 = number.parse().map_err(|_| unreadable())?;
        let part = number.checked_mul(unit).ok_or_else(unreadable)?;
        total = total.checked_add(part).ok_or_else(unreadable)?;
        rest = next;
    }
    Ok(total)
}

impl SandboxRow {
    /// When its state changed last, or it ended.
    fn changed_at(&self) -> WireTime {
        let sandbox = &self.sandbox;
        let changed = sandbox.status.last_transition_at;
        let ended = self.ended.map(|ended| ended.at);
        ended.or(changed).unwrap_or(sandbox.created_at)
    }

    /// How it ended, else its state.
    #[must_use]
    pub fn state_word(&self) -> &str {
        match (&self.ended, &self.sandbox.status.state) {
            (Some(ended), _) => ended.outcome.word(),
            (None, state) => SandboxState::as_str(state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ui::sample::row,
        view::{Ended, Outcome},
    };

    const NOW: i64 = 10_000_000;

    fn at(seconds: i64) -> WireTime {
        WireTime::from_unix_ms(NOW + seconds * 1_000).unwrap()
    }

    fn sample() -> SandboxRow {
        let mut row = row("0b6c1f2e-aaaa", "Running");
        let sandbox = &mut row.sandbox;
        for (key, value) in [("team", "Search"), ("name", "Crawler One")] {
            sandbox.metadata.insert(key.to_owned(), value.to_owned());
        }
        sandbox.image.as_mut().unwrap().uri = "registry:5000/python:3.12".to_owned();
        sandbox.status.reason = Some("CONTAINER_RUNNING".to_owned());
        sandbox.status.message = Some("Its memory limit was reached (OOM).".to_owned());
        sandbox.expires_at = Some(at(300));
        sandbox.created_at = at(-7_200);
        row.tenant = Some("One".to_owned());
        row
    }

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
            "crawler \"one",
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

    #[test]
    fn what_is_not_understood_is_named_and_left_out() {
        for (word, why) in [
            ("foo:bar", "no field foo"),
            ("debian:12", "in quotes"),
            ("foo<3", "no field foo"),
            ("state:", "value is missing"),
            ("ttl<", "value is missing"),
            ("ttl<=", "value is missing"),
            ("state:runing", "no state runing"),
            ("state:paused,runing", "no state runing"),
            ("state:,", "value is missing"),
            ("changed:1h", "< or >"),
            ("ttl<10x", "10x is no time"),
            ("ttl<10", "10 is no time"),
            ("ttl<m", "m is no time"),
            ("age>99999999999999999999d", "is no time"),
            ("age>9223372036854775807d", "is no time"),
            ("age:1h", "< or >"),
            ("label.=x", "label.key=value"),
        ] {
            let filter = Filter::parse(&["crawler ", word, " python"].concat());
            let [problem] = filter.problems() else {
                panic!("{word}: {:?}", filter.problems());
            };
            assert_eq!(problem.word, word);
            assert!(problem.why.contains(why), "{word}: {}", problem.why);
            assert!(filter.matches(&sample(), NOW), "{word}: the rest applies");
        }
    }

    #[test]
    fn globs_match_whole_texts() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*b*c", "aXcYb", false),
            ("a*b*c", "axbyc", true),
            ("a**c", "ac", true),
            ("*b", "abc", false),
            ("ab", "abc", false),
            ("*ab*ab*", "abaab", true),
        ] {
            assert_eq!(
                glob(pattern.as_bytes(), text.as_bytes()),
                fits,
                "{pattern} {text}"
            );
        }
        // Exponential in a naive search.
        let text = "a".repeat(5_000);
        assert!(!glob(
            "*a".repeat(50).as_bytes(),
            [&text, "b"].concat().as_bytes()
        ));
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
