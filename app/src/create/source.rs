//! What a new sandbox is created from: an image, a snapshot of another one, or a template.

use osb_protocol::{Feature, FeatureSet};

/// The choice of an image.
pub(super) const IMAGE: &str = "image";
/// The choice of a snapshot.
pub(super) const SNAPSHOT: &str = "snapshot";
/// The choice of a template.
pub(super) const TEMPLATE: &str = "template";

/// The choice that a form means.
pub(super) fn meant(choice: &str) -> &'static str {
    match choice {
        SNAPSHOT => SNAPSHOT,
        TEMPLATE => TEMPLATE,
        _ => IMAGE,
    }
}

/// Values and words of the choices, with the feature that each takes.
const CHOICES: [(&str, &str, Option<Feature>); 3] = [
    (IMAGE, "Image", None),
    (SNAPSHOT, "Snapshot", Some(Feature::Snapshots)),
    (TEMPLATE, "Template", Some(Feature::Templates)),
];

/// Values and words of the choices on a runtime with these features. A form that has another choice keeps
/// it: the server says what is wrong with it.
pub(super) fn choices(
    features: FeatureSet,
    chosen: &str,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let is_offered = move |feature: Option<Feature>| feature.is_none_or(|it| features.contains(it));
    CHOICES
        .into_iter()
        .filter(move |(value, _, feature)| is_offered(*feature) || *value == chosen)
        .map(|(value, words, _)| (value, words))
}

/// What the address of the page names to create from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The id of a snapshot.
    Snapshot(String),
    /// The id of a template.
    Template(String),
}

impl Start {
    /// From the parameters of an address.
    pub(super) fn of_query(get: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let given = |name| get(name).filter(|id| !id.trim().is_empty());
        let snapshot = given(SNAPSHOT).map(Self::Snapshot);
        snapshot.or_else(|| given(TEMPLATE).map(Self::Template))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_one_source() {
        let start = |wanted: &'static str, id: &'static str| {
            Start::of_query(|name| (name == wanted).then(|| id.to_owned()))
        };
        assert_eq!(
            start("snapshot", "s"),
            Some(Start::Snapshot("s".to_owned()))
        );
        assert_eq!(
            start("template", "t"),
            Some(Start::Template("t".to_owned()))
        );
        assert_eq!(start("template", " "), None);
    }
}
