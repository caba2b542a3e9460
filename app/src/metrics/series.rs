//! Recorded and live values of a sandbox, joined for charts.

use std::collections::BTreeMap;

use leptos::prelude::*;
use osb_protocol::{
    lifecycle::{MetricsHistory, MetricsSample},
    resources::ResourceLimits,
};
use serde::{Deserialize, Serialize};

use crate::{
    live::Samples,
    ui::{ChartData, Line, Unit},
};

/// Seconds of a fine step.
pub(super) const FINE: u32 = 10;
/// Seconds of a coarse step.
pub(super) const COARSE: u32 = 60;
/// Fine steps that are recorded: an hour, less one that may not be complete.
pub(super) const HOUR_OF_FINE: usize = 350;
/// Live samples that a page holds before it loads what was recorded meanwhile.
const LIVE: usize = 900;
/// Steps between what was recorded and the first live sample that are no hole: the present step, and
/// the one before, which is recorded when it is over.
const OVERLAP: i64 = 3;

/// A stretch of time up to now, or to the sandbox's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Range {
    /// 15 minutes.
    #[default]
    Quarter,
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// Since the sandbox's start, a day at most.
    Start,
}

impl Range {
    pub(super) const ALL: [Self; 4] = [Self::Quarter, Self::Hour, Self::Day, Self::Start];

    /// Its name in the address.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Quarter => "15m",
            Self::Hour => "1h",
            Self::Day => "24h",
            Self::Start => "start",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Quarter => "15 min",
            Self::Hour => "1 h",
            Self::Day => "24 h",
            Self::Start => "Since start",
        }
    }

    pub(super) fn of_key(key: &str) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|range| range.key() == key).unwrap_or_default()
    }

    const fn seconds(self) -> Option<i64> {
        match self {
            Self::Quarter => Some(900),
            Self::Hour => Some(3_600),
            Self::Day => Some(86_400),
            Self::Start => None,
        }
    }
}

/// From one Unix second to another.
pub(super) type Stretch = (i64, i64);

/// Values of one kind, from both sources.
struct Source {
    name: &'static str,
    recorded: fn(&MetricsHistory) -> Vec<Option<f64>>,
    live: fn(&MetricsSample) -> Option<f64>,
}

/// What one chart shows.
struct Measure {
    title: &'static str,
    unit: Unit,
    sources: &'static [Source],
}

#[expect(clippy::cast_precision_loss, reason = "drawn to a thousandth")]
fn whole(values: &[Option<u64>]) -> Vec<Option<f64>> {
    values
        .iter()
        .map(|value| value.map(|it| it as f64))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "drawn to a thousandth")]
fn one(value: Option<u64>) -> Option<f64> {
    value.map(|it| it as f64)
}

const MEASURES: [Measure; 5] = [
    Measure {
        title: "CPU",
        unit: Unit::Cores,
        sources: &[Source {
            name: "",
            recorded: |it| it.cpu_cores.clone(),
            live: |it| it.cpu_cores,
        }],
    },
    Measure {
        title: "Memory",
        unit: Unit::Bytes,
        sources: &[Source {
            name: "",
            recorded: |it| whole(&it.memory_bytes),
            live: |it| one(it.memory_bytes),
        }],
    },
    Measure {
        title: "Disk",
        unit: Unit::BytesPerSecond,
        sources: &[
            Source {
                name: "read",
                recorded: |it| whole(&it.disk_read_bytes_per_second),
                live: |it| one(it.disk_read_bytes_per_second),
            },
            Source {
                name: "written",
                recorded: |it| whole(&it.disk_written_bytes_per_second),
                live: |it| one(it.disk_written_bytes_per_second),
            },
        ],
    },
    Measure {
        title: "Network",
        unit: Unit::BytesPerSecond,
        sources: &[
            Source {
                name: "received",
                recorded: |it| whole(&it.network_received_bytes_per_second),
                live: |it| one(it.network_received_bytes_per_second),
            },
            Source {
                name: "sent",
                recorded: |it| whole(&it.network_sent_bytes_per_second),
                live: |it| one(it.network_sent_bytes_per_second),
            },
        ],
    },
    Measure {
        title: "Processes and threads",
        unit: Unit::Count,
        sources: &[Source {
            name: "",
            recorded: |it| whole(&it.processes),
            live: |it| one(it.processes),
        }],
    },
];

