//! Values as PostgreSQL stores them.

use std::borrow::Cow;

use osb_protocol::WireTime;
use sqlx::{
    Decode, Encode, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgTypeInfo, PgValueFormat, PgValueRef, types::Oid},
};

/// OID of `timestamptz`, the same in every database.
const TIMESTAMPTZ: Oid = Oid(1184);
/// 2000-01-01 in Unix microseconds: the zero of `timestamptz`.
const YEAR_2000_US: i64 = 946_684_800_000_000;
/// The oldest `timestamptz`, 4714-11-24 BC, in microseconds since 2000.
const OLDEST_US: i64 = -211_813_488_000_000_000;

/// A time in a `TIMESTAMPTZ` column. Times before its range are stored as its oldest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment(pub(super) WireTime);

impl Type<Postgres> for Moment {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ)
    }
}

impl Encode<'_, Postgres> for Moment {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let since_2000 = self.0.unix_us().saturating_sub(YEAR_2000_US);
        <i64 as Encode<'_, Postgres>>::encode_by_ref(&since_2000.max(OLDEST_US), buffer)
    }
}

impl Decode<'_, Postgres> for Moment {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        if value.format() != PgValueFormat::Binary {
            return Err("a time came in the text format".into());
        }
        let since_2000 = i64::from_be_bytes(value.as_bytes()?.try_into()?);
        let time = since_2000
            .checked_add(YEAR_2000_US)
            .and_then(WireTime::from_unix_us);
        time.map(Self)
            .ok_or_else(|| "a time is out of range".into())
    }
}

/// The text without NUL characters, which PostgreSQL cannot store; U+FFFD takes their place.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}
