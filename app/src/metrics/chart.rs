//! A chart of the tab: all of them have one cursor and one time axis, of which a part can be chosen.

use leptos::{ev, prelude::*};
use wasm_bindgen::JsCast;

use super::{marks::Mark, series::Stretch, window::chosen};
use crate::ui::{ChartData, HEIGHT, POINTS, WIDTH, When, height_of, path, point, thinned, time_of};

/// Least width of a choice: less is a click.
const LEAST: i64 = 15;
/// Step of the cursor with a key.
const STEP: i64 = 10;
/// Distance from an event at which the cursor names it.
const NEAR: i64 = 10;

/// What the charts share. Places are thousandths of the width.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    /// Under the pointer.
    pub(super) cursor: RwSignal<Option<i64>>,
    /// Where the choice began.
    pub(super) anchor: RwSignal<Option<i64>>,
    /// Shows a part of the time.
    pub(super) show: Callback<Stretch>,
    pub(super) marks: RwSignal<Vec<Mark>>,
}

impl Axis {
    /// The two ends of the choice, if it is wide enough.
    fn choice(self) -> Option<(i64, i64)> {
        let places = self.anchor.get().zip(self.cursor.get())?;
        ((places.0 - places.1).abs() >= LEAST).then_some(places)
    }

    /// Ends the choice, and shows what was chosen.
    fn finish(self, shown: Stretch) {
        let places = untrack(|| self.choice());
        self.clear();
        if let Some(places) = places {
            self.show.run(chosen(shown, places));
        }
    }

    fn clear(self) {
        self.anchor.set(None);
        self.cursor.set(None);
    }

    fn key(self, event: &ev::KeyboardEvent, shown: Stretch) {
        let by = match event.key().as_str() {
            "ArrowLeft" => -STEP,
            "ArrowRight" => STEP,
            "Enter" if self.anchor.get_untracked().is_some() => {
                event.prevent_default();
                return self.finish(shown);
            }
            "Escape" if self.cursor.get_untracked().is_some() => {
                event.prevent_default();
                return self.clear();
            }
            _ => return,
        };
        event.prevent_default();
        let at = self.cursor.get_untracked().unwrap_or(WIDTH);
        match event.shift_key() {
            true if self.anchor.get_untracked().is_none() => self.anchor.set(Some(at)),
            true => {}
            false => self.anchor.set(None),
        }
        self.cursor.set(Some((at + by).clamp(0, WIDTH)));
    }
}

/// The place of a moment.
fn place_of(second: i64, data: &ChartData) -> Option<i64> {
    let (from, to) = (data.from, data.to);
    (from..=to)
        .contains(&second)
        .then(|| (second - from) * WIDTH / (to - from).max(1))
}

/// A chart with its title, its last values, and the values under the cursor. A part of the time is
/// chosen by dragging, or with Shift and the arrow keys, and Enter.
#[component]
pub(super) fn TimeChart(data: Memo<ChartData>, axis: Axis) -> impl IntoView {
    let cursor = axis.cursor;
    let shown = move || data.with_untracked(|data| (data.from, data.to));
    let readout = move || {
        data.with(|data| {
            let Some(place) = cursor.get() else {
                return data.summary();
            };
            let mut text = data.at(data.from + (data.to - data.from) * place / WIDTH);
            axis.marks.with(|marks| {
                for mark in marks {
                    let at = place_of(mark.second(), data);
                    if at.is_some_and(|at| (at - place).abs() <= NEAR) {
                        text += " · ";
                        text += &mark.name;
                    }
                }
            });
            text
        })
    };
    let label = move || data.with(|data| format!("{}: {}", data.title, data.summary()));
    let lines = move || {
        data.with(|data| {
            let (top, edges) = (data.top(), (data.from, data.to));
            let line = |(index, line): (usize, &crate::ui::Line)| {
                let points = thinned(&line.points, POINTS);
                let path = path(&points, edges, top, (WIDTH, HEIGHT));
                view! { <path class="chart-line" data-line=index.to_string() d=path></path> }
            };
            data.lines.iter().enumerate().map(line).collect_view()
        })
    };
    let limit_line = move || {
        let y = data.with(|data| data.limit.map(|limit| height_of(limit, data.top())));
        y.map(|y| view! { <line class="chart-limit" x1="0" x2=WIDTH y1=y y2=y></line> })
    };
    let marks = move || {
        data.with(|data| {
            axis.marks.with(|marks| {
                let places = marks
                    .iter()
                    .filter_map(|mark| place_of(mark.second(), data));
                places
                    .map(|x| view! { <line class="chart-mark" x1=x x2=x y1="0" y2=HEIGHT></line> })
                    .collect_view()
            })
        })
    };
    let choice = move || {
        axis.choice().map(|(a, b)| {
            let (x, width) = (a.min(b), (a - b).abs());
            view! { <rect class="chart-choice" x=x y="0" width=width height=HEIGHT></rect> }
        })
    };
    let cursor_line = move || {
        cursor
            .get()
            .map(|x| view! { <line class="chart-cursor" x1=x x2=x y1="0" y2=HEIGHT></line> })
    };
    let top = move || data.with(|data| data.unit.text(data.top()));
    let edge = move |edge: fn(&ChartData) -> i64| Signal::derive(move || time_of(data.with(edge)));
    let down = move |event: ev::PointerEvent| {
        if event.button() != 0 {
            return;
        }
        point(&event, cursor);
        axis.anchor.set(cursor.get_untracked());
        let target = event.current_target();
        if let Some(target) = target.and_then(|it| it.dyn_into::<web_sys::Element>().ok()) {
            // Fails only for a pointer that is gone.
            let _ = target.set_pointer_capture(event.pointer_id());
        }
    };
    let leave = move |_| {
        if axis.anchor.get_untracked().is_none() {
            cursor.set(None);
        }
    };
    view! {
        <figure class="chart">
            <figcaption>
                <h2>{move || data.with(|data| data.title)}</h2>
                <span class="num chart-values">{readout}</span>
            </figcaption>
            <div
                class="chart-plot chart-axis"
                role="img"
                aria-label=label
                aria-describedby="chart-help"
                tabindex="0"
                on:pointerdown=down
                on:pointermove=move |event| point(&event, cursor)
                on:pointerup=move |_| axis.finish(shown())
                on:pointercancel=move |_| axis.clear()
                on:pointerleave=leave
                on:blur=move |_| axis.clear()
                on:keydown=move |event| axis.key(&event, shown())
            >
                <svg viewBox=format!("0 0 {WIDTH} {HEIGHT}") preserveAspectRatio="none" aria-hidden="true">
                    {choice}
                    {marks}
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::Unit;

    #[test]
    fn events_outside_of_the_time_have_no_place() {
        let data = ChartData {
            title: "CPU",
            unit: Unit::Cores,
            lines: Vec::new(),
            limit: None,
            from: 100,
            to: 200,
        };
        assert_eq!(place_of(99, &data), None);
        assert_eq!(place_of(100, &data), Some(0));
        assert_eq!(place_of(150, &data), Some(500));
        assert_eq!(place_of(200, &data), Some(1_000));
        assert_eq!(place_of(201, &data), None);
    }
}
