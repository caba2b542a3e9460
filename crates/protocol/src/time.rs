//! Timestamps on the wire: RFC 3339 in UTC with `Z`, six fraction digits when the microseconds
//! are not zero and none otherwise (contract: lifecycle §1.3).

use std::fmt;

use jiff::{SignedDuration, Timestamp, fmt::temporal::Pieces, tz::Offset};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Seconds of a day.
const DAY: i32 = 86_400;

/// A moment with microsecond precision; finer parts are cut off, as the contract requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WireTime(Timestamp);

/// An invalid timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotATime {
    /// Not a timestamp.
    #[error("must be an RFC 3339 timestamp or Unix seconds")]
    Malformed,
    /// The offset from UTC is out of range.
    #[error("the offset from UTC must be less than 24 hours")]
    Offset,
    /// Outside the years of the contract.
    #[error("must lie between the years -9999 and 9999, and not on the last day of these")]
    Range,
}

impl WireTime {
    /// Cuts a timestamp to whole microseconds.
    #[must_use]
    pub fn new(at: Timestamp) -> Self {
        Self(Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at))
    }

    /// From Unix milliseconds; `None` outside years -9999 to 9999.
    #[must_use]
    pub fn from_unix_ms(ms: i64) -> Option<Self> {
        Timestamp::from_millisecond(ms).ok().map(Self)
    }

    /// From Unix microseconds; `None` outside years -9999 to 9999.
    #[must_use]
    pub fn from_unix_us(us: i64) -> Option<Self> {
        Timestamp::from_microsecond(us).ok().map(Self)
    }

    /// Unix microseconds: the form the store keeps.
    #[must_use]
    pub fn unix_us(self) -> i64 {
        self.0.as_microsecond()
    }

    /// Unix milliseconds.
    #[must_use]
    pub fn unix_ms(self) -> i64 {
        self.0.as_millisecond()
    }

    /// This moment plus whole seconds; `None` when the result is after the year 9999.
    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Option<Self> {
        self.0
            .checked_add(SignedDuration::from_secs(seconds))
            .ok()
            .map(Self)
    }

    /// Reads what clients send for a time: RFC 3339 with any offset, without one (taken as UTC),
    /// or Unix seconds (contract: lifecycle §5.8).
    ///
    /// # Errors
    /// When the text is none of these.
    pub fn parse(text: &str) -> Result<Self, NotATime> {
        let trimmed = text.trim();
        if let Ok(pieces) = Pieces::parse(trimmed) {
            return Self::of(&pieces);
        }
        let seconds = trimmed.parse().map_err(|_| NotATime::Malformed)?;
        Self::from_unix_seconds(seconds)
    }

    fn of(pieces: &Pieces<'_>) -> Result<Self, NotATime> {
        let offset = pieces.to_numeric_offset().unwrap_or(Offset::UTC);
        if offset.seconds().abs() >= DAY {
            return Err(NotATime::Offset);
        }
        let civil = pieces.date().to_datetime(pieces.time().unwrap_or_default());
        let at = offset.to_timestamp(civil).map_err(|_| NotATime::Range)?;
        Ok(Self::new(at))
    }

    /// From Unix seconds with a fraction.
    ///
    /// # Errors
    /// When the number is not finite or outside years -9999 to 9999.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "out-of-range values saturate, then fail"
    )]
    pub fn from_unix_seconds(seconds: f64) -> Result<Self, NotATime> {
        if !seconds.is_finite() {
            return Err(NotATime::Malformed);
        }
        Self::from_unix_us((seconds * 1e6).round() as i64).ok_or(NotATime::Range)
    }
}

impl fmt::Display for WireTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not `strftime`: it would be a large part of the console's wasm.
        let at = Offset::UTC.to_datetime(self.0);
        let sign = if at.year() < 0 { "-" } else { "" };
        let (year, month, day) = (at.year().unsigned_abs(), at.month(), at.day());
        let (hour, minute, second) = (at.hour(), at.minute(), at.second());
        write!(
            f,
            "{sign}{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        match self.0.as_microsecond().rem_euclid(1_000_000) {
            0 => f.write_str("Z"),
            micros => write!(f, ".{micros:06}Z"),
        }
    }
}

impl Serialize for WireTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WireTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = WireTime;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an RFC 3339 timestamp or Unix seconds")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<WireTime, E> {
                WireTime::parse(text).map_err(E::custom)
            }
            #[expect(
                clippy::cast_precision_loss,
                reason = "seconds fit 53 bits for 285M years"
            )]
            fn visit_i64<E: serde::de::Error>(self, seconds: i64) -> Result<WireTime, E> {
                WireTime::from_unix_seconds(seconds as f64).map_err(E::custom)
            }
            #[expect(
                clippy::cast_precision_loss,
                reason = "seconds fit 53 bits for 285M years"
            )]
            fn visit_u64<E: serde::de::Error>(self, seconds: u64) -> Result<WireTime, E> {
                WireTime::from_unix_seconds(seconds as f64).map_err(E::custom)
            }
            fn visit_f64<E: serde::de::Error>(self, seconds: f64) -> Result<WireTime, E> {
                WireTime::from_unix_seconds(seconds).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for WireTime {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .into()
    }
}
#[cfg(feature = "openapi")]
impl utoipa::ToSchema for WireTime {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fraction_is_six_digits_or_none() {
        let show = |us| WireTime::from_unix_us(us).unwrap().to_string();
        assert_eq!(show(1_935_396_000_123_456), "2031-05-01T10:00:00.123456Z");
        assert_eq!(show(1_935_396_000_000_001), "2031-05-01T10:00:00.000001Z");
        assert_eq!(show(1_935_396_000_000_000), "2031-05-01T10:00:00Z");
        assert_eq!(show(-1), "1969-12-31T23:59:59.999999Z");
        assert_eq!(show(-62_135_596_800_000_000), "0001-01-01T00:00:00Z");
        assert_eq!(show(-62_198_755_200_000_000), "-0001-01-01T00:00:00Z");
    }

    #[test]
    fn every_sdk_spelling_is_read() {
        let want = WireTime::from_unix_us(1_935_396_000_123_456).unwrap();
        for text in [
            "2031-05-01T10:00:00.123456Z",
            "2031-05-01T12:00:00.123456+02:00",
            "2031-05-01T10:00:00.1234567Z",
            "2031-05-01T10:00:00.123456789Z",
            "2031-05-01T10:00:00.123456",
            " 2031-05-01 10:00:00.123456+00:00 ",
        ] {
            assert_eq!(WireTime::parse(text).unwrap(), want, "{text}");
        }
        assert_eq!(
            WireTime::parse("1935396000").unwrap().to_string(),
            "2031-05-01T10:00:00Z"
        );
        for (text, want) in [
            ("", NotATime::Malformed),
            ("soon", NotATime::Malformed),
            ("NaN", NotATime::Malformed),
            ("2031-13-01T00:00:00Z", NotATime::Malformed),
            ("1e300", NotATime::Range),
            ("9999-12-31T23:59:59Z", NotATime::Range),
            ("2031-05-01T10:00:00+25:00", NotATime::Offset),
        ] {
            assert_eq!(WireTime::parse(text), Err(want), "{text}");
        }
    }

    #[test]
    fn adding_past_the_year_9999_is_refused() {
        let now = WireTime::from_unix_us(1_935_396_000_000_000).unwrap();
        assert!(now.plus_seconds(60).is_some());
        assert!(now.plus_seconds(i64::MAX).is_none());
        assert!(now.plus_seconds(300_000_000_000).is_none());
    }
}
