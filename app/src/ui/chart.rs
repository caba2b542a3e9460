//! Line charts of values over time, drawn as SVG on the server and in the browser alike.

use leptos::{ev, prelude::*};
use osb_protocol::WireTime;

use super::{When, duration};

/// Width of a chart in its own units, which the page stretches.
pub(crate) const WIDTH: i64 = 1_000;
/// Height of a chart in its own units.
pub(crate) const HEIGHT: i64 = 200;
/// Most points of a line; of more, the highest within each part is drawn.
pub(crate) const POINTS: usize = 300;

/// What a value counts, which decides how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Processor cores.
    Cores,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Things.
    Count,
}

impl Unit {
    /// A value with its unit. Written without the formatting of floating-point numbers, which the
    /// wasm does not need otherwise.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Cores => format!("{} cores", decimal(value, 100)),
            Self::Bytes => bytes(value),
            Self::BytesPerSecond => format!("{}/s", bytes(value)),
            Self::Count => decimal(value, 1),
        }
    }
}

fn bytes(value: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (value, 0);
    while value >= 1_024.0 && unit + 1 < UNITS.len() {
        value /= 1_024.0;
        unit += 1;
    }
    let parts = if unit > 0 && value < 100.0 { 10 } else { 1 };
    format!("{} {}", decimal(value, parts), UNITS[unit])
}

/// A number to 1, 1/10 or 1/100, by the number of `parts`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "saturates"
)]
fn decimal(value: f64, parts: i64) -> String {
    let scaled = (value * parts as f64).round() as i64;
    let (whole, rest) = (scaled / parts, (scaled % parts).abs());
    match parts {
        1 => whole.to_string(),
        10 => format!("{whole}.{rest}"),
        _ => format!("{whole}.{rest:02}"),
    }
}

/// The moment at this many Unix seconds; the epoch for one that cannot be written.
#[must_use]
pub fn time_of(seconds: i64) -> WireTime {
    let at = WireTime::from_unix_ms(seconds.saturating_mul(1_000));
    at.or_else(|| WireTime::from_unix_ms(0))
        .expect("the epoch can be written")
}

/// Values of one thing over time: Unix seconds, in order, and the value, if it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Its name, if the chart has several.
    pub name: &'static str,
    /// The values.
    pub points: Vec<(i64, Option<f64>)>,
}

/// What a chart shows.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartData {
    /// Its title.
    pub title: &'static str,
    /// Unit of all values.
    pub unit: Unit,
    /// Its lines: one or two.
    pub lines: Vec<Line>,
    /// The most that the values can be.
    pub limit: Option<f64>,
    /// Left edge, in Unix seconds.
    pub from: i64,
    /// Right edge, in Unix seconds.
    pub to: i64,
}

impl ChartData {
    /// The value at the top edge.
    pub(crate) fn top(&self) -> f64 {
        let values = self.lines.iter().flat_map(|line| &line.points);
        let peak = values.filter_map(|(_, value)| *value).fold(0.0, f64::max);
        match self.limit {
            Some(limit) => limit.max(peak),
            None if peak > 0.0 => peak * 1.1,
            None => 1.0,
        }
    }

    /// The last known value of each line and the highest, in words.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            let mut known = line.points.iter().filter_map(|(_, value)| *value);
            let peak = known.clone().fold(None, |peak: Option<f64>, value| {
                Some(peak.map_or(value, |peak| peak.max(value)))
            });
            if !text.is_empty() {
                text += " · ";
            }
            if !line.name.is_empty() {
                text += line.name;
                text += " ";
            }
            match known.next_back().zip(peak) {
                Some((last, peak)) => {
                    text += &self.unit.text(last);
                    text += ", peak ";
                    text += &self.unit.text(peak);
                }
                None => text += "unknown",
            }
        }
        if let Some(limit) = self.limit {
            text += " · limit ";
            text += &self.unit.text(limit);
        }
        text
    }

    /// The values at a moment, in words.
    pub(crate) fn at(&self, moment: i64) -> String {
        let value = |line: &Line| {
            let before = line.points.partition_point(|(at, _)| *at <= moment);
            let value = before.checked_sub(1).and_then(|last| line.points[last].1);
            let value = value.map_or_else(|| "unknown".to_owned(), |it| self.unit.text(it));
            match line.name {
                "" => value,
                name => format!("{name} {value}"),
            }
        };
        let values: Vec<String> = self.lines.iter().map(value).collect();
        format!(
            "{} · {} before the end",
            values.join(" · "),
            duration(self.to - moment)
        )
    }
}

