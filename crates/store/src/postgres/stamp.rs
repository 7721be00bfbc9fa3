//! A moment as PostgreSQL keeps it: microseconds since 2000, with the far end of time as `infinity`.
//! Never fails on a moment that the server cannot name. Called for every time that is written or read.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use fencepost_kernel::Millis;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// A [`Millis`] as a `timestamptz`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp(pub(super) Millis);

/// 2000-01-01 in Unix milliseconds, where PostgreSQL counts from.
const ORIGIN_MS: i128 = 946_684_800_000;
/// The first moment past what PostgreSQL can name.
const END_US: i128 = 9_224_318_016_000_000_000;
const INFINITY: i64 = i64::MAX;

impl ToSql for Stamp {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let micros = (i128::from(self.0.0) - ORIGIN_MS) * 1_000;
        out.put_i64(if micros < END_US { micros as i64 } else { INFINITY });
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Stamp {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let micros = i64::from_be_bytes(raw.try_into()?);
        if micros == INFINITY {
            return Ok(Self(Millis(u64::MAX)));
        }
        // A time before 1970 is none of ours, and becomes zero; the server's `-infinity` is among them.
        let ms = i128::from(micros).div_euclid(1_000) + ORIGIN_MS;
        Ok(Self(Millis(u64::try_from(ms).unwrap_or(0))))
    }

    accepts!(TIMESTAMPTZ);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn round(ms: u64) -> u64 {
        let mut bytes = BytesMut::new();
        Stamp(Millis(ms)).to_sql(&Type::TIMESTAMPTZ, &mut bytes).unwrap();
        Stamp::from_sql(&Type::TIMESTAMPTZ, &bytes).unwrap().0.0
    }

    #[test]
    fn a_moment_comes_back_to_the_millisecond_and_the_end_of_time_stays_there() {
        for ms in [0, 1, 946_684_799_999, 1_767_225_600_123, 9_000_000_000_000_000] {
            assert_eq!(round(ms), ms);
        }
        assert_eq!(round(u64::MAX), u64::MAX);
        assert_eq!(round(20_000_000_000_000_000), u64::MAX);
    }
}
