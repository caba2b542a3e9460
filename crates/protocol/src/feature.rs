//! Optional features of runtimes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A part of the API that some runtimes lack. Validation, the answers of routes, the console and the
/// notes in the `OpenAPI` document all follow from the features that a runtime has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// Freezing a sandbox and thawing it (contract: lifecycle §5.7).
    Pause,
    /// Storing a sandbox's file system and creating others from it (contract: lifecycle §9).
    Snapshots,
    /// Sandboxes that are started before they are needed (contract: lifecycle §10).
    Pools,
    /// Sandboxes from templates (contract: lifecycle §A3).
    Templates,
    /// Limits on the destinations of a sandbox's connections.
    NetworkPolicy,
    /// Host directories and volumes in a sandbox.
    Volumes,
    /// Commands that run at start and stop, given in a create.
    LifecycleHooks,
    /// Endpoints that need a token of their own.
    SecureAccess,
    /// Endpoints whose addresses are signed and expire (contract: lifecycle §21).
    SignedEndpoints,
    /// Logs, events and settings of one sandbox (contract: lifecycle §11).
    Diagnostics,
    /// Sandboxes that run Windows.
    Windows,
}

impl Feature {
    /// All features.
    pub const ALL: [Self; 11] = [
        Self::Pause,
        Self::Snapshots,
        Self::Pools,
        Self::Templates,
        Self::NetworkPolicy,
        Self::Volumes,
        Self::LifecycleHooks,
        Self::SecureAccess,
        Self::SignedEndpoints,
        Self::Diagnostics,
        Self::Windows,
    ];

    /// The feature in words: a plural, to go before "are not available".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause and resume",
            Self::Snapshots => "snapshots",
            Self::Pools => "pools",
            Self::Templates => "templates",
            Self::NetworkPolicy => "network policies",
            Self::Volumes => "volumes",
            Self::LifecycleHooks => "lifecycle hooks",
            Self::SecureAccess => "secured endpoints",
            Self::SignedEndpoints => "signed endpoints",
            Self::Diagnostics => "diagnostics",
            Self::Windows => "Windows sandboxes",
        }
    }

    /// Path of the field of a create request that asks for it; `None` where a create cannot.
    #[must_use]
    pub fn field(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Snapshots => Some(&["snapshotId"]),
            Self::Pools => Some(&["extensions", "poolRef"]),
            Self::Templates => Some(&["templateId"]),
            Self::NetworkPolicy => Some(&["networkPolicy"]),
            Self::Volumes => Some(&["volumes"]),
            Self::LifecycleHooks => Some(&["lifecycle"]),
            Self::SecureAccess => Some(&["secureAccess"]),
            Self::Windows => Some(&["platform", "os"]),
            Self::Pause | Self::SignedEndpoints | Self::Diagnostics => None,
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of features, in the order of [`Feature::ALL`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Feature>", into = "Vec<Feature>")]
pub struct FeatureSet(u32);

impl FeatureSet {
    /// No feature.
    pub const EMPTY: Self = Self(0);

    /// Whether the set has the feature.
    #[must_use]
    pub fn contains(self, feature: Feature) -> bool {
        self.0 & bit(feature) != 0
    }

    /// Returns the set with one more feature.
    #[must_use]
    pub fn with(self, feature: Feature) -> Self {
        Self(self.0 | bit(feature))
    }

    /// Returns the features in the set.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL
            .into_iter()
            .filter(move |it| self.contains(*it))
    }

    /// Returns the features that are not in the set.
    pub fn missing(self) -> impl Iterator<Item = Feature> {
        Feature::ALL
            .into_iter()
            .filter(move |it| !self.contains(*it))
    }
}

fn bit(feature: Feature) -> u32 {
    1 << feature as u32
}

impl fmt::Debug for FeatureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<Feature> for FeatureSet {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Self {
        features.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl From<Vec<Feature>> for FeatureSet {
    fn from(features: Vec<Feature>) -> Self {
        features.into_iter().collect()
    }
}

impl From<FeatureSet> for Vec<Feature> {
    fn from(set: FeatureSet) -> Self {
        set.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let set = FeatureSet::EMPTY.with(Feature::Pools).with(Feature::Pause);
        assert_eq!(
            set.iter().collect::<Vec<_>>(),
            [Feature::Pause, Feature::Pools]
        );
        assert_eq!(set.missing().count(), Feature::ALL.len() - 2);
        assert!(!set.contains(Feature::Windows));
        let json = serde_json::to_string(&set).unwrap();
        assert_eq!(json, r#"["pause","pools"]"#);
        assert_eq!(serde_json::from_str::<FeatureSet>(&json).unwrap(), set);
    }

    #[test]
    fn all_lists_each_feature_at_its_place() {
        for (place, feature) in Feature::ALL.into_iter().enumerate() {
            assert_eq!(feature as usize, place);
        }
    }
}