/// The charts of a page, in their order.
pub(super) const CHARTS: usize = MEASURES.len();
/// Index of the chart of the processor.
pub(super) const CPU: usize = 0;
/// Index of the chart of the memory.
pub(super) const MEMORY: usize = 1;

/// The limits of a sandbox, as far as they are known, for each chart.
#[expect(clippy::cast_precision_loss, reason = "drawn to a thousandth")]
pub(super) fn limits(resources: &BTreeMap<String, String>) -> [Option<f64>; CHARTS] {
    let limits = ResourceLimits::parse(resources).unwrap_or_default();
    let mut known = [None; CHARTS];
    known[CPU] = limits.nano_cpus.map(|nano| nano as f64 / 1e9);
    known[MEMORY] = limits.memory_bytes.map(|bytes| bytes as f64);
    known
}

/// What was recorded of a sandbox, and the live samples since. Copies share the samples.
#[derive(Clone, Copy)]
pub(super) struct Usage {
    recorded: StoredValue<MetricsHistory>,
    live: RwSignal<Vec<MetricsSample>>,
}

/// End of the last recorded step in Unix seconds; 0 without one.
fn end(history: &MetricsHistory) -> i64 {
    let steps = i64::try_from(history.memory_bytes.len()).unwrap_or_default();
    history.start.map_or(0, |start| {
        start.unix_ms() / 1_000 + steps * i64::from(history.step_seconds)
    })
}

fn seconds(sample: &MetricsSample) -> i64 {
    sample.at.unix_ms() / 1_000
}

impl Usage {
    pub(super) fn new(history: MetricsHistory) -> Self {
        Self {
            recorded: StoredValue::new(history),
            live: RwSignal::new(Vec::new()),
        }
    }

    /// Adds live samples that are not recorded. False when the recording has to be loaded again: there is a
    /// hole before the sample, or there are many.
    pub(super) fn add(self, samples: Samples) -> bool {
        let list = match samples {
            Samples::Recent(list) => list,
            Samples::Next(sample) => vec![*sample],
        };
        let (end, step) = self
            .recorded
            .with_value(|it| (end(it), i64::from(it.step_seconds)));
        let mut is_whole = true;
        self.live.update(|live| {
            for sample in list {
                let at = seconds(&sample);
                let last = live.last().map_or(end, seconds);
                if at < end || (at <= last && !live.is_empty()) {
                    continue;
                }
                is_whole &= last == 0 || at - last <= OVERLAP * step;
                live.push(sample);
            }
            let surplus = live.len().saturating_sub(2 * LIVE);
            live.drain(..surplus);
            is_whole &= live.len() <= LIVE;
        });
        is_whole
    }

    /// The values of a chart, of all of a range or of a window of it. Tracks the live samples.
    pub(super) fn chart(
        self,
        chart: usize,
        range: Range,
        window: Option<Stretch>,
        limit: Option<f64>,
    ) -> ChartData {
        let measure = &MEASURES[chart];
        self.recorded.with_value(|recorded| {
            self.live.with(|live| {
                let start = recorded.start.map_or(0, |start| start.unix_ms() / 1_000);
                let first = match start {
                    0 => live.first().map_or(0, seconds),
                    start => start,
                };
                let to = live.last().map_or_else(|| end(recorded), seconds);
                let from = range.seconds().map_or(first, |range| to - range);
                let (from, to) = window.unwrap_or((from, to));
                let line = |source: &Source| Line {
                    name: source.name,
                    points: points(recorded, live, source, (from, to)),
                };
                ChartData {
                    title: measure.title,
                    unit: measure.unit,
                    lines: measure.sources.iter().map(line).collect(),
                    limit,
                    from,
                    to,
                }
            })
        })
    }
}

