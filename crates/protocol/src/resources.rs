//! The grammar of resource amounts on Docker (contract: lifecycle §5.2).

use std::collections::BTreeMap;

/// Resource limits of a sandbox; absent members are unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// CPU time in billionths of a core per second.
    pub nano_cpus: Option<i64>,
    /// Memory in bytes.
    pub memory_bytes: Option<i64>,
    /// Graphics processors.
    pub gpus: Option<GpuCount>,
}

/// Number of graphics processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuCount {
    /// All of the host.
    All,
    /// That many.
    Exactly(i64),
}

/// An amount that does not follow the grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resourceLimits.{key}: {value:?} is not valid: expected {expected}")]
pub struct ResourceError {
    /// Name of the resource.
    pub key: &'static str,
    /// The value, at most 80 characters of it.
    pub value: String,
    /// The rule in words.
    pub expected: &'static str,
}

/// Most characters of a wrong value that an error repeats.
const SHOWN: usize = 80;

impl ResourceLimits {
    /// The keys that are read.
    pub const KEYS: [&str; 3] = ["cpu", "memory", "gpu"];

    /// Reads `cpu`, `memory` and `gpu`; other keys are ignored.
    ///
    /// # Errors
    /// All amounts that do not follow the grammar.
    pub fn parse(limits: &BTreeMap<String, String>) -> Result<Self, Vec<ResourceError>> {
        let mut errors = Vec::new();
        let mut take = |key: &'static str, expected, read: fn(&str) -> Option<i64>| {
            let value = limits.get(key)?;
            let amount = read(value);
            if amount.is_none() {
                errors.push(ResourceError {
                    key,
                    value: value.chars().take(SHOWN).collect(),
                    expected,
                });
            }
            amount
        };
        let nano_cpus = take(
            "cpu",
            "cores such as \"0.5\" or \"500m\", above zero",
            nano_cpus,
        );
        let memory_bytes = take(
            "memory",
            "whole bytes with an optional unit such as \"512Mi\"",
            memory_bytes,
        );
        let gpus = take("gpu", "a whole number above zero, or \"all\"", gpus);
        if !errors.is_empty() {
            return Err(errors);
        }
        let gpus = gpus.map(|n| {
            if n < 0 {
                GpuCount::All
            } else {
                GpuCount::Exactly(n)
            }
        });
        Ok(Self {
            nano_cpus,
            memory_bytes,
            gpus,
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "range-checked before the cast"
)]
#[expect(
    clippy::cast_precision_loss,
    reason = "the bound only needs to be about 2^63"
)]
fn nano_cpus(text: &str) -> Option<i64> {
    let text = text.trim().to_ascii_lowercase();
    let (number, scale) = match text.strip_suffix('m') {
        Some(millis) => (millis.trim_end(), 1e6),
        None => (text.as_str(), 1e9),
    };
    let nanos = (number.parse::<f64>().ok()? * scale).floor();
    (nanos.is_finite() && nanos >= 1.0 && nanos < i64::MAX as f64).then_some(nanos as i64)
}

fn memory_bytes(text: &str) -> Option<i64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: i64 = match unit {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "ki" => 1 << 10,
        "mi" => 1 << 20,
        "gi" => 1 << 30,
        "ti" => 1 << 40,
        _ => return None,
    };
    number
        .parse::<i64>()
        .ok()?
        .checked_mul(factor)
        .filter(|bytes| *bytes > 0)
}

/// `-1` stands for all, as in the Docker API.
fn gpus(text: &str) -> Option<i64> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("all") {
        return Some(-1);
    }
    text.parse::<i64>().ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: &str, value: &str) -> Result<ResourceLimits, Vec<ResourceError>> {
        ResourceLimits::parse(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[test]
    fn amounts_follow_the_contract() {
        for (text, nanos) in [
            ("1", 1_000_000_000),
            (" 500M ", 500_000_000),
            ("0.25", 250_000_000),
        ] {
            assert_eq!(one("cpu", text).unwrap().nano_cpus, Some(nanos), "{text}");
        }
        for (text, bytes) in [
            ("512Mi", 512 << 20),
            ("1g", 1_000_000_000),
            ("7", 7),
            (" 2GI ", 2 << 30),
            ("5b", 5),
        ] {
            assert_eq!(
                one("memory", text).unwrap().memory_bytes,
                Some(bytes),
                "{text}"
            );
        }
        assert_eq!(one("gpu", "all").unwrap().gpus, Some(GpuCount::All));
        assert_eq!(one("gpu", "2").unwrap().gpus, Some(GpuCount::Exactly(2)));
        assert_eq!(one("disk", "nonsense").unwrap(), ResourceLimits::default());
        for key in ResourceLimits::KEYS {
            assert!(one(key, "nonsense").is_err(), "{key}");
        }
    }

    #[test]
    fn a_typo_never_means_unlimited() {
        for cpu in [
            "",
            "0",
            "-1",
            "nan",
            "inf",
            "1 core",
            "1e300",
            "0.0000000001",
            "m",
        ] {
            assert!(one("cpu", cpu).is_err(), "{cpu}");
        }
        for memory in [
            "",
            "0",
            "-1",
            "1.5Gi",
            "1KiB",
            "99999999999999999999",
            "9000000Ti",
            "Mi",
        ] {
            assert!(one("memory", memory).is_err(), "{memory}");
        }
        for gpu in ["0", "-1", "some", ""] {
            assert!(one("gpu", gpu).is_err(), "{gpu}");
        }
        let long = one("cpu", &"x".repeat(1000)).unwrap_err();
        assert_eq!(long[0].value.len(), 80);
    }
}
