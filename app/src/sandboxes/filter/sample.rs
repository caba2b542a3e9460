//! A sandbox for tests of filters.

use osb_protocol::WireTime;

use crate::{ui::sample::row, view::SandboxRow};

/// The moment of the tests, in Unix milliseconds.
pub(super) const NOW: i64 = 10_000_000;

/// So many seconds after that moment.
pub(super) fn at(seconds: i64) -> WireTime {
    WireTime::from_unix_ms(NOW + seconds * 1_000).unwrap()
}

/// A sandbox that the tests look for.
pub(super) fn sample() -> SandboxRow {
    let mut row = row("0b6c1f2e-aaaa", "Running");
    let sandbox = &mut row.sandbox;
    for (key, value) in [("team", "Search"), ("name", "Crawler One")] {
        sandbox.metadata.insert(key.to_owned(), value.to_owned());
    }
    sandbox.image.as_mut().unwrap().uri = "registry:5000/python:3.12".to_owned();
    sandbox.status.reason = Some("CONTAINER_RUNNING".to_owned());
    sandbox.status.message = Some("Its memory limit was reached (OOM).".to_owned());
    sandbox.expires_at = Some(at(300));
    sandbox.created_at = at(-7_200);
    row.tenant = Some("One".to_owned());
    row
}
