//! Licences of dependencies: expressions in the notation of SPDX, and which of them `deny.toml`
//! allows.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// A licence, or a choice or a combination of licences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    /// One licence, with its exception if it has one.
    One(String),
    /// All of them apply.
    And(Vec<Self>),
    /// The user chooses one.
    Or(Vec<Self>),
}

impl Expression {
    /// Parses an expression. Crates of before SPDX separate choices by a slash.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let spaced = text
            .replace('(', " ( ")
            .replace(')', " ) ")
            .replace('/', " OR ");
        let mut words = Words(spaced.split_whitespace().collect());
        let parsed = words.choice();
        let parsed = parsed.with_context(|| format!("{text:?} is no expression of SPDX"))?;
        match words.0.first() {
            None => Ok(parsed),
            Some(word) => bail!("{text:?} is no expression of SPDX: {word} is unexpected"),
        }
    }

    /// Writes the expression as SPDX does.
    pub(super) fn to_spdx(&self) -> String {
        match self {
            Self::One(licence) => licence.clone(),
            Self::And(all) => join(all, " AND "),
            Self::Or(all) => join(all, " OR "),
        }
    }

    /// The licences in it.
    pub(super) fn licences(&self) -> Vec<&str> {
        match self {
            Self::One(licence) => vec![licence],
            Self::And(all) | Self::Or(all) => all.iter().flat_map(Self::licences).collect(),
        }
    }

    /// Whether the terms can be met under these licences alone.
    fn is_met_by(&self, allowed: &BTreeSet<String>) -> bool {
        match self {
            Self::One(licence) => allowed.contains(licence),
            Self::And(all) => all.iter().all(|one| one.is_met_by(allowed)),
            Self::Or(all) => all.iter().any(|one| one.is_met_by(allowed)),
        }
    }
}

fn join(all: &[Expression], word: &str) -> String {
    let parts = all.iter().map(|part| match part {
        Expression::One(_) => part.to_spdx(),
        _ => format!("({})", part.to_spdx()),
    });
    parts.collect::<Vec<_>>().join(word)
}

/// Words that are not parsed yet.
struct Words<'a>(Vec<&'a str>);

impl Words<'_> {
    /// Takes the next word if it is this one.
    fn take(&mut self, word: &str) -> bool {
        let is_next = self.0.first() == Some(&word);
        if is_next {
            self.0.remove(0);
        }
        is_next
    }

    fn choice(&mut self) -> Result<Expression> {
        let mut all = vec![self.combination()?];
        while self.take("OR") {
            all.push(self.combination()?);
        }
        Ok(single(all).unwrap_or_else(Expression::Or))
    }

    fn combination(&mut self) -> Result<Expression> {
        let mut all = vec![self.operand()?];
        while self.take("AND") {
            all.push(self.operand()?);
        }
        Ok(single(all).unwrap_or_else(Expression::And))
    }

    fn operand(&mut self) -> Result<Expression> {
        if self.take("(") {
            let inner = self.choice()?;
            ensure!(self.take(")"), "a bracket is not closed");
            return Ok(inner);
        }
        let licence = self.name()?;
        Ok(Expression::One(match self.take("WITH") {
            true => format!("{licence} WITH {}", self.name()?),
            false => licence,
        }))
    }

    fn name(&mut self) -> Result<String> {
        const NO_NAMES: [&str; 5] = ["AND", "OR", "WITH", "(", ")"];
        match self.0.first() {
            Some(word) if !NO_NAMES.contains(word) => Ok(self.0.remove(0).to_owned()),
            Some(word) => bail!("{word} is unexpected"),
            None => bail!("a licence is missing"),
        }
    }
}

/// The only element, or all of them.
fn single(mut all: Vec<Expression>) -> Result<Expression, Vec<Expression>> {
    match (all.len(), all.pop()) {
        (1, Some(only)) => Ok(only),
        (_, last) => {
            all.extend(last);
            Err(all)
        }
    }
}

/// Which licences the parts of a release may have.
#[derive(Debug)]
pub(super) struct Policy(BTreeSet<String>);

#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

impl Policy {
    /// Reads the licences that `deny.toml` allows.
    pub(super) fn load(file: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        Self::parse(&text).with_context(|| format!("cannot parse {}", file.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let deny: Deny = toml::from_str(text)?;
        Ok(Self(deny.licenses.allow))
    }

    /// Whether a part with this licence may be shipped.
    pub(super) fn allows(&self, licence: &Expression) -> bool {
        licence.is_met_by(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIT_OR_APACHE: &str = "MIT OR Apache-2.0";

    fn spdx(text: &str) -> String {
        Expression::parse(text).unwrap().to_spdx()
    }

    #[test]
    fn expressions_are_written_as_spdx_does() {
        assert_eq!(spdx("MIT"), "MIT");
        assert_eq!(spdx("MIT/Apache-2.0"), MIT_OR_APACHE);
        assert_eq!(spdx("MIT / Apache-2.0"), MIT_OR_APACHE);
        assert_eq!(spdx("((MIT OR Apache-2.0))"), MIT_OR_APACHE);
        let exception = "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT";
        assert_eq!(spdx(exception), exception);
        let both = "(MIT OR Apache-2.0) AND Unicode-3.0";
        assert_eq!(spdx(both), both);
        // AND binds more closely than OR.
        assert_eq!(spdx("0BSD OR MIT AND ISC"), "0BSD OR (MIT AND ISC)");
        let parsed = Expression::parse(exception).unwrap();
        let licences = parsed.licences();
        assert_eq!(
            licences,
            ["Apache-2.0 WITH LLVM-exception", "Apache-2.0", "MIT"]
        );
    }

    #[test]
    fn a_text_that_is_no_expression_is_an_error() {
        for text in [
            "",
            "MIT OR",
            "AND MIT",
            "(MIT",
            "MIT)",
            "MIT Apache-2.0",
            "MIT WITH",
        ] {
            let error = Expression::parse(text).unwrap_err();
            assert!(format!("{error:#}").contains("no expression"), "{error:#}");
        }
    }

    #[test]
    fn what_is_shipped_can_meet_its_terms_under_allowed_licences() {
        let policy = Policy::parse("[licenses]\nallow = ['MIT', 'ISC']\n[bans]").unwrap();
        let allows = |text: &str| policy.allows(&Expression::parse(text).unwrap());
        for text in [
            "MIT",
            "GPL-3.0-only OR MIT",
            "MIT AND ISC",
            "MIT/Apache-2.0",
        ] {
            assert!(allows(text), "{text}");
        }
        let refused = [
            "Apache-2.0",
            "MIT AND GPL-3.0-only",
            "MIT WITH x",
            "(MIT OR ISC) AND Zlib",
        ];
        for text in refused {
            assert!(!allows(text), "{text}");
        }
        assert!(Policy::parse("[bans]").is_err());
    }

    #[test]
    fn the_policy_of_this_repository_is_read() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deny.toml");
        let policy = Policy::load(&file).unwrap();
        assert!(policy.allows(&Expression::parse("Apache-2.0").unwrap()));
        assert!(!policy.allows(&Expression::parse("GPL-3.0-only").unwrap()));
    }
}
