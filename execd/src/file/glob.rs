//! Patterns for base names (contract: execd §10.6): `*`, `**`, `?`, `[…]`, `{a,b}`, backslash, and
//! `!(…)` around the whole. Matching takes time proportional to pattern and name.

use crate::limits;

/// Syntax error in a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad pattern: {0}")]
pub(super) struct BadPattern(&'static str);

/// Parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob {
    /// Matches if any of them does.
    alternatives: Vec<Vec<Token>>,
    negated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Char(char),
    Any,
    Star,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Glob {
    /// Parses a pattern; an empty one matches everything.
    pub(super) fn new(pattern: &str) -> Result<Self, BadPattern> {
        let whole = pattern
            .strip_prefix("!(")
            .and_then(|rest| rest.strip_suffix(')'));
        let negated = whole.is_some();
        let pattern = whole.unwrap_or(if pattern.is_empty() { "**" } else { pattern });
        // `**/` matches the empty list of directories before a base name.
        let mut rest = pattern;
        while let Some(inner) = rest.strip_prefix("**/") {
            rest = inner;
        }
        let chars: Vec<char> = rest.chars().collect();
        if chars.len() > limits::PATTERN {
            return Err(BadPattern("too long"));
        }
        let mut at = 0;
        let alternatives = sequence(&chars, &mut at, 0)?;
        if at == chars.len() {
            Ok(Self {
                alternatives,
                negated,
            })
        } else {
            Err(BadPattern("unexpected closing brace"))
        }
    }

    /// Whether a name matches.
    pub(super) fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let any = self
            .alternatives
            .iter()
            .any(|tokens| matches(tokens, &name));
        any != self.negated
    }
}

const TOO_LONG: BadPattern = BadPattern("too long with all its alternatives");

fn size(all: &[Vec<Token>]) -> usize {
    all.iter().map(Vec::len).sum()
}

/// Parses up to the end, or inside braces up to `,` or `}`. Braces multiply the alternatives.
fn sequence(chars: &[char], at: &mut usize, depth: usize) -> Result<Vec<Vec<Token>>, BadPattern> {
    let mut all: Vec<Vec<Token>> = vec![Vec::new()];
    // Number of tokens in all alternatives.
    let mut total = 0;
    while let Some(&char) = chars.get(*at) {
        let token = match char {
            ',' | '}' if depth > 0 => break,
            '{' => {
                let choices = braces(chars, at, depth)?;
                if all.len() * choices.len() > limits::ALTERNATIVES {
                    return Err(BadPattern("too many alternatives"));
                }
                total = total * choices.len() + size(&choices) * all.len();
                if total > limits::EXPANDED_PATTERN {
                    return Err(TOO_LONG);
                }
                all = all
                    .iter()
                    .flat_map(|head| choices.iter().map(|tail| [head.as_slice(), tail].concat()))
                    .collect();
                continue;
            }
            '}' => return Err(BadPattern("unexpected closing brace")),
            '*' => Token::Star,
            '?' => Token::Any,
            '[' => class(chars, at)?,
            '\\' => {
                *at += 1;
                Token::Char(
                    *chars
                        .get(*at)
                        .ok_or(BadPattern("nothing after backslash"))?,
                )
            }
            other => Token::Char(other),
        };
        *at += 1;
        total += all.len();
        if total > limits::EXPANDED_PATTERN {
            return Err(TOO_LONG);
        }
        for tokens in &mut all {
            if token != Token::Star || tokens.last() != Some(&Token::Star) {
                tokens.push(token.clone());
            }
        }
    }
    Ok(all)
}

/// Parses `{a,b}` from its opening brace to after its closing one.
fn braces(chars: &[char], at: &mut usize, depth: usize) -> Result<Vec<Vec<Token>>, BadPattern> {
    if depth > 16 {
        return Err(BadPattern("braces nested too deeply"));
    }
    let mut choices = Vec::new();
    loop {
        *at += 1;
        choices.extend(sequence(chars, at, depth + 1)?);
        if size(&choices) > limits::EXPANDED_PATTERN {
            return Err(TOO_LONG);
        }
        match chars.get(*at) {
            Some(',') => {}
            Some('}') => break,
            _ => return Err(BadPattern("missing closing brace")),
        }
        if choices.len() > limits::ALTERNATIVES {
            return Err(BadPattern("too many alternatives"));
        }
    }
    *at += 1;
    Ok(choices)
}

