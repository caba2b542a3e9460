//! A form that begins as a copy of a sandbox.

use osb_protocol::SandboxId;

use super::{CreateForm, lifetime, words};
use crate::view::Original;

/// Longest value of a label, in bytes.
const LABEL_MAX: usize = 63;
/// What is added to the name of the original.
const SUFFIX: &str = "-copy";

/// The form of a copy.
pub(super) fn form_of(id: &SandboxId, original: &Original) -> CreateForm {
    let (lifetime, ttl) = lifetime::of_seconds(original.timeout);
    let amount = |name: &str| original.resources.get(name).cloned().unwrap_or_default();
    let mut labels = original.metadata.clone();
    let name = labels.remove("name").unwrap_or_default();
    let labels: Vec<_> = labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    // A name with a line break cannot be typed either.
    let kept = original.variables.iter().flatten();
    let kept: Vec<_> = kept
        .filter(|name| !name.contains(['\n', '\r']))
        .map(String::as_str)
        .collect();
    CreateForm {
        name: copied(&name),
        image: original.image.clone().unwrap_or_default(),
        entrypoint: words::join(&original.entrypoint),
        lifetime,
        ttl,
        cpu: amount("cpu"),
        memory: amount("memory"),
        env: String::new(),
        metadata: labels.join("\n"),
        from: id.to_string(),
        kept: kept.join("\n"),
        ..CreateForm::default()
    }
}

/// The name of a copy, which is a label, too.
fn copied(name: &str) -> String {
    if name.is_empty() {
        return String::new();
    }
    let name = name.strip_suffix(SUFFIX).unwrap_or(name);
    // Labels are ASCII.
    let end = name.len().min(LABEL_MAX - SUFFIX.len());
    format!("{}{SUFFIX}", name.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn map(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        let all = all.iter();
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_copy_asks_for_what_the_original_asked_for() {
        let original = Original {
            image: Some("debian:12".to_owned()),
            entrypoint: ["sh", "-c", "sleep 9"].map(str::to_owned).to_vec(),
            resources: map(&[("cpu", "500m"), ("gpu", "1")]),
            metadata: map(&[("name", "web"), ("team", "a"), ("x/y", "")]),
            timeout: Some(3_600),
            variables: Some(vec!["B".to_owned(), "A".to_owned()]),
        };
        let mut form = form_of(&"1234".into(), &original);
        assert_eq!(form.request().problems, []);
        assert_eq!(
            form.request().body,
            json!({
                "image": { "uri": "debian:12" },
                "entrypoint": ["sh", "-c", "sleep 9"],
                "resourceLimits": { "cpu": "500m" },
                "timeout": 3600,
                "metadata": { "name": "web-copy", "team": "a", "x/y": "" },
            })
        );
        assert_eq!(form.from, "1234");
        assert_eq!(form.kept_names(), ["B", "A"]);
        form.env = "A=2".to_owned();
        assert_eq!(form.kept_names(), ["B"], "the form sets the other itself");
    }

    #[test]
    fn names_of_copies_stay_labels() {
        assert_eq!(copied(""), "");
        assert_eq!(copied("web"), "web-copy");
        assert_eq!(copied("web-copy"), "web-copy", "not longer each time");
        let long = copied(&"x".repeat(63));
        assert_eq!(long.len(), 63);
        assert!(long.ends_with("x-copy"), "{long}");
    }
}
