//! The wall clock.

use jiff::Timestamp;

/// Returns the current time.
pub(crate) fn now() -> Timestamp {
    Timestamp::try_from(osb_service::clock::now()).expect("the clock shows a year before 10000")
}
