//! The tabs of a sandbox's page, and the sandbox that they show.
//!
//! Routes, links, breadcrumb and keys follow from [`Tab::ALL`]. A new tab is a variant with its
//! [`TabSpec`], and its view in `sandbox`.

use leptos::prelude::{Read, RwSignal};
use leptos_router::AsPath;
use osb_protocol::{Feature, FeatureSet, SandboxId};

use crate::view::SandboxDetail;

/// The sandbox that the tabs show; its last state once it is gone.
#[derive(Clone, Copy)]
pub(crate) struct Current(pub(crate) RwSignal<SandboxDetail>);

/// What is kept of a sandbox that ended, and where.
const KEPT: &str = "Kept are how it ended and its settings (Overview), its commands (Run) and its entries \
                    in Events & audit, as far as they were recorded.";

impl Current {
    /// Why a tab has nothing of a sandbox that ended, and what is kept; `None` while it exists. `lost`
    /// says what is gone. Tracks changes.
    pub(crate) fn of_ended(self, lost: &str) -> Option<String> {
        let ended = self.0.read().ended?;
        Some([ended.outcome.sentence(), " ", lost, " ", KEPT].concat())
    }
}

/// A tab of a sandbox's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    /// What the sandbox is, and its state.
    Overview,
    /// A shell in it.
    Terminal,
    /// The output of its entry point.
    Logs,
    /// What ran in it, and a way to run more.
    Run,
    /// Its resource use over time.
    Metrics,
    /// Its folders and files.
    Files,
    /// Its listening ports, and what they show.
    Preview,
    /// Where it may connect to, and what it asked for.
    Network,
    /// What happened to it, and its settings.
    Diagnostics,
}

/// What is fixed about a tab.
struct TabSpec {
    /// Last segment of its address; empty for the tab that the sandbox's own address shows.
    segment: &'static str,
    title: &'static str,
    icon: &'static str,
    /// Whether there is nothing to show before the sandbox runs.
    needs_running: bool,
    /// The feature of the runtime that it shows; `None` if every runtime has it.
    feature: Option<Feature>,
    /// The key that opens it, from the list too.
    key: Option<&'static str>,
}

impl Tab {
    /// All tabs, in their order on the page.
    pub const ALL: [Self; 9] = [
        Self::Overview,
        Self::Terminal,
        Self::Files,
        Self::Run,
        Self::Logs,
        Self::Metrics,
        Self::Preview,
        Self::Network,
        Self::Diagnostics,
    ];

    const fn spec(self) -> TabSpec {
        match self {
            Self::Overview => TabSpec {
                segment: "",
                title: "Overview",
                icon: "info",
                needs_running: false,
                feature: None,
                key: None,
            },
            Self::Terminal => TabSpec {
                segment: "terminal",
                title: "Terminal",
                icon: "terminal",
                needs_running: true,
                feature: None,
                key: Some("t"),
            },
            Self::Logs => TabSpec {
                segment: "logs",
                title: "Logs",
                icon: "scroll-text",
                needs_running: false,
                feature: Some(Feature::Diagnostics),
                key: Some("l"),
            },
            Self::Run => TabSpec {
                segment: "run",
                title: "Run",
                icon: "square-play",
                needs_running: false,
                feature: None,
                key: None,
            },
            Self::Metrics => TabSpec {
                segment: "metrics",
                title: "Metrics",
                icon: "activity",
                needs_running: false,
                feature: None,
                key: Some("m"),
            },
            Self::Files => TabSpec {
                segment: "files",
                title: "Files",
                icon: "folder",
                needs_running: true,
                feature: None,
                key: Some("f"),
            },
            Self::Preview => TabSpec {
                segment: "preview",
                title: "Preview",
                icon: "globe",
                needs_running: true,
                feature: None,
                key: None,
            },
            Self::Network => TabSpec {
                segment: "network",
                title: "Network",
                icon: "network",
                needs_running: true,
                feature: Some(Feature::NetworkPolicy),
                key: None,
            },
            Self::Diagnostics => TabSpec {
                segment: "diagnostics",
                title: "Diagnostics",
                icon: "stethoscope",
                needs_running: false,
                feature: Some(Feature::Diagnostics),
                key: None,
            },
        }
    }

