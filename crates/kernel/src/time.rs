//! A point in store time: milliseconds since the Unix epoch, as the store's clock tells it. Called by every rule.

use std::fmt;

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub u64);

impl Millis {
    /// This point plus a span; the largest time instead of an overflow.
    pub fn plus(self, span_ms: u64) -> Self {
        Self(self.0.saturating_add(span_ms))
    }

    /// Milliseconds from `earlier` to this point; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// Whether a text is an RFC 3339 time, such as `2026-05-24T03:14:01Z`, with any fraction and any offset.
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

/// The moment that an RFC 3339 time names, in nanoseconds since the Unix epoch. Digits beyond nanoseconds do not count.
pub fn rfc3339_nanos(text: &str) -> Option<i128> {
    if !is_rfc3339(text) {
        return None;
    }
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i128>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    // Years begin in March, so that a leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (month * 153 + 2) / 5 + day
            - 719_469;
    let mut rest = &text[19..];
    let mut nanos = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let end = fraction.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(fraction.len());
        let digits = &fraction[..end.min(9)];
        nanos = digits.parse::<i128>().ok()? * 10i128.pow(9 - digits.len() as u32);
        rest = &fraction[end..];
    }
    let offset_minutes = match rest.as_bytes() {
        [sign @ (b'+' | b'-'), ..] => {
            let minutes = rest.get(1..3)?.parse::<i128>().ok()? * 60 + rest.get(4..6)?.parse::<i128>().ok()?;
            if *sign == b'-' { -minutes } else { minutes }
        }
        _ => 0,
    };
    let seconds =
        days * 86_400 + number(11, 13)? * 3_600 + number(14, 16)? * 60 + number(17, 19)? - offset_minutes * 60;
    Some(seconds * 1_000_000_000 + nanos)
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
    use super::*;

    #[test]
    fn times_are_moments_whatever_their_offset() {
        for (text, nanos) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T01:00:00+01:00", 0),
            ("1969-12-31T23:30:00-00:30", 0),
            ("2000-02-29T00:00:00Z", 951_782_400_000_000_000),
            ("2026-05-24T03:14:01.5Z", 1_779_592_441_500_000_000),
            ("2026-05-24T03:14:01.1234567891Z", 1_779_592_441_123_456_789),
            ("0000-01-01T00:00:00Z", -62_167_219_200_000_000_000),
        ] {
            assert_eq!(rfc3339_nanos(text), Some(nanos), "{text}");
        }
        assert_eq!(rfc3339_nanos("2026-05-24"), None);
    }

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
}