/// Reduces a line to at most `most` points: the highest of each part, so that peaks stay visible.
#[must_use]
pub fn thinned(points: &[(i64, Option<f64>)], most: usize) -> Vec<(i64, Option<f64>)> {
    let part = points.len().div_ceil(most.max(1)).max(1);
    let highest = |points: &[(i64, Option<f64>)]| {
        points.iter().copied().reduce(|a, b| match (a.1, b.1) {
            (Some(x), Some(y)) if x >= y => a,
            (Some(_), None) => a,
            _ => b,
        })
    };
    points.chunks(part).filter_map(highest).collect()
}

/// The path of a line in a chart of this width and height, in whole units. Unknown values are gaps.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "at most the height"
)]
pub(crate) fn path(
    points: &[(i64, Option<f64>)],
    (from, to): (i64, i64),
    top: f64,
    (width, height): (i64, i64),
) -> String {
    let span = (to - from).max(1);
    let mut path = String::new();
    let mut is_open = false;
    for (at, value) in points.iter().filter(|(at, _)| (from..=to).contains(at)) {
        let Some(value) = value else {
            is_open = false;
            continue;
        };
        let x = (at - from) * width / span;
        let y = height - (value / top * height as f64).round() as i64;
        path += if is_open { "L" } else { "M" };
        path += &x.to_string();
        path.push(' ');
        path += &y.to_string();
        is_open = true;
    }
    path
}

/// A chart with its title, its last values, and the values under the pointer. Arrow keys move along the
/// values as the pointer does.
#[component]
pub fn Chart(
    /// What it shows.
    #[prop(into)]
    data: Signal<ChartData>,
) -> impl IntoView {
    // Thousandths of the width.
    let cursor = RwSignal::new(None::<i64>);
    let moment = move |data: &ChartData| {
        cursor
            .get()
            .map(|at| data.from + (data.to - data.from) * at / WIDTH)
    };
    let readout = move || {
        data.with(|data| match moment(data) {
            Some(at) => data.at(at),
            None => data.summary(),
        })
    };
    let label = move || data.with(|data| format!("{}: {}", data.title, data.summary()));
    let lines = move || {
        data.with(|data| {
            let (top, edges) = (data.top(), (data.from, data.to));
            let line = |(index, line): (usize, &Line)| {
                let points = thinned(&line.points, POINTS);
                let path = path(&points, edges, top, (WIDTH, HEIGHT));
                view! { <path class="chart-line" data-line=index.to_string() d=path></path> }
            };
            data.lines.iter().enumerate().map(line).collect_view()
        })
    };
    let limit = move || data.with(|data| data.limit.map(|limit| height_of(limit, data.top())));
    let limit_line = move || {
        limit().map(|y| view! { <line class="chart-limit" x1="0" x2=WIDTH y1=y y2=y></line> })
    };
    let cursor_line = move || {
        cursor
            .get()
            .map(|x| view! { <line class="chart-cursor" x1=x x2=x y1="0" y2=HEIGHT></line> })
    };
    let top = move || data.with(|data| data.unit.text(data.top()));
    let edge = move |edge: fn(&ChartData) -> i64| Signal::derive(move || time_of(data.with(edge)));
    view! {
        <figure class="chart">
            <figcaption>
                <h2>{move || data.with(|data| data.title)}</h2>
                <span class="num chart-values">{readout}</span>
            </figcaption>
            <div
                class="chart-plot"
                role="img"
                aria-label=label
                tabindex="0"
                on:pointermove=move |event| point(&event, cursor)
                on:pointerleave=move |_| cursor.set(None)
                on:blur=move |_| cursor.set(None)
                on:keydown=move |event| step(&event, cursor)
            >
                <svg viewBox=format!("0 0 {WIDTH} {HEIGHT}") preserveAspectRatio="none" aria-hidden="true">
                    {limit_line}
                    {lines}
                    {cursor_line}
                </svg>
                <span class="chart-top num" aria-hidden="true">{top}</span>
            </div>
            <div class="chart-edges">
                <When at=edge(|data| data.from) />
                <When at=edge(|data| data.to) />
            </div>
        </figure>
    }
    .into_any()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "at most the height"
)]
/// Distance of a value from the upper edge of a chart.
pub(crate) fn height_of(value: f64, top: f64) -> i64 {
    HEIGHT - (value / top * HEIGHT as f64).round() as i64
}

