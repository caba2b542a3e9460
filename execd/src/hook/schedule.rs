//! Schedule of a periodic hook: five cron fields, a descriptor, or `@every`. The first two may
//! begin with `TZ=` or `CRON_TZ=` and the name of a time zone.

use std::time::Duration;

use cronexpr::{Crontab, FallbackTimezoneOption, ParseOptions};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::duration;

/// Reason to reject a schedule.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// Not five fields.
    #[error(
        "expected five fields, @every and a duration, or one of @yearly, @monthly, @weekly, @daily, @hourly"
    )]
    Form,
    /// The interval is zero, or not in whole seconds.
    #[error("@every takes whole seconds, at least one, such as 90s or 1h30m")]
    Interval,
    /// Invalid fields or time zone.
    #[error("cannot be understood")]
    Cron(#[source] cronexpr::Error),
}

/// Schedule as the configuration spells it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub(super) struct Schedule(String);

/// Parsed schedule.
#[derive(Debug)]
pub(super) enum Times {
    Every(Duration),
    Cron(Box<Crontab>),
}

impl Schedule {
    /// Checks that the schedule is valid.
    pub(super) fn check(&self) -> Result<(), ScheduleError> {
        self.times().map(|_| ())
    }

    /// Parses the schedule. The default time zone is the system's.
    pub(super) fn times(&self) -> Result<Times, ScheduleError> {
        let text = self.0.trim();
        if let Some(interval) = text.strip_prefix("@every") {
            let interval = duration::parse(interval.trim()).ok_or(ScheduleError::Interval)?;
            return if interval.subsec_nanos() == 0 && !interval.is_zero() {
                Ok(Times::Every(interval))
            } else {
                Err(ScheduleError::Interval)
            };
        }
        let zone = ["CRON_TZ=", "TZ="]
            .iter()
            .find_map(|name| text.strip_prefix(name));
        let (zone, fields) = match zone {
            Some(rest) => rest
                .split_once(char::is_whitespace)
                .ok_or(ScheduleError::Form)?,
            None => ("", text),
        };
        let fields = match fields.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            fields => fields,
        };
        if fields.split_whitespace().count() != 5 {
            return Err(ScheduleError::Form);
        }
        let mut options = ParseOptions::default();
        options.fallback_timezone_option = FallbackTimezoneOption::System;
        let cron = cronexpr::parse_crontab_with(format!("{fields} {zone}").trim(), options);
        cron.map(|cron| Times::Cron(Box::new(cron)))
            .map_err(ScheduleError::Cron)
    }
}

/// First time of `cron` after the given one, if any.
pub(super) fn next(cron: &Crontab, after: Timestamp) -> Option<Timestamp> {
    cron.find_next(after).ok().map(|next| next.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(time: &str, schedule: &str) -> String {
        match Schedule(schedule.to_owned()).times().unwrap() {
            Times::Every(interval) => format!("{interval:?}"),
            Times::Cron(cron) => next(&cron, time.parse().unwrap()).unwrap().to_string(),
        }
    }

    #[test]
    fn every_schedule_has_its_times() {
        let monday = "2025-01-06T10:07:30Z";
        for (schedule, want) in [
            ("@every 90s", "90s"),
            ("@every 1h30m", "5400s"),
            ("TZ=UTC */5 * * * *", "2025-01-06T10:10:00Z"),
            ("CRON_TZ=UTC 0 0 * * 0", "2025-01-12T00:00:00Z"),
            ("TZ=UTC @hourly", "2025-01-06T11:00:00Z"),
            ("TZ=UTC @daily", "2025-01-07T00:00:00Z"),
            ("TZ=UTC @weekly", "2025-01-12T00:00:00Z"),
            ("TZ=UTC @monthly", "2025-02-01T00:00:00Z"),
            ("TZ=UTC @yearly", "2026-01-01T00:00:00Z"),
            ("TZ=Asia/Tokyo 0 9 * * *", "2025-01-07T00:00:00Z"),
            ("  TZ=UTC   30   12 1,15 * MON-FRI ", "2025-01-06T12:30:00Z"),
        ] {
            assert_eq!(after(monday, schedule), want, "{schedule}");
        }
        // The result is strictly later than the given time.
        let at = "2025-01-06T10:10:00Z";
        assert_eq!(after(at, "TZ=UTC */5 * * * *"), "2025-01-06T10:15:00Z");
        // Without a zone the system's applies, whichever it is.
        assert!(after(monday, "*/5 * * * *").ends_with(":10:00Z"));
    }

    #[test]
    fn invalid_schedules_are_refused() {
        for bad in [
            "",
            "* * * *",
            "* * * * * *",
            "61 * * * *",
            "@never",
            "@every",
            "@every 0s",
            "@every 1500ms",
            "@every -1s",
            "TZ=UTC",
            "TZ=No/Where * * * * *",
        ] {
            assert!(Schedule(bad.to_owned()).check().is_err(), "{bad}");
        }
    }
}