/// Parses `[…]` from its opening bracket to its closing one.
fn class(chars: &[char], at: &mut usize) -> Result<Token, BadPattern> {
    let mut next = || {
        *at += 1;
        chars
            .get(*at)
            .copied()
            .ok_or(BadPattern("missing closing bracket"))
    };
    let mut char = next()?;
    let negated = matches!(char, '!' | '^');
    if negated {
        char = next()?;
    }
    let mut ranges: Vec<(char, char)> = Vec::new();
    let mut open_range = false;
    loop {
        let literal = match char {
            ']' if !ranges.is_empty() && !open_range => {
                return Ok(Token::Class { negated, ranges });
            }
            ']' => return Err(BadPattern("empty class or range")),
            '-' if !ranges.is_empty() && !open_range => {
                open_range = true;
                char = next()?;
                continue;
            }
            '\\' => next()?,
            other => other,
        };
        if std::mem::take(&mut open_range) {
            let range = ranges.last_mut().expect("a range has a start");
            if literal < range.0 {
                return Err(BadPattern("range out of order"));
            }
            range.1 = literal;
        } else {
            ranges.push((literal, literal));
        }
        char = next()?;
    }
}

/// Matches stars greedily. On failure it retries only the last star, which is sufficient.
fn matches(tokens: &[Token], name: &[char]) -> bool {
    let (mut token, mut char) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while char < name.len() {
        let one = match tokens.get(token) {
            Some(Token::Star) => {
                star = Some((token + 1, char));
                token += 1;
                continue;
            }
            Some(Token::Char(wanted)) => *wanted == name[char],
            Some(Token::Any) => true,
            Some(Token::Class { negated, ranges }) => {
                let within = |(from, to): &(char, char)| (*from..=*to).contains(&name[char]);
                ranges.iter().any(within) != *negated
            }
            None => false,
        };
        if one {
            (token, char) = (token + 1, char + 1);
        } else if let Some((after, taken)) = star {
            star = Some((after, taken + 1));
            (token, char) = (after, taken + 1);
        } else {
            return false;
        }
    }
    tokens[token..].iter().all(|token| *token == Token::Star)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns() {
        for (pattern, yes, no) in [
            ("", vec!["", "a", ".x"], vec![]),
            ("**", vec!["a.b"], vec![]),
            ("*.rs", vec!["a.rs", ".rs"], vec!["a.rsx", "rs"]),
            ("**/x*", vec!["x", "xy"], vec!["ax"]),
            ("a?c", vec!["abc", "aéc"], vec!["ac", "abbc"]),
            ("[a-c]1", vec!["a1", "c1"], vec!["d1", "1"]),
            ("[!a-c]1", vec!["d1"], vec!["a1"]),
            ("[^ab]", vec!["c"], vec!["a", "b"]),
            (r"[\]a]", vec!["]", "a"], vec!["\\"]),
            (r"\*", vec!["*"], vec!["a"]),
            (
                "{a,b{c,d}*}.t",
                vec!["a.t", "bc.t", "bdx.t"],
                vec!["b.t", "ac.t"],
            ),
            ("{,a}b", vec!["b", "ab"], vec!["aab"]),
            ("!(*.txt)", vec!["a.rs"], vec!["a.txt"]),
            ("*a*b*", vec!["xaxxbx", "ab"], vec!["ba"]),
        ] {
            let glob = Glob::new(pattern).unwrap();
            assert!(yes.iter().all(|name| glob.matches(name)), "{pattern}");
            assert!(!no.iter().any(|name| glob.matches(name)), "{pattern}");
        }
    }

    #[test]
    fn bad_patterns() {
        let many = "{a,b}".repeat(20);
        let long = "a".repeat(limits::PATTERN + 1);
        let (tail, pairs) = ("a".repeat(80), "{a,b}".repeat(10));
        let (wide, wider) = (format!("{tail}{pairs}"), format!("{pairs}{tail}"));
        let bad = ["[", "[a", "[]", "[z-a]", "{a", "a}", "\\", "[a-]"];
        for bad in bad.into_iter().chain([&many[..], &long, &wide, &wider]) {
            assert!(Glob::new(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn escaped_names_match_themselves(name in "[a-z*?{}\\[\\]!,\\\\]{1,12}", other in "[a-z]{1,12}") {
            let escaped: String = name.chars().flat_map(|char| ['\\', char]).collect();
            let glob = Glob::new(&escaped).unwrap();
            prop_assert!(glob.matches(&name));
            prop_assert_eq!(glob.matches(&other), name == other);
        }

        #[test]
        fn nothing_panics(pattern in "[a*?{},!()\\[\\]\\\\-]{0,16}", name in "[a-c*]{0,8}") {
            if let Ok(glob) = Glob::new(&pattern) {
                glob.matches(&name);
            }
        }
    }
}
