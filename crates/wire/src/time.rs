//! Writes times as clients and the log show them.

/// A time as text: RFC 3339 in UTC with milliseconds.
pub struct Timestamp([u8; 24]);

impl std::ops::Deref for Timestamp {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl Timestamp {
    /// The text as ASCII bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Writes milliseconds since the Unix epoch. Every answer has several times, so it is done without `format!`.
pub fn rfc3339(ms: u64) -> Timestamp {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    // Civil date from days since 1970, in whole 400-year eras that begin in March.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second, milli) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1_000 % 60, of_day % 1_000);
    let mut stamp = *b"0000-00-00T00:00:00.000Z";
    let mut put = |at: usize, value: u64| {
        stamp[at] = b'0' + (value / 10) as u8;
        stamp[at + 1] = b'0' + (value % 10) as u8;
    };
    put(0, year / 100 % 100);
    put(2, year % 100);
    put(5, month);
    put(8, day);
    put(11, hour);
    put(14, minute);
    put(17, second);
    put(20, milli / 10);
    stamp[22] = b'0' + (milli % 10) as u8;
    Timestamp(stamp)
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn known_days_come_out_right() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_987, "9999-12-31T23:59:59.987Z"),
        ] {
            assert_eq!(&*rfc3339(ms), text);
        }
    }
}
