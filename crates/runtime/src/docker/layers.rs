//! Progress of a pull: what the engine reports of each layer, in one short line.

use std::collections::HashMap;

use bollard::models::CreateImageInfo;

/// Most layers that are counted. Images have at most 127.
const LAYERS_MAX: usize = 256;
/// Longest line, in bytes.
const LINE_MAX: usize = 120;
/// Bytes of a megabyte.
const MEGABYTE: i64 = 1_000_000;

/// Progress of all layers of one image.
#[derive(Debug, Default)]
pub(super) struct Layers {
    by_id: HashMap<String, Layer>,
    /// The engine's last word on the whole image.
    status: String,
}

#[derive(Clone, Copy, Debug, Default)]
struct Layer {
    is_here: bool,
    is_done: bool,
    /// Bytes downloaded so far, and in all as far as it is known.
    current: i64,
    total: i64,
}

impl Layers {
    /// Takes over one message of the engine.
    pub(super) fn update(&mut self, message: &CreateImageInfo) {
        let Some(status) = &message.status else {
            return;
        };
        let detail = message.progress_detail.as_ref();
        let (current, total) = detail.map_or((None, None), |it| (it.current, it.total));
        let change: &dyn Fn(&mut Layer) = match status.as_str() {
            "Pulling fs layer" | "Waiting" | "Verifying Checksum" | "Retrying" => &|_| {},
            "Downloading" => &|layer| {
                layer.current = current.unwrap_or(layer.current);
                layer.total = total.unwrap_or(layer.total).max(layer.current);
            },
            // Its numbers count what is unpacked.
            "Download complete" | "Extracting" => &|layer| {
                layer.is_here = true;
                layer.current = layer.total;
            },
            "Pull complete" | "Already exists" => &|layer| {
                (layer.is_here, layer.is_done) = (true, true);
                layer.current = layer.total;
            },
            // Not of a layer: `id` is a tag here.
            _ => {
                let id = message.id.as_deref().unwrap_or_default();
                self.status = format!("{status} {id}");
                return;
            }
        };
        let id = message.id.as_deref().unwrap_or_default();
        if let Some(layer) = self.by_id.get_mut(id) {
            change(layer);
        } else if self.by_id.len() < LAYERS_MAX {
            change(self.by_id.entry(id.to_owned()).or_default());
        }
    }

    /// The progress in words.
    pub(super) fn line(&self) -> String {
        let layers = self.by_id.len();
        let mut line = if layers == 0 {
            self.status.trim().to_owned()
        } else {
            let here = self.by_id.values().filter(|layer| layer.is_here).count();
            let done = self.by_id.values().filter(|layer| layer.is_done).count();
            if here < layers {
                let sum = |of: fn(&Layer) -> i64| {
                    let bytes = self.by_id.values().map(of).fold(0, i64::saturating_add);
                    bytes / MEGABYTE
                };
                let (current, total) = (sum(|layer| layer.current), sum(|layer| layer.total));
                format!("{here} of {layers} layers downloaded, {current} of {total} MB")
            } else {
                format!("{done} of {layers} layers unpacked")
            }
        };
        let end = line.floor_char_boundary(LINE_MAX);
        line.truncate(end);
        line
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(status: &str, id: &str, current: i64, total: i64) -> CreateImageInfo {
        let detail = json!({"current": current, "total": total});
        let message = json!({"status": status, "id": id, "progressDetail": detail});
        serde_json::from_value(message).unwrap()
    }

    #[test]
    fn progress_is_one_line() {
        let mut layers = Layers::default();
        layers.update(&message("Pulling from library/debian", "12", 0, 0));
        assert_eq!(layers.line(), "Pulling from library/debian 12");
        layers.update(&message("Already exists", "a", 0, 0));
        for id in ["b", "c"] {
            layers.update(&message("Pulling fs layer", id, 0, 0));
        }
        layers.update(&message("Downloading", "b", 5_000_000, 40_000_000));
        layers.update(&message("Downloading", "c", 1_500_000, 2_000_000));
        assert_eq!(layers.line(), "1 of 3 layers downloaded, 6 of 42 MB");
        layers.update(&message("Download complete", "c", 0, 0));
        assert_eq!(layers.line(), "2 of 3 layers downloaded, 7 of 42 MB");
        layers.update(&message("Download complete", "b", 0, 0));
        layers.update(&message("Extracting", "b", 1, 40_000_000));
        assert_eq!(layers.line(), "1 of 3 layers unpacked");
        layers.update(&message("Pull complete", "b", 0, 0));
        layers.update(&message("Digest: sha256:00", "", 0, 0));
        assert_eq!(layers.line(), "2 of 3 layers unpacked");
    }

    #[test]
    fn what_an_engine_reports_is_bounded() {
        let mut layers = Layers::default();
        layers.update(&message(&"ä".repeat(10_000), "", 0, 0));
        assert!(layers.line().len() <= LINE_MAX, "{}", layers.line());
        for id in 0..10_000 {
            layers.update(&message("Downloading", &id.to_string(), i64::MAX, i64::MAX));
        }
        assert_eq!(layers.by_id.len(), LAYERS_MAX);
        assert!(layers.line().len() <= LINE_MAX, "{}", layers.line());
    }
}
