//! What sandboxes use, as small lines in their rows. The server sends it for the rows that are shown.

use std::time::Duration;

use leptos::prelude::*;
use osb_protocol::SandboxId;

use super::store::Shown;
use crate::live::{Gauge, Live, RowUse};

/// Time in which changes of the shown rows are gathered before the server learns of them.
const GATHERED: Duration = Duration::from_millis(500);
/// Distance of two points of a line, in its own units, and the height.
const SIZE: (usize, usize) = (4, 100);

/// What the shown rows use. Copies share it.
#[derive(Clone, Copy)]
pub(super) struct Usage(RwSignal<Vec<RowUse>>);

impl Usage {
    /// Nothing is known yet.
    pub(super) fn new() -> Self {
        Self(RwSignal::default())
    }

    /// Follows the use of the rows that are shown, while their columns are.
    pub(super) fn follow(self, shown: Memo<Shown>, is_wanted: Memo<bool>) {
        let live = use_context::<Live>();
        let is_planned = StoredValue::new(false);
        Effect::new(move |_| {
            if let (Some(live), true) = (live, is_wanted.get()) {
                live.watch_usage(move |rows| self.0.set(rows));
            }
        });
        let tell = move || {
            // The page may be gone.
            if is_planned.try_set_value(false).is_some() {
                return;
            }
            if let Some(live) = live {
                let ids = |shown: &Shown| shown.rows.iter().map(|(id, _)| id.clone()).collect();
                live.show_rows(shown.with_untracked(ids));
            }
        };
        Effect::new(move |_| {
            shown.track();
            if !is_planned.get_value() {
                is_planned.set_value(true);
                set_timeout(tell, GATHERED);
            }
        });
    }

    /// A cell with one of both numbers of a row.
    pub(super) fn cell(
        self,
        id: SandboxId,
        class: &'static str,
        of: fn(&RowUse) -> &Gauge,
    ) -> AnyView {
        let read = move |text: fn(&Gauge) -> String| {
            self.0.with(|rows| {
                let row = rows.iter().find(|row| row.id == id);
                row.map_or(String::new(), |row| text(of(row)))
            })
        };
        let line = {
            let read = read.clone();
            move || read(path)
        };
        view! {
            <td class=class>
                <svg
                    class="sparkline"
                    viewBox="0 0 76 100"
                    preserveAspectRatio="none"
                    aria-hidden="true"
                >
                    <path class="chart-line" d=line></path>
                </svg>
                <span class="num">{move || read(|gauge| gauge.now.clone())}</span>
            </td>
        }
        .into_any()
    }
}

/// The path of a line. The last point is at its right end; unknown values are gaps.
fn path(gauge: &Gauge) -> String {
    let count = gauge.points.split(',').count();
    let first = 20_usize.saturating_sub(count);
    let mut path = String::new();
    let mut is_open = false;
    for (at, point) in gauge.points.split(',').enumerate() {
        let Ok(percent) = point.parse::<usize>() else {
            is_open = false;
            continue;
        };
        path.push(if is_open { 'L' } else { 'M' });
        path.push_str(&((first + at) * SIZE.0).to_string());
        path.push(' ');
        path.push_str(&SIZE.1.saturating_sub(percent).to_string());
        is_open = true;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_at_the_right_and_has_gaps() {
        let path = |points: &str| {
            path(&Gauge {
                points: points.to_owned(),
                now: String::new(),
            })
        };
        assert_eq!(path("0,50,,100"), "M64 100L68 50M76 0");
        assert_eq!(path(""), "");
        assert!(path(&["7"; 20].join(",")).starts_with("M0 93L4 93"));
    }
}