/// Moves the cursor to the pointer.
pub(crate) fn point(event: &ev::PointerEvent, cursor: RwSignal<Option<i64>>) {
    let width = event_target::<web_sys::Element>(event).client_width();
    let at = i64::from(event.offset_x()) * WIDTH / i64::from(width.max(1));
    cursor.set(Some(at.clamp(0, WIDTH)));
}

fn step(event: &ev::KeyboardEvent, cursor: RwSignal<Option<i64>>) {
    let by = match event.key().as_str() {
        "ArrowLeft" => -10,
        "ArrowRight" => 10,
        _ => return,
    };
    event.prevent_default();
    cursor.update(|at| *at = Some((at.unwrap_or(WIDTH) + by).clamp(0, WIDTH)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_with_their_unit() {
        for (unit, value, text) in [
            (Unit::Cores, 0.254, "0.25 cores"),
            (Unit::Cores, 2.0, "2.00 cores"),
            (Unit::Bytes, 512.0, "512 B"),
            (Unit::Bytes, 1_536.0, "1.5 KiB"),
            (Unit::Bytes, 268_435_456.0, "256 MiB"),
            (Unit::BytesPerSecond, 0.0, "0 B/s"),
            (Unit::Count, 12.0, "12"),
        ] {
            assert_eq!(unit.text(value), text);
        }
    }

    #[test]
    fn gaps_stay_and_points_lie_within_the_chart() {
        let points = [
            (0, Some(0.0)),
            (5, Some(2.0)),
            (6, None),
            (10, Some(1.0)),
            (11, Some(9.0)),
        ];
        assert_eq!(
            path(&points, (0, 10), 2.0, (1_000, 200)),
            "M0 200L500 0M1000 100"
        );
        assert_eq!(path(&[], (0, 0), 1.0, (1_000, 200)), "");
    }

    #[test]
    fn thinning_keeps_peaks() {
        let mut points: Vec<_> = (0..10_000).map(|at| (at, Some(1.0))).collect();
        points[7_777].1 = Some(9.0);
        points[3].1 = None;
        let thin = thinned(&points, POINTS);
        assert!(thin.len() <= POINTS, "{}", thin.len());
        assert!(thin.contains(&(7_777, Some(9.0))));
        assert_eq!(thinned(&points[..5], POINTS), &points[..5]);
    }

    #[test]
    fn a_chart_is_said_in_words() {
        let data = ChartData {
            title: "CPU",
            unit: Unit::Cores,
            lines: vec![Line {
                name: "",
                points: vec![(10, Some(1.5)), (20, None), (30, Some(0.5))],
            }],
            limit: Some(2.0),
            from: 0,
            to: 40,
        };
        assert_eq!(
            data.summary(),
            "0.50 cores, peak 1.50 cores · limit 2.00 cores"
        );
        assert_eq!(data.at(19), "1.50 cores · 21 s before the end");
        assert_eq!(data.at(25), "unknown · 15 s before the end");
        assert_eq!(data.at(5), "unknown · 35 s before the end");
    }
}