fn points(
    recorded: &MetricsHistory,
    live: &[MetricsSample],
    source: &Source,
    (from, to): Stretch,
) -> Vec<(i64, Option<f64>)> {
    let start = recorded.start.map_or(0, |start| start.unix_ms() / 1_000);
    let step = i64::from(recorded.step_seconds);
    // The point of a step is where the step ends.
    let times = (1..).map(|number: i64| start + number * step);
    let recorded = times.zip((source.recorded)(recorded));
    let live = live
        .iter()
        .map(|sample| (seconds(sample), (source.live)(sample)));
    let is_within = |at: i64| (from..=to).contains(&at);
    let all = recorded.chain(live);
    all.filter(|(at, _)| is_within(*at)).collect()
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;

    use super::*;

    fn history(start: i64, cores: &[Option<f64>]) -> MetricsHistory {
        let none = || vec![None; cores.len()];
        MetricsHistory {
            sandbox_id: "a".into(),
            step_seconds: 10,
            start: WireTime::from_unix_ms(start * 1_000),
            cpu_cores: cores.to_vec(),
            memory_bytes: none(),
            processes: none(),
            network_received_bytes_per_second: none(),
            network_sent_bytes_per_second: none(),
            disk_read_bytes_per_second: none(),
            disk_written_bytes_per_second: none(),
        }
    }

    fn sample(at: i64, cores: f64) -> MetricsSample {
        MetricsSample {
            at: WireTime::from_unix_ms(at * 1_000).unwrap(),
            cpu_cores: Some(cores),
            memory_bytes: None,
            processes: None,
            network_received_bytes_per_second: None,
            network_sent_bytes_per_second: None,
            disk_read_bytes_per_second: None,
            disk_written_bytes_per_second: None,
        }
    }

    fn next(at: i64) -> Samples {
        Samples::Next(Box::new(sample(at, 3.0)))
    }

    #[test]
    fn live_samples_follow_what_was_recorded_once() {
        Owner::new().with(|| {
            let usage = Usage::new(history(1_000, &[Some(1.0), None]));
            assert!(usage.add(Samples::Recent(vec![
                sample(1_010, 9.0),
                sample(1_025, 2.0)
            ])));
            assert!(usage.add(next(1_026)));
            assert!(usage.add(next(1_026)), "seen before");
            let data = usage.chart(CPU, Range::Start, None, None);
            let points = &data.lines[0].points;
            let wanted = [
                (1_010, Some(1.0)),
                (1_020, None),
                (1_025, Some(2.0)),
                (1_026, Some(3.0)),
            ];
            assert_eq!(points, &wanted);
            assert_eq!((data.from, data.to), (1_000, 1_026));
            let data = usage.chart(CPU, Range::Quarter, None, None);
            assert_eq!((data.from, data.to), (126, 1_026));
            let data = usage.chart(CPU, Range::Quarter, Some((1_015, 1_025)), None);
            assert_eq!(data.lines[0].points, &wanted[1..3]);
            assert_eq!((data.from, data.to), (1_015, 1_025));
        });
    }

    #[test]
    fn a_hole_and_many_samples_ask_for_the_recording() {
        Owner::new().with(|| {
            let usage = Usage::new(history(1_000, &[Some(1.0)]));
            assert!(
                usage.add(next(1_040)),
                "the present step and the one before"
            );
            assert!(!usage.add(next(1_071)), "a hole");
            let fresh = Usage::new(history(0, &[]));
            for at in 1..=2_000 {
                let is_whole = fresh.add(next(50_000 + at));
                assert_eq!(is_whole, at <= LIVE as i64, "{at}");
            }
            assert!(fresh.live.with_untracked(Vec::len) <= 2 * LIVE);
        });
    }

    #[test]
    fn limits_are_those_of_the_request() {
        let resources = [("cpu", "500m"), ("memory", "256Mi")];
        let resources = resources.map(|(name, amount)| (name.to_owned(), amount.to_owned()));
        let limits = limits(&resources.into());
        assert_eq!(
            (limits[CPU], limits[MEMORY]),
            (Some(0.5), Some(268_435_456.0))
        );
    }

    #[test]
    fn ranges_stand_in_the_address() {
        for range in Range::ALL {
            assert_eq!(Range::of_key(range.key()), range);
        }
        assert_eq!(Range::of_key("9 years"), Range::Quarter);
    }
}
