//! A line without axes, as small as a word.

use leptos::prelude::*;

use super::chart::{path, thinned};

/// Width and height in its own units, which the page stretches.
const SIZE: (i64, i64) = (120, 24);

/// A small line of values over time. The text beside it has the last value.
#[component]
pub fn Sparkline(
    /// Unix seconds, in order, and the value, if it is known.
    #[prop(into)]
    points: Signal<Vec<(i64, Option<f64>)>>,
    /// The most that the values can be; without it, the line fills its height.
    limit: Option<f64>,
) -> impl IntoView {
    let d = move || {
        points.with(|points| {
            let edges = points.first().zip(points.last());
            let edges = edges.map_or((0, 0), |(first, last)| (first.0, last.0));
            let peak = points
                .iter()
                .filter_map(|(_, value)| *value)
                .fold(0.0, f64::max);
            let top = limit.unwrap_or_default().max(peak);
            let top = if top > 0.0 { top } else { 1.0 };
            path(&thinned(points, 60), edges, top, SIZE)
        })
    };
    let (width, height) = SIZE;
    view! {
        <svg
            class="sparkline"
            viewBox=format!("0 0 {width} {height}")
            preserveAspectRatio="none"
            aria-hidden="true"
        >
            <path class="chart-line" data-line="0" d=d></path>
        </svg>
    }
    .into_any()
}
