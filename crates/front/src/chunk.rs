//! Finds the end of a chunked body: sizes, line ends, trailers. Reads no content.
//! Never accepts a bare LF or an extra space: parsers behind us may then disagree about the body's end.
//! Called only by `scan`.

/// The part of a chunked body that the next byte belongs to.
#[derive(Debug, Clone, Copy)]
enum Step {
    Size { value: u64, digits: u8 },
    Extension,
    SizeLf { value: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
}

/// The state of one chunked body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunked {
    step: Step,
    size: u64,
    // Bytes of extensions and trailers so far: they cost work and carry no content.
    frills: usize,
}

/// The result of one slice of the body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChunkRead {
    /// Bytes that belong to the message and are well-formed.
    pub(super) used: usize,
    pub(super) content: u64,
    pub(super) end: Option<End>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Broken,
}

impl Chunked {
    pub(super) fn new() -> Self {
        Chunked { step: Step::Size { value: 0, digits: 0 }, size: 0, frills: 0 }
    }

    pub(super) fn walk(&mut self, data: &[u8], frills_max: usize) -> ChunkRead {
        let (mut used, mut content) = (0, 0);
        while used < data.len() {
            if let Step::Data { left } = &mut self.step {
                let taken = (*left).min((data.len() - used) as u64);
                *left -= taken;
                content += taken;
                // At most the slice's length, so it fits.
                used += taken as usize;
                if *left == 0 {
                    self.step = Step::DataCr;
                }
                continue;
            }
            match self.next(data[used]) {
                Some(step) => self.step = step,
                None => return ChunkRead { used, content, end: Some(End::Broken) },
            }
            if matches!(self.step, Step::Extension | Step::Trailer) {
                self.frills += 1;
                if self.frills > frills_max {
                    return ChunkRead { used, content, end: Some(End::Broken) };
                }
            }
            used += 1;
            if matches!(self.step, Step::Size { .. }) && self.size == LAST {
                return ChunkRead { used, content, end: Some(End::Done) };
            }
        }
        ChunkRead { used, content, end: None }
    }

    fn next(&mut self, byte: u8) -> Option<Step> {
        match (self.step, byte) {
            (Step::Size { value, digits }, _) if byte.is_ascii_hexdigit() => {
                // 15 digits are more than any disk holds, and cannot overflow.
                let digit = (byte as char).to_digit(16)?;
                (digits < 15).then_some(Step::Size { value: value << 4 | u64::from(digit), digits: digits + 1 })
            }
            (Step::Size { value, digits: 1.. }, b'\r') => Some(Step::SizeLf { value }),
            (Step::Size { value, digits: 1.. }, b';') => {
                self.size = value;
                Some(Step::Extension)
            }
            (Step::Extension, b'\r') => Some(Step::SizeLf { value: self.size }),
            (Step::Extension, _) => is_text(byte).then_some(Step::Extension),
            (Step::SizeLf { value: 0 }, b'\n') => Some(Step::TrailerStart),
            (Step::SizeLf { value }, b'\n') => Some(Step::Data { left: value }),
            (Step::DataCr, b'\r') => Some(Step::DataLf),
            (Step::DataLf, b'\n') => Some(Step::Size { value: 0, digits: 0 }),
            (Step::TrailerStart, b'\r') => Some(Step::EndLf),
            (Step::TrailerStart, b' ' | b'\t' | b':') => None,
            (Step::TrailerStart, _) => is_text(byte).then_some(Step::Trailer),
            (Step::Trailer, b'\r') => Some(Step::TrailerLf),
            (Step::Trailer, _) => is_text(byte).then_some(Step::Trailer),
            (Step::TrailerLf, b'\n') => Some(Step::TrailerStart),
            (Step::EndLf, b'\n') => {
                self.size = LAST;
                Some(Step::Size { value: 0, digits: 0 })
            }
            _ => None,
        }
    }
}

/// In `size`, marks that the body is over; no chunk can be this large.
const LAST: u64 = u64::MAX;

fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: ChunkRead) {
        let whole = Chunked::new().walk(body.as_bytes(), 32);
        assert_eq!(whole, expected, "{body:?}");
        let (mut bytewise, mut used, mut content) = (Chunked::new(), 0, 0);
        for byte in body.bytes() {
            let walk = bytewise.walk(&[byte], 32);
            used += walk.used;
            content += walk.content;
            if walk.end.is_some() {
                assert_eq!(ChunkRead { used, content, ..walk }, expected, "{body:?} byte by byte");
                return;
            }
        }
        assert_eq!(ChunkRead { used, content, end: None }, expected, "{body:?} byte by byte");
    }

    #[test]
    fn well_formed_bodies_end_where_they_end() {
        let done = |body: &str, content| {
            check(&format!("{body}GET /"), ChunkRead { used: body.len(), content, end: Some(End::Done) })
        };
        done("0\r\n\r\n", 0);
        done("5\r\nhello\r\n0\r\n\r\n", 5);
        done("A;x=\"y\"\r\n0123456789\r\n1\r\n\n\r\n00\r\n\r\n", 11);
        done("1\r\nx\r\n0\r\nDigest: abc\r\nX: \r\n\r\n", 1);
    }

    #[test]
    fn malformed_bodies_break_at_the_first_bad_byte() {
        let broken = |good: &str, content, rest: &str| {
            check(&format!("{good}{rest}"), ChunkRead { used: good.len(), content, end: Some(End::Broken) })
        };
        broken("", 0, "\r\n");
        broken("", 0, ";x\r\n");
        broken("", 0, " 5\r\nhello\r\n");
        broken("5", 0, " \r\nhello\r\n");
        broken("5", 0, "\nhello\r\n");
        broken("0", 0, "x5\r\nhello\r\n");
        broken("5\r\nhello", 5, "\n0\r\n\r\n");
        broken("5\r\nhello", 5, "!\r\n0\r\n\r\n");
        broken("000000000000000", 0, "5\r\nhello\r\n");
        broken("5;a", 0, "\n");
        broken("5;a", 0, "\0");
        broken("5\r", 0, "\r\n");
        broken("0\r\nA: b", 0, "\n\r\n");
        broken("0\r\n", 0, " folded\r\n\r\n");
        broken("0\r\n\r", 0, "x");
        broken("1;0123456789012345678901234567890", 0, "12\r\n");
    }
}
