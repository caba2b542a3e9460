//! Reads the words of a filter.

use super::{
    pattern::Pattern,
    term::{Order, Term, Test},
    words::Word,
};

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

/// What a word asks for.
pub(super) fn term(word: &Word) -> Result<Term, String> {
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

#[cfg(test)]
mod tests {
    use super::super::{
        Filter,
        sample::{NOW, sample},
    };

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
    fn a_quote_that_is_not_closed_reaches_to_the_end_and_is_named() {
        for (text, word, fits) in [
            ("python \"crawler one", "\"crawler one", true),
            ("python \"crawler two", "\"crawler two", false),
            ("state:running name:\"crawler o", "name:\"crawler o", true),
            ("-name:\"crawler o", "-name:\"crawler o", false),
            ("\"", "\"", true),
        ] {
            let filter = Filter::parse(text);
            let [problem] = filter.problems() else {
                panic!("{text}: {:?}", filter.problems());
            };
            assert_eq!(problem.word, word);
            assert!(problem.why.contains("not closed"), "{}", problem.why);
            assert_eq!(filter.matches(&sample(), NOW), fits, "{text}");
        }
        // One that is left out as well is named once.
        assert_eq!(Filter::parse("colour:\"red").problems().len(), 1);
    }
}
