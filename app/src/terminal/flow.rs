//! Output on its way: what has arrived, what is on the screen, and what execd knows of it.

use std::cell::Cell;

/// Offsets in all output of a shell. The cells change while the session is borrowed: xterm may call
/// back before a write returns.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// After the last byte that arrived.
    arrived: Cell<u64>,
    acknowledged: Cell<u64>,
    window: Cell<Option<u64>>,
    /// Counts shells, whose offsets have nothing to do with each other.
    shell: Cell<u32>,
}

/// A place in the output of one shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    shell: u32,
    offset: u64,
}

impl Flow {
    /// Offset after the last byte that arrived.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived.get()
    }

    /// Counts bytes that arrived, and returns the place after them.
    pub(super) fn arrive(&self, len: usize) -> Place {
        let offset = self.arrived.get() + len as u64;
        self.arrived.set(offset);
        let shell = self.shell.get();
        Place { shell, offset }
    }

    /// Goes to the offset of a replay. Returns how many bytes were lost before it.
    pub(super) fn go_to(&self, offset: u64) -> u64 {
        offset.saturating_sub(self.arrived.replace(offset))
    }

    /// Begins a connection with this window.
    pub(super) fn connect(&self, window: Option<u64>) {
        self.acknowledged.set(self.arrived.get());
        self.window.set(window);
    }

    /// Begins another shell.
    pub(super) fn reset(&self) {
        self.arrived.set(0);
        self.acknowledged.set(0);
        self.window.set(None);
        self.shell.set(self.shell.get() + 1);
    }

    /// What to acknowledge once everything up to a place is on the screen: nothing without flow
    /// control, nor for less than a quarter of the window.
    pub(super) fn shown(&self, place: Place) -> Option<u64> {
        let window = self.window.get()?;
        let gained = place.offset.saturating_sub(self.acknowledged.get());
        if place.shell != self.shell.get() || gained < window / 4 {
            return None;
        }
        self.acknowledged.set(place.offset);
        Some(place.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_window_is_acknowledged_at_once() {
        let flow = Flow::default();
        assert_eq!(flow.go_to(1_000), 1_000);
        let replayed = flow.arrive(50);
        flow.connect(Some(400));
        assert_eq!(flow.arrived(), 1_050);
        assert_eq!(flow.shown(replayed), None, "outside of the window");
        let first = flow.arrive(99);
        assert_eq!(flow.shown(first), None, "too little");
        let second = flow.arrive(1);
        let third = flow.arrive(100);
        assert_eq!(flow.shown(second), Some(1_150));
        assert_eq!(flow.shown(third), Some(1_250));
        assert_eq!(flow.shown(second), None, "acknowledged before");
    }

    #[test]
    fn nothing_is_acknowledged_without_flow_control_or_of_another_shell() {
        let flow = Flow::default();
        flow.connect(None);
        let old = flow.arrive(1_000);
        assert_eq!(flow.shown(old), None);
        flow.reset();
        flow.connect(Some(4));
        assert_eq!(flow.shown(old), None);
        assert_eq!(flow.arrived(), 0);
        let new = flow.arrive(4);
        assert_eq!(flow.shown(new), Some(4));
    }

    #[test]
    fn lost_output_is_counted() {
        let flow = Flow::default();
        flow.arrive(10);
        assert_eq!(flow.go_to(10), 0);
        assert_eq!(flow.go_to(25), 15);
        assert_eq!(flow.arrived(), 25);
    }
}
