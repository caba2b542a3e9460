//! Where a log is scrolled to, and whether it follows its end.

use std::cmp::Ordering;

use leptos::{ev, html::Div, prelude::*};

use super::buffer::Window;
use crate::browser;

/// Height of a row in pixels, as style/logs.css has it.
pub(super) const ROW: usize = 20;
/// Rows beyond the screen that are rendered, so that scrolling shows no gaps.
const MARGIN: usize = 20;
/// Distance from the end in pixels that still counts as the end.
const NEAR: i32 = 30;
/// The same where browsers round: the end itself.
const EXACT: i32 = 1;
/// How long a browser may go on with a smooth scroll that began before the end was asked for, in
/// milliseconds.
const GLIDE_MS: i64 = 1_000;
/// Rows that the server renders.
const RENDERED: usize = 1_000;

/// The scrolled element. Copies are the same.
#[derive(Clone, Copy)]
pub(super) struct Scroll {
    pub(super) element: NodeRef<Div>,
    /// An element of 100 characters, which shows how wide one is.
    pub(super) probe: NodeRef<Div>,
    /// Whether the end is kept in sight.
    pub(super) follows: RwSignal<bool>,
    /// First row on the screen.
    top: RwSignal<usize>,
    /// Rows on the screen.
    height: RwSignal<usize>,
    /// Characters that fit into a row.
    pub(super) columns: RwSignal<usize>,
    /// Where it was scrolled to last, in pixels.
    last: StoredValue<i32>,
    /// Height of its content then.
    length: StoredValue<i32>,
    /// Until when a move upwards is the rest of an earlier scroll: the end was asked for, and nothing
    /// was pressed or turned since. In milliseconds since 1970.
    glides_until: StoredValue<i64>,
}

/// Whether the end is followed after the view was at a place and is now at another one. Any turn upwards
/// stops following, and only that does: content that grows below, too, is a distance from the end. Near
/// the end is the end on the way down only: a browser that scrolls smoothly reports places twice.
fn follows_after(did: bool, (before, at): (i32, i32), below: i32, got_shorter: bool) -> bool {
    match at.cmp(&before) {
        // A log that got shorter is at a smaller place, too, and still shows its last line. One that was
        // left is followed again only if all of it is seen.
        _ if got_shorter && below <= EXACT => did || at == 0,
        Ordering::Less => false,
        Ordering::Equal => did,
        Ordering::Greater => did || below <= NEAR,
    }
}

impl Scroll {
    pub(super) fn new() -> Self {
        Self {
            element: NodeRef::new(),
            probe: NodeRef::new(),
            follows: RwSignal::new(true),
            top: RwSignal::new(0),
            height: RwSignal::new(RENDERED),
            columns: RwSignal::new(usize::MAX),
            last: StoredValue::new(0),
            length: StoredValue::new(0),
            glides_until: StoredValue::new(0),
        }
    }

    /// The first row to render, and how many. Tracks where it is scrolled to.
    pub(super) fn rows(self) -> (usize, usize) {
        let first = self.top.get().saturating_sub(MARGIN);
        (first, self.height.get() + 2 * MARGIN)
    }

    /// The element. `None` before it is shown, and once another tab is: a frame that was asked for
    /// comes later than that.
    fn shown(self) -> Option<web_sys::HtmlDivElement> {
        self.element.try_get_untracked().flatten()
    }

    /// Reads the size of the element.
    pub(super) fn measure(self) {
        let (Some(element), Some(probe)) = (self.shown(), self.probe.try_get_untracked().flatten())
        else {
            return;
        };
        let height = pixels(element.client_height()).div_ceil(ROW) + 1;
        let hundred = pixels(probe.offset_width()).max(1);
        let columns =
            (pixels(element.client_width()).saturating_sub(PADDING) * 100 / hundred).max(1);
        if self.height.get_untracked() != height {
            self.height.set(height);
        }
        if self.columns.get_untracked() != columns {
            self.columns.set(columns);
        }
    }

