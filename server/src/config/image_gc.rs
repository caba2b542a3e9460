//! `[image_gc]`: removal of images that nothing uses.

use std::{path::Path, time::Duration};

use osb_service::config::ConfigError;
use serde::{Deserialize, Serialize};

use crate::sandbox::ImageGcLimits;

/// Longest time that an unused image is kept, in hours.
const HOURS_MAX: u64 = 8760;
/// Largest part of the disk, in percent.
const PERCENT_MAX: u8 = 99;

/// `[image_gc]`: an addition to the contract.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageGcSection {
    /// Whether images are removed.
    pub enabled: bool,
    /// Time that an image is kept after its last use.
    pub unused_hours: u64,
    /// Images are removed while the disk of the engine is fuller than that; 0: however full it is.
    pub disk_percent: u8,
    /// Images that stay. A `*` at the end stands for any text.
    pub keep: Vec<String>,
    /// Whether the cache of builds is removed as well.
    pub build_cache: bool,
}

impl Default for ImageGcSection {
    fn default() -> Self {
        Self {
            enabled: false,
            unused_hours: 168,
            disk_percent: 80,
            keep: Vec::new(),
            build_cache: true,
        }
    }
}

impl ImageGcSection {
    /// As the domain takes them. `own` are images that the server itself needs.
    #[must_use]
    pub fn limits(&self, own: impl IntoIterator<Item = String>) -> Option<ImageGcLimits> {
        self.enabled.then(|| ImageGcLimits {
            unused: Duration::from_secs(self.unused_hours * 3600),
            disk_percent: self.disk_percent,
            keep: self.keep.iter().cloned().chain(own).collect(),
            build_cache: self.build_cache,
        })
    }

    pub(super) fn check(&self, file: &Path, history_hours: u32) -> Result<(), ConfigError> {
        if !(1..=HOURS_MAX).contains(&self.unused_hours) {
            let rule = format!("must be 1 to {HOURS_MAX}");
            return Err(ConfigError::rule(file, "image_gc.unused_hours", rule));
        }
        if self.enabled && self.unused_hours > u64::from(history_hours) {
            let rule = format!(
                "must be at most history.retention_hours, which is {history_hours}: what ended earlier is not known"
            );
            return Err(ConfigError::rule(file, "image_gc.unused_hours", rule));
        }
        if self.disk_percent > PERCENT_MAX {
            let rule = format!("must be 0 to {PERCENT_MAX}");
            return Err(ConfigError::rule(file, "image_gc.disk_percent", rule));
        }
        let is_pattern = |entry: &String| {
            let start = entry.strip_suffix('*').unwrap_or(entry);
            !start.is_empty() && !start.contains(['*', ' '])
        };
        if !self.keep.iter().all(is_pattern) {
            let rule = "must be names of images, or their beginnings with a * at the end";
            return Err(ConfigError::rule(file, "image_gc.keep", rule));
        }
        Ok(())
    }
}