    /// Its name.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.spec().title
    }

    /// Its icon.
    #[must_use]
    pub const fn icon(self) -> &'static str {
        self.spec().icon
    }

    /// Last segment of its address; also the value of `data-tab-link` on links to it.
    #[must_use]
    pub const fn segment(self) -> &'static str {
        self.spec().segment
    }

    /// Whether there is nothing to show before the sandbox runs.
    pub(crate) const fn needs_running(self) -> bool {
        self.spec().needs_running
    }

    /// The key that opens it.
    #[must_use]
    pub const fn key(self) -> Option<&'static str> {
        self.spec().key
    }

    /// Whether a runtime with these features offers it.
    pub(crate) fn is_offered(self, features: FeatureSet) -> bool {
        let needed = self.spec().feature;
        needed.is_none_or(|feature| features.contains(feature))
    }

    /// The tab that this key opens.
    #[must_use]
    pub fn of_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tab| tab.key() == Some(key))
    }

    /// The tab with this last segment.
    #[must_use]
    pub fn of_segment(segment: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tab| tab.segment() == segment)
    }

    /// The tab of a sandbox's page at this path.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let page = path.strip_prefix("/console/sandboxes/")?;
        let segment = page.split_once('/').map_or("", |(_, segment)| segment);
        Self::of_segment(segment.trim_end_matches('/'))
    }

    /// Its address.
    #[must_use]
    pub fn address(self, id: &SandboxId) -> String {
        match self.segment() {
            "" => format!("/console/sandboxes/{id}"),
            segment => format!("/console/sandboxes/{id}/{segment}"),
        }
    }
}

impl AsPath for Tab {
    fn as_path(&self) -> &'static str {
        self.segment()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_sandbox_that_ended_is_not_said_to_be_unknown() {
        use leptos::prelude::{Owner, Update};
        use osb_protocol::WireTime;

        use crate::{
            ui::sample,
            view::{Ended, Outcome},
        };
        Owner::new().with(|| {
            let detail = SandboxDetail {
                sandbox: sample::row("a", "Failed").sandbox,
                stages: Vec::new(),
                resources: Default::default(),
                template: None,
                log_tail: Vec::new(),
                ended: None,
            };
            let current = Current(RwSignal::new(detail));
            assert_eq!(current.of_ended("Its log is gone."), None);
            let at = WireTime::from_unix_ms(0).unwrap();
            current.0.update(|detail| {
                let outcome = Outcome::Expired;
                detail.ended = Some(Ended { outcome, at });
            });
            let words = current.of_ended("Its log is gone.").unwrap();
            assert!(
                words.starts_with("This sandbox expired. Its log is gone. Kept are"),
                "{words}"
            );
            assert!(!words.contains("does not exist"), "{words}");
        });
    }

    #[test]
    fn addresses_lead_back_to_their_tab() {
        let id = SandboxId::from("0b6c1f2e-aaaa");
        for tab in Tab::ALL {
            let address = tab.address(&id);
            assert_eq!(Tab::of_path(&address), Some(tab), "{address}");
            assert_eq!(Tab::of_path(&format!("{address}/")), Some(tab), "{address}");
        }
        for elsewhere in [
            "/console/sandboxes",
            "/console/sandboxes/x/y",
            "/console/create",
        ] {
            assert_eq!(Tab::of_path(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn a_tab_of_a_feature_needs_a_runtime_that_has_it() {
        for tab in Tab::ALL {
            let feature = tab.spec().feature;
            assert_eq!(tab.is_offered(FeatureSet::EMPTY), feature.is_none());
            let features = feature.map_or(FeatureSet::EMPTY, |it| FeatureSet::EMPTY.with(it));
            assert!(tab.is_offered(features));
        }
    }

    #[test]
    fn tabs_do_not_collide() {
        let segments: BTreeSet<_> = Tab::ALL.iter().map(|tab| tab.segment()).collect();
        assert_eq!(segments.len(), Tab::ALL.len());
        let keys: Vec<_> = Tab::ALL.iter().filter_map(|tab| tab.key()).collect();
        let taken = ["/", "?", "c", "d", "j", "k", "x", "r", "p", "s"];
        let all: BTreeSet<_> = keys.iter().copied().chain(taken).collect();
        assert_eq!(all.len(), keys.len() + taken.len(), "{keys:?}");
        for tab in Tab::ALL {
            assert_eq!(tab.key().and_then(Tab::of_key), tab.key().map(|_| tab));
        }
    }
}
