//! Finds the rule for a domain name in time that does not depend on the number of rules.

use std::collections::HashMap;

use osb_protocol::network_policy::Target;

/// Rules by the names that they cover. A look-up hashes each suffix of a name once.
#[derive(Debug, Default)]
pub struct NameIndex {
    names: HashMap<Box<str>, u32>,
    below: HashMap<Box<str>, u32>,
}

impl NameIndex {
    /// Index of targets by their position. Of equal targets the first one is kept: the first match
    /// decides (contract: egress §4.2).
    pub fn new<'a>(targets: impl IntoIterator<Item = &'a Target>) -> Self {
        let mut index = Self::default();
        for (position, target) in (0..).zip(targets) {
            let (map, name) = match target {
                Target::Name(name) => (&mut index.names, name),
                Target::Subdomains(name) => (&mut index.below, name),
                Target::Network(_) => continue,
            };
            map.entry(name.clone()).or_insert(position);
        }
        index
    }

    /// Position of the first target that covers a name. The name is in lower case and has no final
    /// dot.
    #[must_use]
    pub fn first(&self, name: &str) -> Option<usize> {
        let mut first = self.names.get(name).copied();
        if !self.below.is_empty() {
            let mut rest = name;
            while let Some((_, parent)) = rest.split_once('.') {
                let found = self.below.get(parent).copied();
                first = match (first, found) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
                rest = parent;
            }
        }
        first.map(|position| position as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index(targets: &[&str]) -> NameIndex {
        let targets: Vec<Target> = targets
            .iter()
            .map(|it| Target::parse(it).unwrap())
            .collect();
        NameIndex::new(&targets)
    }

    #[test]
    fn names_match_as_a_whole_and_wildcards_below() {
        let index = index(&["example.org", "*.example.org", "10.0.0.0/8"]);
        assert_eq!(index.first("example.org"), Some(0));
        assert_eq!(index.first("a.b.example.org"), Some(1));
        for other in ["notexample.org", "org", "", "example.org.evil", "10.0.0.0"] {
            assert_eq!(index.first(other), None, "{other}");
        }
    }

    #[test]
    fn the_first_match_decides_whether_exact_or_wildcard() {
        assert_eq!(index(&["*.a.b", "x.a.b"]).first("x.a.b"), Some(0));
        assert_eq!(index(&["x.a.b", "*.a.b"]).first("x.a.b"), Some(0));
        assert_eq!(index(&["*.b", "*.a.b", "*.b"]).first("x.a.b"), Some(0));
        assert_eq!(index(&["*.a.b", "*.b"]).first("x.a.b"), Some(0));
    }

    proptest! {
        /// The index finds what a walk over the list finds.
        #[test]
        fn it_equals_a_linear_search(
            targets in prop::collection::vec(r"(\*\.)?([ab]\.){0,3}[ab]", 0..12),
            name in r"([ab]\.){0,4}[ab]",
        ) {
            let parsed: Vec<Target> = targets.iter().map(|it| Target::parse(it).unwrap()).collect();
            let linear = parsed.iter().position(|target| match target {
                Target::Name(own) => **own == *name,
                Target::Subdomains(parent) => {
                    name.strip_suffix(&**parent).is_some_and(|rest| rest.ends_with('.'))
                }
                Target::Network(_) => false,
            });
            prop_assert_eq!(NameIndex::new(&parsed).first(&name), linear);
        }
    }
}
