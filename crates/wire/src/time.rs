//! Times as clients see them.

/// A written time.
pub struct Stamp([u8; 24]);

impl std::ops::Deref for Stamp {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl Stamp {
    /// As it is written on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// RFC 3339 in UTC with milliseconds. Every answer has several, so it is written without `format!`.
pub fn rfc3339(ms: u64) -> Stamp {
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
    Stamp(stamp)
}

/// Whether a text is a time as RFC 3339 has it: `2026-05-24T03:14:01Z`, with any fraction and any offset.
pub fn is_rfc3339(text: &str) -> bool {
    let number = |from: usize, to: usize| {
        let digits = text.get(from..to).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
        digits.parse::<u32>().ok()
    };
    let shaped = text.bytes().zip(b"####-##-##T##:##:##".iter()).all(|(byte, mark)| match mark {
        b'#' => byte.is_ascii_digit(),
        b'T' => byte.eq_ignore_ascii_case(mark),
        mark => byte == *mark,
    });
    let parts = [(0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19)].map(|(from, to)| number(from, to));
    let (true, [Some(year), Some(month), Some(day), Some(hour), Some(minute), Some(second)]) = (shaped, parts) else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    // A minute may have a leap second.
    let possible = (1..=days).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    let rest = &text[19..];
    let offset = match rest.strip_prefix('.') {
        Some(fraction) => {
            let end = fraction.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(fraction.len());
            if end == 0 {
                return false;
            }
            &fraction[end..]
        }
        None => rest,
    };
    possible && is_offset(offset)
}

fn is_offset(text: &str) -> bool {
    let below =
        |digits: Option<&str>, bound: u8| digits.and_then(|digits| digits.parse().ok()).is_some_and(|n: u8| n < bound);
    match text.as_bytes() {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', b'0'..=b'9', b'0'..=b'9', b':', b'0'..=b'9', b'0'..=b'9'] => {
            below(text.get(1..3), 24) && below(text.get(4..6), 60)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_rfc3339, rfc3339};

    #[test]
    fn only_what_rfc_3339_has_is_a_time() {
        for text in [
            "2026-05-24T03:14:01Z",
            "2024-02-29t23:59:60.123456789z",
            "2026-05-24T03:14:01.5+09:00",
            "2026-05-24T03:14:01-23:59",
        ] {
            assert!(is_rfc3339(text), "{text}");
        }
        for text in [
            "",
            "now",
            "2026-05-24",
            "2026-05-24T03:14Z",
            "2026-05-24 03:14:01Z",
            "2026-05-24T03:14:01",
            "2026-05-24T03:14:01.Z",
            "2026-05-24T03:14:01+0900",
            "2026-05-24T03:14:01+24:00",
            "2026-13-24T03:14:01Z",
            "2026-02-29T03:14:01Z",
            "2026-05-24T24:14:01Z",
            "2026-05-24T03:60:01Z",
            "2026-05-2\u{e9}T03:14:01Z",
            "+026-05-24T03:14:01Z",
            "2026-05-24T03:14:01Z ",
        ] {
            assert!(!is_rfc3339(text), "{text}");
        }
    }

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
