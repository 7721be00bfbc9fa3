//! Spans of time and sizes as the policy writes them: `200ms 30s 10m 48h 14d`, `16KiB 4MiB`.
//! Never takes a bare number for a time: its unit would be a guess.
//! Called by the readers in `policy`, and by the command line for its own flags.

/// A hundred years: longer is a typing error, and sums with a clock stay far from overflow.
const MS_MAX: u64 = 36_500 * 24 * 3_600_000;

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
const SIZES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Reads a span such as `48h`, in milliseconds.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is not a span of time; write a whole number and a unit, as in 200ms 30s 10m 48h 14d");
    let (count, unit) = split(text).ok_or_else(wrong)?;
    let (_, ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    match count.checked_mul(*ms) {
        Some(ms) if ms <= MS_MAX => Ok(ms),
        _ => Err(format!("`{text}` is longer than a hundred years")),
    }
}

/// Writes a span in the largest unit that keeps it whole.
pub fn display(ms: u64) -> String {
    written(ms, &UNITS).unwrap_or_else(|| "0ms".into())
}

/// Reads a size such as `4MiB`; a bare number counts bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size; write a whole number of bytes or a unit, as in 65536 16KiB 4MiB");
    let (count, unit) = split(text).ok_or_else(wrong)?;
    let unit = if unit.is_empty() { "B" } else { unit };
    let (_, bytes) = SIZES.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    count.checked_mul(*bytes).ok_or_else(wrong)
}

/// Writes a size in the largest unit that keeps it whole.
pub fn display_size(bytes: u64) -> String {
    written(bytes, &SIZES).unwrap_or_else(|| "0B".into())
}

fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(end);
    Some((count.parse().ok()?, unit))
}

fn written(amount: u64, units: &[(&str, u64)]) -> Option<String> {
    let (name, size) = units.iter().find(|(_, size)| amount >= *size && amount.is_multiple_of(*size))?;
    Some(format!("{}{name}", amount / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_reads_and_writes() {
        for (text, ms) in [
            ("200ms", 200),
            ("30s", 30_000),
            ("10m", 600_000),
            ("48h", 172_800_000),
            ("14d", 1_209_600_000),
            ("0ms", 0),
        ] {
            assert_eq!(parse(text), Ok(ms), "{text}");
        }
        for (ms, text) in
            [(200, "200ms"), (90_000, "90s"), (60_000, "1m"), (172_800_000, "2d"), (0, "0ms"), (1_001, "1001ms")]
        {
            assert_eq!(display(ms), text);
            assert_eq!(parse(&display(ms)), Ok(ms));
        }
    }

    #[test]
    fn a_text_that_is_no_span_is_refused() {
        for text in [
            "",
            "7",
            "d",
            "7 d",
            "-1s",
            "1.5h",
            "7w",
            "7D",
            "1h30m",
            "99999999999999999999d",
            "36501d",
            "18446744073709551615d",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_take_bytes_or_binary_units() {
        for (text, bytes) in
            [("0", 0), ("65536", 65_536), ("16KiB", 16_384), ("4MiB", 4_194_304), ("1GiB", 1 << 30), ("7B", 7)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "4MB", "4 MiB", "-1", "99999999999GiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(display_size(4_194_304), "4MiB");
        assert_eq!(display_size(1_025), "1025B");
    }
}