    /// Notes where it was scrolled to.
    pub(super) fn moved(self) {
        let Some(element) = self.shown() else {
            return;
        };
        let (at, length) = (element.scroll_top(), element.scroll_height());
        let below = length - at - element.client_height();
        let got_shorter = length < self.length.get_value();
        let places = (self.last.get_value(), at);
        self.last.set_value(at);
        self.length.set_value(length);
        let top = pixels(at) / ROW;
        if self.top.get_untracked() != top {
            self.top.set(top);
        }
        let did = self.follows.get_untracked();
        let follows = follows_after(did, places, below, got_shorter);
        if did && !follows && browser::now_ms() < self.glides_until.get_value() {
            self.to_end();
            return;
        }
        if did != follows {
            self.follows.set(follows);
        }
    }

    /// Stops following at once when the wheel is turned upwards.
    pub(super) fn turned(self, event: &ev::WheelEvent) {
        self.touched();
        if event.delta_y() < 0.0 {
            self.leave_end();
        }
    }

    /// The key for the end goes to it at once: a browser that scrolls there smoothly arrives where the
    /// end was, while lines come. Keys that scroll upwards stop following at once.
    pub(super) fn key(self, event: &ev::KeyboardEvent) {
        self.touched();
        match event.key().as_str() {
            "End" if !event.shift_key() => {
                event.prevent_default();
                self.follow();
            }
            "PageUp" | "ArrowUp" | "Home" => self.leave_end(),
            " " if event.shift_key() => self.leave_end(),
            _ => {}
        }
    }

    /// Stops following if the view can be scrolled upwards. Lines that come before the browser has moved
    /// the view would take it back to the end.
    fn leave_end(self) {
        let can_go_up = self.shown().is_some_and(|it| it.scroll_top() > 0);
        if can_go_up && self.follows.get_untracked() {
            self.follows.set(false);
        }
    }

    /// A key, the pointer or the wheel: what moves from now on is meant.
    pub(super) fn touched(self) {
        self.glides_until.set_value(0);
    }

    /// Goes to the end and keeps it in sight. A smooth scroll upwards that has begun reports further
    /// steps after this; they do not count.
    pub(super) fn follow(self) {
        self.glides_until.set_value(browser::now_ms() + GLIDE_MS);
        self.follows.set(true);
        self.to_end();
    }

    /// Scrolls to the end once the new rows are in the page, unless it was scrolled up meanwhile.
    pub(super) fn to_end(self) {
        request_animation_frame(move || {
            let follows = self.follows.try_get_untracked() == Some(true);
            if let (true, Some(element)) = (follows, self.shown()) {
                element.set_scroll_top(element.scroll_height());
                self.moved();
            }
        });
    }

    /// Keeps the same lines on the screen after rows above them were dropped.
    pub(super) fn drop_above(self, rows: usize) {
        if let Some(element) = self.shown() {
            let gone = i32::try_from(rows * ROW).unwrap_or(i32::MAX);
            let at = (element.scroll_top() - gone).max(0);
            self.last.set_value(at);
            element.set_scroll_top(at);
        }
    }
}

/// Horizontal padding of a line, as style/logs.css has it.
const PADDING: usize = 24;

fn pixels(length: i32) -> usize {
    usize::try_from(length).unwrap_or_default()
}

/// Height of all rows.
pub(super) fn space(window: &Window) -> String {
    format!("{}px", window.rows * ROW)
}

/// Distance of the first rendered line from the top.
pub(super) fn offset(window: &Window) -> String {
    format!("translateY({}px)", window.above * ROW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_turn_upwards_stops_following() {
        for below in [1, 2, 15, 29, 31, 400] {
            assert!(!follows_after(true, (500, 499), below, false), "{below}");
        }
        // The same place is reported again.
        assert!(!follows_after(false, (499, 499), 1, false));
        assert!(follows_after(true, (500, 500), 60, false), "lines came");
    }

    #[test]
    fn the_end_is_followed_again_from_near_it_on_the_way_down() {
        assert!(!follows_after(false, (100, 120), 31, false));
        assert!(follows_after(false, (100, 120), 30, false));
        assert!(follows_after(true, (500, 40), 0, true), "a filter");
        assert!(!follows_after(false, (500, 40), 0, true), "it was left");
        assert!(follows_after(false, (500, 0), 0, true), "all is seen");
        assert!(!follows_after(true, (500, 40), 90, true));
    }
}
