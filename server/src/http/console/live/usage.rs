//! The resource use of the rows that a tab shows.
//!
//! Each tab shows other rows, at most a page of them, so the message is made for the tab: every ten
//! seconds, when all sandboxes were sampled, and when its rows change. Tabs without the list get none.

use osb_app::live::{Gauge, RowUse};
use osb_protocol::{SandboxId, resources::ResourceLimits};

use crate::sandbox::{Service, metrics::RecentUse};

/// What rows use, each with numbers that a line of a few pixels can show.
pub(super) fn of(service: &Service, ids: &[SandboxId]) -> Vec<RowUse> {
    let used = service.recent_use(ids);
    let rows = ids.iter().zip(used).filter_map(|(id, used)| {
        let record = service.find(id)?;
        let limits = ResourceLimits::parse(&record.facts.origin.resources).unwrap_or_default();
        Some(row(id, &used?, &limits))
    });
    rows.collect()
}

#[expect(clippy::cast_precision_loss, reason = "shown in percent")]
fn row(id: &SandboxId, used: &RecentUse, limits: &ResourceLimits) -> RowUse {
    let cores: Vec<_> = used.cpu_cores.clone();
    let bytes = used.memory_bytes.iter();
    let bytes: Vec<_> = bytes.map(|bytes| bytes.map(|it| it as f64)).collect();
    let core_limit = limits.nano_cpus.map(|nanos| nanos as f64 / 1e9);
    let byte_limit = limits.memory_bytes.map(|bytes| bytes as f64);
    RowUse {
        id: id.clone(),
        cpu: gauge(&cores, core_limit, |cores| format!("{cores:.2}")),
        memory: gauge(&bytes, byte_limit, |bytes| {
            format!("{:.0} MiB", bytes / f64::from(1 << 20))
        }),
    }
}

/// Values in percent of their limit; without a limit, the line fills its height and the last value is
/// given in words.
fn gauge(values: &[Option<f64>], limit: Option<f64>, words: fn(f64) -> String) -> Gauge {
    let limit = limit.filter(|limit| *limit > 0.0);
    let peak = values.iter().flatten().copied().fold(0.0, f64::max);
    let top = limit.unwrap_or(peak);
    let percent = |value: f64| if top > 0.0 { value / top * 100.0 } else { 0.0 };
    let point = |value: &Option<f64>| {
        value.map_or(String::new(), |value| {
            format!("{:.0}", percent(value).clamp(0.0, 100.0))
        })
    };
    let points: Vec<_> = values.iter().map(point).collect();
    let now = values.last().copied().flatten();
    Gauge {
        points: points.join(","),
        now: now.map_or(String::new(), |now| match limit {
            Some(_) => format!("{:.0} %", percent(now)),
            None => words(now),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_percent_of_the_limit() {
        let values = [None, Some(0.5), Some(0.004), Some(2.5)];
        let words = |cores: f64| format!("{cores:.2}");
        let seen = gauge(&values, Some(2.0), words);
        assert_eq!((&*seen.points, &*seen.now), (",25,0,100", "125 %"));
        let seen = gauge(&values, None, words);
        assert_eq!((&*seen.points, &*seen.now), (",20,0,100", "2.50"));
        let idle = gauge(&[Some(0.0), None], None, words);
        assert_eq!((&*idle.points, &*idle.now), ("0,", ""));
        assert_eq!(gauge(&[], Some(1.0), words), Gauge::default());
    }
}
