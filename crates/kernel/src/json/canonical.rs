//! Writes JSON in its canonical form: RFC 8785, except that numbers keep their exact value.
//! Never writes a value under a masked pointer. Called by `fence::body` and by the crates that write JSON.

use super::{JsonNode, MASKED, Value};

/// The canonical form: equal for two documents exactly when they have the same value.
pub fn canonical(node: &JsonNode<'_>) -> Vec<u8> {
    canonical_masked(node, &[])
}

/// The canonical form, with `"***"` for every value under one of the pointers (`*` stands for any one step).
pub fn canonical_masked(node: &JsonNode<'_>, mask: &[String]) -> Vec<u8> {
    let mut out = Vec::with_capacity(node.raw.len());
    let masks: Vec<&str> = mask.iter().map(String::as_str).collect();
    write_node(&mut out, node, &masks);
    out
}

fn write_node(out: &mut Vec<u8>, node: &JsonNode<'_>, masks: &[&str]) {
    if masks.contains(&"") {
        return out.extend_from_slice(MASKED);
    }
    match &node.value {
        Value::Null | Value::Bool(_) => out.extend_from_slice(node.raw.as_bytes()),
        Value::Number => write_number(out, node.raw),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                let below = if masks.is_empty() { Vec::new() } else { step(masks, &index.to_string()) };
                write_node(out, item, &below);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            let mut sorted: Vec<_> = members.iter().collect();
            // RFC 8785 sorts by UTF-16 code units, which differs from UTF-8 order above the basic plane.
            sorted.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            for (index, (name, member)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_string(out, name);
                out.push(b':');
                let below = if masks.is_empty() { Vec::new() } else { step(masks, name) };
                write_node(out, member, &below);
            }
            out.push(b'}');
        }
    }
}

/// The masks that apply below one step of a pointer.
pub(crate) fn step<'m>(masks: &[&'m str], name: &str) -> Vec<&'m str> {
    masks
        .iter()
        .filter_map(|mask| {
            let rest = mask.strip_prefix('/')?;
            let (first, below) = rest.find('/').map_or((rest, ""), |end| rest.split_at(end));
            (first == "*" || first.replace("~1", "/").replace("~0", "~") == name).then_some(below)
        })
        .collect()
}

/// The character after the backslash for each byte to be escaped: `u` for the long form, 0 for no escape.
const ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    let mut control = 0;
    while control < 0x20 {
        table[control] = b'u';
        control += 1;
    }
    table[0x08] = b'b';
    table[0x09] = b't';
    table[0x0a] = b'n';
    table[0x0c] = b'f';
    table[0x0d] = b'r';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};

/// Writes a string with the escapes of RFC 8785, and no others.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let at = plain(rest);
        out.extend_from_slice(&rest[..at]);
        let Some(&byte) = rest.get(at) else { break };
        match ESCAPES[usize::from(byte)] {
            b'u' => out.extend_from_slice(&[
                b'\\',
                b'u',
                b'0',
                b'0',
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]),
            short => out.extend_from_slice(&[b'\\', short]),
        }
        rest = &rest[at + 1..];
    }
    out.push(b'"');
}

/// Writes the name of a member and its colon. The name is a constant of ours that needs no escape.
pub fn write_name(out: &mut Vec<u8>, name: &'static str) {
    debug_assert_eq!(plain(name.as_bytes()), name.len(), "{name}");
    out.reserve(name.len() + 3);
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// The length of the prefix that needs no escape. Every string read or written passes here, so it looks at eight bytes
/// at a time.
pub(super) fn plain(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(piece) = bytes[at..].first_chunk() {
        let marks = escaped(u64::from_le_bytes(*piece));
        if marks != 0 {
            return at + marks.trailing_zeros() as usize / 8;
        }
        at += piece.len();
    }
    let rest = bytes[at..].iter().position(|byte| ESCAPES[usize::from(*byte)] != 0);
    rest.map_or(bytes.len(), |rest| at + rest)
}

// Sets the highest bit of each byte that needs an escape. A borrow may also set bits above such a byte, so only the
// lowest set bit can be trusted: it is that of the first byte to be escaped.
fn escaped(bytes: u64) -> u64 {
    const EACH: u64 = u64::MAX / 255;
    let below = |bytes: u64, limit: u8| bytes.wrapping_sub(EACH * u64::from(limit)) & !bytes;
    let is = |byte: u8| below(bytes ^ (EACH * u64::from(byte)), 1);
    (below(bytes, 0x20) | is(b'"') | is(b'\\')) & (EACH << 7)
}

pub(super) const EXPONENT_DIGITS_MAX: usize = 15;
pub(super) const POWER_MAX: u64 = 10u64.pow(EXPONENT_DIGITS_MAX as u32) - 1;

/// The exact value of a number: its digits without zeros at either end, and the power of ten of the last digit. Zero
/// has no digits.
pub(super) struct Decimal {
    pub(super) negative: bool,
    pub(super) digits: String,
    pub(super) power: i64,
}

impl Decimal {
    pub(super) fn read(raw: &str) -> Self {
        let (negative, unsigned) = raw.strip_prefix('-').map_or((false, raw), |rest| (true, rest));
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits = [whole, fraction].concat();
        let length = digits.trim_end_matches('0').len();
        let trailing = digits.len() - length;
        digits.truncate(length);
        digits.drain(..digits.len() - digits.trim_start_matches('0').len());
        if digits.is_empty() {
            return Self { negative: false, digits, power: 0 };
        }
        // `parse` accepts at most 15 exponent digits, so this neither fails nor overflows.
        let power = exponent.parse::<i64>().unwrap_or(0) - fraction.len() as i64 + trailing as i64;
        Self { negative, digits, power }
    }
}

// One text for each decimal value. Short values are written out (1.50 is 1.5, 1e2 is 100); long exponents stay, so
// 1e400000 costs nothing. The text reads back as the same value, with the same power.
fn write_number(out: &mut Vec<u8>, raw: &str) {
    let Decimal { negative, digits, power } = Decimal::read(raw);
    if digits.is_empty() {
        return out.push(b'0');
    }
    if negative {
        out.push(b'-');
    }
    let point = digits.len() as i64 + power;
    if power >= 0 && point <= 40 {
        out.extend_from_slice(digits.as_bytes());
        out.extend(std::iter::repeat_n(b'0', power as usize));
    } else if power < 0 && point > 0 {
        let (whole, fraction) = digits.split_at(point as usize);
        out.extend_from_slice(whole.as_bytes());
        out.push(b'.');
        out.extend_from_slice(fraction.as_bytes());
    } else if power < 0 && point > -7 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', (-point) as usize));
        out.extend_from_slice(digits.as_bytes());
    } else {
        out.extend_from_slice(digits.as_bytes());
        out.extend_from_slice(format!("e{power}").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_needs_an_escape_is_found_wherever_it_is() {
        let needs = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
        for len in 0..20 {
            for at in 0..len {
                for byte in 0..=u8::MAX {
                    // The bytes after it may be anything, and must not be taken for it.
                    for fill in [b'a', 0x00, 0x1f, b'"', b'!', b']', 0x7f, 0x80, 0xff] {
                        let mut text = vec![b'a'; at];
                        text.push(byte);
                        text.resize(len, fill);
                        let expected = text.iter().position(|byte| needs(*byte)).unwrap_or(len);
                        assert_eq!(plain(&text), expected, "{text:x?}");
                    }
                }
            }
        }
    }
}
