//! The time of day.

use osb_protocol::WireTime;

/// Returns the current time.
pub(crate) fn now() -> WireTime {
    let now = jiff::Timestamp::try_from(osb_service::clock::now());
    WireTime::new(now.expect("the clock shows a year before 10000"))
}
